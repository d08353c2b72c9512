"""docs/architecture.md is true: its picture is the graph of imports, its rules hold, a cell goes the way that it tells."""

import ast
import functools
import graphlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "pi2zero"
COURSE = ROOT / "course" / "src" / "pi2zero_course"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
STEPS = [
    (file, function)
    for file, function in re.findall(r"^\d+\. `([\w/]+\.py)`, `(\w+)`:", PAGE, re.MULTILINE)
]
NO_TORCH = ("torch", "deepspeed", "horovod", "transformers", "datasets")


def module_of(path, package):
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {
    module_of(path, package): path for package in (SRC, COURSE) for path in package.rglob("*.py")
}


def imports(path):
    """What a file imports, also inside functions, and what of the kit it names in a string, to load or start it."""
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


def test_no_torch_in_the_cluster_or_below():
    rooms = {"cluster", *below("cluster")}
    assert rooms == {"cluster", "hosts", "log", "mpi", "ownership"}
    paths = [path for module, path in MODULES.items() if room_of(module) in rooms]
    assert not [
        (path.name, name)
        for path in paths
        for name in imports(path)
        if name.split(".")[0] in NO_TORCH
    ]


def test_importing_the_cluster_loads_no_torch():
    modules = [
        module for module in MODULES if room_of(module) in ("cluster", "hosts", "mpi", "ownership")
    ]
    asked = f"import sys, {', '.join(modules)}; print([name for name in {NO_TORCH} if name in sys.modules])"
    assert (
        subprocess.run(
            [sys.executable, "-c", asked], capture_output=True, text=True, check=True
        ).stdout
        == "[]\n"
    )


def test_costs_stands_alone():
    assert not below("costs")
    assert "meters" not in {end for begin, end in arrows() if begin in ("plots", "widgets")}, (
        "they draw what they are given"
    )


def test_no_lab_s_checks_know_another_lab_s():
    labs = {path.name for path in (COURSE / "checks").iterdir() if path.is_dir()} - {
        "framework",
        "blanks",
        "__pycache__",
    }
    assert len(labs) == 7
    for module, path in MODULES.items():
        if room_of(module) != "checks" or module.count(".") < 2:
            continue
        own = module.split(".")[2]
        parts = {
            name.split(".")[2]
            for name in imports(path)
            if name.startswith("pi2zero_course.checks.")
        }
        assert not parts & (labs | {"blanks"}) - {own}, (
            f"{module}: what labs share belongs in checks/framework"
        )
    assert not [begin for begin, end in arrows() if end == "checks"], (
        "checks are the notebooks', not another room's"
    )


def test_the_package_does_not_know_the_course():
    course = {room_of(module) for module in MODULES if module.startswith("pi2zero_course")}
    assert not [
        why for (begin, end), why in arrows().items() if begin not in course and end in course
    ]


def test_no_room_goes_through_the_front_door():
    assert not [why for (_, end), why in arrows().items() if end == "pi2zero"]


def test_the_files_and_functions_that_the_page_names_are_there():
    files = set(re.findall(r"`((?:[\w.]+/)+[\w.]*)`", PAGE))
    assert len(files) > 15
    assert not [
        file
        for file in files
        if not (SRC / file).exists() and not (COURSE / file).exists() and not (ROOT / file).exists()
    ]
    assert len(STEPS) == 15
    assert not [
        step
        for step in STEPS
        if not re.search(rf"^ *def {step[1]}\(", (SRC / step[0]).read_text(), re.MULTILINE)
    ]


TRACE = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
import pi2zero

calls = []

def note(frame, event, _):
    file = frame.f_code.co_filename
    if event == "call" and file.startswith(sys.argv[1]):
        calls.append((file[len(sys.argv[1]) + 1 :], frame.f_code.co_name))

shell = InteractiveShell.instance()
cluster = pi2zero.start(n=2)
ways = []
for cell in sys.argv[2:]:
    calls.clear()
    sys.setprofile(note)
    result = shell.run_cell(cell)
    sys.setprofile(None)
    ways.append([result.success, list(calls)])
cluster.stop()
print(json.dumps(ways))
"""
GOOD = "%%px\nimport time\ntime.sleep(1)"
BAD = "%%px\nfrom mpi4py import MPI\nMPI.COMM_WORLD.rank and 1 / 0\nMPI.COMM_WORLD.Barrier()"


def not_passed(calls, steps):
    """The first step, and all after it, that is not among the calls in this order."""
    rest = iter(map(tuple, calls))
    return [step for step in steps if step not in rest]


@pytest.mark.long
def test_a_cell_goes_the_way_that_the_page_tells():
    """In the kernel; what runs on the ranks is steps 5 to 7."""
    run = subprocess.run(
        [sys.executable, "-c", TRACE, str(SRC), GOOD, BAD],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    (fine, good), (fine_too, bad) = json.loads(run.stdout.splitlines()[-1])
    assert (fine, fine_too) == (True, False), run.stdout
    common, last = STEPS[:4] + STEPS[7:10], STEPS[10:]
    assert not not_passed(good, [*common, *last[2:4]])
    assert not not_passed(bad, [*common, *last[:3], last[4]])
