"""In which call does a frame stand, and does that call wait for other ranks? This runs on the engines.

Nothing is run to find out: names are looked up in the frame, attributes without their descriptors' code.
"""

import ast
import builtins
import inspect
import linecache
import sys
from dataclasses import dataclass
from functools import lru_cache
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType

from pi2zero.cluster.trees import parsed

# Calls of mpi4py that end only when other ranks do their part. Not Spawn, Accept, Connect and files: they wait for processes
# and disks, which may take long and still come.
MPI_WAITS = {
    *(
        "Barrier",
        "barrier",
        "Bcast",
        "bcast",
        "Reduce",
        "reduce",
        "Allreduce",
        "allreduce",
        "Gather",
        "gather",
        "Gatherv",
    ),
    *(
        "Scatter",
        "scatter",
        "Scatterv",
        "Allgather",
        "allgather",
        "Allgatherv",
        "Alltoall",
        "alltoall",
        "Alltoallv",
        "Alltoallw",
    ),
    *(
        "Reduce_scatter",
        "Reduce_scatter_block",
        "Scan",
        "scan",
        "Exscan",
        "exscan",
        "Send",
        "send",
        "Ssend",
        "ssend",
        "Recv",
    ),
    *(
        "recv",
        "Sendrecv",
        "sendrecv",
        "Sendrecv_replace",
        "Probe",
        "probe",
        "Mprobe",
        "mprobe",
        "Wait",
        "wait",
        "Waitall",
    ),
    *(
        "waitall",
        "Waitany",
        "waitany",
        "Waitsome",
        "waitsome",
        "Split",
        "Split_type",
        "Dup",
        "Create",
        "Free",
        "Clone",
    ),
    *(
        "Create_cart",
        "Create_graph",
        "Create_dist_graph_adjacent",
        "Neighbor_allgather",
        "Neighbor_alltoall",
        "Fence",
        "Lock",
    ),
    *(
        "Unlock",
        "Flush",
        "Post",
        "Start",
        "Complete",
        "Allocate_shared",
        "Allocate",
        "Bsend",
        "Rsend",
        "Agree",
    ),
}
CARRY = ("all", "bcast", "reduce", "gather", "scatter", "scan", "exscan", "neighbor")
COLLECTIVES = {
    name for name in MPI_WAITS if name.lower().startswith(CARRY) and not name.startswith("Allocate")
}
POLLS = {
    *(
        "Test",
        "test",
        "Testall",
        "testall",
        "Testany",
        "testany",
        "Testsome",
        "testsome",
        "Get_status",
    ),
    *("Iprobe", "iprobe", "Improbe", "improbe", "is_completed", "poll"),
}
# Reductions of objects: mpi4py duplicates a communicator at first use and holds Python's lock meanwhile, so no thread can look.
HOLD_THE_LOCK = {"reduce", "allreduce", "scan", "exscan"}
# Files of libraries whose innermost frame means: it waits for other ranks.
WAITING_FILES = (
    "/torch/distributed/distributed_c10d.py",
    "/torch/distributed/c10d_logger.py",
    "/torch/distributed/rendezvous.py",
    "/torch/distributed/_functional_collectives.py",
    "/torch/distributed/nn/functional.py",
    "/torch/nn/parallel/distributed.py",
    "/horovod/torch/",
    "/horovod/common/",
    "/deepspeed/comm/",
)
OWN_FILES = "/pi2zero_course/checks/framework/"  # as well: a lab's check waits there, and hands the answer's calls on
OWN_LOOP = "/pi2zero_course/checks/framework/waiting.py"  # its function until() waits for other ranks, whatever it asks meanwhile
AUTOGRAD = (
    "/torch/autograd/graph.py",
    "/torch/autograd/__init__.py",
)  # works, or waits for DDP's last bucket: then it is idle
OTHERS = (
    "mpi4py",
    "torch._C._distributed",
    "torch.distributed",
    "horovod",
)  # modules of what waits for other ranks
IDLE = 0.005  # of a core; less than what is left for a thread on a machine with a hundred others


@dataclass(frozen=True)
class Call:
    """text: the expression, e.g. "comm.recv(source=1)". method: "recv". owner: what it is called on, or None if not known."""

    text: str = ""
    method: str = ""
    owner: object = None


def call_of(frame) -> Call:
    """The call that a frame is making now; an empty Call if it makes none that can be seen."""
    text = _expression(frame)
    try:
        node = parsed(
            f"({text}\n)", mode="eval"
        ).body  # in parentheses: a chain of calls may go over several lines
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Call()
    if not isinstance(node, ast.Call):
        return Call()
    shown = " ".join(text.split())
    if isinstance(node.func, ast.Attribute):
        looked_up = node.func.attr in MPI_WAITS | POLLS  # of others nobody asks
        return Call(shown, node.func.attr, _value(node.func.value, frame) if looked_up else None)
    if isinstance(node.func, ast.Name):
        found = _value(node.func, frame)
        if type(found) is BuiltinFunctionType:  # of any other, asking for a name might run code
            return Call(shown, found.__name__, found.__self__)
        if found is None:  # Python 3.11 begins a chain over several lines at the last name
            return Call(f"(...).{shown}", node.func.id)
        return Call(
            shown, found.__name__ if type(found) in (FunctionType, MethodType) else node.func.id
        )
    return Call(shown)


def _expression(frame) -> str:
    """The source of the instruction that the frame is at."""
    positions = list(frame.f_code.co_positions())
    at = frame.f_lasti // 2
    if not 0 <= at < len(positions) or None in positions[at]:
        return ""
    first, last, begin, end = positions[at]
    lines = [
        linecache.getline(frame.f_code.co_filename, number).encode()
        for number in range(first, last + 1)
    ]
    lines[-1] = lines[-1][:end]  # columns count bytes
    lines[0] = lines[0][begin:]
    return b"".join(lines).decode(errors="replace")


def _value(node, frame):
    """What an expression of names, attributes and plain subscripts stands for; None if only running it could tell."""
    if isinstance(node, ast.Name):
        return _named(node.id, frame)
    if isinstance(node, ast.Attribute) and (owner := _value(node.value, frame)) is not None:
        return inspect.getattr_static(owner, node.attr, None)
    if isinstance(node, ast.Subscript) and type(owner := _value(node.value, frame)) in (
        list,
        tuple,
        dict,
    ):
        key = (
            node.slice.value if isinstance(node.slice, ast.Constant) else _value(node.slice, frame)
        )
        try:
            return owner[key]
        except (LookupError, TypeError):
            return None
    return None


def _named(name: str, frame):
    """What a name is bound to in a frame; None if it is not bound."""
    code = frame.f_code
    if (
        not code.co_flags & inspect.CO_OPTIMIZED
    ):  # a cell, or a class's body: its locals are no copy
        spaces = frame.f_locals, frame.f_globals, vars(builtins)
        return next((space[name] for space in spaces if name in space), None)
    if name not in {*code.co_varnames, *code.co_cellvars, *code.co_freevars}:
        return frame.f_globals.get(name, vars(builtins).get(name))
    space = frame.f_locals
    found = space.get(name)
    # Up to Python 3.12 the frame keeps this copy: tensors that its function lets go of would stay, and be measured. Emptied,
    # unless others look at it, too. (Three know it: the frame, this function, and the question.)
    if sys.version_info < (3, 13) and frame.f_trace is None and sys.getrefcount(space) == 3:
        space.clear()
    return found


def waiting_call(frame, call: Call, share: float) -> bool:
    """Does a frame in one call of C wait for other ranks there? share: of a core that its thread has used meanwhile."""
    file = frame.f_code.co_filename
    if any(part in file for part in (*WAITING_FILES, OWN_FILES)):
        return True
    if any(part in file for part in AUTOGRAD):
        return share < IDLE and _joined()
    home = _home(call.owner)
    if home.startswith("mpi4py"):
        return call.method in MPI_WAITS and not _talks_to_children(call.owner)
    if home.startswith(OTHERS):
        return True
    # An owner that cannot be named, as in comm.isend(x, 1).wait(), requests[-1].wait(). MPI spins; a socket's recv is idle.
    unnamed = (
        call.owner is None
        and call.method in MPI_WAITS
        and set("([") & set(call.text.rpartition(call.method)[0])
    )
    return bool(unnamed) and share >= IDLE


def _home(owner) -> str:
    """The module that an object, a class or a module is from."""
    if owner is None:
        return ""
    if isinstance(owner, ModuleType):
        return owner.__name__
    kind = owner if isinstance(owner, type) else type(owner)
    homes = [
        base.__module__ or "" for base in kind.__mro__
    ]  # the checks' communicators inherit from mpi4py's
    return next(
        (home for home in homes if home.startswith(("mpi4py", "torch._C._distributed"))), homes[0]
    )


def _talks_to_children(owner) -> bool:
    """An intercommunicator's other side are processes that this rank has spawned, or was: they may still compute."""
    from mpi4py import MPI

    return isinstance(owner, MPI.Intercomm)


def _joined() -> bool:
    """Whether this rank belongs to a world of torch.distributed or Horovod: else nobody is waited for."""
    dist = sys.modules.get("torch.distributed")
    return "horovod.torch" in sys.modules or bool(
        dist and dist.is_available() and dist.is_initialized()
    )


def polls(frame):
    """The loop in which a frame does nothing but ask whether a message is there, as (frame, line); None if there is none.

    From the innermost frame outwards, through the libraries that answer.
    """
    for asking in answering(frame):
        code = asking.f_code
        if code.co_filename.endswith(OWN_LOOP) and code.co_name == "until":
            return id(asking), code.co_firstlineno
        for loop in _polling_loops(code.co_filename):
            if loop.first <= asking.f_lineno <= loop.last:
                owners = [_home(_value(owner, asking)) for owner in loop.asked]
                return (
                    (id(asking), loop.first)
                    if all(home.startswith(OTHERS) for home in owners)
                    else None
                )
    return None


def answering(frame):
    """The frames from the innermost outwards: of libraries that wait for other ranks, and of who asked them."""
    while frame is not None:
        yield frame
        if not any(part in frame.f_code.co_filename for part in (*WAITING_FILES, OWN_FILES)):
            return
        frame = frame.f_back


def read(file: str) -> None:
    """Read a file of code, which may take long, before a frame of it is looked at, which must not."""
    linecache.getlines(file)
    _polling_loops(file)


@dataclass(frozen=True)
class _Loop:
    """A `while` loop whose calls all are polls and sleeps. asked: what is polled, as expressions."""

    first: int
    last: int
    asked: list


@lru_cache(maxsize=256)
def _polling_loops(file: str) -> list[_Loop]:
    """Innermost first. Once for a file: a large one takes 50 ms, in which the rank's own thread stands still."""
    try:
        tree = parsed("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found = []
    for loop in (node for node in ast.walk(tree) if isinstance(node, ast.While)):
        calls = [node.func for node in ast.walk(loop) if isinstance(node, ast.Call)]
        asked = [
            func.value if isinstance(func, ast.Attribute) else func
            for func in calls
            if last_name(func) in POLLS
        ]
        if asked and {last_name(func) for func in calls} <= POLLS | {"sleep"}:
            found.append(_Loop(loop.lineno, loop.end_lineno, asked))
    return sorted(found, key=lambda loop: -loop.first)


def last_name(function) -> str:
    """The name of a called function, or the last of `a.b.c`; "" if it has none."""
    return (
        function.attr
        if isinstance(function, ast.Attribute)
        else function.id
        if isinstance(function, ast.Name)
        else ""
    )
