"""`make lab`: check quickly whether the machine is well, and open JupyterLab at the first notebook.

As soon as the server answers, the rest of the doctor and the builds run in the background.
--own-copy: work on a copy of the notebooks in ~/pi2zero, where the kit is read-only or goes with
its container.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import psutil
from jupyter_core.paths import jupyter_runtime_dir
from own_copy import make_own_copy

from pi2zero.mpi import mpi_settings
from pi2zero.ownership import is_private

ROOT = Path(__file__).resolve().parents[1]
FIRST_NOTEBOOK = "notebooks/00_start_here.ipynb"
OWN_COPY, IN_BACKGROUND = "--own-copy", "--in-background"
WITHOUT_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))
SOCKET_PATH_MAX = 107  # characters of a Unix socket's path on Linux
SOCKET_NAME = len("/kernel-01234567-0123-0123-0123-0123456789ab-ipc-99")


def environment() -> dict[str, str]:
    """For the server and its terminals: MPI as kernels have it, and a short runtime folder."""
    env = dict(os.environ, JUPYTER_RUNTIME_DIR=runtime_dir())
    mpi_settings(env)
    return env


def runtime_dir() -> str:
    """Where Jupyter's sockets are: its usual folder, or one with a shorter path."""
    usual = jupyter_runtime_dir()
    if len(usual) + SOCKET_NAME <= SOCKET_PATH_MAX:
        return usual
    return make_short_dir(os.environ.get("XDG_RUNTIME_DIR"))


def make_short_dir(session: str | None, shared: str = "/tmp") -> str:
    """A folder that only this user can enter: in the session's own folder, or in the shared one."""
    if session and len(session) < 30 and is_private(Path(session)):
        return f"{session}/jupyter"
    folder = Path(shared, f"jupyter-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    return str(folder) if is_private(folder) else tempfile.mkdtemp(prefix="jupyter-", dir=shared)


def has_browser() -> bool:
    names = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
    return sys.platform == "darwin" or any(os.environ.get(name) for name in names)


def run_in_background(server: int) -> None:
    """Wait until the server (its pid) answers, then run the rest of the doctor and the builds.

    In a session of its own: it outlives the browser and the terminal.
    """
    if os.fork():
        return
    os.nice(19)
    while not answers(server):
        if not psutil.pid_exists(server):
            return
        time.sleep(0.3)
    subprocess.run([sys.executable, "-m", "pi2zero", "doctor", "--background"], cwd=ROOT)
    subprocess.run([sys.executable, ROOT / "tools" / "bytecode.py"])
    subprocess.run([sys.executable, "-m", "pi2zero", "build"], cwd=ROOT, stdout=subprocess.DEVNULL)


def answers(server: int) -> bool:
    """Whether the server with this pid answers at the address that it has written."""
    with contextlib.suppress(OSError, ValueError):
        info = json.loads(Path(jupyter_runtime_dir(), f"jpserver-{server}.json").read_text())
        headers = {"Authorization": f"token {info['token']}"}
        request = urllib.request.Request(f"{info['url']}api", headers=headers)  # noqa: S310
        with WITHOUT_PROXY.open(request, timeout=5) as reply:
            return reply.status == 200
    return False


def main() -> None:
    doctor = [sys.executable, "-m", "pi2zero", "doctor", "--quick"]
    if subprocess.run(doctor, cwd=ROOT).returncode and not os.environ.get("ANYWAY"):
        sys.exit(
            "The doctor found what would stop you (see above). Fix it, then run make lab again; "
            "or: make lab ANYWAY=1"
        )
    env = environment()
    folder = make_own_copy(Path.home() / "pi2zero") if OWN_COPY in sys.argv else ROOT
    command = [
        *(sys.executable, "-m", "jupyterlab"),
        f"--config={ROOT / 'tools' / 'jupyter_lab_config.py'}",
        f"--ServerApp.root_dir={folder}",
        f"--LabApp.default_url=/lab/tree/{FIRST_NOTEBOOK}",
    ]
    if os.getuid() == 0:
        command.append("--allow-root")
    if not has_browser():
        command.append("--no-browser")
        print("JupyterLab starts. Open the address below that begins with http://127.0.0.1")
        print("(Ctrl-C twice ends it). On a remote machine, with 8888 as the port in that address:")
        print("ssh -L 8888:127.0.0.1:8888 you@machine", flush=True)
    background = [sys.executable, __file__, IN_BACKGROUND, str(os.getpid())]
    subprocess.run(background, env=env, start_new_session=True)
    os.chdir(folder)
    os.execve(command[0], command + [word for word in sys.argv[1:] if word != OWN_COPY], env)


if __name__ == "__main__":
    run_in_background(int(sys.argv[2])) if sys.argv[1:2] == [IN_BACKGROUND] else main()
