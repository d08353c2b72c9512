"""In which call is a frame, and does that call wait for other ranks? This runs on the engines.

What is called is looked up in the frame: names, attributes, items; also behind a decorator, a
partial, a `getattr`, and without the source text. It counts where the called code comes from, not
in which file the call stands. Nothing is executed to find out: attributes are looked up without
running descriptors. A module of another package can say that its functions wait for other ranks,
see MARKER."""

import ast
import builtins
import dis
import functools
import inspect
import linecache
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import (
    BuiltinFunctionType,
    FrameType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)

import psutil

from pi2zero.cluster import safe_ast

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
WAITING_MODULES = ("mpi4py", "torch._C._distributed_c10d", "torch.distributed", "horovod")
OPERATORS_FILE = "/torch/_ops.py"  # calls every operator of torch from Python
WAITING_OPERATORS = ("_c10d_functional", "c10d_functional", "c10d", "_dtensor", "symm_mem")
# Of what a function of these modules returns, as in `dist.isend(x, 1).wait()`
WAITS_OF_RESULTS = MPI_WAITS | FILE_COLLECTIVES | {"get", "multi_get", "synchronize"}
C_FUNCTIONS = set(
    """builtin_function_or_method method_descriptor wrapper_descriptor method-wrapper
    classmethod_descriptor instancemethod cython_function_or_method""".split()  # noqa: SIM905
)
# Of a core: less than what a thread gets on a machine that runs a hundred others.
IDLE_SHARE = 0.005


@dataclass(frozen=True)
class Call:
    """text: the expression, "comm.recv(source=1)". method: "recv". owner: the object it is called
    on, or None if that is not known. function: what is called, None if that is not known.
    forwards: whether the frame passes on its own `*args` or `**kwargs`."""

    text: str = ""
    method: str = ""
    owner: object = None
    function: object = None
    forwards: bool = False


@dataclass(frozen=True)
class _Result:
    """What a function or a class of a module that knows ranks has returned."""

    module: str
    name: str


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
    shown, called = " ".join(text.split()), _as_attribute(node.func, frame)
    function, forwards = _unwrap(_value(called, frame)), _forwards(node, frame)
    function = None if type(function) is _Result else function
    if isinstance(called, ast.Attribute):
        return Call(shown, called.attr, _value(called.value, frame), function, forwards)
    name = last_name(called)
    if function is None and name:  # Python 3.11 begins a chain over several lines at the last name
        return Call(f"(...).{shown}", name, forwards=forwards)
    owner = getattr(function, "__self__", None) if type(function) in BOUND else None
    # Of other objects, reading a name might run code.
    if type(function) in (*BOUND, FunctionType) or type(function).__name__ in C_FUNCTIONS:
        name = str(function.__name__)
    return Call(shown, name, owner, function, forwards)


BOUND = (BuiltinFunctionType, MethodType)


def _forwards(node: ast.Call, frame: FrameType) -> bool:
    """Whether a call passes on the `*args` or `**kwargs` of the frame's function."""
    code = frame.f_code
    at = code.co_argcount + code.co_kwonlyargcount
    count = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    packed = [arg.value for arg in node.args if isinstance(arg, ast.Starred)]
    packed += [keyword.value for keyword in node.keywords if keyword.arg is None]
    names = {value.id for value in packed if isinstance(value, ast.Name)}
    return bool(names & set(code.co_varnames[at : at + count]))


def _as_attribute(node: ast.expr, frame: FrameType) -> ast.expr:
    """`getattr(comm, "Barrier")` as `comm.Barrier`; other expressions as they are."""
    if isinstance(node, ast.Call) and len(node.args) > 1 and _value(node.func, frame) is getattr:
        name = node.args[1]
        name = name.value if isinstance(name, ast.Constant) else _value(name, frame)
        if type(name) is str:
            return ast.Attribute(node.args[0], name)
    return node


def _expression(frame: FrameType) -> str:
    """The source of the expression whose instruction the frame is at; without a source, what its
    instructions tell."""
    code, positions = frame.f_code, list(frame.f_code.co_positions())
    index = frame.f_lasti // 2
    if not 0 <= index < len(positions) or None in positions[index]:
        return ""
    first, last, begin, end = (number or 0 for number in positions[index])
    lines = [
        linecache.getline(code.co_filename, number).encode() for number in range(first, last + 1)
    ]
    if not any(lines):  # `exec`, `%time`, `timeit`
        return _called_name(frame)
    lines[-1] = lines[-1][:end]  # columns count bytes
    lines[0] = lines[0][begin:]
    return b"".join(lines).decode(errors="replace")


def _called_name(frame: FrameType) -> str:
    """The call that a frame is at, "comm.Barrier(...)", from the positions of its instructions:
    what is called begins where the call begins."""
    instructions = list(dis.get_instructions(frame.f_code))
    call = next((each for each in instructions if each.offset == frame.f_lasti), None)
    if call is None or not call.opname.startswith("CALL") or call.positions is None:
        return ""
    names, begin = [], (call.positions.lineno, call.positions.col_offset)
    for each in instructions[: instructions.index(call)]:
        place = each.positions and (each.positions.lineno, each.positions.col_offset)
        if place != begin or not each.opname.startswith("LOAD_") or each.opname == "LOAD_CONST":
            continue
        is_attribute = each.opname in ("LOAD_ATTR", "LOAD_METHOD")
        names = [*(names if is_attribute else []), str(each.argval)]
    return f"{'.'.join(names)}(...)" if names else ""


def _value(node: ast.expr, frame: FrameType):
    """The value of an expression of names, attributes and plain subscripts; of a call, a
    `_Result`; None if it is not known."""
    if isinstance(node, ast.Name):
        return _lookup(node.id, frame)
    if isinstance(node, ast.Attribute):
        return _attribute(_value(node.value, frame), _mangled(node.attr, frame))
    if isinstance(node, ast.Subscript):
        owner = _value(node.value, frame)
        if type(owner) not in (list, tuple, dict):
            return None
        try:
            return owner[_key(node.slice, frame)]
        except (LookupError, TypeError):
            return None
    if isinstance(node, ast.Call):
        function = _value(_as_attribute(node.func, frame), frame)
        if function is super:
            first = frame.f_code.co_varnames[:1] or ("self",)
            return _lookup(first[0], frame)
        if function is functools.partial and node.args:
            return _value(node.args[0], frame)
        return _result_of(_unwrap(function))
    return None


def _result_of(function) -> _Result | None:
    is_python = type(function) is FunctionType
    module = str(function.__module__) if is_python else _module_of(function)
    known = module.startswith(WAITING_MODULES)
    return _Result(module, str(getattr(function, "__name__", ""))) if known else None


def _key(node: ast.expr, frame: FrameType):
    try:
        return ast.literal_eval(node)
    except ValueError:
        return _value(node, frame)


def _mangled(name: str, frame: FrameType) -> str:
    """`self.__handle` in a class is `self._Class__handle`."""
    scopes = frame.f_code.co_qualname.split(".")
    if name.startswith("__") and not name.endswith("__") and len(scopes) > 1:
        return f"_{scopes[-2].lstrip('_')}{name}"
    return name


def _attribute(owner, name: str):
    """An attribute as the object or its class has it, without running a descriptor."""
    if owner is None or type(owner) is _Result:
        return None
    value = inspect.getattr_static(owner, name, None)
    if type(value) is MemberDescriptorType and not isinstance(owner, type):  # of __slots__
        try:
            return value.__get__(owner)
        except AttributeError:
            return None
    return value


def _unwrap(function):
    """What a partial, a class method or a decorator that says so calls in the end."""
    for _ in range(10):
        if type(function) is functools.partial:
            function = function.func
        elif type(function) in (classmethod, staticmethod):
            function = function.__func__
        elif type(function) in (FunctionType, functools._lru_cache_wrapper):
            if (inner := function.__dict__.get("__wrapped__")) is None:
                return function
            function = inner
        else:
            return function
    return function


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
    if module or type(call.owner) is _Result:
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
    forwards = call.forwards and frame.f_back is not None
    return forwards and _is_wait_passed_on(frame.f_back, share)


def _needs_peers(module: str, call: Call) -> bool:
    """Whether this call of a module that knows ranks waits for them."""
    if type(call.owner) is _Result and call.method not in WAITS_OF_RESULTS:
        return False
    if module.startswith("mpi4py"):
        return is_wait_of_mpi(call) and not has_spawned_peers(call.owner)
    # Any process can write into a store, also one that this rank has started.
    return not (_is_store(call.owner) and psutil.Process().children())


def is_wait_of_mpi(call: Call) -> bool:
    """Whether it is a method of mpi4py that waits for other processes, children among them."""
    waits = call.method in MPI_WAITS or is_file_collective(call)
    return waits and _module_called(call).startswith("mpi4py")


def is_file_collective(call: Call) -> bool:
    """Whether it is a collective method of MPI.File, which also reads or writes."""
    if call.method not in FILE_COLLECTIVES or not _module_called(call).startswith("mpi4py"):
        return False
    owner = call.owner if isinstance(call.owner, type) else type(call.owner)
    return owner is _Result or any(kind.__name__ == "File" for kind in owner.__mro__)


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
        return _unwrap(_attribute(call.owner, call.method))
    return call.function


def _module_called(call: Call) -> str:
    """The module whose code a call is in; "" if that is not known."""
    if (function := _function(call)) is not None:
        return _module_of(function)
    # An attribute that is made when it is asked for
    module = _module_of(call.owner)
    is_module = issubclass(type(call.owner), ModuleType)
    return module if is_module or module.startswith(WAITING_MODULES) else ""


def _module_of(value) -> str:
    """The module that an object, a class, a function of C or a module is from; "" for a Python
    function, whose own frame would be seen, and for what only running it could tell."""
    kind = type(value)
    if value is None or kind in (FunctionType, property):
        return ""
    if kind is _Result:
        return value.module
    if issubclass(kind, ModuleType):
        return value.__name__
    if kind.__name__ in C_FUNCTIONS:
        owner = getattr(value, "__objclass__", None)
        module = None if owner else getattr(value, "__module__", None)
        return str(module or _module_of(owner or getattr(value, "__self__", None)))
    if kind is MethodType:  # of Cython and pybind11
        return _module_of(value.__func__)
    # The checks' communicators inherit from mpi4py's.
    modules = [
        base.__module__ or "" for base in (value if issubclass(kind, type) else kind).__mro__
    ]
    waiting = (name for name in modules if name.startswith(("mpi4py", "torch._C._distributed")))
    module = next(waiting, modules[0])
    return "" if module.startswith(("ctypes", "_ctypes")) else module


def _is_operator(frame: FrameType) -> bool:
    return frame.f_code.co_filename.endswith(OPERATORS_FILE)


def _operator(frame: FrameType) -> str:
    """The operator that torch calls in this frame, "_c10d_functional::wait_tensor"."""
    called = _lookup("self", frame)
    names = [_attribute(called, name) for name in ("_qualified_op_name", "_name")]
    return next((name for name in names if type(name) is str), "")


def _is_store(owner) -> bool:
    """Whether it is one of torch's key-value stores, or a call that has returned one."""
    if type(owner) is _Result:
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
    return next(filter(None, (_module_of(_value(owner, frame)) for owner in owners)), "")


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
    linecache.getlines(file)
    _polling_loops(file)


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
    try:
        tree = safe_ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    loops = []
    for loop in (node for node in ast.walk(tree) if isinstance(node, ast.While)):
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


def last_name(function: ast.expr) -> str:
    """The name of a called function, or the last of `a.b.c`; "" if it has none."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
