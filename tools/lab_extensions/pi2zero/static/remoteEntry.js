// What JupyterLab shows of the kit beside its menu: a tile in the launcher that leads to notebook 00, and in the status bar the
// state of the ranks of the notebook in front, its place in the workshop, and the next one. Written by hand in the form in which JupyterLab loads built extensions, so that
// nothing has to be built. tests/browser/test_lab.py looks at both.
(() => {
  const FIRST = "notebooks/00_start_here.ipynb";
  // Asked in silence after a cell: "4 ranks, ready", or nothing where the kernel has started none.
  const STATE =
    "(lambda magics: magics.cluster.state if magics else '')(get_ipython().magics_manager.registry.get('RankMagics'))";
  const AGAIN = 1500; // ms between two looks while the kernel is busy, or its ranks are being restarted
  let scope;

  const load = name => Object.values(scope[name])[0].get().then(module => module());

  const PI = `data:image/svg+xml,${encodeURIComponent(
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24"><text x="12" y="19" font-size="24" text-anchor="middle" fill="#1f5fa8">π</text></svg>'
  )}`;

  const addTile = (app, launcher, { notebookIcon }) => {
    app.commands.addCommand("pi2zero:start-here", {
      label: "Start here",
      caption: "Notebook 00: the map of all notebooks and labs",
      icon: notebookIcon, // the first tile's stands beside the heading, too
      execute: () => app.commands.execute("filebrowser:open-path", { path: FIRST })
    });
    launcher.add({ command: "pi2zero:start-here", category: "Notebook", rank: -1, kernelIconUrl: PI });
  };

  const ask = async kernel => {
    if ((await kernel.info).language_info.name !== "python") return "";
    const request = { code: "", silent: true, store_history: false, user_expressions: { state: STATE } };
    const { content } = await kernel.requestExecute(request).done;
    const said = content.user_expressions?.state?.data?.["text/plain"];
    const state = said ? said.slice(1, -1) : ""; // between Python's quotes
    return state === "stopped" ? "ranks stopped" : state;
  };

  const addState = (tracker, statusBar, { NotebookActions }, { Widget }) => {
    const item = new Widget();
    item.addClass("pi2zero-ranks");
    item.node.setAttribute("role", "status");
    item.node.title = "The ranks of this notebook, after its last cell";
    let later;
    const look = async () => {
      clearTimeout(later);
      const kernel = tracker.currentWidget?.sessionContext.session?.kernel;
      const busy = kernel && kernel.status !== "idle"; // nothing new is known then
      const text = busy ? item.node.textContent : kernel ? await ask(kernel).catch(() => "") : "";
      if (kernel !== tracker.currentWidget?.sessionContext.session?.kernel) return; // another notebook came to the front
      item.node.textContent = text;
      if (busy || text.includes("being restarted")) later = setTimeout(look, AGAIN);
    };
    statusBar.registerStatusItem("pi2zero:ranks", { item, align: "left", rank: 90 });
    NotebookActions.executed.connect(look);
    const forget = () => {
      item.node.textContent = "";
      look();
    };
    tracker.currentChanged.connect(forget);
    tracker.widgetAdded.connect((_, panel) =>
      panel.sessionContext.statusChanged.connect((_, status) => {
        if (["restarting", "autorestarting", "dead"].includes(status) && panel === tracker.currentWidget) forget();
      })
    );
  };

  // The order of notebooks and labs is the menu's.
  const addPlace = async (app, tracker, statusBar, settings, { Widget }) => {
    const { composite } = await settings.load("@jupyterlab/mainmenu-extension:plugin");
    const menu = composite.menus.find(each => each.id === "jp-mainmenu-workshop");
    const parts = (menu?.items ?? []).map(item => item.submenu);
    const pages = parts.flatMap(({ label, items }) =>
      items.map(({ args }, index) => ({ path: args.path, place: `${label}: ${index + 1} of ${items.length}` }))
    );
    const item = new Widget();
    item.addClass("pi2zero-place");
    const place = item.node.appendChild(document.createElement("span"));
    const next = item.node.appendChild(document.createElement("button"));
    next.onclick = () => app.commands.execute("filebrowser:open-path", { path: next.dataset.path });
    const show = () => {
      const at = pages.findIndex(page => page.path === tracker.currentWidget?.context.path);
      const after = at < 0 ? undefined : pages[at + 1];
      place.textContent = at < 0 ? "" : pages[at].place;
      next.hidden = !after;
      next.dataset.path = after?.path ?? "";
      next.textContent = after ? `next: ${after.path.replace(/^notebooks\/|\.ipynb$/g, "")}` : "";
    };
    statusBar.registerStatusItem("pi2zero:place", { item, align: "middle" });
    tracker.currentChanged.connect(show);
    show();
  };

  (window._JUPYTERLAB ??= {}).pi2zero = {
    init: shared => {
      scope = shared;
    },
    get: async () => {
      const names = ["launcher", "notebook", "statusbar", "settingregistry", "ui-components"].map(name => `@jupyterlab/${name}`);
      const [launcher, notebook, statusBar, registry, components, widgets] = await Promise.all([...names, "@lumino/widgets"].map(load));
      const plugin = {
        id: "pi2zero:plugin",
        autoStart: true,
        optional: [launcher.ILauncher, notebook.INotebookTracker, statusBar.IStatusBar, registry.ISettingRegistry],
        activate: (app, tiles, tracker, bar, settings) => {
          if (tiles) addTile(app, tiles, components);
          if (tracker && bar) addState(tracker, bar, notebook, widgets);
          if (tracker && bar && settings) addPlace(app, tracker, bar, settings, widgets);
        }
      };
      return () => ({ __esModule: true, default: plugin });
    }
  };
})();
