"""Does a call wait for other ranks? This runs on the engines.

It counts where the called code comes from, not in which file the call stands. A module of another
package can say that its functions wait for other ranks, see MARKER."""

import ast
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import FrameType, FunctionType, ModuleType

import psutil

from pi2zero.cluster.frame_calls import (
    WAITING_MODULES,
    Call,
    Result,
    attribute,
    call_of,
    chains,
    last_name,
    lookup,
    module_of,
    tree_of,
    unwrap,
    value_of,
)

# Calls of mpi4py that end only when other ranks do their part. Spawn, Accept and Connect are not
# among them: they wait for processes, which may take long.
MPI_WAITS = set(
    """Barrier barrier Bcast bcast Reduce reduce Allreduce allreduce Gather gather Gatherv Scatter
    scatter Scatterv Allgather allgather Allgatherv Alltoall alltoall Alltoallv Alltoallw
    Reduce_scatter Reduce_scatter_block Scan scan Exscan exscan Send send Ssend ssend Recv recv
    Sendrecv sendrecv Sendrecv_replace Probe probe Mprobe mprobe Wait wait Waitall waitall Waitany
    waitany Waitsome waitsome Split Split_type Dup Dup_with_info Create Free Clone Create_cart
    Create_graph Create_dist_graph Create_dist_graph_adjacent Create_group Create_intercomm
    Create_dynamic Create_from_group Create_from_groups Sub Merge Disconnect Shrink
    Neighbor_allgather neighbor_allgather Neighbor_allgatherv Neighbor_alltoall neighbor_alltoall
    Neighbor_alltoallv Neighbor_alltoallw Fence Lock Lock_all Unlock Unlock_all Flush Flush_all
    Flush_local Flush_local_all Post Start Complete Allocate_shared Allocate Bsend Rsend
    Agree""".split()  # noqa: SIM905 (readable)
)
COLLECTIVE_PREFIXES = tuple(
    "all bcast reduce gather scatter scan exscan neighbor".split()  # noqa: SIM905 (readable)
)
# The same of MPI.File. While such a call reads or writes, it does not wait, see activity_sampler.py
FILE_COLLECTIVES = {"Open", "Close", "Set_size", "Set_view", "Set_atomicity", "Sync", "Preallocate"}
FILE_COLLECTIVES |= {
    f"{access}{where}{step}"
    for access in ("Read", "Write")
    for where in ("_all", "_at_all", "_ordered")
    for step in ("", "_begin", "_end")
}
# Collectives that carry data: a long one may still complete.
DATA_COLLECTIVES = FILE_COLLECTIVES | {
    name
    for name in MPI_WAITS
    if name.lower().startswith(COLLECTIVE_PREFIXES) and not name.startswith("Allocate")
}
# Calls that all ranks of a communicator make together
COLLECTIVES = {"Barrier", "barrier", "Split", "Split_type", "Dup", "Create", "Free", "Clone"}
COLLECTIVES |= {"Create_cart", "Create_graph"} | (DATA_COLLECTIVES - FILE_COLLECTIVES)
POLLS = set(
    """Test test Testall testall Testany testany Testsome testsome Get_status Iprobe iprobe Improbe
    improbe is_completed poll check""".split()  # noqa: SIM905 (readable)
)
# What else may be called in a loop that only polls
BETWEEN_POLLS = {"sleep", "all", "any"}
# mpi4py duplicates a communicator at its first reduction of objects and holds the GIL meanwhile, so
# the sampler's thread cannot run.
GIL_HOLDING_CALLS = {"reduce", "allreduce", "scan", "exscan"}
# In these files a rank waits for other ranks, unless it calls what is known to be something else.
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
OTHER_WORK = ("_pickle", "pickle", "numpy", "torch", "torch._C", "torch._C._VariableFunctions")
# The same for a module that sets this name, or whose package does. Its value: names of the module's
# functions that loop until other ranks have done their part.
MARKER = "__pi2zero_waits__"
# Autograd computes, or waits for DDP's last bucket; only then its thread is idle.
AUTOGRAD_FILES = ("/torch/autograd/graph.py", "/torch/autograd/__init__.py")
OPERATORS_FILE = "/torch/_ops.py"  # calls every operator of torch from Python
WAITING_OPERATORS = ("_c10d_functional", "c10d_functional", "c10d", "_dtensor", "symm_mem")
# Of what a function of these modules returns, as in `dist.isend(x, 1).wait()`
WAITS_OF_RESULTS = MPI_WAITS | FILE_COLLECTIVES | {"get", "multi_get", "synchronize"}
# Of a core: less than what a thread gets on a machine that runs a hundred others.
IDLE_SHARE = 0.005


def waits_for_peers(frame: FrameType, call: Call, share: float) -> bool:
    """Whether a frame in one C call waits for other ranks. share: of a core, that its thread
    uses."""
    if _is_operator(frame):
        return _operator(frame).partition("::")[0] in WAITING_OPERATORS
    module = _module_called(call)
    if _marked_functions(frame) is not None:
        return True
    if module.startswith(WAITING_MODULES):
        return _needs_peers(module, call)
    if _is_waiting_library(frame):
        return module not in OTHER_WORK
    if any(part in frame.f_code.co_filename for part in AUTOGRAD_FILES):
        return share < IDLE_SHARE and _has_joined()
    if module or type(call.owner) is Result:
        return False
    if call.forwards and frame.f_back is not None:  # it only passes on what its caller has called
        return _is_wait_passed_on(frame.f_back, share)
    # The owner may be an expression, or an object that passes on to a communicator. MPI spins; a
    # method of the same name of a socket is idle.
    owner_text = call.text.rpartition(call.method)[0] if call.method in MPI_WAITS else ""
    is_expression = call.owner is None and bool({"(", "["} & set(owner_text))
    is_proxy = call.owner is not None and type(_function(call)) in (type(None), property)
    return bool(owner_text) and (is_expression or is_proxy) and share >= IDLE_SHARE


def _is_wait_passed_on(frame: FrameType, share: float) -> bool:
    """Whether the caller of a frame that passes on calls something that waits.

    The passing frame's own call is not known: in a library's file the processor decides.
    """
    call = call_of(frame)
    if call.text and (_module_called(call) or type(call.function) is not FunctionType):
        return waits_for_peers(frame, call, share)
    if _is_waiting_library(frame):
        return share < IDLE_SHARE
    if call.forwards and frame.f_back is not None:
        return _is_wait_passed_on(frame.f_back, share)
    return False


def _needs_peers(module: str, call: Call) -> bool:
    """Whether this call of a module that knows ranks waits for them."""
    if type(call.owner) is Result and call.method not in WAITS_OF_RESULTS:
        return False
    if module.startswith("mpi4py"):
        return is_wait_of_mpi(call) and not has_spawned_peers(call.owner)
    # Any process can write into a store, also one that this rank has started.
    return not (_is_store(call.owner) and child_processes())


_first_children: set[int] = set()


def know_children() -> None:
    """The processes that this one has started so far are its own helpers, such as an engine's."""
    _first_children.update(child_processes())


def child_processes() -> set[int]:
    """The pids of live processes that this one has started, without its helpers."""
    return {child.pid for child in psutil.Process().children()} - _first_children


def is_wait_of_mpi(call: Call) -> bool:
    """Whether it is a method of mpi4py that waits for other processes, children among them."""
    waits = call.method in MPI_WAITS or is_file_collective(call)
    return waits and _module_called(call).startswith("mpi4py")


def is_file_collective(call: Call) -> bool:
    """Whether it is a collective method of MPI.File, which also reads or writes."""
    if call.method not in FILE_COLLECTIVES or not _module_called(call).startswith("mpi4py"):
        return False
    owner = call.owner if isinstance(call.owner, type) else type(call.owner)
    return owner is Result or any(kind.__name__ == "File" for kind in owner.__mro__)


def needs_all_ranks(call: Call) -> bool:
    """Whether it is a collective of MPI.COMM_WORLD: it cannot complete without each rank."""
    if call.method not in COLLECTIVES or "mpi4py.MPI" not in sys.modules:
        return False
    from mpi4py import MPI

    is_communicator = issubclass(type(call.owner), MPI.Intracomm)
    return is_communicator and MPI.Comm.__eq__(call.owner, MPI.COMM_WORLD) is True


def _function(call: Call):
    """What is called, None if that is not known."""
    if call.function is None and call.owner is not None:
        return unwrap(attribute(call.owner, call.method))
    return call.function


def _module_called(call: Call) -> str:
    """The module whose code a call is in; "" if that is not known."""
    if (function := _function(call)) is not None:
        return module_of(function)
    # An attribute that is made when it is asked for
    module = module_of(call.owner)
    is_module = issubclass(type(call.owner), ModuleType)
    return module if is_module or module.startswith(WAITING_MODULES) else ""


def _is_operator(frame: FrameType) -> bool:
    return frame.f_code.co_filename.endswith(OPERATORS_FILE)


def _operator(frame: FrameType) -> str:
    """The operator that torch calls in this frame, "_c10d_functional::wait_tensor"."""
    called = lookup("self", frame)
    names = [attribute(called, name) for name in ("_qualified_op_name", "_name")]
    return next((name for name in names if type(name) is str), "")


def _is_store(owner) -> bool:
    """Whether it is one of torch's key-value stores, or a call that has returned one."""
    if type(owner) is Result:
        return "store" in owner.name.lower()
    return any(kind.__name__ == "Store" for kind in type(owner).__mro__)


def _is_waiting_library(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return any(part in file for part in WAITING_FILES) or _marked_functions(frame) is not None


def _marked_functions(frame: FrameType):
    """The value of MARKER in the frame's module, or in its package; None if neither sets it."""
    package = sys.modules.get(frame.f_globals.get("__package__") or "")
    return frame.f_globals.get(MARKER, getattr(package, MARKER, None))


def has_spawned_peers(owner) -> bool:
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
                modules = [_module_polled(owners, caller) for owners in loop.owners]
                waits = all(module.startswith(WAITING_MODULES) for module in modules)
                place = caller.f_back if code.co_name == "<genexpr>" else caller
                return (id(place), loop.first) if waits else None
    return None


def _module_polled(owners: tuple, frame: FrameType) -> str:
    """The module of the first of these expressions that has a value in the frame."""
    return next(filter(None, (module_of(value_of(owner, frame)) for owner in owners)), "")


def library_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """The innermost frame and its callers, up to the first outside of the waiting libraries."""
    while frame is not None:
        yield frame
        if not _is_waiting_library(frame):
            return
        frame = frame.f_back


def files_to_read(frame: FrameType | None) -> set[str]:
    """The source files that a look at a frame needs: of libraries, and of what passes on a call."""
    files = {caller.f_code.co_filename for caller in library_frames(frame)}
    while frame is not None:
        files.add(frame.f_code.co_filename)
        if not frame.f_code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
            return files
        frame = frame.f_back
    return files


def warm_source_cache(file: str) -> None:
    """Read a source file, which may take long, before a frame of it is looked at."""
    _polling_loops(file)
    chains(file)
    tree_of.cache_clear()


@dataclass(frozen=True)
class _Loop:
    """A `while` loop whose only calls are polls and sleeps. owners: of each object that is polled,
    the expressions that may tell it."""

    first: int
    last: int
    owners: list


@lru_cache(maxsize=256)
def _polling_loops(file: str) -> list[_Loop]:
    """Innermost first. Cached: a large file takes 50 ms, in which the rank's own thread waits."""
    loops = []
    for loop in (node for node in ast.walk(tree_of(file)) if isinstance(node, ast.While)):
        functions = [node.func for node in ast.walk(loop) if isinstance(node, ast.Call)]
        polls = [func for func in functions if last_name(func) in POLLS]
        owners = [_polled(func, loop) for func in polls]
        if owners and {last_name(func) for func in functions} <= POLLS | BETWEEN_POLLS:
            loops.append(_Loop(loop.lineno, loop.end_lineno or loop.lineno, owners))
    return sorted(loops, key=lambda loop: -loop.first)


def _polled(function: ast.expr, loop: ast.While) -> tuple:
    """What is polled; for `request` in `all(request.Test() for request in requests)` also the first
    of `requests`, for the frame around it."""
    owner = function.value if isinstance(function, ast.Attribute) else function
    parts = [part for part in ast.walk(loop) if isinstance(part, ast.comprehension)]
    return owner, *(
        ast.Subscript(part.iter, ast.Constant(0))
        for part in parts
        if ast.dump(owner) == ast.dump(part.target).replace("Store()", "Load()")
    )
