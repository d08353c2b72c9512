"""`make lab`: check quickly whether the machine is well, and open JupyterLab at the first notebook.

As soon as the server answers, the rest of the doctor and the builds run in the background.
--own-copy: work on a copy of the notebooks in ~/pi2zero, where the kit is read-only or goes with
its container.
"""

import contextlib
import json
import os
import re
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil
from jupyter_core.paths import jupyter_runtime_dir
from own_copy import make_own_copy

from pi2zero.environment import constrain_installers
from pi2zero.mpi import mpi_settings
from pi2zero.ownership import is_private

ROOT = Path(__file__).resolve().parents[1]
FIRST_NOTEBOOK = "notebooks/00_start_here.ipynb"
OWN_COPY, IN_BACKGROUND = "--own-copy", "--in-background"
# The user's settings of Jupyter may have a certificate, which need not be made out to 127.0.0.1.
TO_OWN_SERVER = urllib.request.build_opener(
    urllib.request.ProxyHandler({}),
    urllib.request.HTTPSHandler(context=ssl._create_unverified_context()),  # noqa: S323
)
JUPYTERS_OWN = "[0-9a-f]{48}"  # Jupyter's own; another one is a secret of the user's
SOCKET_PATH_MAX = 107  # characters of a Unix socket's path on Linux
SOCKET_NAME = len("/kernel-01234567-0123-0123-0123-0123456789ab-ipc-99")


def environment() -> dict[str, str]:
    """For the server and its terminals: MPI as kernels have it, and a short runtime folder.

    The environment's kernel comes before one that the person has made elsewhere, also where the
    environment is somebody else's.
    """
    env = dict(os.environ, JUPYTER_RUNTIME_DIR=runtime_dir(), JUPYTER_PREFER_ENV_PATH="1")
    mpi_settings(env)
    constrain_installers(env)
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
    """Wait until the server (its pid) answers; print its address, run the doctor and the builds.

    In a session of its own: it outlives the browser and the terminal.
    """
    if os.fork():
        return
    pause = 0.3  # s, longer each time: an answer that cannot be read may never be
    while not answers(server):
        if not psutil.pid_exists(server):
            return
        time.sleep(pause)
        pause = min(1.2 * pause, 30.0)
    print(address_text(server_info(server)), flush=True)
    os.nice(19)
    subprocess.run([sys.executable, "-m", "pi2zero", "doctor", "--background"], cwd=ROOT)
    subprocess.run([sys.executable, ROOT / "tools" / "bytecode.py"])
    subprocess.run([sys.executable, "-m", "pi2zero", "build"], cwd=ROOT, stdout=subprocess.DEVNULL)


def server_info(server: int) -> dict:
    """What the server with this pid has written of itself. Raises OSError, ValueError."""
    return json.loads(Path(jupyter_runtime_dir(), f"jpserver-{server}.json").read_text())


def answers(server: int) -> bool:
    """Whether the server with this pid answers at the address that it has written."""
    with contextlib.suppress(OSError, ValueError):
        info = server_info(server)
        headers = {"Authorization": f"token {info['token']}"}
        request = urllib.request.Request(f"{info['url']}api", headers=headers)  # noqa: S310
        try:
            TO_OWN_SERVER.open(request, timeout=5).close()
        except urllib.error.HTTPError as refusal:  # where it wants a password, for example
            refusal.close()
        return True
    return False


def address_text(info: dict) -> str:
    """Where to open JupyterLab, also from another machine. A token that the user set is left out.

    Jupyter itself prints no address if the user has set the token or a password.
    """
    query = f"?token={info['token']}" if re.fullmatch(JUPYTERS_OWN, info["token"]) else ""
    text = f"JupyterLab is at {info['url']}lab/tree/{FIRST_NOTEBOOK}{query} (Ctrl-C twice ends it)."
    if not query and (info["token"] or info["password"]):
        text += "\nIt asks for the token or the password that you have set."
    if not has_browser():
        text += (
            "\nOpen this address in a browser. If this is a remote machine, first run on your own: "
            f"ssh -L {info['port']}:127.0.0.1:{info['port']} you@machine"
        )
    return text


def main() -> None:
    doctor = [sys.executable, "-m", "pi2zero", "doctor", "--quick"]
    as_here = dict(os.environ, JUPYTER_PREFER_ENV_PATH="1")
    failed = subprocess.run(doctor, cwd=ROOT, env=as_here).returncode
    if failed and not os.environ.get("ANYWAY"):
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
    background = [sys.executable, __file__, IN_BACKGROUND, str(os.getpid())]
    if not has_browser():
        command.append("--no-browser")
    print("JupyterLab starts. Its address comes below.", flush=True)
    subprocess.run(background, env=env, start_new_session=True)
    os.chdir(folder)
    os.execve(command[0], command + [word for word in sys.argv[1:] if word != OWN_COPY], env)


if __name__ == "__main__":
    run_in_background(int(sys.argv[2])) if sys.argv[1:2] == [IN_BACKGROUND] else main()
