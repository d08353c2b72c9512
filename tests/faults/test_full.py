"""A disk without space on the ranks' own machine: what a start says, and that nothing is left."""

import os
import subprocess
import sys

import pytest

from .kernel import START

MOUNT = (
    "mount --make-rprivate / && mount -t tmpfs -o size=64k,mode=1777 tmpfs {0}"
    " && (head -c 64k /dev/zero > {0}/x || true)"
)
SAYS = {
    "temporary folder": "is full: 0.0 MB are free there, and ranks need 1.",
    "/dev/shm": "and ranks need 17.",
}


@pytest.mark.skipif(os.getuid() != 0, reason="only root mounts a file system")
@pytest.mark.parametrize("name", SAYS)
def test_a_start_names_the_folder_that_is_full(tmp_path, name):
    """In a world of mounts of its own."""
    folder = str(tmp_path) if name == "temporary folder" else name
    indented = START.replace("\n", "\n    ")
    code = f"try:\n    {indented}\nexcept pi2zero.ClusterError as error:\n    print(error)\n"
    program = f'{MOUNT.format(folder)}; "$1" -c "$2"; echo "left: $(ls -A {folder} | tr -d "\\n")"'
    command = ["unshare", "--mount", "sh", "-c", program, "sh", sys.executable, code]
    env = os.environ | ({"TMPDIR": folder} if name == "temporary folder" else {})
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert f"{folder} is full" in done.stdout and SAYS[name] in done.stdout, (
        done.stdout + done.stderr
    )
    assert done.stdout.endswith("left: x\n") and "Traceback" not in done.stderr
