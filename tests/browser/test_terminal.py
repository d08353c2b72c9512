"""A terminal in JupyterLab has the kit's programs, and MPI as the notebooks have it."""

import contextlib
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


def type_line(address, line, until):
    """What a terminal prints after a line, as far as `until`.

    This client needs no event loop: the browser's tests leave Playwright's running.
    """
    socket = websocket.create_connection(address, timeout=60, suppress_origin=True)
    with contextlib.closing(socket) as terminal:
        terminal.send(json.dumps(["stdin", line + "\r"]))
        printed = ""
        while until not in printed:
            kind, *words = json.loads(terminal.recv())
            printed += words[0] if kind == "stdout" else ""
    return printed


def test_python_and_mpirun_are_the_kits_and_four_ranks_start(lab):
    base, token = re.match(r"(http://[^/]+)/.*token=(\w+)", lab[0]).groups()
    server = requests.Session()
    server.trust_env, server.headers["Authorization"] = False, f"token {token}"  # no proxy
    name = server.post(f"{base}/api/terminals", timeout=60).json()["name"]
    address = f"{base.replace('http', 'ws')}/terminals/websocket/{name}?token={token}"
    program = "import mpi4py.MPI as m; print(m.COMM_WORLD.size)"
    line = f"command -v python; mpirun -n 4 python -c '{program}'; echo over | tr a-z A-Z"
    said = type_line(address, line, "OVER")
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
