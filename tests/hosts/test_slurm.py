"""What Slurm's programs say, and what the kit makes of it.

They are short scripts here that say what Slurm 22.05 says; tests/several_hosts has a real Slurm.
"""

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from pi2zero import obstacles, ownership
from pi2zero.hosts import place, site, slurm
from pi2zero.hosts.place import Place, PlaceError

ROOT = Path(__file__).parents[2]


def job(state, reason="None", restarts=0, preempted="None"):
    return (
        f"JobId=7 JobName=pi2zero JobState={state} Reason={reason} Restarts={restarts} "
        f"PreemptTime={preempted} NumTasks=4 CPUs/Task=2"
    )


NODES = job("RUNNING") + " Nodes=node[1-2] CPU_IDs=0-3 Mem=0 Nodes=node3 CPU_IDs=0,2 Mem=0"
SLOTS = {"node1": 2, "node2": 1, "node3": 1}
NAMES = ("node1\nnode2\n", "node3\n")  # of scontrol show hostnames


@pytest.fixture
def says(tmp_path, monkeypatch):
    """Let a program say this and, asked again, the next. Returns what it was asked for."""

    def program(name, *texts, errors="", code=0, before=""):
        for at, text in enumerate(texts):
            (tmp_path / f"{name}.{at}").write_text(text)
        script = f"""#!/bin/sh
cd {tmp_path}
echo "$@" >> {name}.asked
at=$(($(wc -l < {name}.asked) - 1))
[ -e {name}.$at ] || at={len(texts) - 1}
echo "{errors}" >&2
{before}
cat {name}.$at
exit {code}
"""
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
        return lambda: (tmp_path / f"{name}.asked").read_text().splitlines()

    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PI2ZERO_SITE", str(tmp_path / "site.toml"))
    for name in ("SLURM_JOB_ID", "SLURM_TASKS_PER_NODE", "SLURMD_NODENAME", "TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(slurm, "FIRST_POLL", 0.01)
    monkeypatch.setattr(slurm, "ENDING", 0.3)
    return program


def allocate(progress=print):
    return slurm.SlurmRequest(site.load()).allocate(4, progress)


def test_it_waits_in_the_queue_and_says_why(says):
    says("squeue", "5\n6\n7\n")
    waits = [job("PENDING", "Resources"), "", job("PENDING"), job("CONFIGURING")]
    says("scontrol", *waits, NODES, NODES, *NAMES)
    told = []
    assert slurm.SlurmJob("7").wait(told.append) == SLOTS
    assert told == [
        "Slurm's job 7, place 3 of those that wait (Resources)",
        "Slurm's job 7 (Slurm does not answer)",
        "Slurm's job 7, place 3 of those that wait",
        "Slurm's job 7, place 3 of those that wait",
    ]


@pytest.mark.parametrize(
    ("state", "why"),
    [("FAILED", "its script ended"), ("DEADLINE", "its deadline"), ("BOOT_FAIL", "BOOT_FAIL")],
)
def test_a_job_that_never_starts(says, state, why):
    says("scontrol", job(state))
    with pytest.raises(PlaceError, match=f"job 7 did not start: {why}"):
        slurm.SlurmJob("7").wait(print)


@pytest.mark.parametrize(("text", "says_"), [(job("RUNNING"), "JobId=7"), ("", "nothing")])
def test_a_job_without_nodes_is_told_in_slurms_words(says, text, says_):
    says("scontrol", text)
    with pytest.raises(PlaceError, match=f"does not say which nodes job 7 has: {says_}"):
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
    found = slurm.SlurmJob("7").why_over()
    assert found.startswith("Slurm ended job 7: ") and why in found if why else found == ""
    assert Place({"node1": 1}, job=slurm.SlurmJob("7")).why_over() == found


def test_a_job_that_slurm_has_forgotten(says):
    says("scontrol", "", errors="slurm_load_jobs error: Invalid job id specified", code=1)
    assert slurm.SlurmJob("7").why_over() == "Slurm ended job 7: Slurm does not know it any more"


def test_a_program_that_does_not_answer_is_not_waited_for(says, monkeypatch):
    monkeypatch.setattr(slurm, "SILENCE", 0.2)
    says("scontrol", "", before="exec sleep 30")
    begin = time.monotonic()
    assert slurm.ask("scontrol", "show", "job") == ("", "") and time.monotonic() - begin < 10


def test_a_refusal_is_in_sbatchs_words_and_the_job_is_given_back(says):
    says("sbatch", "", errors="sbatch: error: invalid partition specified: gpu", code=1)
    cancelled = says("scancel", "")
    refused = "Slurm refused the job: invalid partition specified: gpu\nIt was asked by: sbatch "
    with pytest.raises(PlaceError, match=refused):
        allocate()
    says("sbatch", "7;cluster\n")
    says("scontrol", job("FAILED"))
    with pytest.raises(PlaceError, match="its script ended"):
        allocate()
    assert cancelled() == ["7"], "only the job that there was"


RETRYING = "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying"


def test_while_slurm_takes_no_job_it_says_so_and_goes_on(says):
    says("sbatch", "7\n", errors=RETRYING, before="sleep 0.5")
    cancelled = says("scancel", "")
    says("scontrol", NODES, NODES, *NAMES)
    told = []
    found = allocate(told.append)
    assert set(told) == {
        "Slurm, which takes no more jobs just now (sbatch tries again for two minutes)"
    }
    assert found.slots == SLOTS and found.shell == slurm.shell("7") and found.job.number == "7"
    (folder,) = ownership.run_dirs()
    slurm.cancel_job_in(folder)  # as the watchdog does when the kernel was killed
    slurm.cancel_job_in(folder / "nowhere")
    found.give_back()
    assert cancelled() == ["7", "7"] and not folder.exists()


def test_while_slurm_takes_no_job_the_stop_button_works(says):
    """What sbatch has sent when it is stopped is cancelled by its name: its number is not known."""
    asked = says("sbatch", "7\n", errors=RETRYING, before="sleep 30")
    cancelled = says("scancel", "")
    threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT]).start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        allocate(lambda text: None)
    assert time.monotonic() - begin < 10
    (name,) = [word for word in asked()[0].split() if word.startswith("--job-name=")]
    assert cancelled() == [f"--user={os.getuid()} {name.replace('--job-name', '--name')}"]


@pytest.mark.parametrize(
    ("tasks", "slots"), [("", SLOTS), ("1(x3)", dict.fromkeys(SLOTS, 1)), ("4", SLOTS)]
)
def test_the_job_that_this_process_is_in(says, monkeypatch, tasks, slots):
    assert slurm.place_of_this_job(site.load()) is None
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", tasks)
    says("srun", "")
    says("scontrol", NODES, *NAMES)
    assert slurm.place_of_this_job(site.load()) == Place(slots, slurm.shell("7"), "")


def test_a_job_on_this_node_alone_is_this_machine(says, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURMD_NODENAME", "node3")
    says("srun", "")
    says("scontrol", job("RUNNING") + " Nodes=node3 CPU_IDs=0-3", "node3\n")
    assert slurm.place_of_this_job(site.load()) == Place()


def test_a_job_that_is_over_is_named_with_the_cure(says, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    says("srun", "")
    says("scontrol", "", errors="slurm_load_jobs error: Invalid job id specified")
    with pytest.raises(PlaceError, match=r"SLURM_JOB_ID is 77\. Slurm ended .* unset SLURM_JOB_ID"):
        slurm.place_of_this_job(site.load())
    [(what, remedy)] = obstacles.of_jobs()
    assert what.startswith("SLURM_JOB_ID is 77") and "unset SLURM_JOB_ID" in remedy


@pytest.mark.parametrize(
    ("tasks", "room", "slots"),
    [
        (2, {"a": 8, "b": 8}, {"a": 1, "b": 1}),  # --exclusive: the nodes' cores are not the tasks
        (5, {"a": 8, "b": 8}, {"a": 3, "b": 2}),
        (4, {"a": 3, "b": 1}, {"a": 3, "b": 1}),
        (1, {"a": 8, "b": 8}, {"a": 1, "b": 1}),
        (4, {"a": 1, "b": 1}, {"a": 2, "b": 2}),  # --overcommit
    ],
)
def test_a_job_s_tasks_are_its_slots(tasks, room, slots):
    assert slurm.spread_tasks(tasks, room) == slots


def test_slurms_lists():
    assert slurm.parse_tasks_per_node("2(x2),1") == [2, 2, 1]
    assert slurm.parse_tasks_per_node("") == []
    assert [slurm.count_ids(text) for text in ("0", "0-1,4", "2,4,6-9")] == [1, 3, 6]


def test_mpiruns_words_for_a_job(monkeypatch):
    """srun hands the environment over, with paths that the site's modules have changed; not ssh."""
    monkeypatch.setattr(place.Place, "address", lambda self: "")
    variables = {"PATH": "/bin", "LD_LIBRARY_PATH": "/lib", "HF_HOME": "/hf"}
    two = {"node1": 2, "node2": 2}
    words = Place(two, slurm.shell("7")).mpi_args(3, variables, Path("run"))
    assert words[:4] == ["--host", "node1:2,node2:1", "--map-by", "slot"]
    assert words[-2:] == ["-x", "HF_HOME"] and "PATH" not in words
    by_ssh = Place(two, place.SSH).mpi_args(1, variables, Path("run"))
    assert [by_ssh[at + 1] for at, word in enumerate(by_ssh) if word == "-x"] == [*variables]


@pytest.mark.parametrize(("visible", "refused"), [("2,3", True), ("0,1", False)])
def test_deepspeed_sh_takes_no_other_job_s_gpus(visible, refused):
    """Slurm's words for a job that has GPUs 2 and 3 of a node where it can see all."""
    variables = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "2", "SLURM_JOB_NUM_NODES": "2"}
    variables |= {"SLURM_CPUS_PER_TASK": "4", "SLURM_GPUS_ON_NODE": "2"}
    done = subprocess.run(
        ["bash", "scripts/slurm/deepspeed.sh", "scripts/train_deepspeed.py"],
        cwd=ROOT,
        env=os.environ | variables | {"CUDA_VISIBLE_DEVICES": visible},
        capture_output=True,
        text=True,
    )
    says = "This job has the GPUs 2,3, and deepspeed's launcher would take 0 to 1."
    assert done.returncode and (says in done.stderr) == refused
