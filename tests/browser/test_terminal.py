"""A terminal of JupyterLab's has the kit's programs, and MPI as the notebooks have it, also where the server writes to a file."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import requests
import websocket

ROOT = Path(__file__).parents[2]


def typed(address, line, until):
    """What a terminal says to a line, as far as `until`.

    With a client that needs no event loop: the browser's tests leave Playwright's running.
    """
    said, socket = "", websocket.create_connection(address, timeout=60, suppress_origin=True)
    socket.send(json.dumps(["stdin", line + "\r"]))
    while until not in said:
        kind, *words = json.loads(socket.recv())
        said += words[0] if kind == "stdout" else ""
    socket.close()
    return said


def test_python_and_mpirun_are_the_kits_and_four_ranks_start(lab):
    base, token = re.match(r"(http://[^/]+)/.*token=(\w+)", lab[0]).groups()
    server = requests.Session()
    server.trust_env, server.headers["Authorization"] = False, f"token {token}"  # no proxy
    name = server.post(f"{base}/api/terminals", timeout=60).json()["name"]
    address = f"{base.replace('http', 'ws')}/terminals/websocket/{name}?token={token}"
    line = "command -v python; mpirun -n 4 python -c 'import mpi4py.MPI as m; print(m.COMM_WORLD.size)'; echo over | tr a-z A-Z"
    said = typed(address, line, "OVER")
    server.delete(f"{base}/api/terminals/{name}", timeout=60)
    assert str(Path(sys.executable)) in said and len(re.findall(r"^4\r?$", said, re.M)) == 4, said


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
def test_they_come_before_what_conda_writes_into_a_bashrc(tmp_path):
    (other := tmp_path / "bin" / "python").parent.mkdir()
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    (tmp_path / ".bashrc").write_text(f'PATH="{other.parent}:$PATH"\n')
    command = [
        "bash",
        "--rcfile",
        ROOT / "tools" / "lab_settings" / "bashrc",
        "-i",
        "-c",
        "command -v python",
    ]
    env = os.environ | {"HOME": str(tmp_path), "PI2ZERO_BIN": str(Path(sys.executable).parent)}
    for options, found in ((command[:1] + command[3:], other), (command, sys.executable)):
        done = subprocess.run(
            options, env=env, capture_output=True, text=True, start_new_session=True
        )
        assert done.stdout.strip() == str(found), done.stderr
