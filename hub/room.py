"""A room for a test: real users, a hub as `make hub` starts it, and simulated attendees. Root.

All is removed at the end.
"""

import ast
import contextlib
import os
import pwd
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import requests
import websocket
from attendee import Attendee
from person_group import PersonGroup

ROOT = Path(__file__).resolve().parents[1]


@contextlib.contextmanager
def make_users(count: int):
    """{name: password} of new ordinary users with a home of their own, closed to others."""
    names = [f"room{os.getpid()}-{number:02}" for number in range(1, count + 1)]
    passwords = {name: secrets.token_urlsafe(12) for name in names}
    first_uid = 40_000 + secrets.randbelow(15_000)  # a reused id may own files of a former user
    with contextlib.ExitStack() as stack:
        for uid, (name, password) in enumerate(passwords.items(), first_uid):
            options = ["--create-home", "-K", "HOME_MODE=0700", "--shell", "/bin/bash"]
            subprocess.run(["useradd", *options, "--uid", str(uid), name], check=True)
            stack.callback(subprocess.run, ["userdel", "--remove", name], stderr=subprocess.DEVNULL)
            subprocess.run(["chpasswd"], input=f"{name}:{password}\n", text=True, check=True)
        yield passwords


@contextlib.contextmanager
def run_hub(config: str = "one_node", *options: str):
    """(address of the hub, address of its proxy's API, its process, its log) on free ports."""
    public, private, api = free_ports(3)
    with tempfile.TemporaryDirectory(prefix="pi2zero-room-", dir="/var/tmp") as folder:
        log = Path(folder, "hub.log")
        command = [
            *(sys.executable, ROOT / "tools" / "hub.py", config),
            f"--JupyterHub.bind_url=http://127.0.0.1:{public}",
            f"--JupyterHub.hub_port={private}",
            f"--ConfigurableHTTPProxy.api_url=http://127.0.0.1:{api}",
            *options,
        ]
        env = os.environ | {"PI2ZERO_HUB_STATE": folder}
        with log.open("w") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, env=env)
        try:
            wait_until_up(f"http://127.0.0.1:{public}/hub/login", process, log)
            yield f"http://127.0.0.1:{public}", f"http://127.0.0.1:{api}", process, log
        finally:
            process.terminate()
            process.wait(timeout=120)


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        return [listener.getsockname()[1] for listener in sockets]


def wait_until_up(address: str, process, log: Path, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(requests.ConnectionError):
            if requests.get(address, timeout=5).ok:
                return
        time.sleep(0.3)
    raise RuntimeError(f"The hub did not start. Its log:\n{log.read_text()[-3000:]}")


def attendees(address: str, passwords: dict[str, str]) -> list[Attendee]:
    return [Attendee(address, name, password) for name, password in passwords.items()]


def leftovers(names) -> list[str]:
    """Processes of these users, their groups, and files in shared folders."""
    uids = {pwd.getpwnam(name).pw_uid for name in names}
    found = []
    for process in psutil.process_iter(["uids", "name", "status"]):
        info = process.info
        if info["uids"] and info["uids"].real in uids and info["status"] != psutil.STATUS_ZOMBIE:
            found.append(f"process {process.pid} {info['name']}")
    groups = [path for name in names for path in PersonGroup(name).dirs.values() if path.exists()]
    shared = [path for where in ("/tmp", "/var/tmp", "/dev/shm") for path in Path(where).iterdir()]
    return found + [str(path) for path in groups + owned_by(shared, uids)]


def owned_by(paths, uids) -> list[Path]:
    owned = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError):  # other people's files come and go
            if path.lstat().st_uid in uids:
                owned.append(path)
    return owned


# What an attendee's kernel tries with the processes, files and ports of others.
TRY_OTHERS = """
import http.client, os, pathlib, psutil
others, own = {others}, {headers}
got, tried = [], {{"processes": 0, "files": 0, "ports": 0}}
for process in psutil.process_iter(["uids"]):
    if process.info["uids"] and process.info["uids"].real in others:
        tried["processes"] += 1
        environ = f"/proc/{{process.pid}}/environ"
        for attempt in (lambda: os.kill(process.pid, 0), lambda: open(environ, "rb").read()):
            try:
                attempt()
                got.append(f"process {{process.pid}}")
            except OSError:
                pass
homes = [pathlib.Path(home) for home in others.values()]
folders = [pathlib.Path(folder) for folder in ("/tmp", "/var/tmp", "/dev/shm")]
shared = [path for folder in folders for path in folder.iterdir()]
def is_others(path):
    try:
        return path.lstat().st_uid in others
    except FileNotFoundError:  # other people's files come and go
        return False
for path in homes + list(filter(is_others, shared)):
    tried["files"] += 1
    rename = lambda: path.rename(f"{{path}}.away")
    for attempt in (lambda: list(path.iterdir()), path.read_bytes, rename):
        try:
            attempt()
            got.append(str(path))
        except OSError:
            pass
for line in open("/proc/net/tcp").readlines()[1:]:
    word = line.split()
    if word[3] == "0A" and int(word[7]) in others:
        tried["ports"] += 1
        port, name = int(word[1].split(":")[1], 16), pathlib.Path(others[int(word[7])]).name
        try:
            caller = http.client.HTTPConnection("127.0.0.1", port, timeout=3)
            caller.request("GET", f"/user/{{name}}/api/contents", headers=own)
            if caller.getresponse().status < 400:
                got.append(f"port {{word[1]}}")
        except (OSError, http.client.HTTPException):
            pass
print(tried, got)
"""


def try_others(attendee: Attendee, everybody: list[Attendee]) -> tuple[dict, list]:
    """({what: how many were tried}, what an attendee's kernel got) of the others' things."""
    entries = [pwd.getpwnam(other.name) for other in everybody if other is not attendee]
    others = {entry.pw_uid: entry.pw_dir for entry in entries}
    text, error = attendee.run(TRY_OTHERS.format(others=others, headers=attendee.headers))
    assert not error, error
    tried, _, got = text.strip().partition("} ")
    return ast.literal_eval(tried + "}"), ast.literal_eval(got)


def try_as_stranger(victim: Attendee, other: Attendee, proxy: str) -> dict[str, int]:
    """{what was tried: HTTP status} without a token, with another's, with a wrong password."""
    answers = {}
    user = f"{victim.hub}/hub/api/users/{victim.name}"
    addresses = {
        "files": f"{victim.server}/api/contents",
        "kernels": f"{victim.server}/api/kernels",
        "who they are": user,
    }
    for who, headers in {"no token": {}, "another's token": other.headers}.items():
        for what, url in addresses.items():
            answers[f"{what}, {who}"] = requests.get(url, headers=headers, timeout=60).status_code
        stopped = requests.delete(f"{user}/server", headers=headers, timeout=60)
        answers[f"stop their server, {who}"] = stopped.status_code
        try:
            victim.connect(headers).close()
            answers[f"messages of a kernel, {who}"] = 101
        except websocket.WebSocketBadStatusException as refused:
            answers[f"messages of a kernel, {who}"] = refused.status_code
    page = requests.get(f"{victim.server}/lab", timeout=60)
    answers["JupyterLab, no token"] = 403 if "/hub/login" in page.url else page.status_code
    routes = requests.get(f"{proxy}/api/routes", timeout=60)
    answers["routes of the proxy, no token"] = routes.status_code
    try:
        Attendee(victim.hub, victim.name, "a guess").log_in()
        answers["log in, wrong password"] = 200
    except PermissionError:
        answers["log in, wrong password"] = 403
    return answers
