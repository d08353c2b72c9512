"""Which call is a frame making, and what is called? This runs on the engines.

What is called is looked up in the frame: names, attributes, items; also behind a decorator, a
partial, a `getattr`, and without the source text. Nothing is executed to find out: attributes are
looked up without running descriptors."""

import ast
import builtins
import dis
import functools
import inspect
import linecache
import sys
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
from typing import Any

from pi2zero.cluster import safe_ast

# Modules whose functions and objects know ranks
WAITING_MODULES = ("mpi4py", "torch._C._distributed_c10d", "torch.distributed", "horovod")
C_FUNCTIONS = set(
    """builtin_function_or_method method_descriptor wrapper_descriptor method-wrapper
    classmethod_descriptor instancemethod cython_function_or_method""".split()  # noqa: SIM905
)
BOUND = (BuiltinFunctionType, MethodType)
PYTHON = (FunctionType, type(None))


@dataclass(frozen=True)
class Call:
    """text: the expression, "comm.recv(source=1)". method: "recv". owner: the object it is called
    on, or None if that is not known. function: what is called, None if that is not known.
    forwards: whether the frame passes on its own `*args` or `**kwargs`."""

    text: str = ""
    method: str = ""
    owner: Any = None
    function: Any = None
    forwards: bool = False


@dataclass(frozen=True)
class Result:
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
    shown = " ".join(text.split())
    # Python 3.11 begins a chain over several lines at the last name.
    if isinstance(node.func, ast.Name) and (chain := _chain_at(frame)):
        node, shown = chain, f"(...).{shown}"
    called = _as_attribute(node.func, frame)
    function: Any = unwrap(value_of(called, frame))
    forwards = _forwards(node, frame)
    function = None if type(function) is Result else function
    if isinstance(called, ast.Attribute):
        return Call(shown, called.attr, value_of(called.value, frame), function, forwards)
    name = last_name(called)
    owner = getattr(function, "__self__", None) if type(function) in BOUND else None
    # Of other objects, reading a name might run code.
    if type(function) in (*BOUND, FunctionType) or type(function).__name__ in C_FUNCTIONS:
        name = str(function.__name__)
    return Call(shown, name, owner, function, forwards)


def _chain_at(frame: FrameType) -> ast.Call | None:
    _, last, _, end = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    return chains(frame.f_code.co_filename).get((last, end))


@lru_cache(maxsize=256)
def chains(file: str) -> dict[tuple, ast.Call]:
    """The calls of what a call returns, `a(x)` and in the next line `.b()`, by their ends."""
    return {
        (node.end_lineno, node.end_col_offset): node
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Call)
        and node.lineno < (node.func.end_lineno or 0)
    }


@lru_cache(maxsize=1)  # a large file takes 50 ms, and its tree much memory
def tree_of(file: str) -> ast.AST:
    """A file's syntax tree; an empty one if it is no Python."""
    try:
        return safe_ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


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
    if isinstance(node, ast.Call) and len(node.args) > 1 and value_of(node.func, frame) is getattr:
        name = node.args[1]
        name = name.value if isinstance(name, ast.Constant) else value_of(name, frame)
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


def value_of(node: ast.expr, frame: FrameType):
    """The value of an expression of names, attributes and plain subscripts; of a call, a
    `Result`; None if it is not known."""
    if isinstance(node, ast.Name):
        return lookup(node.id, frame)
    if isinstance(node, ast.Attribute):
        owner = value_of(node.value, frame)
        value = attribute(owner, _mangled(node.attr, frame))
        if type(value) is FunctionType and isinstance(node.value, ast.Call):  # super().Barrier()
            values = (vars(base).get(node.attr) for base in type(owner).__mro__)
            value = next((each for each in values if type(each) not in PYTHON), None)
        return value
    if isinstance(node, ast.Subscript):
        owner = value_of(node.value, frame)
        if type(owner) not in (list, tuple, dict):
            return None
        try:
            return owner[_key(node.slice, frame)]
        except (LookupError, TypeError):
            return None
    if isinstance(node, ast.Call):
        function = value_of(_as_attribute(node.func, frame), frame)
        if function is super:
            first = frame.f_code.co_varnames[:1] or ("self",)
            return lookup(first[0], frame)
        if function is functools.partial and node.args:
            return value_of(node.args[0], frame)
        return _result_of(unwrap(function))
    return None


def _result_of(function) -> Result | None:
    is_python = type(function) is FunctionType
    module = str(function.__module__) if is_python else module_of(function)
    known = module.startswith(WAITING_MODULES)
    return Result(module, str(getattr(function, "__name__", ""))) if known else None


def _key(node: ast.expr, frame: FrameType):
    try:
        return ast.literal_eval(node)
    except ValueError:
        return value_of(node, frame)


def _mangled(name: str, frame: FrameType) -> str:
    """`self.__handle` in a class is `self._Class__handle`."""
    scopes = frame.f_code.co_qualname.split(".")
    if name.startswith("__") and not name.endswith("__") and len(scopes) > 1:
        return f"_{scopes[-2].lstrip('_')}{name}"
    return name


def attribute(owner, name: str):
    """An attribute as the object or its class has it, without running a descriptor."""
    if owner is None or type(owner) is Result:
        return None
    value = inspect.getattr_static(owner, name, None)
    if type(value) is MemberDescriptorType and not issubclass(type(owner), type):  # of __slots__
        try:
            return value.__get__(owner)
        except AttributeError:
            return None
    return value


def unwrap(function):
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


def lookup(name: str, frame: FrameType):
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
    # refcount of 3 (frame, this function, the call) means that it has no other user.
    if sys.version_info < (3, 13) and frame.f_trace is None and sys.getrefcount(space) == 3:
        space.clear()
    return value


def module_of(value) -> str:
    """The module that an object, a class, a function of C or a module is from; "" for a Python
    function, whose own frame would be seen, and for what only running it could tell."""
    kind = type(value)
    if value is None or kind in (FunctionType, property):
        return ""
    if kind is Result:
        return value.module
    if issubclass(kind, ModuleType):
        return value.__name__
    if kind.__name__ in C_FUNCTIONS:
        owner = getattr(value, "__objclass__", None)
        module = None if owner else getattr(value, "__module__", None)
        return str(module or module_of(owner or getattr(value, "__self__", None)))
    if kind is MethodType:  # of Cython and pybind11
        return module_of(value.__func__)
    # The checks' communicators inherit from mpi4py's.
    modules = [
        base.__module__ or "" for base in (value if issubclass(kind, type) else kind).__mro__
    ]
    waiting = (name for name in modules if name.startswith(("mpi4py", "torch._C._distributed")))
    module = next(waiting, modules[0])
    return "" if module.startswith(("ctypes", "_ctypes")) else module


def last_name(function: ast.expr) -> str:
    """The name of a called function, or the last of `a.b.c`; "" if it has none."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
