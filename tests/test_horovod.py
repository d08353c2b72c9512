"""train_horovod.py, train_keras.py and elastic_horovod.py as a user starts them, against the serial programs."""

import difflib
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

import pi2zero

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
SINGLE, HOROVOD, KERAS = (SCRIPTS / f"train_{name}.py" for name in ("single", "horovod", "keras"))
LAUNCHERS = {"python": [], "mpirun": ["mpirun", "-n", "2"], "horovodrun": ["horovodrun", "--gloo", "-np", "2"]}
# The ranks add up the same 64 gradients in another order. Float32 has 7 digits; momentum and 44 steps enlarge the difference.
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def horovod():
    pytest.importorskip("horovod.torch", reason="Horovod is not built here: make horovod", exc_type=ImportError)


def needs_horovod(test):
    """It may still be compiled while `make test-fast` runs."""
    return pytest.mark.long(pytest.mark.usefixtures("horovod")(test))


@pytest.fixture(autouse=True, scope="module")
def _mpi():
    with mock.patch.dict(os.environ, OMP_NUM_THREADS="1"):  # what mpi_env sets is taken back
        pi2zero.mpi_env()
        yield


def run(*parts, **options):
    return subprocess.run([str(part) for part in parts], capture_output=True, text=True, timeout=150, **options)


def train(launcher, script, *options):
    """The records that a run printed: one an epoch, then the fingerprint of the parameters."""
    done = run(*LAUNCHERS[launcher], sys.executable, script, "--json", "--epochs", 2, *options)
    assert done.returncode == 0, done.stderr
    return [json.loads(line[line.index("{") :]) for line in done.stdout.splitlines()]  # horovodrun writes [0]<stdout>: before it


@pytest.fixture(scope="module")
def alone(_mpi, horovod):
    return train("python", SINGLE)


@pytest.fixture(scope="module")
def two(_mpi, horovod):
    return train("mpirun", HOROVOD)


def same_curve(ours, theirs, tolerance=TOLERANCE):
    assert len(ours) == len(theirs) == 3, "two epochs and the fingerprint, by one rank"
    for one, other in zip(ours[:-1], theirs[:-1], strict=True):
        assert one["loss"] == pytest.approx(other["loss"], abs=tolerance)
        assert one["accuracy"] == pytest.approx(other["accuracy"], abs=1.5 / 360), "at most one image on the edge"


@needs_horovod
def test_two_ranks_follow_the_serial_curve(alone, two):
    same_curve(two, alone)
    same_curve(train("horovodrun", HOROVOD), alone)


@needs_horovod
def test_with_adam_two_ranks_follow_the_serial_curve_too(tmp_path):
    """Horovod's broadcast of a fresh optimizer's state takes a step, which Adam counts: the loss would be 0.03 off."""
    scripts = []
    for script in (SINGLE, HOROVOD):
        text = script.read_text()
        changed = re.sub(r"torch\.optim\.SGD\(.*\)", "torch.optim.Adam(model.parameters(), lr=0.01)", text)
        assert changed != text
        scripts.append(tmp_path / script.name)
        scripts[-1].write_text(changed)
    same_curve(train("mpirun", scripts[1]), train("python", scripts[0]))


@needs_horovod
def test_one_rank_is_the_serial_program_bit_by_bit(alone):
    assert train("python", HOROVOD) == alone


@needs_horovod
def test_fp16_is_near_but_not_the_same(alone, two):
    """fp16 keeps 11 bits of each gradient: the loss may move in the third digit, and must move at all."""
    half = train("mpirun", HOROVOD, "--fp16")
    same_curve(half, alone, tolerance=0.02)
    assert half[-1] != two[-1]


@needs_horovod
def test_resumed_run_ends_as_the_whole_one(tmp_path, two):
    file = tmp_path / "digits.pt"
    train("mpirun", HOROVOD, "--epochs", 1, "--checkpoint", file)
    assert train("mpirun", HOROVOD, "--checkpoint", file, "--resume") == two[1:]


def test_horovod_is_single_plus_fewer_than_60_tagged_lines():
    single, horovod = SINGLE.read_text().splitlines(), HOROVOD.read_text().splitlines()
    delta = [line for line in difflib.ndiff(single, horovod) if line[0] in "+-" and line[2:].strip()]
    added = [line[2:] for line in delta if line[0] == "+"]
    assert 0 < len(delta) < 60, "added and removed together"
    assert [line for line in added if "# NEW" not in line] == []
    assert [line for line in horovod if "# NEW" in line and line not in added] == []
    rest = iter([line for line in single if line.strip()])
    kept = [line for line in horovod if "# NEW" not in line and line.strip()]
    assert all(line in rest for line in kept), "without the tagged lines, train_single.py's own lines remain, in order"


@needs_horovod
@pytest.mark.parametrize("script", [HOROVOD, KERAS, SCRIPTS / "elastic_horovod.py"])
def test_help(monkeypatch, capsys, script):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.setattr(sys, "argv", [str(script), "--help"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_path(str(script), run_name="__main__")
    assert script.name in capsys.readouterr().out


@needs_horovod
def test_batch_that_does_not_divide_is_refused():
    done = run(*LAUNCHERS["mpirun"], sys.executable, HOROVOD, "--batch-size", 63)
    assert done.returncode != 0 and "--batch-size 63 is not a multiple of the 2 ranks" in done.stderr


def test_without_horovod_the_script_says_what_to_do(tmp_path):
    (tmp_path / "horovod").mkdir()
    (tmp_path / "horovod" / "__init__.py").write_text("raise ImportError('Extension has not been built')\n")
    done = run(sys.executable, HOROVOD, env=dict(os.environ, PYTHONPATH=str(tmp_path)))
    assert done.returncode == 1 and "Run: make horovod" in done.stderr and "Traceback" not in done.stderr


@needs_horovod
def test_keras_on_two_ranks_follows_keras_on_one():
    same_curve(train("mpirun", KERAS), train("python", KERAS))


@needs_horovod
def test_a_second_worker_joins_and_no_step_is_lost(tmp_path):
    hosts, discover = tmp_path / "hosts", tmp_path / "discover.sh"
    hosts.write_text("localhost:1\n")
    discover.write_text(f"#!/bin/sh\ncat '{hosts}'\n")
    discover.chmod(0o755)
    launcher = "horovodrun --gloo --network-interface lo -np 1 --min-np 1 --max-np 2 --host-discovery-script"
    command = [*launcher.split(), str(discover), sys.executable, str(SCRIPTS / "elastic_horovod.py"), "--steps", "30"]
    steps = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as elastic:
        try:
            for line in elastic.stdout:
                words = line.rpartition(":")[2].split()
                if "workers" not in words:
                    continue
                steps.append((int(words[1]), int(words[3])))
                if len(steps) == 5:
                    hosts.write_text("localhost:2\n")
            assert elastic.wait(timeout=60) == 0
        finally:
            elastic.terminate()  # nothing, if it has ended
    assert [step for step, _ in steps] == list(range(30)), "none lost, none repeated"
    workers = [n for _, n in steps]
    assert workers[:5] == [1] * 5 and workers[-1] == 2


RANKS = """
import torch, horovod.torch as hvd
hvd.init()
torch.manual_seed(hvd.rank())
model = torch.nn.Linear(64, 10)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters())
images = torch.rand(32, 64, generator=torch.Generator().manual_seed(7))
model(images[hvd.rank() :: hvd.size()]).square().mean().backward()
optimizer.synchronize()
serial = torch.autograd.grad(model(images).square().mean(), model.weight)[0]
error = (model.weight.grad - serial).abs().max().item()
own = torch.autograd.grad(model(images[hvd.rank() :: hvd.size()]).square().mean(), model.weight)[0]
print("apart", (own - serial).abs().max().item() > 1e-4, "equal", error < 1e-7)
"""


@needs_horovod
def test_averaged_gradient_is_the_large_batch_s():
    done = run(*LAUNCHERS["mpirun"], sys.executable, "-c", RANKS)
    assert done.stdout.splitlines() == ["apart True equal True"] * 2, done.stderr
