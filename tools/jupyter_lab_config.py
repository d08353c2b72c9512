"""JupyterLab as `make lab` starts it. `c` is Jupyter's configuration object."""

c = get_config()  # noqa: F821

c.ServerApp.ip = "127.0.0.1"  # with a token: Jupyter's default
# Kernels talk through sockets in a private folder. The default, TCP ports without encryption, is open to other users of a node.
c.KernelManager.transport = "ipc"
c.LabApp.check_for_updates_class = "jupyterlab.NeverCheckForUpdate"  # works without a network
c.LabApp.news_url = None
c.LabApp.extension_manager = "readonly"
