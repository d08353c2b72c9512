"""A start that this machine has no room for is refused, with numbers, before it begins."""

import re
import subprocess
import sys

import psutil
import pytest

import pi2zero
from pi2zero import ownership
from pi2zero.cluster import capacity, live_ranks
from pi2zero.hosts import limits

GB = 1e9
ACCOUNT = limits.TaskLimit("your account", 400, 240)


@pytest.mark.parametrize(
    ("n", "cores", "memory", "tasks", "most", "says"),
    [
        (500, 2, 24 * GB, [], 128, "cores: 2, and at most 64 ranks share one"),
        (500, 64, 10 * GB, [], 141, "memory: 10.0 GB are free, and a rank needs 70 MB"),
        (16, 64, 24 * GB, [ACCOUNT], 6, "your account may have 400 and has 240"),
        (1, 2, 0.1 * GB, [], 0, "End other programs or notebooks first"),
    ],
)
def test_a_start_without_room(monkeypatch, n, cores, memory, tasks, most, says):
    monkeypatch.setattr(limits, "cores", lambda: cores)
    monkeypatch.setattr(limits, "free_memory", lambda: memory)
    monkeypatch.setattr(limits, "task_limits", lambda: tasks)
    with pytest.raises(pi2zero.ClusterError, match="not fit on this machine") as refused:
        pi2zero.start(n=n)
    assert says in str(refused.value)
    if most:
        assert f"Try pi2zero.start(n={most})" in str(refused.value)
        capacity.refuse_too_many(most)
    if tasks:
        capacity.refuse_too_many(n, replaced=n - most)  # which end first


def test_a_rank_needs_what_the_sentence_says(cluster):
    """Ranks that have just started; those of other tests may have imported more."""
    nannies = [psutil.Process(about["pid"]).children() for about in cluster.info]
    assert all(map(len, nannies))
    assert all(map(live_ranks.is_engine, [nanny[0] for nanny in nannies]))


def test_ranks_of_other_notebooks_are_said(cluster, monkeypatch):
    assert "hold" not in capacity.others_ranks()
    monkeypatch.setattr(capacity.ownership, "owner_mark", lambda: "another notebook")
    assert re.search(r"Other notebooks of yours hold 4 ranks, \d\.\d GB: ", capacity.others_ranks())


def test_the_doctors_ranks_are_no_notebooks():
    """`make lab` looks at the machine while the first notebook starts its ranks."""
    engines, sentences = 0, set()
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "pi2zero.doctor.probes", "cluster"]
    ) as probe:
        while probe.poll() is None:
            for process in ownership.marked_processes(ownership.owner_mark(probe.pid)):
                try:
                    engines += live_ranks.is_engine(process)
                except psutil.Error:
                    continue
            sentences.add(capacity.others_ranks())
    assert engines and sentences == {""}
