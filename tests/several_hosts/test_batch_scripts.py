"""The scripts of scripts/slurm, each submitted: its ranks are one world, and a wrong one is
refused.
"""

import importlib.util
import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from tests.several_hosts.conftest import ROOT, batch, jobs, on, out, over, sbatch, wait_for


def submit(script, *words, options=()):
    """Submit one of the batch scripts; the file with what it printed, once it is over."""
    said = Path(os.environ["PI2ZERO_HOSTS"], f"{script}.out")
    batch(*options, "-o", said, f"scripts/slurm/{script}.sh", *words)
    return said


TRAINED = re.compile(
    r"^(?:\[0\]<stdout>:)?epoch 2, loss 0\.4417, accuracy", re.M
)  # horovodrun says who speaks
# Says who it is, by what launchers set, and then runs the program
TOLD = """import os, runpy, sys
told = os.environ.get
size = told("WORLD_SIZE") or told("HOROVOD_SIZE") or told("OMPI_COMM_WORLD_SIZE")
os.write(1, f"one of {size} at {told('MASTER_ADDR')}\\n".encode())
sys.argv[:] = [word for word in sys.argv[1:] if not word.startswith("--local_rank=")]  \
# deepspeed's, before all others
sys.path[0] = os.path.dirname(sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize(
    ("script", "words", "at"),
    [
        ("mpirun", ["scripts/train_ddp.py", "--epochs", "2"], "None"),
        (
            "torchrun",
            ["scripts/train_ddp.py", "--epochs", "2"],
            "10.78.0.11",
        ),  # where GLOO_SOCKET_IFNAME leads
        (
            "deepspeed",
            ["scripts/train_deepspeed.py", "--epochs", "2", "--stage", "1"],
            "10.77.0.11",
        ),  # where node2 is
        ("horovodrun", ["scripts/train_horovod.py", "--epochs", "2"], "None"),
    ],
)
def test_batch_scripts_train_the_same_on_four_ranks_of_two_nodes(
    monkeypatch, fast, script, words, at
):
    """The loss is that of the serial program and of each other: the ranks are one world, not four
    that do the same.
    """
    if script == "horovodrun" and importlib.util.find_spec("horovod") is None:
        pytest.skip("Horovod is not built")
    if script == "torchrun":
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", fast)
    told = Path(os.environ["PI2ZERO_HOSTS"], "told.py")
    told.write_text(TOLD)
    text = submit(script, told, *words).read_text()
    assert TRAINED.search(text), text
    assert text.count("epoch 2,") == 1, "one rank tells"
    assert text.count(f"one of 4 at {at}\n") == 4, text


# Where an mpirun starts each rank by itself; where a job has another shape than the launcher
WRONG = [
    ("mpirun", [], "mpirun made worlds of 1, not one of 4."),
    ("requeue", [], "mpirun made worlds of 1, not one of 4."),
    (
        "torchrun",
        ["--ntasks-per-node=2", "-c1"],
        "starts one torchrun on each node, but this job has 4 tasks on 2 nodes.",
    ),
    (
        "deepspeed",
        ["--ntasks-per-node=2", "-c1"],
        "starts one deepspeed on each node, but this job has 4 tasks on 2 nodes.",
    ),
    (
        "horovodrun",
        ["-n3"],
        "starts as many ranks on each node, but this job has 3 tasks on 2 nodes.",
    ),
]


def test_a_wrong_world_is_refused_by_each_script(tmp_path):
    """Before the program starts, which is none."""
    fake = Path(os.environ["PI2ZERO_HOSTS"], "mpirun")
    fake.write_text("#!/bin/sh\nfor rank in 1 2 3 4; do echo 1; done\n")
    fake.chmod(0o755)
    for script, options, says in WRONG:
        text = (
            (ROOT / f"scripts/slurm/{script}.sh")
            .read_text()
            .replace("$PWD/.venv/bin:", f"{fake.parent}:$PWD/.venv/bin:")
        )
        (tmp_path / f"{script}.sh").write_text(text)
        said = fake.with_name(f"{script}.refused")
        batch(*options, "-o", said, tmp_path / f"{script}.sh", "x.py")
        assert says in said.read_text() and "x.py" not in said.read_text(), said.read_text()


def test_a_job_whose_time_is_nearly_over_goes_on():
    """The real limit: Slurm warns the script, which asks to be run once more, and the training ends
    as one that nobody disturbed.

    The limit is set once the training waits, so that it is a minute away: the warning comes at
    Slurm's next look.
    """
    folder = Path(os.environ["PI2ZERO_HOSTS"])
    (folder / "long.py").write_text(LONG)
    (said := folder / "requeue.out").touch()
    words = [folder / "long.py", "--epochs", "4", "--checkpoint", folder / "digits.pt", "--resume"]
    start = time.monotonic()
    job = sbatch("--signal=B:USR1@40", "-o", said, "scripts/slurm/requeue.sh", *words)
    limit = ["scontrol", "update", f"JobId={job}"]
    wait_for(lambda: "epoch 2," in said.read_text(), said)
    out(
        *limit, f"TimeLimit={(time.monotonic() - start + 40) // 60 + 1:.0f}"
    )  # minutes; 40 s from now, at least
    wait_for(lambda: WARNED in said.read_text(), said)
    out(*limit, "TimeLimit=10")
    over(job, said)
    before, _, after = said.read_text().partition(WARNED)
    epochs = [re.findall(r"^epoch (\d), loss (\S+),", part, re.M) for part in (before, after)]
    assert epochs == [UNDISTURBED[:2], UNDISTURBED[2:]], said.read_text()


WARNED = "Start 1: the time is nearly over. The job goes back into the queue.\n"
UNDISTURBED = [("1", "1.7697"), ("2", "0.4417"), ("3", "0.2186"), ("4", "0.1434")]
# In its first job the third epoch would take too long
LONG = """import os, runpy, sys, time
sys.path.insert(0, "scripts")
import common
save = common.save
def save_and_wait(args, epochs, *state):
    save(args, epochs, *state)
    if epochs == 2 and "SLURM_RESTART_COUNT" not in os.environ:
        time.sleep(600)
common.save = save_and_wait
runpy.run_path("scripts/train_ddp.py", run_name="__main__")
"""


@pytest.mark.parametrize(
    "script", ["mpirun", "torchrun", "deepspeed", "horovodrun", "jupyterlab", "requeue"]
)
def test_a_batch_script_that_is_not_submitted_says_so(script):
    done = subprocess.run(
        [ROOT / f"scripts/slurm/{script}.sh"], capture_output=True, text=True, timeout=10
    )
    assert done.returncode and "Submit this script: sbatch" in done.stderr


def test_jupyterlab_on_a_node_is_reached_by_its_token_only():
    said = Path(os.environ["PI2ZERO_HOSTS"], "jupyterlab.out")
    sbatch("-o", said, "scripts/slurm/jupyterlab.sh")
    try:
        deadline = time.monotonic() + 60
        while "JupyterLab extension loaded" not in said.read_text() if said.exists() else True:
            assert time.monotonic() < deadline
            time.sleep(0.5)
        time.sleep(2)
        address = Path(re.search(r"are in (\S+\.address)", said.read_text())[1])
        text = address.read_text()
        assert address.stat().st_mode & 0o777 == 0o600 and "token=" not in said.read_text().replace(
            "token=...", ""
        )
        port, token = re.search(r"127\.0\.0\.1:(\d+)/lab\S+token=(\w+)", text).groups()
        ask = f"curl -s -o /dev/null -w '%{{http_code}} ' 127.0.0.1:{port}/api/contents"
        assert on("node1", f"{ask}?token={token}; {ask}") == "200 403 "
        # the line that it prints, from another place: first to the host that submitted, from there
        # to the node
        (line,) = re.findall(r"^ +(ssh .+)$", text, re.MULTILINE)
        assert line == f"ssh -N -L {port}:127.0.0.1:{port} -J root@login root@node1"
        wait = f"until {ask} >/dev/null; do sleep 0.2; done"
        through = f"{line} & {wait}; {ask}?token={token}; {ask}; kill $!"
        assert on("node2", through).endswith("200 403 ")
        address.unlink()
    finally:
        out("scancel", *jobs())
