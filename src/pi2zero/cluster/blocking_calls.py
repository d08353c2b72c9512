"""In which call is a frame, and does that call wait for other ranks? This runs on the engines.

Nothing is executed to find out: names are looked up in the frame, attributes without running
descriptors. A module of another package can say that its functions wait for other ranks, see
MARKER."""

import ast
import builtins
import inspect
import linecache
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import BuiltinFunctionType, FrameType, FunctionType, MethodType, ModuleType

from pi2zero.cluster import safe_ast

# Calls of mpi4py that end only when other ranks do their part. Spawn, Accept, Connect and files are
# not among them: they wait for processes and disks, which may take long.
MPI_WAITS = set(
    """Barrier barrier Bcast bcast Reduce reduce Allreduce allreduce Gather gather Gatherv Scatter
    scatter Scatterv Allgather allgather Allgatherv Alltoall alltoall Alltoallv Alltoallw
    Reduce_scatter Reduce_scatter_block Scan scan Exscan exscan Send send Ssend ssend Recv recv
    Sendrecv sendrecv Sendrecv_replace Probe probe Mprobe mprobe Wait wait Waitall waitall Waitany
    waitany Waitsome waitsome Split Split_type Dup Create Free Clone Create_cart Create_graph
    Create_dist_graph_adjacent Neighbor_allgather Neighbor_alltoall Fence Lock Unlock Flush Post
    Start Complete Allocate_shared Allocate Bsend Rsend Agree""".split()  # noqa: SIM905 (readable)
)
COLLECTIVE_PREFIXES = tuple(
    "all bcast reduce gather scatter scan exscan neighbor".split()  # noqa: SIM905 (readable)
)
# Collectives that carry data: a long one may still complete.
DATA_COLLECTIVES = {
    name
    for name in MPI_WAITS
    if name.lower().startswith(COLLECTIVE_PREFIXES) and not name.startswith("Allocate")
}
POLLS = set(
    """Test test Testall testall Testany testany Testsome testsome Get_status Iprobe iprobe Improbe
    improbe is_completed poll""".split()  # noqa: SIM905 (readable)
)
# mpi4py duplicates a communicator at its first reduction of objects and holds the GIL meanwhile, so
# the sampler's thread cannot run.
GIL_HOLDING_CALLS = {"reduce", "allreduce", "scan", "exscan"}
# If the innermost frame is in one of these files, the rank waits for other ranks.
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
# The same for a module that sets this name, or whose package does. Its value: names of the module's
# functions that loop until other ranks have done their part.
MARKER = "__pi2zero_waits__"
# Autograd computes, or waits for DDP's last bucket; only then its thread is idle.
AUTOGRAD_FILES = ("/torch/autograd/graph.py", "/torch/autograd/__init__.py")
WAITING_MODULES = ("mpi4py", "torch._C._distributed", "torch.distributed", "horovod")
# Of a core: less than what a thread gets on a machine that runs a hundred others.
IDLE_SHARE = 0.005


@dataclass(frozen=True)
class Call:
    """text: the expression, "comm.recv(source=1)". method: "recv". owner: the object it is called
    on, or None if that is not known."""

    text: str = ""
    method: str = ""
    owner: object = None


def call_of(frame: FrameType) -> Call:
    """The call that a frame is making; an empty Call if none can be seen."""
    text = _expression(frame)
    try:
        # In parentheses, because a chain of calls may go over several lines.
        node = safe_ast.parse(f"({text}\n)", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Call()
    if not isinstance(node, ast.Call):
        return Call()
    shown = " ".join(text.split())
    if isinstance(node.func, ast.Attribute):
        method = node.func.attr
        matters = method in MPI_WAITS | POLLS
        return Call(shown, method, _value(node.func.value, frame) if matters else None)
    if isinstance(node.func, ast.Name):
        function = _value(node.func, frame)
        if type(function) is BuiltinFunctionType:  # of other objects, reading a name might run code
            return Call(shown, function.__name__, function.__self__)
        if function is None:  # Python 3.11 begins a chain over several lines at the last name
            return Call(f"(...).{shown}", node.func.id)
        named = type(function) in (FunctionType, MethodType)
        return Call(shown, function.__name__ if named else node.func.id)
    return Call(shown)


def _expression(frame: FrameType) -> str:
    """The source of the expression whose instruction the frame is at."""
    positions = list(frame.f_code.co_positions())
    index = frame.f_lasti // 2
    if not 0 <= index < len(positions) or None in positions[index]:
        return ""
    first, last, begin, end = (number or 0 for number in positions[index])
    file = frame.f_code.co_filename
    lines = [linecache.getline(file, number).encode() for number in range(first, last + 1)]
    lines[-1] = lines[-1][:end]  # columns count bytes
    lines[0] = lines[0][begin:]
    return b"".join(lines).decode(errors="replace")


def _value(node: ast.expr, frame: FrameType):
    """The value of an expression of names, attributes and plain subscripts; None if it is
    another."""
    if isinstance(node, ast.Name):
        return _lookup(node.id, frame)
    if isinstance(node, ast.Attribute) and (owner := _value(node.value, frame)) is not None:
        return inspect.getattr_static(owner, node.attr, None)
    if isinstance(node, ast.Subscript):
        owner, index = _value(node.value, frame), node.slice
        if type(owner) in (list, tuple, dict):
            key = index.value if isinstance(index, ast.Constant) else _value(index, frame)
            try:
                return owner[key]
            except (LookupError, TypeError):
                return None
    return None


def _lookup(name: str, frame: FrameType):
    """What a name is bound to in a frame; None if it is not bound."""
    code = frame.f_code
    if not code.co_flags & inspect.CO_OPTIMIZED:  # a cell, or a class's body: f_locals is no copy
        spaces = frame.f_locals, frame.f_globals, vars(builtins)
        return next((space[name] for space in spaces if name in space), None)
    if name not in {*code.co_varnames, *code.co_cellvars, *code.co_freevars}:
        return frame.f_globals.get(name, vars(builtins).get(name))
    space = frame.f_locals
    value = space.get(name)
    # Up to Python 3.12, clear the cached f_locals dict so that it does not keep tensors alive. A
    # refcount of 3 (frame, this function, the call) means that nobody else uses it.
    if sys.version_info < (3, 13) and frame.f_trace is None and sys.getrefcount(space) == 3:
        space.clear()
    return value


def waits_for_peers(frame: FrameType, call: Call, share: float) -> bool:
    """Whether a frame in one C call waits for other ranks. share: of a core, that its thread
    uses."""
    if _is_waiting_library(frame):
        return True
    if any(part in frame.f_code.co_filename for part in AUTOGRAD_FILES):
        return share < IDLE_SHARE and _has_joined()
    module = _module_of(call.owner)
    if module.startswith("mpi4py"):
        return call.method in MPI_WAITS and not _has_spawned_peers(call.owner)
    if module.startswith(WAITING_MODULES):
        return True
    # The owner may be an expression, as in comm.isend(x, 1).wait() or requests[-1].wait(). MPI
    # spins; a method of the same name of a socket is idle.
    owner_text = call.text.rpartition(call.method)[0] if call.method in MPI_WAITS else ""
    is_expression = call.owner is None and bool({"(", "["} & set(owner_text))
    return is_expression and share >= IDLE_SHARE


def _is_waiting_library(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return any(part in file for part in WAITING_FILES) or _marked_functions(frame) is not None


def _marked_functions(frame: FrameType):
    """The value of MARKER in the frame's module, or in its package; None if neither sets it."""
    package = sys.modules.get(frame.f_globals.get("__package__") or "")
    return frame.f_globals.get(MARKER, getattr(package, MARKER, None))


def _module_of(owner) -> str:
    """The module that an object, a class or a module is from."""
    if owner is None:
        return ""
    if isinstance(owner, ModuleType):
        return owner.__name__
    kind = owner if isinstance(owner, type) else type(owner)
    # The checks' communicators inherit from mpi4py's.
    modules = [base.__module__ or "" for base in kind.__mro__]
    waiting = (name for name in modules if name.startswith(("mpi4py", "torch._C._distributed")))
    return next(waiting, modules[0])


def _has_spawned_peers(owner) -> bool:
    """Whether it is an intercommunicator: spawned processes on its other side may still compute."""
    from mpi4py import MPI

    return isinstance(owner, MPI.Intercomm)


def _has_joined() -> bool:
    """Whether this rank belongs to a world of torch.distributed or Horovod."""
    dist = sys.modules.get("torch.distributed")
    joined = dist and dist.is_available() and dist.is_initialized()
    return "horovod.torch" in sys.modules or bool(joined)


def polling_loop(frame: FrameType):
    """The loop in which a frame only asks whether a message is there, as (frame, line), or None.

    Looks from the innermost frame outwards, through the libraries that are asked.
    """
    for caller in library_frames(frame):
        code = caller.f_code
        if code.co_name in (_marked_functions(caller) or ()):
            return id(caller), code.co_firstlineno
        for loop in _polling_loops(code.co_filename):
            if loop.first <= caller.f_lineno <= loop.last:
                modules = [_module_of(_value(owner, caller)) for owner in loop.owners]
                waits = all(module.startswith(WAITING_MODULES) for module in modules)
                return (id(caller), loop.first) if waits else None
    return None


def library_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """The innermost frame and its callers, up to the first outside of the waiting libraries."""
    while frame is not None:
        yield frame
        if not _is_waiting_library(frame):
            return
        frame = frame.f_back


def warm_source_cache(file: str) -> None:
    """Read a source file, which may take long, before a frame of it is looked at."""
    linecache.getlines(file)
    _polling_loops(file)


@dataclass(frozen=True)
class _Loop:
    """A `while` loop whose only calls are polls and sleeps. owners: the objects that are polled."""

    first: int
    last: int
    owners: list


@lru_cache(maxsize=256)
def _polling_loops(file: str) -> list[_Loop]:
    """Innermost first. Cached: a large file takes 50 ms, in which the rank's own thread waits."""
    try:
        tree = safe_ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    loops = []
    for loop in (node for node in ast.walk(tree) if isinstance(node, ast.While)):
        functions = [node.func for node in ast.walk(loop) if isinstance(node, ast.Call)]
        polls = [func for func in functions if last_name(func) in POLLS]
        owners = [func.value if isinstance(func, ast.Attribute) else func for func in polls]
        if owners and {last_name(func) for func in functions} <= POLLS | {"sleep"}:
            loops.append(_Loop(loop.lineno, loop.end_lineno or loop.lineno, owners))
    return sorted(loops, key=lambda loop: -loop.first)


def last_name(function: ast.expr) -> str:
    """The name of a called function, or the last of `a.b.c`; "" if it has none."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
