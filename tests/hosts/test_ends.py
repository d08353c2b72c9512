"""Which rank was the first to end."""

import subprocess
import sys
import time

import pytest

from pi2zero import ownership
from pi2zero.cluster.account import cut_off, exit_reasons
from pi2zero.hosts.ends import Ends, first_of

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


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux tells the end of a process that is no child"
)
def test_the_order_of_ends_is_seen():
    sleepers = [subprocess.Popen(["sleep", "60"]) for _ in range(3)]
    ends = Ends()
    ends.watch({rank: ownership.owner_mark(process.pid) for rank, process in enumerate(sleepers)})
    for rank in (1, 0, 2):
        sleepers[rank].kill()
        sleepers[rank].wait()
        deadline = time.monotonic() + 10
        while rank not in ends.times and time.monotonic() < deadline:
            time.sleep(0.01)
    assert sorted(ends.times, key=ends.times.get) == [1, 0, 2]
    ends.watch({})
    assert ends.times == {}


def test_a_rank_that_was_cut_off_is_not_the_cause():
    """Open MPI's words over TCP, when rank 1 had been killed on another host."""
    assert cut_off(CUT_OFF) == {3} and exit_reasons(CUT_OFF) == {}
    assert list(exit_reasons(CUT_OFF + FIRST)) == [1]


def test_the_first_is_looked_for_where_it_began():
    node1, node2 = {1: 10.0, 0: 10.4}, {3: 10.1, 2: 10.3}
    assert first_of([node1, node2], {3}) == [1]
    assert first_of([{}, node2], {3}) == [], "the host where it began has not told yet"
    assert first_of([node1, {2: 10.5}], {3}) == [1]
    assert first_of([{1: 10.001, 0: 10.0}, node2], {3}) == [0, 1], "too close to say"
    assert first_of([], set()) == []
