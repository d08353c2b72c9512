"""benchmarks/bench_training.py: programs that take turns, are stopped in between, and leave
nothing.
"""

import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from pi2zero.mpi import mpi_env

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import bench_training as bench

ARGS = SimpleNamespace(model="tiny", batch_size=2, image_size=64)


def ranks_of(program):
    return [
        process
        for process in program.process.children(recursive=True)
        if "training_worker" in " ".join(process.cmdline())
    ]


@pytest.mark.nightly
@pytest.mark.long
def test_programs_take_turns(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(bench, "TURNS", 2)
        mpi_env()
        with (
            bench.Program(bench.ALONE, ARGS) as alone,
            bench.Program(bench.CEILING, ARGS) as both,
            bench.Program("DDP", ARGS) as ddp,
        ):
            ratios, seconds = bench.one_round([alone, both, ddp])
            assert list(ratios) == [bench.CEILING, bench.LOCKSTEP, "DDP"] and 0 < seconds < 10
            assert 0 < ratios[bench.LOCKSTEP] <= ratios[bench.CEILING] * (1 + 1e-9)
            started = [rank for program in (alone, both, ddp) for rank in ranks_of(program)]
            assert len(started) == 1 + 2 + 2 and all(
                rank.status() == psutil.STATUS_STOPPED for rank in started
            )
    assert not any(rank.is_running() for rank in started)


def test_a_program_that_fails_is_named_with_what_it_said(monkeypatch):
    monkeypatch.setattr(bench, "WORKER", Path("no_such_file.py"))
    mpi_env()
    with (
        pytest.raises(SystemExit, match=r"(?s)one rank: no steps came.*no_such_file.py"),
        bench.Program(bench.ALONE, ARGS),
    ):
        pass
