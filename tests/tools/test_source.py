"""The source as a reader meets it: whatever is public says what it is, and nothing is written twice."""

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = [ROOT / "src" / "pi2zero", ROOT / "course" / "src" / "pi2zero_course"]
DEFINED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# The text of these two files is part of the key of what they build (parts.Part.made_of): with a docstring more, Horovod and
# DeepSpeed's operators would be compiled anew everywhere. Whoever changes such a recipe anyway writes them, and takes this out.
RECIPES = {
    "pi2zero.built.horovod": {"Horovod", "Horovod.check_tools", "pip"},
    "pi2zero.built.operators": {"Operators"},
}


def definitions(node):
    """The functions and classes that stand in a module or class, also below an `if` or `try`, but not those inside a function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, DEFINED):
            yield child
        elif isinstance(child, ast.stmt | ast.ExceptHandler):
            yield from definitions(child)


def is_setter(function):
    return any(
        isinstance(one, ast.Attribute) and one.attr in ("setter", "deleter")
        for one in function.decorator_list
    )


def without_docstring(node, before=""):
    for one in definitions(node):
        if one.name.startswith("_") or is_setter(one):
            continue
        if ast.get_docstring(one) is None:
            yield before + one.name
        if isinstance(one, ast.ClassDef):
            yield from without_docstring(one, f"{before}{one.name}.")


def is_told_above(module, name):
    """Is it a method whose docstring stands where it is first defined: in a class, ours or a library's, that this one extends?"""
    *classes, method = name.split(".")
    if not classes:
        return False
    found = importlib.import_module(module)
    for one in classes:
        found = getattr(found, one)
    return isinstance(found, type) and any(
        method in vars(base) and vars(base)[method].__doc__ for base in found.__mro__[1:]
    )


def modules():
    for source, path in sorted((top, path) for top in SOURCES for path in top.rglob("*.py")):
        parts = path.relative_to(source.parent).with_suffix("").parts
        yield (
            ".".join(parts[:-1] if parts[-1] == "__init__" else parts),
            ast.parse(path.read_text()),
        )


def test_whatever_is_public_has_a_docstring():
    missing = {}
    for module, tree in modules():
        names = {"the module"} if ast.get_docstring(tree) is None else set()
        names |= {name for name in without_docstring(tree) if not is_told_above(module, name)}
        if names:
            missing[module] = names
    assert missing == RECIPES


@pytest.mark.parametrize(
    "text, names",
    [
        ("def f(): pass", ["f"]),
        ("def f(): 'It does.'", []),
        ("def f():\n 'It does.'\n def g(): pass", []),
        ("class C:\n 'It is.'\n def f(self): pass\n def _g(self): pass", ["C.f"]),
        ("class C:\n def f(self): 'It does.'", ["C"]),
        (
            "class C:\n 'It is.'\n @property\n def f(self): 'It is.'\n @f.setter\n def f(self, new): pass",
            [],
        ),
        ("try:\n def f(): pass\nexcept OSError:\n def g(): pass", ["f", "g"]),
    ],
)
def test_a_missing_docstring_is_seen(text, names):
    assert list(without_docstring(ast.parse(text))) == names


def test_a_method_may_have_its_docstring_where_it_is_first_defined():
    assert is_told_above("pi2zero.built.horovod", "Horovod.works")
    assert not is_told_above("pi2zero.built.horovod", "Horovod.check_tools")


# --- twins --------------------------------------------------------------------------------------------------------------


def twins(trees):
    """Functions of at least two statements, in whatever files, that do the same with the same names: {body: [(file, name)]}."""
    found = {}
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body if ast.get_docstring(node) is None else node.body[1:]
                if len(body) > 1 or any(
                    isinstance(inner, ast.stmt) for one in body for inner in list(ast.walk(one))[1:]
                ):
                    found.setdefault("\n".join(map(ast.dump, body)), []).append((file, node.name))
    return [places for places in found.values() if len(places) > 1]


def test_no_function_is_written_twice():
    """Not so in scripts/ and in the tests: each script is read alone."""
    files = [path for top in SOURCES for path in top.rglob("*.py")]
    files += [
        path
        for folder in ("tools", "benchmarks", "hub", "slides", "site")
        for path in (ROOT / folder).glob("*.py")
    ]
    assert len(files) > 200
    assert not twins({str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in files})


def test_twins_are_seen():
    one, two = (
        "def f(x):\n 'Adds.'\n y = x + 1\n return y",
        "class C:\n def g(x):\n  y = x + 1\n  return y",
    )
    assert twins({"a": ast.parse(one), "b": ast.parse(two)}) == [[("a", "f"), ("b", "g")]]
    assert not twins({"a": ast.parse(one), "b": ast.parse("def f(x):\n y = x + 2\n return y")})
    assert not twins({"a": ast.parse("def f(): return 1"), "b": ast.parse("def f(): return 1")})
