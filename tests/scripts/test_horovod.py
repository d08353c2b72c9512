"""train_horovod.py, train_keras.py and elastic_horovod.py as a user starts them, against the serial
programs.
"""

import re
import subprocess
import sys

import pytest
from many_runs import SCRIPTS, assert_same_curve, many_runs, records, run

SINGLE, HOROVOD, KERAS = (SCRIPTS / f"train_{name}.py" for name in ("single", "horovod", "keras"))
TWO_EPOCHS = ["--json", "--epochs", 2]
pytestmark = pytest.mark.usefixtures("mpi_set")


@pytest.fixture(scope="module")
def horovod():
    why = "Horovod is not built here: make horovod"
    pytest.importorskip("horovod.torch", reason=why, exc_type=ImportError)


def needs_horovod(test):
    """It may still be compiled while `make test-fast` runs."""
    return pytest.mark.long(pytest.mark.usefixtures("horovod")(test))


@pytest.fixture(scope="module")
def alone(mpi_set, horovod):
    return records(sys.executable, SINGLE, *TWO_EPOCHS)


RUNS = """
file = folder / "digits.pt"
train("two", "train_horovod.py", "--epochs", 2)
train("fp16", "train_horovod.py", "--epochs", 2, "--fp16")
train("first half", "train_horovod.py", "--epochs", 1, "--checkpoint", file)
train("second half", "train_horovod.py", "--epochs", 2, "--checkpoint", file, "--resume")
resume = "--checkpoint", file, "--resume"
train("at no rate", "train_horovod.py", "--epochs", 3, *resume, "--lr", 1e-30)
train("without momentum", "train_horovod.py", "--epochs", 4, *resume, "--momentum", 0)
train("batch of 63", "train_horovod.py", "--batch-size", 63)
train("adam", "horovod_adam.py", "--epochs", 2)
train("adam, serial", "single_adam.py", "--epochs", 2)
train("keras", "train_keras.py", "--epochs", 2)

import horovod.torch as hvd
hvd.init()
torch.manual_seed(hvd.rank())
model = torch.nn.Linear(64, 10)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
sgd = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer = hvd.DistributedOptimizer(sgd, named_parameters=model.named_parameters())
images = torch.rand(32, 64, generator=torch.Generator().manual_seed(7))
model(images[hvd.rank() :: hvd.size()]).square().mean().backward()
optimizer.synchronize()
serial = torch.autograd.grad(model(images).square().mean(), model.weight)[0]
own = torch.autograd.grad(model(images[hvd.rank() :: hvd.size()]).square().mean(), model.weight)[0]
off = [(gradient - serial).abs().max().item() for gradient in (own, model.weight.grad)]
results["gradient"] = comm.allgather(off)
hvd.shutdown()
"""


@pytest.fixture(scope="module")
def runs(mpi_set, horovod, tmp_path_factory):
    """Of runs on two ranks of one mpirun: the records, and the sentence that ranks ended with."""
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


@needs_horovod
def test_two_ranks_follow_the_serial_curve(alone, two):
    assert_same_curve(two, alone)
    horovodrun = "horovodrun", "--gloo", "-np", "2", sys.executable
    assert_same_curve(records(*horovodrun, HOROVOD, *TWO_EPOCHS), alone)


@needs_horovod
def test_with_adam_two_ranks_follow_the_serial_curve_too(runs):
    """Horovod's broadcast of a fresh optimizer's state takes a step, which Adam counts: the loss
    would be 0.03 off.
    """
    assert_same_curve(runs["adam"]["records"], runs["adam, serial"]["records"])


@needs_horovod
def test_one_rank_is_the_serial_program_bit_by_bit(alone):
    assert records(sys.executable, HOROVOD, *TWO_EPOCHS) == alone


@needs_horovod
def test_fp16_is_near_but_not_the_same(alone, two, runs):
    """fp16 keeps 11 bits of each gradient: the loss may move in the third digit, and must move at
    all.
    """
    half = runs["fp16"]["records"]
    assert_same_curve(half, alone, tolerance=0.02)
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
def test_batch_that_does_not_divide_is_refused(runs):
    assert runs["batch of 63"] == {
        "records": [],
        "messages": ["--batch-size 63 is not a multiple of the 2 ranks"] * 2,
    }


def test_without_horovod_the_script_says_what_to_do(tmp_path):
    (tmp_path / "horovod").mkdir()
    (tmp_path / "horovod" / "__init__.py").write_text(
        "raise ImportError('Extension has not been built')\n"
    )
    done = run(sys.executable, HOROVOD, PYTHONPATH=str(tmp_path))
    assert (
        done.returncode == 1
        and "Run: make horovod" in done.stderr
        and "Traceback" not in done.stderr
    )


@needs_horovod
def test_keras_on_two_ranks_follows_keras_on_one(runs):
    assert_same_curve(runs["keras"]["records"], records(sys.executable, KERAS, *TWO_EPOCHS))


@pytest.mark.nightly
@needs_horovod
def test_a_second_worker_joins_and_no_step_is_lost(tmp_path):
    hosts, discover = tmp_path / "hosts", tmp_path / "discover.sh"
    hosts.write_text("localhost:1\n")
    discover.write_text(f"#!/bin/sh\ncat '{hosts}'\n")
    discover.chmod(0o755)
    patient = "--start-timeout 300 --gloo-timeout-seconds 300"
    launcher = (
        f"horovodrun --gloo --network-interface lo {patient} -np 1 --min-np 1 --max-np 2 "
        f"--host-discovery-script"
    )
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
    for own, mean in runs["gradient"]:
        assert own > 1e-4 and mean < 1e-7
