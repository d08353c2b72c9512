"""What Slurm's programs say, and what the kit makes of it. They are short scripts here that say what Slurm 22.05 says;
tests/several_hosts has a real one."""

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from pi2zero.hosts import place, site, slurm
from pi2zero.hosts.place import Place, PlaceError

ROOT = Path(__file__).parents[2]
JOB = "JobId=7 JobName=pi2zero JobState={state} Reason={reason} Restarts={restarts} PreemptTime={preempted} NumTasks=4 CPUs/Task=2"


def job(state, reason="None", restarts=0, preempted="None"):
    return JOB.format(state=state, reason=reason, restarts=restarts, preempted=preempted)


@pytest.fixture
def says(tmp_path, monkeypatch):
    """Let a program say this and, asked again, the next; after the last, that again. Returns what it was asked for."""

    def program(name, *texts, errors="", code=0):
        for at, text in enumerate(texts):
            (tmp_path / f"{name}.{at}").write_text(text)
        script = f"""#!/bin/sh
cd {tmp_path}
echo "$@" >> {name}.asked
at=$(($(wc -l < {name}.asked) - 1))
[ -e {name}.$at ] || at={len(texts) - 1}
cat {name}.$at
echo "{errors}" >&2
exit {code}
"""
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
        return lambda: (tmp_path / f"{name}.asked").read_text().splitlines()

    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PI2ZERO_SITE", str(tmp_path / "site.toml"))
    for name in ("SLURM_JOB_ID", "SLURM_TASKS_PER_NODE", "SLURMD_NODENAME", "TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(slurm, "LOOK", 0.01)
    monkeypatch.setattr(slurm, "ENDING", 0.3)
    return program


NODES = job("RUNNING") + " Nodes=node[1-2] CPU_IDs=0-3 Mem=0 Nodes=node3 CPU_IDs=0,2 Mem=0"


def test_it_waits_in_the_queue_and_says_why(says):
    says("squeue", "5\n6\n7\n")
    says(
        "scontrol",
        job("PENDING", "Resources"),
        "",
        job("PENDING"),
        job("CONFIGURING"),
        NODES,
        NODES,
        "node1\nnode2\n",
        "node3\n",
    )
    told = []
    assert slurm.Job("7").wait(told.append) == {"node1": 2, "node2": 1, "node3": 1}
    assert told == [
        "Slurm's job 7, place 3 of those that wait (Resources)",
        "Slurm's job 7 (Slurm does not answer)",
        "Slurm's job 7, place 3 of those that wait",
        "Slurm's job 7, place 3 of those that wait",
    ]


def test_a_job_that_has_left_the_queue_is_told_without_a_place(says):
    says("squeue", "5\n")
    assert slurm.Job("7")._place_in_queue("Priority") == " (Priority)"


@pytest.mark.parametrize(
    ("state", "why"),
    [("FAILED", "its script ended"), ("DEADLINE", "its deadline"), ("BOOT_FAIL", "BOOT_FAIL")],
)
def test_a_job_that_never_starts(says, state, why):
    says("scontrol", job(state))
    with pytest.raises(PlaceError, match=f"job 7 did not start: {why}"):
        slurm.Job("7").wait(print)


def test_a_job_without_nodes_is_told_in_slurms_words(says):
    says("scontrol", job("RUNNING"))
    with pytest.raises(PlaceError, match="does not say which nodes job 7 has: JobId=7"):
        slurm.nodes_of("7")
    says("scontrol", "")
    with pytest.raises(PlaceError, match="which nodes job 7 has: nothing"):
        slurm.nodes_of("7")


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        ([job("RUNNING")], ""),
        ([""], ""),  # Slurm does not answer: nothing is known
        ([job("RUNNING", preempted="2026-11-27T10:00:00")], "another job took its nodes"),
        ([job("RUNNING", restarts=1)], "put back into the queue"),
        ([job("CONFIGURING", restarts=1)], "put back into the queue"),
        ([job("COMPLETING"), job("COMPLETING"), job("TIMEOUT")], "its time was over"),
        ([job("COMPLETING")], "it is ending"),  # for longer than one waits
        ([job("NODE_FAIL")], "lost one of its nodes"),
        ([job("REVOKED")], "REVOKED"),
    ],
)
def test_why_a_job_is_over(says, texts, why):
    says("scontrol", *texts)
    found = slurm.Job("7").why_over()
    assert found.startswith("Slurm ended job 7: ") and why in found if why else found == ""
    assert Place({"node1": 1}, job=slurm.Job("7")).why_over() == found and Place().why_over() == ""


def test_a_job_that_slurm_has_forgotten(says):
    says("scontrol", "", errors="slurm_load_jobs error: Invalid job id specified", code=1)
    assert slurm.Job("7").why_over() == "Slurm ended job 7: Slurm does not know it any more"


def test_a_program_that_does_not_answer_is_not_waited_for(says, tmp_path, monkeypatch):
    monkeypatch.setattr(slurm, "SILENCE", 0.2)
    says("scontrol", "")
    (tmp_path / "scontrol").write_text("#!/bin/sh\nexec sleep 30\n")
    begin = time.monotonic()
    assert slurm.ask("scontrol", "show", "job") == ("", "") and time.monotonic() - begin < 10


def test_a_refusal_is_in_sbatchs_words_and_the_job_is_given_back(says, tmp_path):
    says("sbatch", "", errors="sbatch: error: invalid partition specified: gpu", code=1)
    cancelled = says("scancel", "")
    with pytest.raises(
        PlaceError,
        match="Slurm refused the job: invalid partition specified: gpu\nIt was asked by: sbatch ",
    ):
        slurm.Wanted(site.load()).take(4, tmp_path, print)
    says("sbatch", "7;cluster\n")
    says("scontrol", job("FAILED"))
    with pytest.raises(PlaceError, match="its script ended"):
        slurm.Wanted(site.load()).take(4, tmp_path, print)
    assert cancelled() == ["7"], "only the job that there was"
    slurm.cancel_left(tmp_path)
    slurm.cancel_left(tmp_path / "nowhere")
    assert cancelled() == ["7", "7"]


FULL = """#!/bin/sh
echo "$@" > asked
echo "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying" >&2
sleep {seconds}
echo 7
"""


def test_while_slurm_takes_no_job_it_says_so_and_goes_on(says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    says("scancel", "")
    says("scontrol", NODES, NODES, "node1\nnode2\n", "node3\n")
    (tmp_path / "sbatch").write_text(FULL.format(seconds=0.5))
    (tmp_path / "sbatch").chmod(0o755)
    told = []
    assert slurm.Wanted(site.load()).take(4, tmp_path, told.append).job.number == "7"
    assert set(told) == {
        "Slurm, which takes no more jobs just now (sbatch tries again for two minutes)"
    }


def test_while_slurm_takes_no_job_the_stop_button_works(says, tmp_path, monkeypatch):
    """What sbatch has sent when it is stopped is cancelled by its name: its number is not known."""
    monkeypatch.chdir(tmp_path)
    cancelled = says("scancel", "")
    (tmp_path / "sbatch").write_text(FULL.format(seconds=30))
    (tmp_path / "sbatch").chmod(0o755)
    threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT]).start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        slurm.Wanted(site.load()).take(4, tmp_path, lambda text: None)
    assert time.monotonic() - begin < 10
    (name,) = [
        word for word in (tmp_path / "asked").read_text().split() if word.startswith("--job-name=")
    ]
    assert cancelled() == [f"--user={os.getuid()} {name.replace('--job-name', '--name')}"]


def test_nodes_that_slurm_gave(says, tmp_path):
    says("sbatch", "7\n")
    cancelled = says("scancel", "")
    says("scontrol", NODES, NODES, "node1\nnode2\n", "node3\n")
    found = slurm.Wanted(site.load()).take(4, tmp_path, print)
    assert found.slots == {"node1": 2, "node2": 1, "node3": 1} and found.shell == slurm.shell("7")
    assert found.folder == slurm.Wanted.folder and found.take(4, tmp_path, print) is found
    found.give_back()
    assert cancelled() == ["7"]


@pytest.mark.parametrize(
    ("tasks", "slots"),
    [
        ("", {"node1": 2, "node2": 1, "node3": 1}),
        ("1(x3)", dict.fromkeys(["node1", "node2", "node3"], 1)),
        ("4", {"node1": 2, "node2": 1, "node3": 1}),
    ],
)
def test_the_job_that_this_process_is_in(says, monkeypatch, tasks, slots):
    assert slurm.of_this_job(site.load()) is None
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", tasks)
    says("srun", "")
    says("scontrol", NODES, "node1\nnode2\n", "node3\n")
    assert slurm.of_this_job(site.load()) == Place(slots, slurm.shell("7"), "")


def test_a_job_on_this_node_alone_is_this_machine(says, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURMD_NODENAME", "node3")
    says("srun", "")
    says("scontrol", job("RUNNING") + " Nodes=node3 CPU_IDs=0-3", "node3\n")
    assert slurm.of_this_job(site.load()) == Place()


def test_mpiruns_words_for_a_job(monkeypatch):
    """srun hands the environment over, and the site's modules have changed the paths on the way; ssh hands nothing over."""
    monkeypatch.setattr(place.Place, "address", lambda self: "")
    variables = {"PATH": "/bin", "LD_LIBRARY_PATH": "/lib", "HF_HOME": "/hf"}
    words = Place({"node1": 2, "node2": 2}, slurm.shell("7")).mpi_args(3, variables, "run")
    assert (
        words[:4] == ["--host", "node1:2,node2:1", "--map-by", "slot"]
        and words[-2:] == ["-x", "HF_HOME"]
        and "PATH" not in words
    )
    by_ssh = Place({"node1": 2}, tuple(place.SSH)).mpi_args(1, variables, "run")
    assert [by_ssh[at + 1] for at, word in enumerate(by_ssh) if word == "-x"] == [*variables]


def test_deepspeed_sh_takes_no_other_job_s_gpus():
    """Slurm's words for a job that has GPUs 2 and 3 of a node where it can see all. (No GPU is here.)"""
    job = {
        "SLURM_JOB_ID": "7",
        "SLURM_NTASKS": "2",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_CPUS_PER_TASK": "4",
    }
    gpus = {"SLURM_GPUS_ON_NODE": "2", "CUDA_VISIBLE_DEVICES": "2,3"}
    command = ["bash", "scripts/slurm/deepspeed.sh", "scripts/train_deepspeed.py"]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | job | gpus, capture_output=True, text=True
    )
    assert (
        done.returncode == 1
        and "This job has the GPUs 2,3, and deepspeed's launcher would take 0 to 1." in done.stderr
    )
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | job | gpus | {"CUDA_VISIBLE_DEVICES": "0,1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode and "would take" not in done.stderr, "it goes on, and finds no Slurm"
