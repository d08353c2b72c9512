// A **Predict** question: a field for the guess instead of its line of code, and the text that
// explains the answer is folded with the answer, until the cells between them are run.
const PREDICT = /(?<!see )\*\*Predict/; // tools/notebooks.py folds the outputs by the same rule
const NO_ANSWER = ["blank", "blank-check", "blank-solution", "guess"]; // tags
const PLAIN = /^(?!#|<details)/; // a heading begins something new; details are folded by themselves
const GUESS = /^(\w+_guess) = (.*?)  # (.+)$/;
const FOR_CODE = /^.* in place of None: /; // of a question
const NUMBER = /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i;

const BUTTON = "jp-Button jp-mod-styled";

const sourceOf = cell => cell.model.sharedModel.getSource();
const tagsOf = cell => cell.model.getMetadata("tags") ?? [];
const isFolded = cell =>
  cell.outputHidden || (cell.isPlaceholder() && cell.model.getMetadata("jupyter")?.outputs_hidden === true);

// [text, the cells whose outputs it explains] for each text that explains what a Predict asks.
const explanations = function* (cells) {
  let asked = false;
  let answers = [];
  for (const cell of cells) {
    if (cell.model.type === "code") {
      const answers_it = cell.model.outputs.length || isFolded(cell);
      if (asked && answers_it && !tagsOf(cell).some(tag => NO_ANSWER.includes(tag))) answers.push(cell);
      continue;
    }
    const text = sourceOf(cell);
    if (answers.length && PLAIN.test(text)) yield [cell, answers];
    asked = PREDICT.test(text) || (asked && !answers.length);
    answers = [];
  }
};

// What was typed as Python: "1,000" and "30 %" are numbers, other words a string.
export const asPython = typed => {
  const text = typed.trim();
  const number = text.replace(/\s*%$/, "").replace(/(?<=\d)[,_](?=\d{3}\b)/g, "");
  if (NUMBER.test(number)) return number;
  return text ? JSON.stringify(text) : "None";
};
const asTyped = literal => (literal === "None" ? "" : literal.replace(/^["'](.*)["']$/, "$1"));

// The answers that a question names: "scatter", "gather" or "reduce"; the rank: 0 or 1.
export const choicesOf = question => {
  const quoted = [...question.matchAll(/"([^"]+)"/g)].map(match => match[1]);
  return quoted.length ? quoted : (question.match(/: (\d+) or (\d+)$/)?.slice(1) ?? []);
};

const element = (parent, name, properties) =>
  parent.appendChild(Object.assign(document.createElement(name), properties));

export default kit => {
  const { app, tracker } = kit;
  const { NotebookActions } = kit.lab.notebook;
  const opened = new WeakSet(); // texts that were opened before their cells were run

  const foldExplanations = panel => {
    const folded = new Set();
    for (const [text, answers] of explanations(panel.content.widgets)) {
      if (answers.some(isFolded) && !opened.has(text)) folded.add(text);
    }
    for (const cell of panel.content.widgets) {
      if (cell.model.type !== "markdown") continue;
      cell.toggleClass("pi2zero-explanation", folded.has(cell));
      if (folded.has(cell)) addOpener(panel, cell);
    }
  };
  const addOpener = async (panel, cell) => {
    await cell.ready;
    if (cell.isDisposed || cell.node.querySelector(".pi2zero-opener")) return;
    const opener = element(cell.inputArea.node, "button", { className: "pi2zero-opener" });
    opener.textContent = "The explanation opens when you run the cell above. Show it now";
    opener.onclick = () => {
      opened.add(cell);
      foldExplanations(panel);
    };
  };

  const addForm = async (panel, cell) => {
    await cell.ready;
    if (cell.isDisposed || cell.node.querySelector(".pi2zero-guess")) return;
    const [, name, , question] = sourceOf(cell).match(GUESS);
    const form = element(cell.inputArea.node, "form", { className: "pi2zero-guess" });
    const label = element(form, "label", { textContent: `Your guess: ${question.replace(FOR_CODE, "")} ` });
    const field = element(label, "input", { type: "text", size: 12, autocomplete: "off" });
    const write = literal => {
      const line = `${name} = ${literal}  # ${question}`;
      if (sourceOf(cell) !== line) cell.model.sharedModel.setSource(line);
    };
    const run = () => {
      panel.content.activeCellIndex = panel.content.widgets.indexOf(cell);
      panel.content.node.focus();
      app.commands.execute("notebook:run-cell-and-select-next");
    };
    const addButton = (textContent, press) => {
      element(form, "button", { type: "button", textContent, className: BUTTON }).onclick = () => {
        press();
        run();
      };
    };
    for (const choice of choicesOf(question)) addButton(choice, () => write(asPython(choice)));
    element(form, "button", { textContent: "Guess", className: `${BUTTON} jp-mod-accept` });
    addButton("Skip", () => write("None"));
    const toggle = element(form, "button", { type: "button", textContent: "Code", className: "pi2zero-link" });
    toggle.onclick = () => cell.toggleClass("pi2zero-code");
    field.oninput = () => write(asPython(field.value)); // so Run takes what was typed, too
    form.onsubmit = event => {
      event.preventDefault();
      if (field.value.trim()) run();
      else field.focus();
    };
    for (const kind of ["mousedown", "keydown"]) form.addEventListener(kind, event => event.stopPropagation());
    const show = () => {
      const match = sourceOf(cell).match(GUESS);
      cell.toggleClass("pi2zero-asks", Boolean(match));
      if (match && document.activeElement !== field) field.value = asTyped(match[2]);
    };
    cell.model.contentChanged.connect(show);
    show();
  };

  const update = panel => {
    if (panel.isDisposed || !panel.content.model) return;
    foldExplanations(panel);
    for (const cell of panel.content.widgets) {
      if (cell.model.type === "code" && tagsOf(cell).includes("guess") && GUESS.test(sourceOf(cell))) {
        addForm(panel, cell);
      }
    }
  };
  const updateSoon = panel => setTimeout(() => update(panel));

  const updateCurrent = () => tracker.currentWidget && updateSoon(tracker.currentWidget);
  NotebookActions.executionScheduled.connect(updateCurrent);
  NotebookActions.executed.connect(updateCurrent);
  const follow = async panel => {
    panel.content.node.addEventListener("click", () => updateSoon(panel)); // it may unfold an output
    await panel.context.ready;
    update(panel);
    panel.content.model.cells.changed.connect(() => updateSoon(panel));
  };
  tracker.forEach(follow);
  tracker.widgetAdded.connect((_, panel) => follow(panel));
};
