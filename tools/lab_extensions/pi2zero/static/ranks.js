// The state of the ranks in the status bar, and what can be done with them: a click there, or the
// menu "From π to ZeRO".
const ACTIONS = {
  restart: { label: "Restart ranks", caption: "Fresh ranks; their variables are gone, Replay brings them back" },
  replay: { label: "Replay", caption: "Run the earlier %%px cells again on the fresh ranks" },
  stop: { label: "Stop ranks", caption: "End this notebook's ranks" },
  reset: { label: "Reset…", caption: "End all processes that the kit has started here" },
  show_all: { label: "Which ranks of mine are alive?", caption: "The ranks of all my notebooks, and their memory" }
};
const RESET = "This ends the ranks of all notebooks of this copy of the kit, and what they have started.";
const PATIENCE = 2000; // ms of a cell, after which the status bar counts its seconds

export const size = bytes => (bytes < 1e9 ? `${Math.round(bytes / 1e6)} MB` : `${(bytes / 1e9).toFixed(1)} GB`);

const memoryOf = ({ memory = [] } = {}) => {
  if (!memory.length) return "";
  const [least, most] = [Math.min(...memory), Math.max(...memory)].map(size);
  return least === most ? `, ${most} each` : `, ${least} to ${most} each`;
};

export default kit => {
  const { app, kernels, tracker } = kit;
  const { Dialog, showDialog } = kit.lab.apputils;
  const { OutputArea, OutputAreaModel, SimplifiedOutputArea } = kit.lab.outputs;
  const { Menu, Widget } = kit.lab.widgets;
  const live = new WeakMap(); // of a panel: what its running cell says of the ranks
  const busySince = new WeakMap();

  const sentence = panel => {
    const { ranks } = kernels.told(panel);
    if (live.get(panel)) return live.get(panel);
    const state = ranks?.state === "stopped" ? "ranks stopped" : (ranks?.state ?? "");
    const busy = Date.now() - busySince.get(panel);
    if (busy > PATIENCE && state.endsWith(", ready")) {
      return state.replace(", ready", `; a cell runs, ${Math.round(busy / 1000)} s`);
    }
    return state + memoryOf(ranks);
  };

  const item = new Widget();
  item.addClass("pi2zero-ranks");
  item.node.setAttribute("role", "status");
  const button = item.node.appendChild(document.createElement("button"));
  button.title = "The ranks of this notebook, and their memory. Click: restart, replay, stop";
  const show = () => {
    const text = kernels.of(tracker.currentWidget) ? sentence(tracker.currentWidget) : "";
    if (button.textContent !== text) button.textContent = text;
    button.hidden = !text;
  };
  kit.statusBar.registerStatusItem("pi2zero:ranks", { item, align: "left", rank: 90 });
  kernels.changed.connect(show);
  setInterval(show, 1000);

  const follow = panel => {
    const { sessionContext } = panel;
    sessionContext.statusChanged.connect((_, status) => {
      if (status !== "busy") {
        busySince.delete(panel);
        live.delete(panel);
      } else if (!busySince.has(panel)) busySince.set(panel, Date.now());
    });
    sessionContext.iopubMessage.connect((_, { content }) => {
      const status = content.metadata?.pi2zero?.status;
      if (status === undefined) return;
      live.set(panel, status);
      show();
    });
  };
  tracker.forEach(follow);
  tracker.widgetAdded.connect((_, panel) => follow(panel));

  // Run it in this notebook's kernel, and show its output in a dialog. The notebook is not changed.
  const run = async (title, code) => {
    const panel = tracker.currentWidget;
    const kernel = kernels.of(panel);
    if (!kernel) {
      const body = "No notebook with a kernel is open in front. Open the one whose ranks you mean.";
      return showDialog({ title, body, buttons: [Dialog.okButton()] });
    }
    const area = new SimplifiedOutputArea({
      model: new OutputAreaModel({ trusted: true }),
      rendermime: panel.content.rendermime,
      contentFactory: OutputArea.defaultContentFactory
    });
    area.addClass("pi2zero-output");
    area.toggleClass("pi2zero-waits", kernel.status === "busy");
    const dialog = new Dialog({ title, body: area, buttons: [Dialog.okButton({ label: "Close" })] });
    dialog.launch();
    area.future = kernel.requestExecute({ code, store_history: false });
    await area.future.done.catch(() => {});
    area.removeClass("pi2zero-waits");
    kernels.look();
  };

  app.commands.addCommand("pi2zero:ranks", {
    label: ({ action }) => ACTIONS[action]?.label ?? "Ranks",
    caption: ({ action }) => ACTIONS[action]?.caption ?? "",
    execute: async ({ action }) => {
      const title = ACTIONS[action].label.replace("…", "");
      if (action === "reset") {
        const buttons = [Dialog.cancelButton(), Dialog.warnButton({ label: title })];
        if (!(await showDialog({ title: `${title}?`, body: RESET, buttons })).button.accept) return;
      }
      await run(title, `__import__("pi2zero.cluster.overview", fromlist=["*"]).${action}()`);
    }
  });
  app.commands.addCommand("pi2zero:memory", {
    label: () => {
      const { memory = [] } = kernels.told(tracker.currentWidget).ranks ?? {};
      return memory.map((bytes, rank) => `rank ${rank}: ${size(bytes)}`).join(", ");
    },
    isEnabled: () => false,
    isVisible: () => Boolean(kernels.told(tracker.currentWidget).ranks?.memory.length),
    execute: () => {}
  });
  const menu = new Menu({ commands: app.commands });
  menu.addItem({ command: "pi2zero:memory" });
  menu.addItem({ type: "separator" });
  for (const action of Object.keys(ACTIONS)) menu.addItem({ command: "pi2zero:ranks", args: { action } });
  button.onclick = () => {
    const { left, top } = button.getBoundingClientRect();
    menu.open(left, top, { forceY: false });
  };
};
