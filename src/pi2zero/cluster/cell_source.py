"""What stands in the text of a `%%px` cell, without running it."""

import ast
import functools
import re
from collections.abc import Iterable

from IPython.core.inputtransformer2 import TransformerManager

DEFINITION = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_INSTALL = re.compile(r"\s*(\S+ +-m +|uv +)?(pip3?|conda|mamba) +install\b")


@functools.lru_cache(maxsize=1000)
def statements(source: str) -> tuple[ast.stmt, ...]:
    """A cell's top-level statements, with IPython's own syntax; none if it is no Python."""
    try:
        return tuple(ast.parse(TransformerManager().transform_cell(source)).body)
    except SyntaxError:
        return ()


def definitions(source: str) -> dict[str, ast.stmt]:
    """The functions and classes that a cell defines at its top level, by their names."""
    return {part.name: part for part in statements(source) if isinstance(part, DEFINITION)}


def set_names(statement: ast.stmt) -> set[str]:
    """The names that a top-level statement sets."""
    if isinstance(statement, DEFINITION):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).partition(".")[0] for alias in statement.names}
    nodes = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
    return {node.id for node in nodes if isinstance(node.ctx, ast.Store)}


def used_names(statement: ast.AST) -> set[str]:
    """The names that a statement reads, also in a magic such as `%time f()`."""
    names = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif _magic(node):
            names |= {word for text in _texts(node) for word in re.findall(r"\w+", text)}
    return names


def names_used_to_define(statement: ast.stmt) -> set[str]:
    """The names that a definition reads when it is made: base classes, defaults, decorators."""
    bodies: list[ast.AST] = []
    for node in ast.walk(statement):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            bodies += node.body
    inside = set().union(*(used_names(node) for node in bodies))
    return used_names(statement) - inside


def is_check(statement: ast.AST) -> bool:
    """Whether it is `check.NAME(...)`, as the course's notebooks check an answer."""
    function = getattr(getattr(statement, "value", None), "func", None)
    return isinstance(function, ast.Attribute) and getattr(function.value, "id", "") == "check"


def is_kits_answer(statement: ast.AST) -> bool:
    """Whether it is a definition under `@solution`: the course's answer to a blank."""
    return "solution" in {getattr(d, "id", "") for d in getattr(statement, "decorator_list", [])}


def is_left(definition: ast.AST) -> bool:
    """Whether an answer is still to be written."""
    return "NotImplementedError" in used_names(definition)


def is_install(statement: ast.AST) -> bool:
    """Whether it is `!pip install ...`, `%pip install ...` or the same with conda or uv."""
    call = getattr(statement, "value", None)
    if not isinstance(statement, ast.Expr) or not (magic := _magic(call)):
        return False
    command = " ".join(_texts(call)[: 1 if magic == "system" else 2])
    return bool(_INSTALL.match(command))


def split_installs(source: str) -> tuple[str, str]:
    """The lines of a cell that install packages, and the cell with a comment in their places."""
    lines, installs = source.splitlines(), []
    for part in filter(is_install, statements(source)):
        line = lines[part.lineno - 1].strip()
        if part.lineno == part.end_lineno and line.startswith(("!", "%")):
            installs.append(line)
            lines[part.lineno - 1] = f"# {line}"
    return "\n".join(installs), "\n".join(lines) if installs else source


def without(source: str, dropped: Iterable[ast.stmt]) -> str:
    """A cell without some of its statements; "" if nothing is left."""
    gone = set(map(id, dropped))
    left = [part for part in statements(source) if id(part) not in gone]
    return ast.unparse(ast.Module(left, []))


def _magic(node: ast.AST | None) -> str:
    """IPython's method that a call of `get_ipython()` names, such as run_line_magic; or ""."""
    function = node.func if isinstance(node, ast.Call) else None
    owner = getattr(getattr(function, "value", None), "func", None)
    return getattr(function, "attr", "") if getattr(owner, "id", "") == "get_ipython" else ""


def _texts(call) -> list[str]:
    return [part.value for part in call.args if isinstance(getattr(part, "value", None), str)]
