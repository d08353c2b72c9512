"""In which call a frame is, on what it is called, and whether that waits for other ranks."""

import contextlib
import importlib
import os
import queue
import re
import socket
import subprocess
import sys
import threading
import time
import weakref
from types import SimpleNamespace

import pytest
from mpi4py import MPI

from pi2zero.cluster.activity_sampler import ActivitySampler, active_threads
from pi2zero.cluster.blocking_calls import (
    MARKER,
    Call,
    call_of,
    needs_all_ranks,
    polling_loop,
    waits_for_peers,
)
from pi2zero.cluster.report import CellSources, Frame


class Comm:
    """Its methods tell what the frame that calls them shows."""

    def recv(self, source=0):
        return call_of(sys._getframe(1))

    def isend(self, value):
        return self

    wait = recv

    def iprobe(self):
        self.found = polling_loop(sys._getframe(1))
        return True

    def work(self):
        return False


comm = Comm()
holder, teams = SimpleNamespace(comm=comm), [comm, {"row": comm}]


def test_the_call_and_its_owner():
    call = comm.recv(source=1)
    assert (call.text, call.method, call.owner) == ("comm.recv(source=1)", "recv", comm)
    assert (
        holder.comm.recv().owner is comm
        and teams[0].recv().owner is comm
        and teams[1]["row"].recv().owner is comm
    )


def test_a_call_over_several_lines_among_others():
    call = max([comm.recv(
        source=2,
    )], key=id)  # fmt: skip
    assert (call.text, call.owner) == ("comm.recv( source=2, )", comm)


def test_in_a_comprehension_and_under_another_name():
    (call,) = [one.recv() for one in [comm]]
    assert call.owner is comm
    receive = comm.recv
    assert (receive(3).text, receive(3).method) == ("receive(3)", "recv")


def test_an_owner_that_only_running_could_tell_is_not_known():
    call = comm.isend(1).wait()
    assert (call.text, call.method, call.owner) == ("comm.isend(1).wait()", "wait", None)
    assert waits_for_peers(sys._getframe(), call, 1.0)


class Tensor:
    """Large, and known by weak references."""


@pytest.mark.skipif(
    sys.version_info < (3, 13) and sys.gettrace() is not None,
    reason="who traces a frame needs its names",
)
def test_what_a_function_lets_go_of_is_gone_after_a_look():
    own, tensor = comm, Tensor()
    gone = weakref.ref(tensor)
    assert own.recv().owner is comm
    del tensor
    assert gone() is None


def test_whoever_looks_at_his_names_keeps_them():
    own, names = comm, locals()
    assert own.recv().owner is comm and names["own"] is comm


@pytest.mark.parametrize("look", ["reads", "writes"])
def test_nothing_is_kept_while_a_look_reads_a_file_or_writes_one(tmp_path, monkeypatch, look):
    ready, go, kept = threading.Event(), threading.Event(), []

    def cell():
        tensor = Tensor()
        kept.append(weakref.ref(tensor))
        ready.set()
        go.wait()

    def slowly(*_):
        go.set()
        rank.join()
        kept.append(kept[0]())

    rank = threading.Thread(target=cell)
    sampler = ActivitySampler(
        tmp_path / "0.json", SimpleNamespace(events=SimpleNamespace(register=lambda *_: None))
    )
    sampler._main = rank
    sampler._start_cell()
    monkeypatch.setattr(
        "pi2zero.cluster.activity_sampler.warm_source_cache" if look == "reads" else "json.dumps",
        slowly,
    )
    rank.start()
    ready.wait()
    with contextlib.suppress(TypeError):  # nothing comes from `slowly` to be written
        sampler._write_sample()
    assert kept[1:] and not any(kept[1:])


def test_code_without_source_is_no_call():
    assert eval("call()", {"call": lambda: call_of(sys._getframe(1))}) == Call()


@pytest.mark.parametrize(
    ("owner", "method", "waits"),
    [
        (MPI.COMM_SELF, "Barrier", True),
        (MPI.COMM_SELF, "recv", True),
        (MPI.Request, "Waitall", True),
        (type("Watched", (MPI.Intracomm,), {})(MPI.COMM_SELF), "allgather", True),
        (MPI.COMM_SELF, "Spawn", False),
        (MPI.COMM_SELF, "Get_rank", False),
        (MPI.Intercomm(), "Barrier", False),  # children that it spawned may still compute
        (MPI.File(), "Write_at_all", True),
        (MPI.File(), "Write_at", False),  # of this rank alone
        (MPI.File, "Open", True),
        (MPI.Win, "Sync", False),
        (time, "sleep", False),
        (socket.socket, "recv", False),
        (comm, "wait", False),
    ],
    ids=lambda value: re.sub(" object at 0x[0-9a-f]+", "", str(value)),
)
def test_what_waits_for_other_ranks(owner, method, waits):
    assert waits_for_peers(sys._getframe(), Call(f"x.{method}()", method, owner), 1.0) == waits


def pipe_end():
    return os.fdopen(os.pipe()[0], "rb")


def pair_of_sockets():
    return socket.socketpair()


class Slow:
    """A data set that a DataLoader's worker reads for long."""

    def __len__(self):
        return 1

    def __getitem__(self, at):
        time.sleep(30)
        return at


def from_data_loader(workers):
    from torch.utils.data import DataLoader

    return next(iter(DataLoader(Slow(), num_workers=workers)))


def by_socket_file(sockets):
    return sockets[0].makefile("rb").read()


def forwarded(function, *args):
    """A decorator's call, as others make them of what waits for ranks."""

    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper(*args)


class Shop:
    """Has methods with the names of MPI's."""

    def __init__(self):
        self.door = threading.Event()

    def wait(self):
        return self.door.wait()

    def __getattr__(self, name):
        return self.door.wait


LIVES = {  # what a rank may do for long that is no wait for ranks; each never returns here
    "sleep": lambda: time.sleep(1000),
    "a decorated sleep": lambda: forwarded(time.sleep, 1000),
    "exec of a sleep": lambda: exec("time.sleep(1000)", {"time": time}),
    "a queue": lambda: queue.Queue().get(),
    "a simple queue": lambda: queue.SimpleQueue().get(),
    "a decorated queue": lambda: forwarded(queue.SimpleQueue().get),
    "an event": lambda: threading.Event().wait(),
    "a lock": lambda: [lock := threading.Lock(), lock.acquire(), lock.acquire()],
    "reads a pipe": lambda: pipe_end().read(),
    "receives from a socket": lambda: [pair := pair_of_sockets(), pair[0].recv(10)],
    "a decorated socket": lambda: [pair := pair_of_sockets(), forwarded(pair[0].recv, 10)],
    "reads a socket's file": lambda: by_socket_file(pair_of_sockets()),
    "another program": lambda: subprocess.run(["sleep", "30"], check=False),
    "asks another program": lambda: subprocess.Popen(["sleep", "30"]).wait(),
    "a DataLoader": lambda: from_data_loader(0),
    "an object with a wait of its own": lambda: Shop().wait(),
    "an object that proxies": lambda: Shop().Barrier(),
}


@pytest.mark.parametrize("name", LIVES)
def test_what_does_not_wait_for_other_ranks(name):
    thread = threading.Thread(target=LIVES[name], daemon=True)
    thread.start()
    time.sleep(0.2)
    frame = sys._current_frames()[thread.ident]
    assert not waits_for_peers(frame, call_of(frame), 0.0) and polling_loop(frame) is None


def test_a_thread_that_waits_for_work_does_not_come_to_help():
    from concurrent.futures import ThreadPoolExecutor

    known = {thread.ident for thread in threading.enumerate()}
    pool, go = ThreadPoolExecutor(1), threading.Event()
    pool.submit(int).result()
    idle = threading.Thread(target=queue.Queue().get, daemon=True)
    busy = threading.Thread(target=lambda: go.wait(60), daemon=True)
    idle.start()
    busy.start()
    time.sleep(0.1)
    assert active_threads(known) == [busy]
    go.set()
    pool.shutdown()


def test_a_collective_of_the_whole_world_needs_all_ranks():
    def needs(method, owner):
        return needs_all_ranks(Call(f"c.{method}()", method, owner))

    assert needs("Barrier", MPI.COMM_WORLD) and needs("bcast", MPI.COMM_WORLD)
    assert not needs("recv", MPI.COMM_WORLD) and not needs("Barrier", MPI.COMM_SELF)


class Request(MPI.Request):
    """mpi4py's kind."""

    def test(self):
        self.found = polling_loop(sys._getframe(1))
        return True


LOOPS = {  # source, whether it only asks other ranks
    "asks": ("while not request.test():\n    time.sleep(0.1)", True),
    "asks something else, as Popen.poll()": (
        "while not comm.iprobe():\n    time.sleep(0.1)",
        False,
    ),
    "asks and works": ("while not request.test():\n    comm.work()", False),
    "looks at the clock": ("while not request.test() and time.monotonic() < 0:\n    pass", False),
    "asks once": ("request.test()", False),
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_that_only_asks_other_ranks(name, tmp_path):
    source, polls = LOOPS[name]
    file, request = tmp_path / "cell.py", Request()
    file.write_text(source)
    exec(compile(source, file, "exec"), {"request": request, "comm": comm, "time": time})
    answered = comm.found if "comm.iprobe" in source else request.found
    assert (answered is not None) == polls


WAITER = """
import sys
def until(look):
    return look(sys._getframe(0))
def other(look):
    return look(sys._getframe(0))
"""


@pytest.mark.parametrize("marked", ["the module", "its package", "nothing"])
def test_a_module_says_that_its_functions_wait_for_other_ranks(tmp_path, monkeypatch, marked):
    package = tmp_path / "waiting_package"
    package.mkdir()
    marker = f"{MARKER} = ('until',)\n"
    (package / "__init__.py").write_text(marker * (marked == "its package"))
    (package / "waiter.py").write_text(marker * (marked == "the module") + WAITER)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("waiting_package", "waiting_package.waiter"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    waiter = importlib.import_module("waiting_package.waiter")
    waits = marked != "nothing"
    assert waiter.other(lambda frame: waits_for_peers(frame, Call(), 1.0)) == waits
    assert (waiter.until(polling_loop) is not None) == waits
    assert waiter.other(polling_loop) is None


@pytest.mark.parametrize(
    ("statement", "is_one"),
    [
        ("total = comm.allreduce(mine)", True),
        ("print(f'{team.allreduce(len(x))} in all')", True),
        ("world.dup.reduce(x[0], root=0)", True),
        ("times.append(team.allreduce(time.perf_counter() - start, op=MPI.MAX))", True),
        ("if team.allreduce(bad) > 0:\n    fix()", True),
        ("total = comm.allreduce(sum(range(10**9)))", False),
        ("total = comm.allreduce(7**n)", False),
        ("total = comm.allreduce(x in data)", False),
        ("show(heavy(comm.allreduce(1)))", False),
        ("for part in work:\n    comm.allreduce(part)", False),
        ("while more(x):\n    comm.allreduce(1)", False),
        ("x = functools.reduce(operator.add, xs)", False),
        ("x = reduce(add, xs)", False),
        ("x = np.add.reduce(xs)", False),
        ("x = add.reduce(xs)", False),
        ("x = sum(xs)", False),
        ("x = 1", False),
    ],
)
def test_a_rank_that_holds_the_lock_is_in_a_reduction_only_if_it_can_be_in_nothing_else(
    statement, is_one
):
    """Else it would be ended while it computes: with Python's lock held, only the line is known."""
    sources = CellSources()
    sources.add(f"y = 2\n{statement}\n")
    (file,) = sources._text
    assert sources.is_gil_holding_reduction(Frame(f"/tmp/{file}", 2, "<module>")) is is_one
