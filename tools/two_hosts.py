#!/usr/bin/env python
"""`make two-hosts`: JupyterLab at notebook 12, in the midst of two hosts and a Slurm made by
tools/hosts.py. Root, Linux.

JupyterLab runs on the host "login", whose network nobody else sees. It listens on a Unix socket
there; this program passes on to it what comes to a port of 127.0.0.1. When it ends, the hosts and
all that runs on them end, too.
"""

import asyncio
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path

import hosts
import lab

FIRST = "notebooks/12_clusters.ipynb"
SITE = """# Where ranks run when nobody says it: in a job of two nodes.
on = "slurm"
nodes = 2
ranks_per_node = 2
"""


def main():
    if missing := hosts.what_is_missing():
        sys.exit(f"Two hosts on this machine need {missing}.")
    if subprocess.run(
        [sys.executable, "-m", "pi2zero", "doctor", "--quick"], cwd=lab.ROOT
    ).returncode:
        sys.exit("The doctor found what would stop you (see above). Correct it, then run it again.")
    with tempfile.TemporaryDirectory(
        prefix="pi2zero-lab-", dir="/var/tmp"
    ) as folder:  # /tmp is each host's own
        Path(folder, "site.toml").write_text(SITE)
        sys.exit(asyncio.run(serve(Path(folder))))


async def serve(folder: Path) -> int:
    """Start the hosts with JupyterLab on "login", and pass on what comes, until it ends."""
    sock, token = folder / "lab.sock", secrets.token_hex(24)
    env = lab.environment() | {"PI2ZERO_SITE": str(folder / "site.toml"), "JUPYTER_TOKEN": token}
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        f"--config={lab.ROOT / 'tools' / 'jupyter_lab_config.py'}",
    ]
    command += [
        f"--ServerApp.root_dir={lab.ROOT}",
        f"--ServerApp.sock={sock}",
        "--no-browser",
        "--allow-root",
    ]
    words = [
        sys.executable,
        str(lab.ROOT / "tools" / "hosts.py"),
        "--",
        *command,
        "--log-level=WARN",
    ]
    server = await asyncio.create_subprocess_exec(*words, cwd=lab.ROOT, env=env)
    listening = await asyncio.start_server(
        lambda *ends: forward_visitor(sock, *ends), "127.0.0.1", 0
    )
    while not sock.exists() and server.returncode is None:
        await asyncio.sleep(0.1)
    if server.returncode is None:
        port = listening.sockets[0].getsockname()[1]
        print(f"JupyterLab on two hosts: http://127.0.0.1:{port}/lab/tree/{FIRST}?token={token}")
        print("Ctrl-C ends it, and the hosts with it.", flush=True)
    try:
        return await server.wait()
    finally:
        if server.returncode is None:
            server.terminate()
            await server.wait()


async def forward_visitor(sock: Path, reader, writer) -> None:
    """Both ways between one visitor and the server, until either hangs up."""
    try:
        to_read, to_write = await asyncio.open_unix_connection(str(sock))
    except OSError:
        writer.close()
        return
    await asyncio.gather(copy_until_end(reader, to_write), copy_until_end(to_read, writer))


async def copy_until_end(reader, writer) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass  # the visitor has closed the page
    finally:
        writer.close()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
