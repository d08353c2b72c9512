"""`make lab`'s server, from a browser: localhost, a token, private sockets, also in a long home."""

import contextlib
import http.server
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path

import psutil
import pytest
import requests
import websocket

from pi2zero import ownership

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """(base URL, token, log, pid) of a copied lab.py. 8888 is taken, home too long for sockets."""
    copy = tmp_path_factory.mktemp("kit")
    shutil.copytree(ROOT / "tools", copy / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    home = copy / ("home" * 25)
    home.mkdir()
    log = copy / "server.log"
    unset = (
        "BROWSER",
        "DISPLAY",
        "WAYLAND_DISPLAY",
        "JUPYTER_RUNTIME_DIR",
        "JUPYTER_DATA_DIR",
        "XDG_DATA_HOME",
        "XDG_RUNTIME_DIR",
    )
    with contextlib.ExitStack() as stack:
        session = stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp"))
        env = {k: v for k, v in os.environ.items() if k not in unset} | {
            "HOME": str(home),
            "XDG_RUNTIME_DIR": session,
        }
        env |= {
            "http_proxy": "http://127.0.0.1:9",
            "no_proxy": "",
        }  # a site's proxy is not asked for this machine, nor told the token
        taken = stack.enter_context(socket.socket())
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # somebody else has it: as good
            taken.bind(("127.0.0.1", 8888))
            taken.listen()
        out = stack.enter_context(log.open("w"))
        process = subprocess.Popen(
            [sys.executable, copy / "tools" / "lab.py"], stdout=out, stderr=out, env=env
        )
        stack.callback(process.wait, timeout=30)
        stack.callback(process.terminate)
        deadline = time.monotonic() + 120
        while not (
            match := re.search(r"(http://127\.0\.0\.1:\d+)/lab\S*token=(\w+)", log.read_text())
        ):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        yield match[1], match[2], log, process.pid


@pytest.fixture(scope="module")
def kernel(server):
    """(URL of a kernel, headers), started as JupyterLab starts it."""
    base, token, *_ = server
    headers = {"Authorization": f"token {token}"}
    started = requests.post(f"{base}/api/kernels", json={"name": "python3"}, headers=headers)
    assert started.status_code == 201, started.text
    url = f"{base}/api/kernels/{started.json()['id']}"
    yield url, headers
    with contextlib.suppress(requests.ConnectionError):  # the last test has stopped the server
        requests.delete(url, headers=headers)


@contextlib.contextmanager
def channel(kernel, session="s"):
    """A websocket to the kernel, of a browser's session."""
    url, headers = kernel
    address = f"{url.replace('http', 'ws')}/channels?session_id={session}"
    line = websocket.create_connection(address, header=headers, timeout=30)
    try:
        yield line
    finally:
        line.close()


def send(line, code):
    """Ask for a cell to be run; returns the message's id."""
    header = {
        "msg_id": uuid.uuid4().hex,
        "msg_type": "execute_request",
        "username": "",
        "session": "s",
        "version": "5.3",
    }
    content = {
        "code": code,
        "silent": False,
        "store_history": True,
        "user_expressions": {},
        "allow_stdin": False,
    }
    message = {
        "header": header,
        "parent_header": {},
        "metadata": {},
        "content": content,
        "channel": "shell",
        "buffers": [],
    }
    line.send(json.dumps(message))
    return header["msg_id"]


def reply(line, msg_id):
    """(text that the cell printed, the content of its reply)."""
    text, answer, idle = "", None, False
    while answer is None or not idle:  # they come by different sockets, in either order
        message = json.loads(line.recv())
        if message["parent_header"].get("msg_id") != msg_id:
            continue
        kind, content = message["msg_type"], message["content"]
        text += content["text"] if kind == "stream" else ""
        answer = content if kind == "execute_reply" else answer
        idle = idle or (kind == "status" and content["execution_state"] == "idle")
    return text, answer


@pytest.mark.long
def test_only_this_machine_and_only_with_the_token(server):
    base, _, _, pid = server
    assert requests.get(f"{base}/api/contents").status_code == 403
    listening = {
        c.laddr.ip
        for c in psutil.Process(pid).net_connections("inet")
        if c.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}
    assert not base.endswith(":8888")  # was taken


@pytest.mark.long
def test_cells_run_can_be_interrupted_and_the_kernel_restarted(kernel):
    url, headers = kernel
    with channel(kernel) as line:
        assert reply(line, send(line, "x = 6 * 7; print(x)"))[0] == "42\n"
        waiting = send(line, "import time\nprint('sleeps', flush=True)\ntime.sleep(60)")
        while json.loads(line.recv())["msg_type"] != "stream":
            pass
        assert requests.post(f"{url}/interrupt", headers=headers).status_code == 204
        assert reply(line, waiting)[1]["ename"] == "KeyboardInterrupt"
        assert reply(line, send(line, "print(x)"))[0] == "42\n"
    assert requests.post(f"{url}/restart", headers=headers).status_code == 200
    with channel(kernel) as line:
        assert reply(line, send(line, "x"))[1]["ename"] == "NameError"  # a fresh one


@pytest.mark.long
def test_a_browser_that_comes_back_gets_what_it_missed(kernel):
    with channel(kernel, "browser") as line:
        running = send(
            line, "import time\nprint('soon', flush=True)\ntime.sleep(2)\nx = 7\nprint('late')"
        )
        while json.loads(line.recv())["msg_type"] != "stream":
            pass
    time.sleep(3)  # the cell ends while nobody listens
    with channel(kernel, "browser") as line:
        assert reply(line, running)[0].endswith("late\n")
        assert reply(line, send(line, "print(x)"))[0] == "7\n"


@pytest.mark.long
def test_kernels_speak_through_a_private_folder(server, kernel):
    *_, log, pid = server
    kernels = [
        p for p in psutil.Process(pid).children() if "ipykernel_launcher" in " ".join(p.cmdline())
    ]
    assert len(kernels) == 1
    # One port is left: ipykernel's own, for the output of processes that a cell forks.
    assert [
        c.laddr.ip for c in kernels[0].net_connections("inet") if c.status == psutil.CONN_LISTEN
    ] == ["127.0.0.1"]
    connection = Path(kernels[0].cmdline()[-1])
    spoken = json.loads(connection.read_text())
    assert spoken["transport"] == "ipc"
    assert len(str(connection)) < 80
    assert not connection.parent.stat().st_mode & 0o077  # nobody else may enter
    assert "without encryption" not in log.read_text()


@pytest.mark.long
def test_the_doctor_looks_beside_it_and_says_so_in_the_terminal(server):
    """Last, because it takes seconds; nothing that `make lab` has started for it is left."""
    *_, log, pid = server
    deadline = time.monotonic() + 200
    while "The doctor has looked at this machine" not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.5)
    assert log.read_text().index("token=") < log.read_text().index("The doctor has looked"), (
        "not in front of JupyterLab"
    )
    while any(
        f"--beside {pid}" in " ".join(process.info["cmdline"] or [])
        for process in psutil.process_iter(["cmdline"])
    ):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert not [
        child for child in psutil.Process(pid).children() if child.status() == psutil.STATUS_ZOMBIE
    ]


@pytest.mark.long
def test_a_server_stopped_in_mid_cell_leaves_nothing(server, kernel):
    """After all that need it: Ctrl-C twice in its terminal is this signal."""
    *_, pid = server
    (running,) = [
        p for p in psutil.Process(pid).children() if "ipykernel_launcher" in " ".join(p.cmdline())
    ]
    with channel(kernel) as line:
        line.settimeout(100)
        assert (
            reply(line, send(line, "import pi2zero\ncluster = pi2zero.start(n=2)"))[1]["status"]
            == "ok"
        )
        send(line, "%%px\nimport time\nprint('in mid-cell', flush=True)\ntime.sleep(300)")
        while "in mid-cell" not in line.recv():
            pass
    owner = ownership.owner_mark(running.pid)
    assert len(ownership.marked_processes(owner)) >= 3
    psutil.Process(pid).terminate()
    _, alive = psutil.wait_procs([running, *ownership.marked_processes(owner)], timeout=60)
    deadline = (
        time.monotonic() + 30
    )  # for the folders: the watchdog takes them when all ranks have ended
    while ownership.run_dirs(owner) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not alive and not ownership.marked_processes(owner) and not ownership.run_dirs(owner)


def test_a_private_folder_is_not_taken_on_trust(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    import lab

    usual = tmp_path / f"jupyter-{os.getuid()}"
    assert (
        lab.make_short_dir(None, tmp_path)
        == str(usual)
        == lab.make_short_dir("/nonexistent", tmp_path)
    )
    assert lab.is_private(usual)
    usual.chmod(0o755)  # others can look into it
    assert lab.is_private(Path(lab.make_short_dir(None, tmp_path))) and not lab.is_private(usual)
    usual.rmdir()
    usual.symlink_to(tmp_path)  # laid by somebody else
    assert lab.make_short_dir(None, tmp_path) != str(usual)


def test_what_is_compiled_begins_when_jupyterlab_answers_and_the_doctor_has_looked(monkeypatch):
    """At the lowest priority: nobody waits for it."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import lab

    done, answers = [], iter([False, False, True])
    monkeypatch.setattr(lab, "server_info", lambda server: INFO)
    monkeypatch.setattr(lab.os, "fork", lambda: 0)
    monkeypatch.setattr(lab.os, "nice", lambda by: done.append(by))
    monkeypatch.setattr(lab, "answers", lambda server: done.append("asked") or next(answers))
    monkeypatch.setattr(
        lab.subprocess,
        "run",
        lambda words, **_: done.append(words[3] if len(words) > 3 else words[1].stem),
    )
    lab.run_in_background(os.getpid())
    assert done == ["asked", "asked", "asked", 19, "doctor", "bytecode", "build"]


INFO = {"url": "http://127.0.0.1:8889/", "port": 8889, "token": "5e" * 24, "password": False}


def test_the_address_is_printed_with_its_port_and_without_a_secret_of_the_users(monkeypatch):
    """Jupyter prints none where JUPYTER_TOKEN or a password is set."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import lab

    monkeypatch.setattr(lab, "has_browser", lambda: False)
    text = lab.address_text(INFO)
    assert f"http://127.0.0.1:8889/lab/tree/notebooks/00_start_here.ipynb?token={'5e' * 24}" in text
    assert "ssh -L 8889:127.0.0.1:8889 you@machine" in text and "that you have set" not in text
    monkeypatch.setattr(lab, "has_browser", lambda: True)
    for secret in ({"token": "mine"}, {"token": "", "password": True}):
        text = lab.address_text(INFO | secret)
        assert "8889/lab" in text and "mine" not in text and "ssh" not in text
        assert "It asks for the token or the password that you have set." in text


@pytest.mark.skipif(not shutil.which("openssl"), reason="it makes the certificate")
def test_a_server_with_a_certificate_of_the_users_or_a_password_answers(tmp_path, monkeypatch):
    """Also with a certificate that is made out to another name."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import lab

    class Refuse(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_error(403)

        def log_message(self, *_):
            pass

    key, certificate = tmp_path / "key", tmp_path / "certificate"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    make += ["-subj", "/CN=another", "-keyout", key, "-out", certificate]
    subprocess.run(make, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refuse) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"https://127.0.0.1:{server.server_port}/"
        monkeypatch.setattr(lab, "server_info", lambda pid: INFO | {"url": url})
        assert lab.answers(os.getpid())
        server.shutdown()
    assert not lab.answers(os.getpid())
