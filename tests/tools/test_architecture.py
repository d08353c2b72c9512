"""The picture in docs/architecture.md is the graph of imports, and it has no circles."""

import ast
import functools
import graphlib
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "pi2zero"
COURSE = ROOT / "course" / "src" / "pi2zero_course"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
NO_TORCH = ("torch", "deepspeed", "horovod", "transformers", "datasets")


def module_of(path, package):
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {
    module_of(path, package): path for package in (SRC, COURSE) for path in package.rglob("*.py")
}


def imports(path):
    """What a file imports, also inside functions, and the modules that it names in a string."""
    tree = ast.parse(path.read_text())
    for_types = {
        node
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and getattr(block.test, "id", "") == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if node in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: import by the full name"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in MODULES else node.module
        elif isinstance(node, ast.Constant) and node.value in MODULES and "." in node.value:
            yield node.value


def room_of(module):
    package, *rest = module.split(".")
    if package == "pi2zero_course" and rest in ([], ["__main__"]):
        return package
    return rest[0] if rest else package


@functools.cache
def arrows():
    found = {}
    for module, path in MODULES.items():
        for name in imports(path):
            if name in MODULES and room_of(name) != room_of(module):
                found.setdefault((room_of(module), room_of(name)), []).append(
                    f"{path.relative_to(ROOT)}: {name}"
                )
    return found


def drawn():
    (picture,) = re.findall(r"```mermaid\nflowchart TD\n(.*?)```", PAGE, re.DOTALL)
    lines = [re.fullmatch(r"    (\w+) --> (\w+(?: & \w+)*)", line) for line in picture.splitlines()]
    assert all(lines), "the picture has a line that is not: room --> room & room"
    return {(line[1], end) for line in lines for end in line[2].split(" & ")}


def below(room):
    """The rooms that a room leads to."""
    ends = {end for begin, end in arrows() if begin == room}
    return ends.union(*(below(end) for end in ends))


def test_the_picture_is_the_graph_of_imports():
    real = arrows()
    missing = {f"{a} --> {b}": why[:2] for (a, b), why in real.items() if (a, b) not in drawn()}
    assert not missing, "imports that docs/architecture.md does not draw"
    assert not drawn() - real.keys(), "arrows in docs/architecture.md that no import makes"


def test_the_page_names_every_room():
    named = {
        name
        for row in re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }
    assert named == {room_of(module) for module in MODULES}


def test_no_circle_between_rooms():
    graph = {}
    for begin, end in arrows():
        graph.setdefault(begin, set()).add(end)
    tuple(graphlib.TopologicalSorter(graph).static_order())  # CycleError names the circle


def test_no_circle_between_files():
    """Not even by an import inside a function."""
    graph = {
        module: {name for name in imports(path) if name in MODULES} - {module}
        for module, path in MODULES.items()
    }
    tuple(graphlib.TopologicalSorter(graph).static_order())


def test_importing_the_cluster_loads_no_torch():
    rooms = {"cluster", *below("cluster")}
    modules = ", ".join(module for module in MODULES if room_of(module) in rooms)
    code = f"import sys, {modules}; print([name for name in {NO_TORCH} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_costs_stands_alone():
    assert not below("costs")


def test_the_package_does_not_know_the_course():
    course = {room_of(module) for module in MODULES if module.startswith("pi2zero_course")}
    assert not [
        why for (begin, end), why in arrows().items() if begin not in course and end in course
    ]


def test_no_room_goes_through_the_front_door():
    assert not [why for (_, end), why in arrows().items() if end == "pi2zero"]
