// What the kit adds to JupyterLab, in a file for each topic. This one loads them. It is written by
// hand in the form in which JupyterLab loads built extensions, so that nothing has to be built.
// tests/browser/ looks at all of it.
(() => {
  const HERE = new URL(".", document.currentScript.src);
  const FEATURES = ["kernels", "course", "ranks", "stored", "predict", "long", "theme"]; // in this order
  const PACKAGES = {
    apputils: "@jupyterlab/apputils",
    files: "@jupyterlab/filebrowser",
    launcher: "@jupyterlab/launcher",
    mermaid: "@jupyterlab/mermaid",
    notebook: "@jupyterlab/notebook",
    outputs: "@jupyterlab/outputarea",
    registry: "@jupyterlab/settingregistry",
    signaling: "@lumino/signaling",
    statusBar: "@jupyterlab/statusbar",
    ui: "@jupyterlab/ui-components",
    widgets: "@lumino/widgets"
  };
  let scope;

  const load = name => Object.values(scope[name])[0].get().then(module => module());
  // Not from the browser's cache: after an update the files have to belong together.
  const loadOwn = name => import(new URL(`${name}.js?${performance.timeOrigin}`, HERE));

  (window._JUPYTERLAB ??= {}).pi2zero = {
    init: shared => {
      scope = shared;
    },
    get: async () => {
      const modules = await Promise.all(Object.values(PACKAGES).map(load));
      const lab = Object.fromEntries(Object.keys(PACKAGES).map((name, index) => [name, modules[index]]));
      const features = await Promise.all(FEATURES.map(loadOwn));
      const plugin = {
        id: "pi2zero:plugin",
        autoStart: true,
        requires: [lab.notebook.INotebookTracker, lab.statusBar.IStatusBar, lab.registry.ISettingRegistry],
        optional: [lab.launcher.ILauncher, lab.apputils.IThemeManager, lab.mermaid.IMermaidManager],
        activate: (app, tracker, statusBar, settings, launcher, themes, mermaid) => {
          const kit = { lab, app, tracker, statusBar, settings, launcher, themes, mermaid };
          for (const { default: add } of features) add(kit);
        }
      };
      return () => ({ __esModule: true, default: plugin });
    }
  };
})();
