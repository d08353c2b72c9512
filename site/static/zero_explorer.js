// ZeRO's bytes per rank with sliders: the formulas of pi2zero.costs.zero on the page, without a
// kernel. The constants come from there, as JSON in data-zero; a test compares the results.
const GB = 1e9;

function zeroBytes(c, {parameters, ranks, precision, optimizer, offload}, stage) {
  const [compute, gradient, master] = c.precisions[precision];
  const sizes = {parameters: compute, gradients: gradient, master, moments: 4 * c.optimizers[optimizer]};
  if (offload && stage) Object.assign(sizes, {master: 0, moments: 0, gradients: stage === 1 ? gradient : 0});
  const share = (name) => sizes[name] / (stage >= c.partitionedFrom[name] ? ranks : 1);
  return Object.fromEntries(Object.keys(sizes).map((name) => [name, parameters * share(name)]));
}

const total = (parts) => Object.values(parts).reduce((sum, size) => sum + size, 0);
const largestModel = (c, s) => (s.memory * GB * (1 - s.reserve / 100)) / total(zeroBytes(c, {...s, parameters: 1}, s.stage));

function ranksNeeded(c, s) {
  const usable = s.memory * GB * (1 - s.reserve / 100), sizes = zeroBytes(c, {...s, ranks: 1}, s.stage);
  const whole = Object.keys(sizes).filter((name) => s.stage < c.partitionedFrom[name]);
  const replicated = whole.reduce((sum, name) => sum + sizes[name], 0), sharded = total(sizes) - replicated;
  if (replicated + sharded <= usable) return 1;
  return sharded && replicated < usable ? Math.ceil(sharded / (usable - replicated)) : null;
}

function zeroSentence(c, s) {
  const figure = (x, digits) => x.toLocaleString("en-US", {minimumFractionDigits: digits, maximumFractionDigits: digits});
  const needed = ranksNeeded(c, s), psi = +(s.parameters / GB).toPrecision(3);
  const fit = needed ? `on ${figure(needed, 0)} ${needed === 1 ? "rank" : "ranks"} or more` : "on no number of ranks: what the stage does not partition is too large";
  return `${figure(s.ranks, 0)} x ${s.memory} GB at stage ${s.stage}: the largest model has ` +
    `${figure(largestModel(c, s) / GB, 2)} billion parameters. ${psi.toLocaleString("en-US")} billion fit ${fit}.`;
}

function showZeroExplorer(place) {
  const c = JSON.parse(place.dataset.zero), controls = {};
  place.innerHTML = '<div class="zero-controls"></div><div class="zero-bars"></div><p class="zero-sentence" role="status"></p>';
  const [form, bars, text] = place.children;
  const add = (name, words, element) => {
    const label = form.appendChild(Object.assign(document.createElement("label"), {textContent: words}));
    controls[name] = label.appendChild(element);
    element.ariaLabel = words;
    element.addEventListener("input", draw);
  };
  const slider = (name, words, min, max, step, value) =>
    add(name, words, Object.assign(document.createElement("input"), {type: "range", min, max, step, value}));
  const list = (name, words, options, value) => {
    const select = document.createElement("select");
    for (const [label, key] of options) select.add(new Option(label, key, false, `${key}` === `${value}`));
    add(name, words, select);
  };
  const names = (object) => Object.keys(object).map((name) => [name, name]);
  slider("parameters", "parameters", -2, 3, 0.005, Math.log10(7.5));
  list("model", "model", [["your own", ""], ...Object.entries(c.models)], "");
  slider("ranks", "ranks", 0, 11, 1, 6);
  list("stage", "stage", [0, 1, 2, 3].map((n) => [n, n]), 1);
  list("precision", "precision", names(c.precisions), "mixed");
  list("optimizer", "optimizer", names(c.optimizers), "adam");
  list("offload", "optimizer states", [["device", ""], ["host", "host"]], "");
  list("memory", "memory of a device", Object.entries(c.devices).map(([name, size]) => [`${name}: ${size} GB`, size]), 32);
  slider("reserve", "kept free", 0, 90, 5, 0);
  controls.model.addEventListener("input", () => {
    if (controls.model.value) controls.parameters.value = Math.log10(controls.model.value);
    draw();
  });
  controls.parameters.addEventListener("input", () => (controls.model.value = ""));

  function draw() {
    const value = (name) => +controls[name].value;
    const s = {
      parameters: GB * (+controls.model.value || +(10 ** value("parameters")).toPrecision(3)), ranks: 2 ** value("ranks"),
      stage: value("stage"), memory: value("memory"), reserve: value("reserve"), offload: !!controls.offload.value,
      precision: controls.precision.value, optimizer: controls.optimizer.value,
    };
    const shown = {parameters: `${s.parameters / GB} billion`, ranks: s.ranks, reserve: `${s.reserve} %`};
    for (const [name, words] of Object.entries(shown)) {
      controls[name].setAttribute("aria-valuetext", words);
      controls[name].parentElement.dataset.value = words;
    }
    const limit = s.memory * (1 - s.reserve / 100), end = 2 * s.memory;
    const key = Object.entries(c.colors).map(([name, color]) => `<span><i style="background:${color}"></i>${name}</span>`);
    const rows = [0, 1, 2, 3].map((stage) => {
      const parts = zeroBytes(c, s, stage), size = total(parts) / GB;
      const boxes = Object.entries(parts).map(([name, bytes]) =>
        `<i style="background:${c.colors[name]};width:${(100 * bytes) / GB / Math.max(end, size)}%"></i>`);
      const mark = `<b style="left:${(100 * limit) / Math.max(end, size)}%"></b>`;
      return `<div class="zero-row${stage === s.stage ? " chosen" : ""}"><span>stage ${stage}</span>` +
        `<div>${boxes.join("")}${mark}</div><span>${size.toPrecision(3)} GB${size > limit ? ": too large" : ""}</span></div>`;
    });
    bars.innerHTML = `<p>${key.join(" ")} <span><b></b>usable memory</span></p>${rows.join("")}`;
    text.textContent = zeroSentence(c, s);
  }
  draw();
}

document.addEventListener("DOMContentLoaded", () => document.querySelectorAll("[data-zero]").forEach(showZeroExplorer));
