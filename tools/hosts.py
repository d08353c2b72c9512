#!/usr/bin/env python
"""Two hosts and a Slurm on this machine, for as long as a command runs. Root, Linux.

  python tools/hosts.py -- python -m pytest tests/several_hosts   tests on more than one host
  python tools/hosts.py                     a shell on "login", which reaches node1 and node2
  python tools/hosts.py -- power node2 off  inside: cut a host's power; on: boot it; freeze; thaw

Each host is a set of Linux namespaces: its own network, host name, processes, /tmp and /dev/shm;
routes, ssh, MPI and Slurm between them are real. Files are shared, as home folders on a cluster
are. All of it lives inside one namespace of processes: when the command ends, however it ends, the
kernel removes every process, link and mount. Nothing outside is changed.

  login   10.77.0.1    the command runs here; no ranks unless they are asked for
  node1   10.77.0.11   2 cores
  node2   10.77.0.12   2 cores

Root is there, and two ordinary users, alice and bob, with homes of their own.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import check

NODES = {"node1": "10.77.0.11", "node2": "10.77.0.12"}
LOGIN = "10.77.0.1"
USERS = {"alice": 20001, "bob": 20002}
NEEDED = (Path(sys.base_prefix), Path(sys.prefix), Path(__file__).resolve().parents[1])
INSIDE = "PI2ZERO_HOSTS"  # set for the command: the folder of the harness
NEEDS = {
    "ip": "iproute2",
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "slurmctld": "slurm-wlm",
    "munged": "munge",
}
NEW_HOST = [
    "unshare",
    "--net",
    "--uts",
    "--ipc",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
]


def main():
    command = sys.argv[2:] if sys.argv[1:2] == ["--"] else sys.argv[1:]
    if INSIDE not in os.environ:
        sys.exit(outside(command))
    sys.exit(inside(command or [os.environ.get("SHELL", "sh")]))


def outside(command) -> int:
    """Go into a namespace of its own, and do the rest there."""
    if missing := what_is_missing():
        print(f"Two hosts on this machine need {missing}.")
        return 1
    with tempfile.TemporaryDirectory(
        prefix="pi2zero-hosts-", dir="/var/tmp"
    ) as folder:  # /tmp is each host's own
        Path(folder).chmod(0o755)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        process = subprocess.Popen(
            [*NEW_HOST, sys.executable, __file__, "--", *command], env=os.environ | {INSIDE: folder}
        )
        try:
            return process.wait()
        finally:  # unshare takes no other signal, and with it go all namespaces
            process.kill()
            process.wait()


def what_is_missing() -> str:
    """What this machine lacks, in words; empty if nothing."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "Linux, and root (namespaces, sshd and slurmd)"
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    if packages := sorted(
        {package for program, package in NEEDS.items() if not shutil.which(program)}
    ):
        install = "apt-get install --no-install-recommends"
        return f"programs that are missing: {install} {' '.join(packages)}"
    if subprocess.run([*NEW_HOST, "true"], capture_output=True).returncode:
        return "namespaces, which this container does not allow"
    return ""


def inside(command) -> int:
    """On the host "login": make the others, then run the command.

    This is process 1: its end ends all.
    """
    folder = Path(os.environ[INSIDE])
    run("hostname", "login")
    for path in NEEDED:
        for above in reversed(Path(path).parents):
            if not above.stat().st_mode & 0o001:
                let_users_through(above, folder / "closed")
    private_mounts(folder)
    start_network()
    run("ip", "link", "add", "br0", "type", "bridge")
    run("ip", "addr", "add", f"{LOGIN}/24", "dev", "br0")
    run("ip", "link", "set", "br0", "up")
    make_keys(folder)
    make_users(folder)
    os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
    os.environ |= check.SHARED_CORES  # the hosts share this machine's
    start_slurm(folder)
    make_dir_here(Path("/run/sshd"), folder / "run")
    subprocess.Popen(sshd(folder, "login"))
    for name in NODES:
        start_node(folder, name)
    wait_until(
        lambda: output_of("sinfo", "-h", "-t", "idle", "-o", "%D").strip() == str(len(NODES)),
        "Slurm's nodes",
    )
    threading.Thread(target=serve_power_requests, args=[folder], daemon=True).start()
    # It does not see the other hosts' processes: whoever ends something there has been there.
    return subprocess.call(
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", *command]
    )


def let_users_through(closed: Path, kept: Path) -> None:
    """Let ordinary users reach what lies in a closed folder (a Python, a clone), on these hosts."""
    kept = kept / closed.name
    kept.mkdir(mode=0o700, parents=True)
    run("mount", "--rbind", closed, kept)
    run("mount", "-t", "tmpfs", "-o", "mode=0711", "tmpfs", closed)
    for entry in kept.iterdir():
        new = closed / entry.name
        if entry.is_symlink():
            new.symlink_to(entry.readlink())
            continue
        new.mkdir(
            exist_ok=True
        ) if entry.is_dir() else new.touch()  # mount keeps its books in /run/mount
        run("mount", "--rbind", entry, new)


def start_network() -> None:
    """Start this namespace's network.

    Reno lets connections share a cable evenly; with BBR, which the machine may use, one starves.
    """
    Path("/proc/sys/net/ipv4/tcp_congestion_control").write_text("reno")
    run("ip", "link", "set", "lo", "up")


def private_mounts(folder: Path) -> None:
    """A /tmp, /dev/shm, ~/.ssh and /etc of its own, with these hosts' names."""
    run(
        "cp", "-a", "/etc", folder
    )  # as a whole: a mount on one file would go when somebody outside writes that file anew
    run("mount", "--bind", folder / "etc", "/etc")
    entries = {"localhost": "127.0.0.1", "login": LOGIN} | NODES
    Path("/etc/hosts").write_text(
        "".join(f"{address} {name}\n" for name, address in entries.items())
    )
    own_temporary_folders(folder / "login")
    ssh = make_dir_here(Path.home() / ".ssh", folder / "home")
    run("mount", "-t", "tmpfs", "-o", "mode=0700", "tmpfs", ssh)


def own_temporary_folders(kept: Path) -> None:
    """An empty /tmp and /dev/shm, in which this checkout and its Python stay if they lie there."""
    inside = [path for path in NEEDED if path.is_relative_to("/tmp")]
    for number, path in enumerate(inside):
        (kept / str(number)).mkdir(parents=True)
        run("mount", "--rbind", path, kept / str(number))
    for place in ("/tmp", "/dev/shm"):
        run("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", place)
    for number, path in enumerate(inside):
        path.mkdir(parents=True, exist_ok=True)
        run("mount", "--rbind", kept / str(number), path)


def make_dir_here(path: Path, kept: Path) -> Path:
    """Make a folder on these hosts alone; this machine keeps what it had."""
    if not path.exists() and not path.parent.is_mount():
        let_users_through(path.parent, kept)
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def make_keys(folder: Path) -> None:
    """The hosts' key, and root's; who is root on "login" gets to the nodes without a password."""
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "host")
    public = (folder / "host.pub").read_text().rsplit(" ", 1)[0]
    hosts = {"login": LOGIN} | NODES
    (folder / "known_hosts").write_text(
        "".join(f"{name},{address} {public}\n" for name, address in hosts.items())
    )
    options = [
        f"HostKey {folder}/host",
        "AuthorizedKeysFile .ssh/authorized_keys",
        "StrictModes no",
        "UsePAM no",
    ]
    options += ["PidFile none", "AcceptEnv *", "MaxStartups 100", "PermitRootLogin yes"]
    (folder / "sshd_config").write_text("\n".join(options) + "\n")
    make_key(folder, Path.home())


def make_key(folder: Path, home: Path) -> None:
    """A user's key, which opens the nodes."""
    ssh = home / ".ssh"
    ssh.mkdir(mode=0o700, exist_ok=True)
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", ssh / "id_ed25519")
    shutil.copy(ssh / "id_ed25519.pub", ssh / "authorized_keys")
    (ssh / "config").write_text(
        f"Host node* login\n  UserKnownHostsFile {folder}/known_hosts\n  BatchMode yes\n"
    )


def make_users(folder: Path) -> None:
    """Ordinary users, who are known on these hosts only."""
    for user, number in USERS.items():
        with Path("/etc/passwd").open("a") as people, Path("/etc/group").open("a") as groups:
            people.write(f"{user}:*:{number}:{number}::{folder}/{user}:/bin/sh\n")
            groups.write(f"{user}:x:{number}:\n")
        home = folder / user
        home.mkdir(mode=0o700)
        make_key(folder, home)
        for path in (home, *home.rglob("*")):
            os.chown(path, number, number)


def start_node(folder: Path, name: str) -> None:
    """A host with an sshd, at the bridge. Process 1 in it is this script, and then its sshd."""
    process = subprocess.Popen(
        [*NEW_HOST, sys.executable, __file__, "--", "node", name], stdin=subprocess.PIPE
    )
    (folder / f"{name}.pid").write_text(str(process.pid))
    cable = f"v-{name}"
    ours, its = Path("/proc/self/ns/net"), Path(f"/proc/{process.pid}/ns/net")
    wait_until(lambda: its.readlink() != ours.readlink(), f"{name}'s network")
    run("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", process.pid)
    run("ip", "link", "set", cable, "master", "br0", "up")
    process.stdin.write(b"go\n")
    process.stdin.flush()
    wait_until(lambda: reachable(NODES[name], 22), f"{name}'s sshd")


def serve_power_requests(folder: Path) -> None:
    """Do to the hosts what `power` asks for."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(folder / "power"))
    server.listen()
    while True:
        caller, _ = server.accept()
        with caller:
            name, state = caller.recv(100).decode().split()
            switch_host(folder, name, state)
            caller.sendall(b"done")


def power(name: str, state: str) -> None:
    """Ask for it, and wait until it is done."""
    with socket.socket(socket.AF_UNIX) as way:
        way.connect(str(Path(os.environ[INSIDE], "power")))
        way.sendall(f"{name} {state}".encode())
        if way.recv(100) != b"done":
            sys.exit(f"{name} could not be switched {state}.")


def switch_host(folder: Path, name: str, state: str) -> None:
    """off: the host is gone without a word; on: it boots; freeze: its processes stop; thaw."""
    if state == "on":
        return start_node(folder, name)
    process = int((folder / f"{name}.pid").read_text())
    if state == "off":
        run("ip", "link", "del", f"v-{name}")  # first: nothing that ends there can say so
        os.kill(process, signal.SIGKILL)  # its process 1 ends with it, and so do all others
        return
    its = Path(f"/proc/{process}/ns/pid_for_children").readlink()
    for path in Path("/proc").glob("[1-9]*"):
        with contextlib.suppress(OSError):
            if (path / "ns/pid").readlink() == its:
                os.kill(int(path.name), signal.SIGSTOP if state == "freeze" else signal.SIGCONT)


def node(name: str) -> None:
    """Process 1 of a node: its sshd, as soon as the cable is there."""
    folder = Path(os.environ[INSIDE])
    sys.stdin.readline()
    run("hostname", name)
    own_temporary_folders(folder / name)
    start_network()
    run("ip", "addr", "add", f"{NODES[name]}/24", "dev", "eth0")
    run("ip", "link", "set", "eth0", "up")
    make_dir_here(Path("/run/sshd"), folder / f"{name}-run")
    subprocess.Popen(
        ["slurmd", "-D", "-N", name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.execvp("sshd", sshd(folder, name))


def sshd(folder: Path, name: str) -> list[str]:
    return [
        shutil.which("sshd"),
        "-D",
        "-e",
        "-f",
        str(folder / "sshd_config"),
        "-E",
        str(folder / f"{name}.log"),
    ]


def start_slurm(folder: Path) -> None:
    """munged and slurmctld here; each node starts its slurmd.

    SLURM_CONF tells all programs where the configuration is.
    """
    nodes = "\n".join(
        f"NodeName={name} NodeAddr={ip} CPUs=2 RealMemory=4000 State=UNKNOWN"
        for name, ip in NODES.items()
    )
    text = Path(__file__).with_name("hosts_slurm.conf").read_text()
    (folder / "slurm.conf").write_text(
        text.format(login=LOGIN, folder=folder, nodes=nodes, names=",".join(NODES))
    )
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o600)
    (folder / "state").mkdir()
    files = [f"--{what}-file={folder}/munge.{what}" for what in ("key", "pid", "log", "seed")]
    run("munged", "--force", f"--socket={folder}/munge.socket", *files)
    run("slurmctld")


def reachable(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), 0.2).close()
    except OSError:
        return False
    return True


def wait_until(ready, what: str, patience: float = 30.0) -> None:
    deadline = time.monotonic() + patience
    while not ready():
        if time.monotonic() > deadline:
            sys.exit(f"{what} did not come within {patience:.0f} s.")
        time.sleep(0.05)


def output_of(*words) -> str:
    return subprocess.run(words, capture_output=True, text=True).stdout


def run(*words) -> None:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}: {done.stderr.strip()}")


if __name__ == "__main__":
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    if sys.argv[2:3] == ["node"] and INSIDE in os.environ:
        node(sys.argv[3])
    if sys.argv[2:3] == ["power"] and INSIDE in os.environ:
        sys.exit(power(*sys.argv[3:]))
    main()
