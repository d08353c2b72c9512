"""What another user of the host tries: `intruder.py UID ATTEMPT JSON`, as root, prints what it got.

It becomes that user for good, once all that it needs is imported: the interpreter may lie where
only root can read.
"""

import encodings.idna  # noqa: F401  (for connecting, later)
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SECONDS = 3.0
NEEDED = {  # by attempt; tornado looks for its loop late, when the other user cannot read it
    "subscribe": ["zmq"],
    "connect": ["ipyparallel", "tornado.platform.asyncio"],
    "join": ["torch.distributed"],
}


def subscribe(ports, word):
    """Read what is published: connect to every port, ask for everything, and look for a word."""
    import zmq

    context, found = zmq.Context(), []
    sockets = [context.socket(zmq.SUB) for _ in ports]
    for port, channel in zip(ports, sockets, strict=True):
        channel.subscribe(b"")
        channel.connect(f"tcp://127.0.0.1:{port}")
    ready()
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        for channel in select_readable(sockets):
            message = b" ".join(channel.recv_multipart())
            found += [message.decode(errors="replace")] if word.encode() in message else []
    context.destroy(linger=0)
    return found[:20]


def select_readable(sockets):
    import zmq

    poller = zmq.Poller()
    for channel in sockets:
        poller.register(channel, zmq.POLLIN)
    return [channel for channel, _ in poller.poll(200)]


def connect(path):
    """Connect as a client with a connection file, and list the variables of the ranks."""
    import ipyparallel as ipp

    with tempfile.TemporaryDirectory() as os.environ[
        "IPYTHONDIR"
    ]:  # this user has no home: IPython would leave a folder
        client = ipp.Client(str(path), timeout=SECONDS)
        return client[:].apply_sync(
            lambda: [name for name in globals() if name.startswith("secret")]
        )


def join(path):
    """Go where torch's ranks met, as one more rank, and read what is there."""
    import torch.distributed as dist

    with Path(path).open("rb"):  # FileStore itself would wait for minutes
        return [str(dist.FileStore(path, 4).num_keys())]


def knock(ports):
    """Connect to every port and send nonsense; the ports that took it."""
    taken = []
    for host, port in ports:
        try:
            with socket.create_connection((host, port), timeout=1) as caller:
                caller.sendall(b"x" * 100)
                taken.append(port)
        except OSError:
            pass
    return taken


def stay(port):
    """Connect, as gloo's next rank would, and stay until the other closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as caller:
        return [caller.recv(100).decode()]


def look(pids):
    """Read the environment of processes, its own child's first; the pids that it could read."""
    own = child()
    got = [pid for pid in (own.pid, *pids) if allowed(Path(f"/proc/{pid}/environ").read_bytes)]
    own.kill()
    return got


def kill(pids):
    """Send signals to processes; the pids that took them. Its own child is the first."""
    own = child()
    taken = [
        pid for pid in (own.pid, *pids) if allowed(lambda pid=pid: os.kill(pid, signal.SIGTERM))
    ]
    own.wait()
    return taken


def remove(paths):
    """List, read and remove files and folders; what it got hold of."""
    got = []
    for path in map(Path, paths):
        tries = [
            path.iterdir,
            path.read_bytes,
            path.unlink,
            path.rmdir,
            lambda p=path: p.rename(f"{p}.away"),
        ]
        got += [str(path)] if any([allowed(attempt) for attempt in tries]) else []
    return got


def child():
    """A process of its own, once it runs."""
    process = subprocess.Popen(["/bin/cat"], cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdin.write(b"up\n")
    process.stdin.flush()
    process.stdout.readline()
    return process


def allowed(attempt):
    try:
        result = attempt()
        return True if result is None else bool(list(result) or True)
    except OSError:
        return False


def ready():
    print("ready", flush=True)


def main(uid, attempt, options):
    for module in NEEDED.get(attempt, []):
        importlib.import_module(module)
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    os.chdir("/")
    try:
        got = globals()[attempt](**options)
    except OSError as error:
        got = []
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    print(json.dumps(got), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]))
