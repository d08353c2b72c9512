"""A short soak; benchmarks/bench_soak.py has 200 rounds."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .soak import BREAKS, MACHINE, apart

KERNEL = {
    "descriptors": 2,
    "threads": 1,
    "memory": 20e6,
}  # by how much the last round may have more than the first


@pytest.mark.nightly
def test_ten_rounds_leave_nothing_more_than_the_first():
    """Apart from other tests where it can be: the entries, ports and semaphores are this soak's."""
    can_be = bool(shutil.which("unshare")) and apart("true", capture_output=True).returncode == 0
    command, options = (
        [sys.executable, "-m", "tests.faults.soak"],
        {"capture_output": True, "text": True, "timeout": 240, "cwd": Path(__file__).parents[2]},
    )
    done = apart(*command, **options) if can_be else subprocess.run(command, **options)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [one["broken"] for one in found] == list(BREAKS)
    assert all(one["processes"] == 0 for one in found)
    kept = found[1:-1]  # in one kernel, after the first start has imported what it needs
    for what, more in {**KERNEL, **(dict.fromkeys(MACHINE, 0) if can_be else {})}.items():
        assert kept[-1][what] <= kept[0][what] + more, (what, [one[what] for one in kept])
