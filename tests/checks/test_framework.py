"""What all checks share: an answer's clock, waiting without a chance to hang, and values in
messages."""

import functools
import os
import pickle
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import mpi4py.MPI
import numpy as np
import pytest
from lab_answers import source_of

from pi2zero import RankError
from pi2zero_course.checks.framework import clock as clocks
from pi2zero_course.checks.framework.answers import (
    CheckError,
    TaskNotDoneError,
    call_answer,
    global_names,
    instructions,
    speaking_of,
)
from pi2zero_course.checks.framework.buffers import misfit, mpi_offer
from pi2zero_course.checks.framework.task import Blank
from pi2zero_course.checks.framework.values import as_text


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


@pytest.mark.parametrize("function", [endless, with_except_exception, with_a_bare_except])
def test_an_answer_that_never_ends_is_ended(short, function):
    with pytest.raises(
        CheckError,
        match=f"{function.__name__} had not returned after 0.3 s of the processor's time",
    ):
        call_answer(function)


def test_an_answer_that_sleeps_is_ended_and_told_so(short):
    with pytest.raises(
        CheckError, match=r"had not returned after 1 s, of which it computed 0 s. Does it sleep"
    ):
        call_answer(lambda: time.sleep(60))


def test_seconds_in_which_others_compute_do_not_count(short):
    """As on a machine where an answer gets a tenth of a core; and what a library's threads compute
    is not the answer's."""
    import threading

    others = threading.Thread(target=compute, args=(0.5,))
    others.start()
    assert (
        call_answer(lambda: [compute(0.02) or time.sleep(0.05) for _ in range(10)]) == [None] * 10
    )
    others.join()


def test_an_answer_that_stands_in_line_for_a_core_does_not_sleep(short):
    """Twelve programs beside it on one core leave it a thirteenth: less than a tenth, and yet it
    wants all of it."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(12)]
    cores = os.sched_getaffinity(0)
    try:
        core = {min(cores)}
        for pid in [0, *(other.pid for other in others)]:
            os.sched_setaffinity(pid, core)
        start = time.monotonic()
        assert call_answer(lambda: compute(0.15) or "done") == "done"
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

    assert call_answer(waits) == "done"


def test_the_clock_leaves_nothing_behind(short):
    for function in (with_a_bare_except, compute):
        with pytest.raises(CheckError):
            call_answer(function)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    compute(0.4)  # nothing rings any more


def test_the_line_is_the_learners_not_the_kits():
    def learners(x):
        return x["a"]

    words = r"(?s)learners raised KeyError: 'a'.*in the line: return x\[\"a\"\]$"
    with pytest.raises(CheckError, match=words):
        call_answer(speaking_of(learners, lambda x: learners(x)), {})


def unwritten():
    raise NotImplementedError("task 2: write unwritten()")


def of_no_task():
    raise NotImplementedError


def calls_it():
    return 1 + unwritten()


@pytest.mark.parametrize(
    ("function", "name", "task"),
    [
        (unwritten, "unwritten", 2),
        (calls_it, "unwritten", 2),
        (of_no_task, "of_no_task", None),
        (speaking_of(calls_it, lambda: calls_it()), "unwritten", 2),
    ],
)
def test_the_function_that_is_not_written_is_named(function, name, task):
    with pytest.raises(
        TaskNotDoneError, match=f"^{name} is not written yet: replace its"
    ) as missing:
        call_answer(function)
    assert missing.value.task == task
    sent = pickle.loads(pickle.dumps(missing.value))  # as between ranks
    assert (str(sent), sent.task) == (str(missing.value), task)


def test_what_a_library_has_not_implemented_is_the_answers_mistake():
    def function():
        raise NotImplementedError("\"nll_loss\" not implemented for 'Long'")

    with pytest.raises(CheckError, match="function raised NotImplementedError"):
        call_answer(function)


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


size = 4  # as in a notebook


def test_what_is_never_reached_is_not_used():
    def function(comm, rank):
        if comm:
            return [one for one in range(rank) if one < size]
        else:
            return len([])
        print("never")

    assert global_names(function) == {"range", "size", "len"}
    assert not global_names(np.sqrt) and not list(instructions(None))


DOUBLE = Blank(
    name="double",
    reference=lambda x, y=0: 2 * x + y,
    cases=[(3,), (4, 1)],
    mistakes={"Times 2.": 0.5, "y is to be added.": lambda x, y=0: 2 * x},
    verified="It doubles.",
)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda x, y=0: x, "(3) gives 3; it has to be 6.\nTimes 2."),
        (lambda x, y=0: 2 * x, "(4, 1) gives 8; it has to be 9.\ny is to be added."),
        (lambda x, y=0: None, "Is the `return` missing?"),
        (lambda x, y=0: x / 0, "raised ZeroDivisionError"),
    ],
)
def test_a_task_names_the_mistake(answer, says):
    with pytest.raises(CheckError) as wrong:
        DOUBLE(answer)
    assert str(wrong.value).startswith("double is not right yet.\n") and says in str(wrong.value)


def test_a_task_accepts_any_callable(capsys):
    """Also one without a name and code of its own."""
    DOUBLE(functools.partial(lambda two, x, y=0: two * x + y, 2))
    assert capsys.readouterr().out == "double is right. It doubles.\n"
    with pytest.raises(CheckError, match="without brackets"):
        DOUBLE(6)


@pytest.mark.parametrize(
    ("call", "by_rank", "says"),
    [
        (
            "Scatter",
            [(np.zeros((6, 2)), np.empty(4)), (None, np.empty(4)), (None, np.empty((2, 2)))],
            "",
        ),
        (
            "Scatter",
            [(np.zeros((6, 2)), np.empty(2)), (None, np.empty(4)), (None, np.empty((2, 2)))],
            "rank 0 sends 4 numbers to each rank, rank 0 has room for 2 numbers, ranks 1 and 2",
        ),
        ("Gather", [(np.zeros(2), None), (np.zeros(2), None)], "rank 0 has room for nothing"),
        ("Gather", [(mpi4py.MPI.IN_PLACE, np.zeros(4)), (np.zeros(2), None)], ""),
        (
            "Allreduce",
            [(np.zeros(2, int), np.zeros(2)), (np.zeros(2), np.zeros(2))],
            "rank 0 sends 2 numbers of int64, rank 1 sends 2 numbers of float64, all ranks have",
        ),
        ("Bcast", [([np.zeros(3), mpi4py.MPI.BYTE],), (np.zeros(3),)], ""),
        (
            "Allgatherv",
            [(np.zeros(1), [np.zeros(4), [1, 3]]), (np.zeros(2), [np.zeros(4), [1, 3]])],
            "all ranks have room for 1, 3 numbers from the ranks",
        ),
    ],
)
def test_what_does_not_fit_is_said_before_the_call(call, by_rank, says):
    size = len(by_rank)
    offers = [
        mpi_offer(call, args, {}, 0, SimpleNamespace(rank=rank, size=size))
        for rank, args in enumerate(by_rank)
    ]
    said = misfit(call, call, 0, offers, range(size))
    assert says in said if says else not said


# On ranks -----------------------------------------------------------------------------------------

IMPORTS = """
import functools, time
import mpi4py.MPI
import numpy as np
from pi2zero_course.checks import pi as check, allreduce
from pi2zero_course.checks.framework import clock
clock.SECONDS = 2.5
"""


@pytest.fixture
def check(cluster, capsys):
    """A function that checks an answer on all ranks, by default to lab 1's task 4; what is
    printed."""
    cluster.run(IMPORTS)

    def run(function, task="check.pi_from_counts"):
        capsys.readouterr()
        cluster.run(f"{source_of(function)}\n{task}({function.__name__})", timeout=30)
        return capsys.readouterr().out

    yield run
    cluster.run("clock.SECONDS = 20.0")


def refusal(check, function, task="check.pi_from_counts"):
    """What the check says about a wrong answer."""
    with pytest.raises(RankError) as caught:
        check(function, task)
    report = caught.value.report
    assert "The ranks kept their variables" in report and "Traceback" not in report
    return report


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


def test_arrays_of_one_element(cluster, check):
    """As notebook 02 calls Reduce, without [0]."""
    cluster.run(source_of(one_element))
    assert "rank 1 returned 3.146; only rank 0 returns π here" in refusal(check, one_element)
    assert "divided by the 4 ranks" in refusal(check, one_element_wrong)
    assert "Task 6 is right" in check(one_element_everywhere, "check.until_exact")


def swallows(comm, inside, total):
    while True:
        try:
            inside += 1
            sum(range(1000))
        except Exception:
            pass


def receives_what_no_rank_sends(comm, inside, total):
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


def probes_in_vain(comm, inside, total):
    comm.probe(source=(comm.rank + 1) % comm.size)


def returns_its_communicator(comm, inside, total):
    count = comm.reduce(inside)
    return comm if comm.rank == 2 else count


def the_larger_of_two_arrays(comm, inside, total):
    return 4 * comm.allreduce(np.array([inside, inside]), op=mpi4py.MPI.MAX) / total


def a_rank_has_nothing(comm, inside, total):
    return comm.reduce(None if comm.rank == 2 else inside)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (swallows, "swallows had not returned after 2.5 s of the processor's time"),
        (
            receives_what_no_rank_sends,
            "this would hang. Rank 0 waits in recv from rank 1, ranks 1, 2 and 3 have returned.\nA "
            "message ends only",
        ),
        (
            sends_and_never_reduces,
            "this would hang. Ranks 0, 2 and 3 call reduce, rank 1 waits in Ssend to rank 0.",
        ),
        (
            two_wait_for_each_other,
            "this would hang. Rank 0 waits in Irecv from rank 1, rank 1 waits in Irecv from rank "
            "0,",
        ),
        (probes_in_vain, "Rank 0 waits in Probe from rank 1, rank 1 waits in Probe from rank 2,"),
        (returns_its_communicator, "rank 2: returns_its_communicator returned '"),
        (the_larger_of_two_arrays, "ValueError: The truth value of an array"),
        (a_rank_has_nothing, "rank 2: a_rank_has_nothing raised TypeError: unsupported operand"),
    ],
)
def test_what_would_hang_is_refused_soon(check, function, words):
    """Not by `%%px`, which would restart the ranks; and the next answer's messages are not mixed
    up with these."""
    start = time.monotonic()
    assert words in refusal(check, function)
    assert time.monotonic() - start < 60
    assert "Task 4 is right" in check(late_messages)


def late_messages(comm, inside, total):
    """A rank that waits long for one which still computes, is not hanging."""
    if comm.rank == 0:
        return 4 * (inside + sum(comm.recv() for _ in range(comm.size - 1))) / total
    if comm.rank == 3 and total == 4000:  # once is enough of waiting
        time.sleep(1.5)
    comm.send(inside, dest=0)


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


def test_an_answer_may_probe(check):
    assert "Task 4 is right" in check(looks_before_it_receives)


def test_what_failed_on_a_rank_is_said_before_the_others_come(cluster, capsys):
    """They may never come, and then the cell's limit ends all ranks."""
    program = """
import time
from mpi4py import MPI
from pi2zero_course.checks.framework import agree, answers
agree.PATIENCE = 0.5
def part():
    if MPI.COMM_WORLD.rank == 2:
        raise answers.CheckError("a mistake")
    time.sleep(2)
agree.agree(part)
"""
    with pytest.raises(RankError, match="a mistake"):
        cluster.run(program)
    said = capsys.readouterr().out
    assert said.count("On rank 2: a mistake\n") == 1
    assert "The other ranks are still at work, or wait for this one." in said


def test_ranks_that_differ_are_refused(cluster):
    agree = "from pi2zero_course.checks.framework.agree import agree_on\n"
    cluster.run(f"{agree}agree_on(7, 'steps')")
    with pytest.raises(
        RankError, match=r"the ranks have different steps\. All ranks need the same"
    ):
        cluster.run(f"{agree}from mpi4py import MPI\nagree_on(MPI.COMM_WORLD.rank // 2, 'steps')")


def ring_with(wait, comm, x):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    chunks = np.array_split(x, comm.size)
    for step in range(comm.size - 1):
        out = chunks[(comm.rank - step) % comm.size]
        here = chunks[(comm.rank - step - 1) % comm.size]
        into = np.empty_like(here)
        requests = [comm.Isend(out, dest=right), comm.Irecv(into, source=left)]
        if wait == "all":
            mpi4py.MPI.Request.Waitall(requests)
        else:
            assert {mpi4py.MPI.Request.Waitany(requests) for _ in range(2)} == {0, 1}
        here += into


def waitall_in_vain(comm, x):
    mpi4py.MPI.Request.Waitall([comm.Irecv(np.empty_like(x), source=(comm.rank + 1) % comm.size)])


def test_waiting_for_several_requests(cluster, capsys, check):
    for wait in ("all", "any"):
        call = f"allreduce.reduce_scatter(functools.partial(ring_with, {wait!r}))"
        cluster.run(f"{source_of(ring_with)}\n{call}")
    assert capsys.readouterr().out.count("'text/plain': 'Task 1 is right (1 of 6).") == 2
    words = "this would hang. Rank 0 waits in Irecv from rank 1, rank 1 waits in Irecv from rank 2"
    assert words in refusal(check, waitall_in_vain, "allreduce.reduce_scatter")


def test_a_partial_function_is_an_answer_on_ranks(cluster, capsys, check):
    """Its code is that of another object; the check looked for it on itself."""
    cluster.run(
        "from pi2zero_course.checks.blanks import collectives_on_ranks\ndef by_rank_0(op, comm, "
        "x):\n    everything = comm.gather(x)\n    x[:] = comm.bcast(None if comm.rank else "
        "op(everything, "
        "axis=0))\ncollectives_on_ranks.naive_allreduce(functools.partial(by_rank_0, np.sum))"
    )
    assert "naive_allreduce is right." in capsys.readouterr().out
