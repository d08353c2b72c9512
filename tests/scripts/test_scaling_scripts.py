"""scripts/synthetic_benchmark.py as a user starts it: mpirun, torchrun, alone, and with bad
options.
"""

import importlib.util
import json
import os
import runpy
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest
import torch
from many_runs import SCRIPTS, many_runs

import pi2zero

SCRIPT = SCRIPTS / "synthetic_benchmark.py"
SMALL = [
    "--model",
    "tiny",
    "--image-size",
    "32",
    "--batch-size",
    "4",
    "--iterations",
    "3",
    "--warmup",
    "1",
]


@pytest.fixture(autouse=True)
def _mpi():
    with mock.patch.dict(os.environ):
        pi2zero.mpi_env()
        yield


def run(*command):
    return subprocess.run([*command], check=False, capture_output=True, text=True, timeout=90)


def check_report(report, method, ranks):
    assert (report["method"], report["ranks"], report["batch_size"]) == (method, ranks, 4)
    assert len(report["per_rank"]) == ranks
    assert all(0 < own["images_per_second"] < 1e6 and own["sd"] >= 0 for own in report["per_rank"])
    # The whole moves at the pace of its slowest rank, so it cannot beat the sum of its ranks.
    assert (
        0
        < report["images_per_second"]
        <= sum(own["images_per_second"] for own in report["per_rank"]) * (1 + 1e-9)
    )


METHODS = ["single", "ddp", "hand", "horovod"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Each method on two ranks of one mpirun."""
    body = "".join(
        f"train({method!r}, 'synthetic_benchmark.py', '--method', {method!r}, *{SMALL!r})\n"
        for method in METHODS
    )
    with mock.patch.dict(os.environ):
        pi2zero.mpi_env()
        return many_runs(tmp_path_factory.mktemp("synthetic"), 2, body)


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_two_mpi_ranks(runs, method):
    if method == "horovod" and importlib.util.find_spec("horovod") is None:
        pytest.skip("Horovod is not built")
    assert runs[method]["messages"] == [None, None]
    (report,) = runs[method]["records"]
    check_report(report, method, 2)


@pytest.mark.long
def test_torchrun():
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
    ]
    done = run(*torchrun, str(SCRIPT), "--method", "ddp", "--json", *SMALL)
    assert done.returncode == 0, done.stderr
    check_report(json.loads(done.stdout), "ddp", 2)


def test_independent_runs_wait_for_nobody(monkeypatch, capsys):
    """The ceiling of all methods is what the ranks did, not what they would have done in step."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import synthetic_benchmark

    seconds = np.array(
        [[0.1, 0.3, 0.2, 0.0], [0.3, 0.1, 0.2, 0.0]]
    )  # two ranks, three steps, and what the processor worked
    for method, images, step in (("single", 4 / 0.1 + 4 / 0.3, 0.2), ("ddp", 8 / 0.3, 0.3)):
        monkeypatch.setattr(
            sys, "argv", [str(SCRIPT), "--method", method, "--batch-size", "4", "--json"]
        )
        synthetic_benchmark.report(
            synthetic_benchmark.parse(), seconds[:, [0, 1, 3]], 1000, torch.device("cpu")
        )
        report = json.loads(capsys.readouterr().out)
        assert report["images_per_second"] == pytest.approx(images) and report[
            "step_seconds"
        ] == pytest.approx(step)


def test_alone_in_words():
    done = run(sys.executable, str(SCRIPT), *SMALL)
    assert done.returncode == 0, done.stderr
    assert "4 images of 32 x 32 per rank" in done.stdout
    assert [line.split(":")[0] for line in done.stdout.splitlines()[1:]] == ["rank 0", "in all"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--batch-size", "0"], "must be at least 1"),
        (["--image-size", "8"], "must be at least 32"),
        (["--threads", "1000"], "of the cores: mpirun --bind-to none"),
        (["--iterations", "0"], "must be at least 1"),
        (["--method", "magic"], "invalid choice: 'magic'"),
    ],
)
def test_bad_options_say_what_is_wrong(monkeypatch, capsys, options, message):
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *options])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    assert ended.value.code not in (0, None)
    assert message in str(ended.value.code) + capsys.readouterr().err
