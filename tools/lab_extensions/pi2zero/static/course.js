// The way through the course: titles, minutes and ticks in the menu, the launcher and the file
// browser; in the status bar the place of a notebook, and the next one. The menu's order is the
// course's; tools/lab_settings/overrides.json has it.
const FIRST = "notebooks/00_start_here.ipynb";
const KEY = "pi2zero:done"; // what was done, for a page on which no kernel has told it yet
const ENOUGH = 0.9; // of a notebook's code cells, after which it counts as run
const PI = `data:image/svg+xml,${encodeURIComponent(
  '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24"><text x="12" y="19" font-size="24" text-anchor="middle" fill="#1f5fa8">π</text></svg>'
)}`;

export default async kit => {
  const { app, kernels, launcher, statusBar, tracker } = kit;
  const { DirListing } = kit.lab.files;
  const { NotebookActions } = kit.lab.notebook;
  const { Widget } = kit.lab.widgets;
  const { composite } = await kit.settings.load("@jupyterlab/mainmenu-extension:plugin");
  const menu = composite.menus.find(each => each.id === "jp-mainmenu-workshop");
  const parts = (menu?.items ?? []).filter(item => item.submenu).map(({ submenu }) => ({
    title: submenu.label,
    pages: submenu.items.map(item => item.args)
  }));
  const pages = parts.flatMap(part => part.pages);
  let done = new Set(JSON.parse(localStorage.getItem(KEY) ?? "[]"));

  const open = path => app.commands.execute("filebrowser:open-path", { path });
  const mark = page => `notebook ${page.path}`;
  const rightOf = page => page.tasks.filter(task => done.has(task)).length;
  // A lab is done with its tasks. A notebook has to be run, too: its blanks may be left to the kit.
  const isLab = page => page.path.startsWith("labs/");
  const isDone = page => rightOf(page) === page.tasks.length && (isLab(page) || done.has(mark(page)));
  const progress = page => {
    const [right, all] = [rightOf(page), page.tasks.length];
    return right && right < all ? `, ${right} of ${all} ${isLab(page) ? "tasks" : "blanks"} right` : "";
  };
  const titleOf = page => `${isDone(page) ? "✓ " : ""}${page.title}`;

  app.commands.addCommand("pi2zero:open", {
    label: page => (page.title ? `${titleOf(page)}, ${page.minutes} min${progress(page)}` : "Open a notebook"),
    execute: ({ path }) => open(path)
  });

  if (launcher) {
    const icon = kit.lab.ui.notebookIcon; // the first tile's stands beside the heading, too
    app.commands.addCommand("pi2zero:start-here", {
      label: "Start here",
      caption: "Notebook 00: the map of all notebooks and labs",
      icon,
      execute: () => open(FIRST)
    });
    app.commands.addCommand("pi2zero:part", {
      label: ({ number }) => {
        const part = parts[number];
        return `${part.title}: ${part.pages.filter(isDone).length} of ${part.pages.length} done`;
      },
      caption: ({ number }) => `Opens ${nextOf(parts[number]).title}`,
      icon,
      execute: ({ number }) => open(nextOf(parts[number]).path)
    });
    const nextOf = part => part.pages.find(page => !isDone(page)) ?? part.pages[0];
    launcher.add({ command: "pi2zero:start-here", category: "Notebook", rank: -1, kernelIconUrl: PI });
    parts.forEach((_, number) => {
      launcher.add({ command: "pi2zero:part", args: { number }, category: menu.label, rank: number, kernelIconUrl: PI });
    });
  }

  // The file browser shows titles; a file's name is in its tooltip.
  const renderer = DirListing.defaultRenderer;
  const { updateItemNode } = renderer;
  renderer.updateItemNode = function (node, model, ...rest) {
    updateItemNode.call(this, node, model, ...rest);
    const page = pages.find(each => each.path === model.path);
    const text = node.querySelector(".jp-DirListing-itemText");
    if (page && text) text.textContent = titleOf(page);
  };

  const item = new Widget();
  item.addClass("pi2zero-place");
  const place = item.node.appendChild(document.createElement("span"));
  const next = item.node.appendChild(document.createElement("button"));
  next.onclick = () => open(next.dataset.path);
  const show = () => {
    const path = tracker.currentWidget?.context.path;
    const part = parts.find(each => each.pages.some(page => page.path === path));
    const number = part?.pages.findIndex(page => page.path === path) + 1;
    const after = pages[pages.findIndex(page => page.path === path) + 1];
    place.textContent = part ? `${part.title}: ${number} of ${part.pages.length}` : "";
    next.hidden = !part || !after;
    next.dataset.path = after?.path ?? "";
    next.textContent = after ? `next: ${after.title}` : "";
  };
  statusBar.registerStatusItem("pi2zero:place", { item, align: "middle" });
  tracker.currentChanged.connect(show);
  show();

  kernels.changed.connect((_, panel) => {
    const told = panel && kernels.told(panel).done;
    if (!told) return;
    done = new Set(told);
    localStorage.setItem(KEY, JSON.stringify(told));
    app.commands.notifyCommandChanged("pi2zero:open");
  });
  NotebookActions.executed.connect((_, { notebook }) => {
    const panel = tracker.find(each => each.content === notebook);
    const page = pages.find(each => each.path === panel?.context.path);
    if (!page || isLab(page) || done.has(mark(page))) return;
    const cells = notebook.widgets.filter(cell => cell.model.type === "code");
    const run = kit.cellsRun(panel);
    if (cells.filter(cell => run.has(cell.model.id)).length < ENOUGH * cells.length) return;
    done.add(mark(page));
    const step = JSON.stringify(mark(page));
    kernels.run(panel, `__import__("pi2zero_course.dashboard.progress", fromlist=["*"]).record(${step})`);
  });
};
