"""Which rank was the first to end."""

import os
import subprocess
import sys
import time

import pytest

from pi2zero import ownership
from pi2zero.cluster.mpirun_messages import exit_reasons, ranks_that_lost_a_peer
from pi2zero.hosts.exit_watcher import ExitWatcher, first_to_exit

CUT_OFF = """
 [node2:00000] *** An error occurred in Socket closed
[node2:00000] *** reported by process [1324744705,3]
[node2:00000] *** on a NULL communicator
--------------------------------------------------------------------------
prterun has exited due to process rank 3 with PID 0 on node node2 calling
"abort". This may have caused other processes in the application to be
terminated by signals sent by prterun (as reported here).
"""
FIRST = (
    "prterun noticed that process rank 1 with PID 406 on node node1 exited on\nsignal 9 (Killed)."
)


@pytest.fixture
def sleepers():
    processes = [subprocess.Popen(["sleep", "60"]) for _ in range(3)]
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def marks_of(processes):
    return {rank: ownership.owner_mark(process.pid) for rank, process in enumerate(processes)}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the end of any process")
def test_the_order_of_exits_is_seen(sleepers):
    watcher = ExitWatcher()
    watcher.watch(marks_of(sleepers))
    for rank in (1, 0, 2):
        sleepers[rank].kill()
        sleepers[rank].wait()
        deadline = time.monotonic() + 10
        while rank not in watcher.exit_times and time.monotonic() < deadline:
            time.sleep(0.01)
    assert sorted(watcher.exit_times, key=watcher.exit_times.get) == [1, 0, 2]
    watcher.watch({})
    assert watcher.exit_times == {}


def test_too_many_open_files_leave_no_handle_open(sleepers, monkeypatch):
    opened = []

    def pidfd_open(pid):
        if len(opened) == 2:
            raise OSError(24, "Too many open files")
        opened.append(os.dup(0))
        return opened[-1]

    monkeypatch.setattr(os, "pidfd_open", pidfd_open)
    ExitWatcher().watch(marks_of(sleepers))
    for handle in opened:
        with pytest.raises(OSError):
            os.fstat(handle)


def test_a_rank_that_was_cut_off_is_not_the_cause():
    """Open MPI's words over TCP, when rank 1 was killed on another host."""
    assert ranks_that_lost_a_peer(CUT_OFF) == {3} and exit_reasons(CUT_OFF) == {}
    assert list(exit_reasons(CUT_OFF + FIRST)) == [1]


@pytest.mark.parametrize(
    ("exit_times", "cut_off", "first"),
    [
        ([{1: 10.0, 0: 10.4}, {3: 10.1, 2: 10.3}], {3}, [1]),
        ([{}, {3: 10.1, 2: 10.3}], {3}, []),  # the host where it began has not told yet
        ([{1: 10.0, 0: 10.4}, {2: 10.5}], {3}, [1]),
        ([{1: 10.001, 0: 10.0}, {3: 10.1, 2: 10.3}], {3}, [0, 1]),  # too close to say
        ([], set(), []),
    ],
)
def test_the_first_is_on_the_host_where_it_began(exit_times, cut_off, first):
    assert first_to_exit(exit_times, cut_off) == first
