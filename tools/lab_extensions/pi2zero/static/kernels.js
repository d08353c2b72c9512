// What the kernel of the notebook in front tells when it is asked: the state of its ranks, and what
// its user has done of the course. It is asked in silence, after each cell and when the page opens.
const WANTED = {
  ranks: '__import__("pi2zero.cluster.overview", fromlist=["*"]).overview()',
  done: '__import__("pi2zero_course.dashboard.progress", fromlist=["*"]).overview()'
};
const AGAIN = 1500; // ms between two looks while the kernel is busy, or its ranks are being restarted
const GONE = ["restarting", "autorestarting", "terminating", "dead"];

// The values of Python expressions, {name: expression}, as far as they are JSON.
const evaluate = async (kernel, user_expressions) => {
  if ((await kernel.info).language_info.name !== "python") return {};
  const request = { code: "", silent: true, store_history: false, user_expressions };
  const { content } = await kernel.requestExecute(request).done;
  const values = Object.entries(content.user_expressions ?? {});
  return Object.fromEntries(values.map(([name, value]) => [name, value.data?.["application/json"]]));
};

export default kit => {
  const { tracker } = kit;
  const { NotebookActions } = kit.lab.notebook;
  const told = new WeakMap(); // of a notebook's panel: what its kernel has told last
  const changed = new kit.lab.signaling.Signal(kit);
  const kernelOf = panel => panel?.sessionContext.session?.kernel;
  let later;

  const look = async () => {
    clearTimeout(later);
    const panel = tracker.currentWidget;
    const kernel = kernelOf(panel);
    if (!kernel) return changed.emit(panel);
    if (kernel.status !== "idle") {
      later = setTimeout(look, AGAIN);
      return changed.emit(panel);
    }
    const values = await evaluate(kernel, WANTED).catch(() => ({}));
    if (kernel !== kernelOf(panel)) return;
    told.set(panel, values);
    changed.emit(panel);
    if (values.ranks?.state.includes("being restarted")) later = setTimeout(look, AGAIN);
  };
  const forget = panel => {
    told.delete(panel);
    if (panel === tracker.currentWidget) look();
  };

  kit.kernels = {
    changed,
    told: panel => told.get(panel) ?? {},
    of: kernelOf,
    run: (panel, expression) => evaluate(kernelOf(panel), { value: expression }),
    look
  };
  NotebookActions.executed.connect(look);
  tracker.currentChanged.connect(look);
  const follow = panel => {
    panel.sessionContext.kernelChanged.connect(() => forget(panel));
    panel.sessionContext.statusChanged.connect((_, status) => {
      if (GONE.includes(status)) forget(panel);
      else if (status === "idle" && !told.has(panel)) look(); // also after the page was loaded anew
    });
  };
  tracker.forEach(follow);
  tracker.widgetAdded.connect((_, panel) => follow(panel));
  look();
};
