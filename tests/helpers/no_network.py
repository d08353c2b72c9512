"""A network with nothing in it but the machine itself, for what must do without one."""

import shutil
import subprocess

import pytest

CUT = ["unshare", "--net", "--", "sh", "-c", 'ip link set lo up && exec "$@"', "cut"]


def can_be_cut():
    return (
        bool(shutil.which("unshare"))
        and subprocess.run([*CUT, "true"], capture_output=True).returncode == 0
    )


cut_here = pytest.mark.skipif(
    not can_be_cut(), reason="the network cannot be cut here (Linux, root, iproute2)"
)
