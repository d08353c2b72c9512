"""Eighty calls of six libraries that wait for another rank: each is known by its real stack."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pi2zero.mpi import mpi_env

CALLS = Path(__file__).parents[1] / "helpers" / "blocked_calls.py"
KINDS = [("mpi", 41), ("torch", 35), pytest.param("libraries", 10, marks=pytest.mark.nightly)]


@pytest.mark.parametrize(("kind", "at_least"), KINDS)
def test_calls_that_wait_for_another_rank_are_known(kind, at_least, tmp_path):
    mpi_env()
    command = ["mpirun", "-n", "2", sys.executable, str(CALLS), kind, str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    answers = [line for line in done.stdout.splitlines() if line.startswith("ANSWERS ")]
    assert answers, done.stdout[-2000:] + done.stderr[-4000:]
    found = json.loads(answers[0].removeprefix("ANSWERS "))
    others = {name: answer for name, answer in found.items() if answer not in ("waits", "polls")}
    assert not others and len(found) >= at_least
