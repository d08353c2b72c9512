"""`make lab`: look whether the machine is well, then open JupyterLab at the first notebook."""

import contextlib
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

from jupyter_core.paths import jupyter_runtime_dir

ROOT = Path(__file__).resolve().parents[1]
FIRST = "notebooks/00_start_here.ipynb"
SOCKET_PATH_MAX = 107  # characters of a Unix socket's path on Linux
SOCKET_NAME = len("/kernel-01234567-0123-0123-0123-0123456789ab-ipc-99")


def environment():
    """The environment of the server: the kit's own programs first, and a runtime folder that sockets fit into."""
    env = dict(os.environ, PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if len(jupyter_runtime_dir()) + SOCKET_NAME > SOCKET_PATH_MAX:
        env["JUPYTER_RUNTIME_DIR"] = short_folder(os.environ.get("XDG_RUNTIME_DIR"))
    return env


def short_folder(session, shared="/tmp"):
    """A folder that only this user can enter, with a short path: in the session's own folder, else in the shared one."""
    if session and len(session) < 30 and is_private(Path(session)):
        return f"{session}/jupyter"
    folder = Path(shared, f"jupyter-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    return str(folder) if is_private(folder) else tempfile.mkdtemp(prefix="jupyter-", dir=shared)


def is_private(folder):
    """Whether it is a folder, not a link to one, that is this user's and closed to all others."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def has_browser():
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))


def main():
    if subprocess.run([sys.executable, "-m", "pi2zero", "doctor"], cwd=ROOT).returncode and not os.environ.get("ANYWAY"):
        sys.exit("The doctor found what would stop you (see above). Mend it, then run make lab again; or: make lab ANYWAY=1")
    command = [sys.executable, "-m", "jupyterlab", f"--config={ROOT / 'tools' / 'jupyter_lab_config.py'}"]
    command += [f"--ServerApp.root_dir={ROOT}", f"--LabApp.default_url=/lab/tree/{FIRST}"]
    if os.getuid() == 0:
        command.append("--allow-root")
    if not has_browser():
        command.append("--no-browser")
        print("JupyterLab starts. Open the address below that begins with http://127.0.0.1 (Ctrl-C twice ends it).")
        print("On a remote machine, with 8888 as the port in that address: ssh -L 8888:127.0.0.1:8888 you@machine", flush=True)
    os.chdir(ROOT)
    os.execve(command[0], command + sys.argv[1:], environment())


if __name__ == "__main__":
    main()
