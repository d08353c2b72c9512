"""What the labs' checks share: an answer's clock, waiting without a chance to hang, and numbers of any kind in messages."""

import os
import subprocess
import sys
import time

import mpi4py
import numpy as np
import pytest
from lab_checks import runner, source_of

from pi2zero import RankError
from pi2zero_course.checks.framework import clock as clocks
from pi2zero_course.checks.framework.agree import parted
from pi2zero_course.checks.framework.base import (
    CheckFailed,
    TaskNotDone,
    answer,
    as_text,
    close,
    hint,
    is_whole,
    named,
)


@pytest.fixture
def short(monkeypatch):
    """An answer gets 0.3 s of the processor, or 1 s in which it hardly computes."""
    monkeypatch.setattr(clocks, "SECONDS", 0.3)
    monkeypatch.setattr(clocks, "WALL", 1.0)
    monkeypatch.setattr(clocks, "AGAIN", 0.05)


def compute(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def endless():
    while True:
        pass


def with_except_exception():
    while True:
        try:
            endless()
        except Exception:
            compute(0)


def with_a_bare_except():
    while True:
        try:
            compute(0.01)
        except:  # noqa: E722 - as a learner writes it
            continue


def with_two_bare_excepts():
    while True:
        try:
            with_a_bare_except()
        except:  # noqa: E722
            time.sleep(0.001)


@pytest.mark.parametrize(
    "function", [endless, with_except_exception, with_a_bare_except, with_two_bare_excepts]
)
def test_an_answer_that_never_ends_is_ended(short, function):
    with pytest.raises(
        CheckFailed,
        match=f"{function.__name__} had not returned after 0.3 s of the processor's time",
    ):
        answer(function)


def test_an_answer_that_sleeps_is_ended_and_told_so(short):
    with pytest.raises(
        CheckFailed, match=r"had not returned after 1 s, of which it computed 0 s. Does it sleep"
    ):
        answer(lambda: time.sleep(60))


def test_seconds_in_which_others_compute_do_not_count(short):
    """As on a machine where an answer gets a tenth of a core; and what a library's threads compute is not the answer's."""
    import threading

    others = threading.Thread(target=compute, args=(0.5,))
    others.start()
    assert answer(lambda: [compute(0.02) or time.sleep(0.05) for _ in range(10)]) == [None] * 10
    others.join()


def test_an_answer_that_stands_in_line_for_a_core_does_not_sleep(short):
    """Twelve programs beside it on one core leave it a thirteenth: less than a tenth, and yet it wants all of it."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(12)]
    cores = os.sched_getaffinity(0)
    try:
        core = {min(cores)}
        for pid in [0, *(other.pid for other in others)]:
            os.sched_setaffinity(pid, core)
        start = time.monotonic()
        assert answer(lambda: compute(0.15) or "done") == "done"
        assert time.monotonic() - start > clocks.WALL
    finally:
        os.sched_setaffinity(0, cores)
        for other in others:
            other.kill()
            other.wait()


def test_a_pause_is_not_counted_and_a_refill_begins_anew(short):
    def waits():
        compute(0.2)
        with clocks.clock.paused():
            compute(0.3)
        clocks.clock.refill()
        compute(0.2)
        return "done"

    assert answer(waits) == "done"


def test_the_clock_leaves_nothing_behind(short):
    import signal

    for function in (with_a_bare_except, compute):
        with pytest.raises(CheckFailed):
            answer(function)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    compute(0.4)  # nothing rings any more


def test_the_line_is_the_learners_not_the_kits():
    def learners(x):
        return x["a"]

    def run(x):
        return learners(x)

    with pytest.raises(
        CheckFailed, match=r"(?s)learners raised KeyError: 'a'.*in the line: return x\[\"a\"\]$"
    ):
        answer(named(learners, run), {})


def test_what_is_not_written_yet():
    def f():
        raise NotImplementedError("task 1")

    with pytest.raises(TaskNotDone, match="f is not written yet"):
        answer(f)


def test_what_a_library_has_not_implemented_is_the_answers_mistake():
    def f():
        raise NotImplementedError("\"nll_loss\" not implemented for 'Long'")

    with pytest.raises(CheckFailed, match="f raised NotImplementedError"):
        answer(f)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3.14159265, "3.14159"),
        (np.float64(2), "2"),
        (np.array([3.14159265]), "3.14159"),
        (np.array([[7]]), "7"),
        (np.array([1.0, 2.0]), "array([1., 2.])"),
        ("3.1", "'3.1'"),
        (None, "None"),
        ((np.array([0.5]), None), "(0.5, None)"),
        (np.nan, "nan"),
    ],
)
def test_a_message_shows_any_value(value, text):
    assert as_text(value) == text


def test_numbers_in_arrays_of_one_are_numbers():
    assert close(np.array([3.0]), 3) and not close(np.array([3.0, 3.0]), 3) and not close("3", 3)
    assert (
        is_whole(np.int64(3))
        and not is_whole(np.array([3]))
        and not is_whole(True)
        and not is_whole(3.0)
    )


def test_the_first_mistake_that_gives_the_value_counts():
    assert hint(2, [(1, "one"), (2, "two"), (2, "also two")]) == "two"
    assert hint(3, [(1, "one")], otherwise="none") == "none"


# On ranks ---------------------------------------------------------------------------------------------------------------

IMPORTS = """
import time
import mpi4py.MPI
import numpy as np
from pi2zero_course.checks import pi as check, allreduce
from pi2zero_course.checks.framework import clock
clock.SECONDS = 2.5
"""


@pytest.fixture
def check(cluster, capsys):
    cluster.run(IMPORTS)
    yield runner(cluster, capsys)
    cluster.run("clock.SECONDS = 20.0")


def told(check, number, function):
    """What the check says about a wrong answer."""
    with pytest.raises(RankError) as caught:
        check(number, function)
    assert (
        "The ranks kept their variables" in caught.value.report
        and "Traceback" not in caught.value.report
    )
    return caught.value.report


def slow(comm, inside, total):
    end = time.thread_time() + 1.5 * (total == 4000)
    while time.thread_time() < end:
        pass
    count = comm.reduce(inside)
    return 4 * count / total if comm.rank == 0 else None


def test_a_slow_right_answer_passes_beside_two_busy_loops(check):
    """It computes for 1.5 s of its 2.5; on 2 cores, 4 ranks and two loops take 4.5 s of the wall for that."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    start = time.monotonic()
    try:
        assert "Task 4 is right." in check(4, slow)
    finally:
        for one in busy:
            one.kill()
            one.wait()
    assert time.monotonic() - start > 2.5 or os.cpu_count() > 2, (
        "the machine was not busy: this test has shown nothing"
    )


def swallows(comm, inside, total):
    while True:
        try:
            inside += 1
            sum(range(1000))
        except Exception:
            pass


def test_a_swallowed_limit_ends_on_ranks(check):
    assert "swallows had not returned after 2.5 s of the processor's time" in told(
        check, 4, swallows
    )


def one_element(comm, inside, total):
    count = np.zeros(1)
    comm.Allreduce(np.array([float(inside)]), count)
    return 4 * count / total


def one_element_wrong(comm, inside, total):
    return one_element(comm, inside, total) / comm.size


def one_element_everywhere(comm, throw, target, batch):
    inside, darts, error = np.zeros(1), np.zeros(1, int), np.ones(1)
    while error > target:
        count = np.array([float(throw(batch))])
        total = np.zeros(1)
        comm.Allreduce(count, total)
        inside, darts = inside + total, darts + batch * comm.size
        error = 4 * np.sqrt(inside / darts * (1 - inside / darts) / darts)
    return 4 * inside / darts, error, darts


def one_element_too_small(comm, throw, target, batch):
    pi, error, darts = one_element_everywhere(comm, throw, target, batch)
    return pi, error / 4, darts


def test_arrays_of_one_element(cluster, check):
    """As notebook 02 calls Reduce, without [0]."""
    cluster.run(source_of(one_element) + source_of(one_element_everywhere))
    assert "rank 1 returned 3.146; only rank 0 returns π here" in told(check, 4, one_element)
    assert "divided by the 4 ranks" in told(check, 4, one_element_wrong)
    assert "Task 6 is right." in check(6, one_element_everywhere)
    assert "The 4 is missing." in told(check, 6, one_element_too_small)


def receives_what_nobody_sends(comm, inside, total):
    if comm.rank == 0:
        return 4 * sum(comm.recv(source=rank) for rank in range(1, comm.size)) / total


def sends_and_never_reduces(comm, inside, total):
    if comm.rank == 1:
        comm.Ssend(np.ones(3), dest=0)
    return comm.reduce(inside)


def two_wait_for_each_other(comm, inside, total):
    into = np.zeros(1)
    request = comm.Irecv(into, source=comm.rank ^ 1)
    request.Wait()
    comm.Send(np.array([inside]), dest=comm.rank ^ 1)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (
            receives_what_nobody_sends,
            "this would hang. Rank 0 waits in recv from rank 1, ranks 1, 2 and 3 have returned.",
        ),
        (
            sends_and_never_reduces,
            "this would hang. Ranks 0, 2 and 3 call reduce, rank 1 waits in Ssend to rank 0.",
        ),
        (
            two_wait_for_each_other,
            "this would hang. Rank 0 waits in Irecv from rank 1, rank 1 waits in Irecv from rank 0,",
        ),
    ],
)
def test_messages_that_would_hang_are_found_soon(check, function, words):
    """Not by `%%px`, which would restart the ranks; and the next answer's messages are not mixed up with these."""
    start = time.monotonic()
    report = told(check, 4, function)
    assert (
        words in report
        and "A message ends only if its sender sends it and its receiver receives it." in report
    )
    assert time.monotonic() - start < 60
    assert "Task 4 is right." in check(4, late_messages)


def looks_before_it_receives(comm, inside, total):
    if comm.rank:
        comm.send(inside, dest=0, tag=comm.rank)
        return None
    status = mpi4py.MPI.Status()
    for rank in range(comm.size - 1, 0, -1):  # not in the order in which they come
        comm.Probe(source=rank, tag=rank, status=status)
        assert (status.source, status.tag) == (rank, rank)
        inside += comm.recv(source=rank, tag=rank)
    return 4 * inside / total


def probes_in_vain(comm, inside, total):
    comm.probe(source=(comm.rank + 1) % comm.size)


def test_an_answer_may_probe_and_one_that_does_in_vain_is_told(check):
    assert "Task 4 is right." in check(4, looks_before_it_receives)
    assert (
        "this would hang. Rank 0 waits in Probe from rank 1, rank 1 waits in Probe from rank 2,"
        in told(check, 4, probes_in_vain)
    )


def returns_its_communicator(comm, inside, total):
    count = comm.reduce(inside)
    return comm if comm.rank == 2 else count


def test_what_cannot_be_sent_is_named_and_no_rank_waits_for_it(check):
    report = told(check, 4, returns_its_communicator)
    assert (
        "rank 2: returns_its_communicator returned '" in report
        and "or has them in what it returned: return values." in report
    )
    assert "Task 4 is right." in check(4, late_messages)


def the_larger_of_two_arrays(comm, inside, total):
    return 4 * comm.allreduce(np.array([inside, inside]), op=mpi4py.MPI.MAX) / total


def a_rank_has_nothing(comm, inside, total):
    return comm.reduce(None if comm.rank == 2 else inside)


@pytest.mark.parametrize(
    ("function", "who", "why"),
    [
        (
            the_larger_of_two_arrays,
            "Ranks 0, 1, 2 and 3",
            "ValueError: The truth value of an array",
        ),
        (a_rank_has_nothing, "rank 2", "TypeError: unsupported operand"),
    ],
)
def test_what_cannot_be_combined_is_named_and_no_rank_waits_for_it(check, function, who, why):
    """Inside MPI some ranks would raise, and the others wait for them for ever."""
    start = time.monotonic()
    report = told(check, 4, function)
    assert why in report and who in report, report
    assert time.monotonic() - start < 20
    assert "Task 4 is right." in check(4, late_messages)


def test_a_collective_that_some_ranks_make_says_how_it_would_end():
    ends = "this would hang. Rank 0 has returned, rank 1 calls reduce.\nA collective call ends only if every rank makes it."
    assert str(parted([("returned", ""), ("calls", "reduce")])) == ends
    assert parted([("returned", "")] * 2) is None


def test_what_failed_on_a_rank_is_told_before_the_others_come(cluster, capsys):
    """They may never come, and then the cell's limit ends all ranks."""
    program = """
import time
from mpi4py import MPI
from pi2zero_course.checks.framework import agree, base
agree.PATIENCE = 0.5
def part():
    if MPI.COMM_WORLD.rank == 2:
        raise base.CheckFailed("a mistake")
    time.sleep(2)
agree.agree(part)
"""
    with pytest.raises(RankError, match="a mistake"):
        cluster.run(program)
    said = capsys.readouterr().out
    assert (
        said.count("On rank 2: a mistake\n") == 1
        and "The other ranks are still at work, or wait for this one." in said
    )


def test_ranks_that_differ_are_told_and_those_that_do_not_pass(cluster):
    agree = "from pi2zero_course.checks.framework.agree import agree_on\n"
    cluster.run(f"{agree}agree_on(7, 'steps')")
    with pytest.raises(
        RankError, match=r"the ranks have different steps\. All ranks need the same\."
    ):
        cluster.run(f"{agree}from mpi4py import MPI\nagree_on(MPI.COMM_WORLD.rank // 2, 'steps')")


def late_messages(comm, inside, total):
    """A rank that waits long for one which still computes, is not hanging."""
    if comm.rank == 0:
        return 4 * (inside + sum(comm.recv() for _ in range(comm.size - 1))) / total
    if comm.rank == 3 and total == 4000:  # once is enough of waiting
        time.sleep(1.5)
    comm.send(inside, dest=0)


def ring_with_waitall(comm, x):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    chunks = np.array_split(x, comm.size)
    for step in range(comm.size - 1):
        out, here = (
            chunks[(comm.rank - step) % comm.size],
            chunks[(comm.rank - step - 1) % comm.size],
        )
        into = np.empty_like(here)
        mpi4py.MPI.Request.Waitall([comm.Isend(out, dest=right), comm.Irecv(into, source=left)])
        here += into


def ring_with_waitany(comm, x):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    chunks = np.array_split(x, comm.size)
    for step in range(comm.size - 1):
        out, here = (
            chunks[(comm.rank - step) % comm.size],
            chunks[(comm.rank - step - 1) % comm.size],
        )
        into = np.empty_like(here)
        requests = [comm.Isend(out, dest=right), comm.Irecv(into, source=left)]
        assert {mpi4py.MPI.Request.Waitany(requests), mpi4py.MPI.Request.Waitany(requests)} == {
            0,
            1,
        }
        here += into


def waitall_in_vain(comm, x):
    mpi4py.MPI.Request.Waitall([comm.Irecv(np.empty_like(x), source=(comm.rank + 1) % comm.size)])


def test_waiting_for_several_requests(cluster, capsys, check):
    for function in (ring_with_waitall, ring_with_waitany):
        cluster.run(f"{source_of(function)}\nallreduce.task1({function.__name__})")
    assert capsys.readouterr().out.count("Task 1 is right.") == 2
    with pytest.raises(
        RankError,
        match=r"this would hang\. Rank 0 waits in Irecv from rank 1, rank 1 waits in Irecv from rank 2",
    ):
        cluster.run(f"{source_of(waitall_in_vain)}\nallreduce.task1(waitall_in_vain)")
    assert "Task 4 is right." in check(4, late_messages)
