"""A room for a test: real users, a hub as `make hub` starts it, attendees ready to go. All is removed at the end. Root."""

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
from attendee import Attendee
from groups import Group

ROOT = Path(__file__).resolve().parents[1]


@contextlib.contextmanager
def users(count: int):
    """{name: password} of new ordinary users with a home of their own, closed to others."""
    names = [f"room{os.getpid()}-{number:02}" for number in range(1, count + 1)]
    passwords = {name: secrets.token_urlsafe(12) for name in names}
    first = 40_000 + secrets.randbelow(
        15_000
    )  # ids that nobody had before: files of theirs may lie about
    with contextlib.ExitStack() as stack:
        for uid, (name, password) in enumerate(passwords.items(), first):
            made = [
                "useradd",
                "--create-home",
                "-K",
                "HOME_MODE=0700",
                "--shell",
                "/bin/bash",
                "--uid",
                str(uid),
                name,
            ]
            subprocess.run(made, check=True)
            stack.callback(subprocess.run, ["userdel", "--remove", name], stderr=subprocess.DEVNULL)
            subprocess.run(["chpasswd"], input=f"{name}:{password}\n", text=True, check=True)
        yield passwords


@contextlib.contextmanager
def hub(config: str = "one_node", *options: str):
    """(address of the hub, address of its proxy's interface, its process, its log) on free ports of this machine."""
    site, own, proxy = free_ports(3)
    with tempfile.TemporaryDirectory(prefix="pi2zero-room-", dir="/var/tmp") as folder:
        log = Path(folder, "hub.log")
        command = [
            sys.executable,
            ROOT / "tools" / "hub.py",
            config,
            f"--JupyterHub.bind_url=http://127.0.0.1:{site}",
        ]
        command += [
            f"--JupyterHub.hub_port={own}",
            f"--ConfigurableHTTPProxy.api_url=http://127.0.0.1:{proxy}",
            *options,
        ]
        with log.open("w") as out:
            process = subprocess.Popen(
                command, stdout=out, stderr=out, env=os.environ | {"PI2ZERO_HUB_STATE": folder}
            )
        try:
            wait_until_up(f"http://127.0.0.1:{site}/hub/login", process, log)
            yield f"http://127.0.0.1:{site}", f"http://127.0.0.1:{proxy}", process, log
        finally:
            process.terminate()
            process.wait(timeout=120)


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def wait_until_up(address: str, process, log: Path, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with contextlib.suppress(requests.ConnectionError):
            if requests.get(address, timeout=5).ok:
                return
        time.sleep(0.3)
    raise RuntimeError(f"The hub did not start. Its words:\n{log.read_text()[-3000:]}")


def attendees(address: str, passwords: dict[str, str]) -> list[Attendee]:
    return [Attendee(address, name, password) for name, password in passwords.items()]


def left(names) -> list[str]:
    """Processes of these users, their groups, and files in shared folders."""
    uids = {pwd.getpwnam(name).pw_uid for name in names}
    everything = psutil.process_iter(["uids", "name", "status"])
    found = [
        f"process {one.pid} {one.info['name']}"
        for one in everything
        if one.info["uids"]
        and one.info["uids"].real in uids
        and one.info["status"] != psutil.STATUS_ZOMBIE
    ]
    found += [
        str(folder) for name in names for folder in Group(name).folders.values() if folder.exists()
    ]
    folders = [Path(folder) for folder in ("/tmp", "/var/tmp", "/dev/shm")]
    return found + [
        str(path) for folder in folders for path in folder.iterdir() if path.lstat().st_uid in uids
    ]


# --- what nobody may get ------------------------------------------------------------------------------------------------

LOOK = """
import http.client, os, pathlib, psutil
others, own = {others}, {headers}
got, tried = [], {{"processes": 0, "files": 0, "ports": 0}}
for process in psutil.process_iter(["uids"]):
    if process.info["uids"] and process.info["uids"].real in others:
        tried["processes"] += 1
        for attempt in (lambda p=process: os.kill(p.pid, 0), lambda p=process: open(f"/proc/{{p.pid}}/environ", "rb").read()):
            try:
                attempt()
                got.append(f"process {{process.pid}}")
            except OSError:
                pass
homes = [pathlib.Path(home) for home in others.values()]
shared = [p for folder in ("/tmp", "/var/tmp", "/dev/shm") for p in pathlib.Path(folder).iterdir() if p.lstat().st_uid in others]
for path in homes + shared:
    tried["files"] += 1
    for attempt in (lambda: list(path.iterdir()), path.read_bytes, lambda: path.rename(f"{{path}}.away")):
        try:
            attempt()
            got.append(str(path))
        except OSError:
            pass
for line in open("/proc/net/tcp").readlines()[1:]:
    word = line.split()
    if word[3] == "0A" and int(word[7]) in others:
        tried["ports"] += 1
        try:
            caller = http.client.HTTPConnection("127.0.0.1", int(word[1].split(":")[1], 16), timeout=3)
            caller.request("GET", f"/user/{{pathlib.Path(others[int(word[7])]).name}}/api/contents", headers=own)
            if caller.getresponse().status < 400:
                got.append(f"port {{word[1]}}")
        except (OSError, http.client.HTTPException):
            pass
print(tried, got)
"""


def look(attendee: Attendee, everybody: list[Attendee]) -> tuple[dict, list]:
    """What an attendee's kernel has tried of the others' ({kind: how many}), and what it got. With the attendee's own token."""
    import ast

    entries = [pwd.getpwnam(one.name) for one in everybody if one is not attendee]
    others = {entry.pw_uid: entry.pw_dir for entry in entries}
    text, error = attendee.run(LOOK.format(others=others, headers=attendee.headers))
    assert not error, error
    tried, _, got = text.strip().partition("} ")
    return ast.literal_eval(tried + "}"), ast.literal_eval(got)


def strangers(victim: Attendee, another: Attendee, proxy: str) -> dict[str, int | str]:
    """{who tries what: the HTTP status, or what was said}: without a token, with another person's, with a wrong password."""
    import websocket

    answers = {}
    for who, headers in {
        "without a token": {},
        "with another person's token": another.headers,
    }.items():
        for what, url in {
            "files": f"{victim.server}/api/contents",
            "kernels": f"{victim.server}/api/kernels",
            "who they are": f"{victim.hub}/hub/api/users/{victim.name}",
        }.items():
            answers[f"{what}, {who}"] = requests.get(url, headers=headers, timeout=60).status_code
        answers[f"stop their server, {who}"] = requests.delete(
            f"{victim.hub}/hub/api/users/{victim.name}/server", headers=headers, timeout=60
        ).status_code
        try:
            victim.connect(headers).close()
            answers[f"messages of a kernel, {who}"] = 101
        except websocket.WebSocketBadStatusException as refused:
            answers[f"messages of a kernel, {who}"] = refused.status_code
    page = requests.get(f"{victim.server}/lab", timeout=60)
    answers["JupyterLab, without a token"] = 403 if "/hub/login" in page.url else page.status_code
    answers["routes of the proxy, without its token"] = requests.get(
        f"{proxy}/api/routes", timeout=60
    ).status_code
    try:
        Attendee(victim.hub, victim.name, "a guess").log_in()
        answers["log in, wrong password"] = 200
    except PermissionError:
        answers["log in, wrong password"] = 403
    return answers
