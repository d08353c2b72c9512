"""train_horovod.py, train_keras.py and elastic_horovod.py as a user starts them, against the serial programs."""

import json
import os
import re
import runpy
import subprocess
import sys

import pytest
from many_runs import SCRIPTS, many_runs

SINGLE, HOROVOD, KERAS = (SCRIPTS / f"train_{name}.py" for name in ("single", "horovod", "keras"))
LAUNCHERS = {"python": [], "horovodrun": ["horovodrun", "--gloo", "-np", "2"]}
# The ranks add up the same 64 gradients in another order. Float32 has 7 digits; momentum and 44 steps enlarge the difference.
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def horovod():
    pytest.importorskip(
        "horovod.torch", reason="Horovod is not built here: make horovod", exc_type=ImportError
    )


def needs_horovod(test):
    """It may still be compiled while `make test-fast` runs."""
    return pytest.mark.long(pytest.mark.usefixtures("horovod")(test))


pytestmark = pytest.mark.usefixtures("mpi_set")


def run(*parts, **options):
    return subprocess.run(
        [str(part) for part in parts], capture_output=True, text=True, timeout=150, **options
    )


def train(launcher, script, *options):
    """The records that a run printed: one an epoch, then the fingerprint of the parameters."""
    done = run(*LAUNCHERS[launcher], sys.executable, script, "--json", "--epochs", 2, *options)
    assert done.returncode == 0, done.stderr
    return [
        json.loads(line[line.index("{") :]) for line in done.stdout.splitlines()
    ]  # horovodrun writes [0]<stdout>: before it


@pytest.fixture(scope="module")
def alone(mpi_set, horovod):
    return train("python", SINGLE)


RUNS = """
import train_horovod, train_keras, single_adam, horovod_adam
train("two", train_horovod, "--epochs", 2)
train("fp16", train_horovod, "--epochs", 2, "--fp16")
train("first half", train_horovod, "--epochs", 1, "--checkpoint", folder / "digits.pt")
train("second half", train_horovod, "--epochs", 2, "--checkpoint", folder / "digits.pt", "--resume")
train("at no rate", train_horovod, "--epochs", 3, "--checkpoint", folder / "digits.pt", "--resume", "--lr", 1e-30)
train("without momentum", train_horovod, "--epochs", 4, "--checkpoint", folder / "digits.pt", "--resume", "--momentum", 0)
train("batch of 63", train_horovod, "--batch-size", 63)
train("adam", horovod_adam, "--epochs", 2)
train("adam, serial", single_adam, "--epochs", 2)
train("keras", train_keras, "--epochs", 2)

import horovod.torch as hvd
hvd.init()
torch.manual_seed(hvd.rank())
model = torch.nn.Linear(64, 10)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters())
images = torch.rand(32, 64, generator=torch.Generator().manual_seed(7))
model(images[hvd.rank() :: hvd.size()]).square().mean().backward()
optimizer.synchronize()
serial = torch.autograd.grad(model(images).square().mean(), model.weight)[0]
own = torch.autograd.grad(model(images[hvd.rank() :: hvd.size()]).square().mean(), model.weight)[0]
off = [(gradient - serial).abs().max().item() for gradient in (own, model.weight.grad)]
found["gradient: own and mean, off the serial one"] = comm.allgather(off)
hvd.shutdown()
"""


@pytest.fixture(scope="module")
def runs(mpi_set, horovod, tmp_path_factory):
    """Runs on two ranks of one mpirun; of each its records, and the sentence that ranks ended with."""
    folder = tmp_path_factory.mktemp("horovod")
    for script, name in ((SINGLE, "single_adam.py"), (HOROVOD, "horovod_adam.py")):
        text = script.read_text()
        changed = re.sub(
            r"torch\.optim\.SGD\(.*\)", "torch.optim.Adam(model.parameters(), lr=0.01)", text
        )
        assert changed != text
        (folder / name).write_text(changed)
    return many_runs(folder, 2, RUNS)


@pytest.fixture(scope="module")
def two(runs):
    return runs["two"]["records"]


def same_curve(ours, theirs, tolerance=TOLERANCE):
    assert len(ours) == len(theirs) == 3, "two epochs and the fingerprint, by one rank"
    for one, other in zip(ours[:-1], theirs[:-1], strict=True):
        assert one["loss"] == pytest.approx(other["loss"], abs=tolerance)
        assert one["accuracy"] == pytest.approx(other["accuracy"], abs=1.5 / 360), (
            "at most one image on the edge"
        )


@needs_horovod
def test_two_ranks_follow_the_serial_curve(alone, two):
    same_curve(two, alone)
    same_curve(train("horovodrun", HOROVOD), alone)


@needs_horovod
def test_with_adam_two_ranks_follow_the_serial_curve_too(runs):
    """Horovod's broadcast of a fresh optimizer's state takes a step, which Adam counts: the loss would be 0.03 off."""
    same_curve(runs["adam"]["records"], runs["adam, serial"]["records"])


@needs_horovod
def test_one_rank_is_the_serial_program_bit_by_bit(alone):
    assert train("python", HOROVOD) == alone


@needs_horovod
def test_fp16_is_near_but_not_the_same(alone, two, runs):
    """fp16 keeps 11 bits of each gradient: the loss may move in the third digit, and must move at all."""
    half = runs["fp16"]["records"]
    same_curve(half, alone, tolerance=0.02)
    assert half[-1] != two[-1]


@needs_horovod
def test_resumed_run_ends_as_the_whole_one(runs, two):
    assert runs["first half"]["records"][:1] == two[:1]
    assert runs["second half"]["records"] == two[1:]
    assert runs["at no rate"]["records"][-1] == two[-1], (
        "it learns at its own rate: a step of 1e-30 moves no weight"
    )
    assert len(runs["without momentum"]["records"]) == 2, (
        "no rank waits for a momentum that the others do not have"
    )


@needs_horovod
@pytest.mark.parametrize("script", [HOROVOD, KERAS, SCRIPTS / "elastic_horovod.py"])
def test_help(monkeypatch, capsys, script):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.setattr(sys, "argv", [str(script), "--help"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_path(str(script), run_name="__main__")
    assert script.name in capsys.readouterr().out


@needs_horovod
def test_batch_that_does_not_divide_is_refused(runs):
    assert runs["batch of 63"] == {
        "records": [],
        "said": ["--batch-size 63 is not a multiple of the 2 ranks"] * 2,
    }


def test_without_horovod_the_script_says_what_to_do(tmp_path):
    (tmp_path / "horovod").mkdir()
    (tmp_path / "horovod" / "__init__.py").write_text(
        "raise ImportError('Extension has not been built')\n"
    )
    done = run(sys.executable, HOROVOD, env=dict(os.environ, PYTHONPATH=str(tmp_path)))
    assert (
        done.returncode == 1
        and "Run: make horovod" in done.stderr
        and "Traceback" not in done.stderr
    )


@needs_horovod
def test_keras_on_two_ranks_follows_keras_on_one(runs):
    same_curve(runs["keras"]["records"], train("python", KERAS))


@needs_horovod
def test_a_second_worker_joins_and_no_step_is_lost(tmp_path):
    hosts, discover = tmp_path / "hosts", tmp_path / "discover.sh"
    hosts.write_text("localhost:1\n")
    discover.write_text(f"#!/bin/sh\ncat '{hosts}'\n")
    discover.chmod(0o755)
    patient = "--start-timeout 300 --gloo-timeout-seconds 300"
    launcher = f"horovodrun --gloo --network-interface lo {patient} -np 1 --min-np 1 --max-np 2 --host-discovery-script"
    steps = [
        "--steps",
        "30",
        "--pause",
        "0.5",
    ]  # the second has 12 s to join; on a busy machine it needs 10
    command = [
        *launcher.split(),
        str(discover),
        sys.executable,
        str(SCRIPTS / "elastic_horovod.py"),
        *steps,
    ]
    steps = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as elastic:
        try:
            for line in elastic.stdout:
                words = line.rpartition(":")[2].split()
                if "workers" not in words:
                    continue
                steps.append((int(words[1]), int(words[3])))
                if len(steps) == 5:
                    hosts.write_text("localhost:2\n")
            assert elastic.wait(timeout=200) == 0
        finally:
            elastic.terminate()  # nothing, if it has ended
    assert [step for step, _ in steps] == list(range(30)), "none lost, none repeated"
    workers = [n for _, n in steps]
    assert workers[:5] == [1] * 5 and workers[-1] == 2


@needs_horovod
def test_averaged_gradient_is_the_large_batch_s(runs):
    for own, mean in runs["gradient: own and mean, off the serial one"]:
        assert own > 1e-4 and mean < 1e-7
