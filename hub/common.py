"""What the hub on one node and the hub on a Slurm cluster have in common. Both load this file."""

import contextlib
import os
import sys
from pathlib import Path

c = get_config()  # noqa: F821  JupyterHub's configuration object

HUB = Path(__file__).resolve().parent
STATE = Path(os.environ.get("PI2ZERO_HUB_STATE", HUB.parent / "build" / "hub"))
STATE.mkdir(mode=0o700, parents=True, exist_ok=True)

# Who may come: the accounts of this machine, by their passwords. Root may not.
c.JupyterHub.authenticator_class = "pam"
c.Authenticator.allow_all = True
c.Authenticator.blocked_users = {"root"}

# Only this machine reaches the hub until it has a certificate: passwords are sent in the clear.
c.JupyterHub.bind_url = "http://127.0.0.1:8000"
PROXY = HUB / "node_modules" / ".bin" / "configurable-http-proxy"
PID_FILE = STATE / "proxy.pid"
c.ConfigurableHTTPProxy.command = [str(PROXY)]
c.ConfigurableHTTPProxy.pid_file = str(PID_FILE)
# JupyterHub ends the process with the pid in that file. After a power cut that may be another one.
with contextlib.suppress(OSError, ValueError):
    if (
        str(PROXY).encode()
        not in Path("/proc", str(int(PID_FILE.read_text())), "cmdline").read_bytes()
    ):
        PID_FILE.unlink()
c.JupyterHub.db_url = f"sqlite:///{STATE / 'hub.sqlite'}"
c.JupyterHub.cookie_secret_file = str(STATE / "cookie_secret")

c.Spawner.cmd = [sys.executable, str(HUB / "person.py")]
c.Spawner.default_url = "/lab/tree/notebooks/00_start_here.ipynb"
c.Spawner.start_timeout = c.Spawner.http_timeout = 180  # a room starts all at once
c.JupyterHub.cleanup_servers = True  # the hub's end is the end of all servers
