"""JupyterLab as `make lab` starts it. `c` is Jupyter's configuration object."""

import os
import shutil
import sys
from pathlib import Path

c = get_config()  # noqa: F821

c.ServerApp.ip = "127.0.0.1"  # with a token: Jupyter's default
# Kernels use sockets in a private folder. The default, TCP ports without encryption, is open to
# a node's other users.
c.KernelManager.transport = "ipc"
# In a terminal the kit's python and mpirun come first, also where a login shell, conda or pyenv
# (in .bashrc) have put others there.
os.environ["PI2ZERO_BIN"] = str(Path(sys.executable).parent)  # lab_settings/bashrc reads it
SHELL = os.environ.get("SHELL") or shutil.which("bash") or "/bin/sh"
OURS = (
    ["--rcfile", str(Path(__file__).parent / "lab_settings" / "bashrc")]
    if Path(SHELL).name == "bash"
    else []
)
c.ServerApp.terminado_settings = {"shell_command": [SHELL, *OURS]}
c.ServerApp.log_level = "WARN"  # the address is still printed
# An attendee needs no cluster tab and no news.
c.ServerApp.jpserver_extensions = {"ipyparallel": False, "jupyterlab": True}
SETTINGS = str(Path(__file__).parent / "lab_settings")
c.LabApp.app_settings_dir = SETTINGS
c.LabApp.extra_labextensions_path = [
    str(Path(__file__).parent / "lab_extensions")
]  # the tile, and the signs in the status bar
c.LabApp.custom_css = True
c.ServerApp.tornado_settings = {"static_custom_path": [SETTINGS]}  # where custom.css is
c.LabApp.check_for_updates_class = "jupyterlab.NeverCheckForUpdate"  # works without a network
c.LabApp.news_url = None
c.LabApp.extension_manager = "readonly"


def drop_live_outputs(model, **_):
    """Leave out of a saved notebook what was only for those who watched a cell run."""
    if model["type"] != "notebook" or not model.get("content"):
        return
    for cell in model["content"]["cells"]:
        if outputs := cell.get("outputs"):
            ours = [output.get("metadata", {}).get("pi2zero", {}) for output in outputs]
            cell["outputs"] = [
                output for output, our in zip(outputs, ours, strict=True) if not our.get("live")
            ]


c.ContentsManager.pre_save_hook = drop_live_outputs
