"""`make lab`: look quickly whether the machine is well, and open JupyterLab at the first notebook.

Beside it, as soon as it answers, goes on what nobody has to wait for: the rest of the doctor, then what has to be compiled.
--own-copy: on a copy of the notebooks in ~/pi2zero, where the kit itself is read only or goes with its container.
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

from jupyter_core.paths import jupyter_runtime_dir
from own_copy import make_own_copy

from pi2zero.mpi import mpi_settings
from pi2zero.ownership import is_private

ROOT = Path(__file__).resolve().parents[1]
FIRST = "notebooks/00_start_here.ipynb"
OWN_COPY = "--own-copy"
DIRECT = urllib.request.build_opener(
    urllib.request.ProxyHandler({})
)  # this machine is not asked for at a proxy
SOCKET_PATH_MAX = 107  # characters of a Unix socket's path on Linux
SOCKET_NAME = len("/kernel-01234567-0123-0123-0123-0123456789ab-ipc-99")


def environment():
    """The environment of the server and its terminals: the kit's own programs first, MPI as kernels have it, and a runtime
    folder that sockets fit into."""
    env = dict(os.environ, JUPYTER_RUNTIME_DIR=runtime_dir())
    mpi_settings(env)
    return env


def runtime_dir():
    """Where Jupyter's sockets lie: its usual folder, or one with a shorter path."""
    usual = jupyter_runtime_dir()
    return (
        usual
        if len(usual) + SOCKET_NAME <= SOCKET_PATH_MAX
        else short_folder(os.environ.get("XDG_RUNTIME_DIR"))
    )


def short_folder(session, shared="/tmp"):
    """A folder that only this user can enter, with a short path: in the session's own folder, else in the shared one."""
    if session and len(session) < 30 and is_private(Path(session)):
        return f"{session}/jupyter"
    folder = Path(shared, f"jupyter-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    return str(folder) if is_private(folder) else tempfile.mkdtemp(prefix="jupyter-", dir=shared)


def has_browser():
    return sys.platform == "darwin" or any(
        os.environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
    )


def beside(server):
    """What goes on beside the server (its pid), in a session of its own: it outlives the browser and the terminal."""
    if os.fork():
        return  # nobody's child: the server would not ask how it has ended
    os.nice(19)
    while not answers(server):
        if not Path(f"/proc/{server}").exists() and sys.platform == "linux":
            return
        time.sleep(0.3)
    subprocess.run([sys.executable, "-m", "pi2zero", "doctor", "--beside"], cwd=ROOT)
    subprocess.run([sys.executable, "-m", "pi2zero", "built"], cwd=ROOT, stdout=subprocess.DEVNULL)


def answers(server):
    """Whether the server with this pid has written where it is, and answers there."""
    with contextlib.suppress(OSError, ValueError):
        told = json.loads(Path(jupyter_runtime_dir(), f"jpserver-{server}.json").read_text())
        request = urllib.request.Request(  # noqa: S310  (a server on this host)
            f"{told['url']}api", headers={"Authorization": f"token {told['token']}"}
        )
        with DIRECT.open(request, timeout=5) as reply:
            return reply.status == 200
    return False


def main():
    doctor = [sys.executable, "-m", "pi2zero", "doctor", "--quick"]
    if subprocess.run(doctor, cwd=ROOT).returncode and not os.environ.get("ANYWAY"):
        sys.exit(
            "The doctor found what would stop you (see above). Mend it, then run make lab again; or: make lab ANYWAY=1"
        )
    env = environment()
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        f"--config={ROOT / 'tools' / 'jupyter_lab_config.py'}",
    ]
    options = [option for option in sys.argv[1:] if option != OWN_COPY]
    folder = make_own_copy(Path.home() / "pi2zero") if OWN_COPY in sys.argv else ROOT
    command += [f"--ServerApp.root_dir={folder}", f"--LabApp.default_url=/lab/tree/{FIRST}"]
    if os.getuid() == 0:
        command.append("--allow-root")
    if not has_browser():
        command.append("--no-browser")
        print(
            "JupyterLab starts. Open the address below that begins with http://127.0.0.1 (Ctrl-C twice ends it)."
        )
        print(
            "On a remote machine, with 8888 as the port in that address: ssh -L 8888:127.0.0.1:8888 you@machine",
            flush=True,
        )
    subprocess.run(
        [sys.executable, __file__, "--beside", str(os.getpid())], env=env, start_new_session=True
    )
    os.chdir(folder)
    os.execve(command[0], command + options, env)


if __name__ == "__main__":
    beside(int(sys.argv[2])) if sys.argv[1:2] == ["--beside"] else main()
