// Which outputs come from the file, and not from this kernel: dimmed, with the word "stored", until
// their cells are run. What was run is kept in the browser, so that it is known after a reload.
const KEY = "pi2zero:run"; // {kernel's id: {process, cells: [ids]}}
const WIDGET = "application/vnd.jupyter.widget-view+json";
const KERNELS = 30; // of which it is kept

const load = () => {
  try {
    return JSON.parse(localStorage.getItem(KEY)) ?? {};
  } catch {
    return {};
  }
};

export default kit => {
  const { kernels, tracker } = kit;
  const { NotebookActions } = kit.lab.notebook;
  const idOf = panel => kernels.of(panel)?.id;

  const update = (panel, change) => {
    if (!idOf(panel)) return;
    const { [idOf(panel)]: entry = { cells: [] }, ...others } = load();
    const entries = [...Object.entries(others).slice(1 - KERNELS), [idOf(panel), change(entry)]];
    localStorage.setItem(KEY, JSON.stringify(Object.fromEntries(entries)));
    mark(panel);
  };
  const mark = panel => {
    const run = kit.cellsRun(panel);
    for (const cell of panel.content.widgets) {
      if (cell.model.type !== "code") continue;
      const isStored = !run.has(cell.model.id) && cell.model.executionState !== "running";
      const hasResult = cell.model.executionCount !== null || cell.model.outputs.length > 0;
      cell.toggleClass("pi2zero-stored", isStored && hasResult);
    }
  };

  // The ids of the cells that this notebook's kernel has run.
  kit.cellsRun = panel => new Set(load()[idOf(panel)]?.cells ?? []);

  NotebookActions.executionScheduled.connect((_, { notebook, cell }) => {
    const panel = tracker.find(each => each.content === notebook);
    if (panel && cell.model.type === "code") {
      update(panel, entry => ({ ...entry, cells: [...new Set([...entry.cells, cell.model.id])] }));
    }
  });
  // A widget comes back after a reload if the file names it: do not wait two minutes with saving it.
  NotebookActions.executed.connect((_, { notebook, cell }) => {
    const panel = tracker.find(each => each.content === notebook);
    const outputs = cell.model.type === "code" ? cell.model.outputs.toJSON() : [];
    if (panel && outputs.some(output => WIDGET in (output.data ?? {}))) panel.context.save();
  });
  // A kernel that was restarted keeps its id, and is another process.
  kernels.changed.connect((_, panel) => {
    const { ranks } = panel ? kernels.told(panel) : {};
    if (!ranks) return;
    const known = load()[idOf(panel)];
    if (!known || known.process === ranks.process) return;
    update(panel, entry => ({ process: ranks.process, cells: entry.process ? [] : entry.cells }));
  });
  const follow = async panel => {
    panel.sessionContext.statusChanged.connect((_, status) => {
      if (["restarting", "autorestarting", "dead"].includes(status)) update(panel, () => ({ cells: [] }));
    });
    panel.sessionContext.kernelChanged.connect(() => mark(panel));
    await panel.context.ready;
    mark(panel);
    panel.content.model.cells.changed.connect(() => setTimeout(() => panel.isDisposed || mark(panel)));
  };
  tracker.forEach(follow);
  tracker.widgetAdded.connect((_, panel) => follow(panel));
};
