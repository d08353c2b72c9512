// An output of more than LINES lines scrolls in JupyterLab's own box; a click at its left opens it.
const LINES = 100;
const PAUSE = 500; // ms between two looks at an output that changes

const shownText = ({ text, traceback, data = {} }) => {
  const plain = Object.keys(data).join() === "text/plain" ? data["text/plain"] : "";
  return [text ?? traceback ?? plain].flat().join(text ? "" : "\n");
};
const lengthOf = outputs =>
  outputs.map(shownText).reduce((sum, text) => sum + text.split("\n").length, 0);

export default ({ tracker, lab }) => {
  const { NotebookActions } = lab.notebook;
  const followed = new WeakSet();
  const boxed = new WeakSet(); // since the cell was run: whoever opens the box keeps it open

  const look = cell => {
    if (cell.isDisposed || boxed.has(cell) || lengthOf(cell.model.outputs.toJSON()) <= LINES) return;
    boxed.add(cell);
    cell.outputsScrolled = true;
  };
  const follow = async cell => {
    if (followed.has(cell) || cell.model.type !== "code") return;
    followed.add(cell);
    await cell.ready;
    if (cell.isDisposed) return;
    let waits = false;
    cell.model.outputs.changed.connect(() => {
      if (waits) return;
      waits = true;
      setTimeout(() => {
        waits = false;
        look(cell);
      }, PAUSE);
    });
    look(cell);
  };
  NotebookActions.executionScheduled.connect((_, { cell }) => {
    if (boxed.delete(cell)) cell.outputsScrolled = false;
  });
  const followAll = panel => panel.isDisposed || panel.content.widgets.forEach(follow);
  const add = async panel => {
    await panel.context.ready;
    followAll(panel);
    panel.content.model.cells.changed.connect(() => setTimeout(followAll, 0, panel));
  };
  tracker.forEach(add);
  tracker.widgetAdded.connect((_, panel) => add(panel));
};
