"""A stranger installs the wheels into an environment without torch, whose kernel starts ranks."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import nbformat
import pytest
from faults.kernel import Notebook, wait_until_gone
from nbclient import NotebookClient
from timing import assert_within

from pi2zero.ownership import marked_processes, owner_mark, run_dirs

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
KERNELS = {"6.29": ["ipykernel==6.29.*", "ipython==8.20.*"], "7": ["ipykernel==7.*"]}
PYTHONS = ("3.12", "3.11", "3.13")
SECONDS = 30  # that the installation takes at most


def find_python(version: str) -> str | None:
    """An interpreter of this version that can make environments: on the PATH, or pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    on_path = [shutil.which(f"python{version}")]
    for python in filter(None, [*on_path, *pyenv.glob(f"{version}.*/bin/python")]):
        check = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
        done = subprocess.run([python, "-c", check], capture_output=True, text=True)
        if done.stdout.strip() == version:
            return str(python)
    return None


FIRST = next((version for version in PYTHONS if find_python(version)), PYTHONS[0])


@pytest.fixture(scope="session")
def wheels(tmp_path_factory):
    """(pi2zero's wheel, the course's), from sdists: nothing of an earlier build is in them."""
    folder = tmp_path_factory.mktemp("dist")
    for source in (ROOT, ROOT / "course"):
        command = [UV, "build", "--quiet", "--no-build-isolation", "--out-dir", folder, source]
        subprocess.run(command, check=True)
    (package,), (course,) = (folder.glob(f"{name}-*.whl") for name in ("pi2zero", "pi2zero_course"))
    return package, course


def names_in(wheel: Path) -> set[str]:
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


def test_the_wheels_hold_the_two_packages_and_nothing_else(wheels):
    package, course = wheels
    assert package.stat().st_size < 1e6 and course.stat().st_size < 1e6
    source = ROOT / "src"
    assert names_in(package) == {str(p.relative_to(source)) for p in source.glob("pi2zero/**/*.py")}
    source = ROOT / "course" / "src"
    modules = {str(p.relative_to(source)) for p in source.glob("pi2zero_course/**/*.py")}
    others = names_in(course) - modules
    assert modules < names_in(course)
    assert {Path(name).suffix for name in others} == {".toml", ".py"}
    assert [name for name in others if name.endswith(".py")] == [
        "pi2zero_course-0.1.0.data/data/etc/ipython/ipython_config.py"
    ]


def test_the_package_asks_for_few_others_as_ranges(wheels):
    with zipfile.ZipFile(wheels[0]) as wheel:
        metadata = wheel.read("pi2zero-0.1.0.dist-info/METADATA").decode()
    asked = re.findall(r"^Requires-Dist: (.*)$", metadata, re.MULTILINE)
    assert len([want for want in asked if "extra ==" not in want]) <= 10
    assert not [want for want in asked if "==" in want.partition(";")[0]]


def install(python: Path, *packages) -> float:
    """By uv, or by pip where uv reaches no index; the seconds that it took."""
    start = time.monotonic()
    by_uv = [UV, "pip", "install", "--quiet", "--python", python, *packages]
    if subprocess.run(by_uv).returncode:
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    return time.monotonic() - start


ENVIRONMENTS = [
    pytest.param(
        python,
        kernel,
        marks=[] if (python, kernel) == (FIRST, "6.29") else pytest.mark.nightly,
        id=f"Python {python}, ipykernel {kernel}",
    )
    for python in PYTHONS
    for kernel in KERNELS
]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version, kernel", ENVIRONMENTS)
def test_a_stranger_installs_it_and_starts_ranks(version, kernel, wheels, tmp_path, monkeypatch):
    if not (python := find_python(version)):
        pytest.skip(f"there is no Python {version} here")
    package, course = wheels
    subprocess.run([python, "-m", "venv", tmp_path / "env"], check=True)
    python = tmp_path / "env" / "bin" / "python"
    took = install(python, package, *KERNELS[kernel])
    print(f"pi2zero was installed in {took:.1f} s")
    assert_within(took, SECONDS)
    install(python, f"{package}[plots]", course, *KERNELS[kernel])
    listed = subprocess.check_output([python, "-m", "pip", "list"], text=True)
    assert "torch" not in listed and re.search(rf"(?m)^ipykernel +{kernel}", listed)

    spec = tmp_path / "kernels" / "stranger" / "kernel.json"
    spec.parent.mkdir(parents=True)
    argv = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec.write_text(
        json.dumps({"argv": argv, "display_name": "a stranger's", "language": "python"})
    )
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    run_notebooks()
    break_a_barrier()


def run_notebooks():
    """Notebooks 00 and 02 on this kernel; a cell that raises where it should not fails the test."""
    for name in ("00_start_here", "02_mpi_pi"):
        book = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
        folder = {"metadata": {"path": ROOT / "notebooks"}}
        NotebookClient(book, timeout=240, kernel_name="stranger", resources=folder).execute()


def break_a_barrier():
    """A barrier that one rank omits ends with its report, fresh ranks work, and nothing is left."""
    book = Notebook(kernel_name="stranger")
    owner = owner_mark(book.pid)
    try:
        assert book.run("%load_ext pi2zero").ok
        assert "pi2zero.start(n=4)" in book.run("%%px\nprint(1)").text
        started = book.run("import pi2zero\ncluster = pi2zero.start(n=4)")
        assert started.ok, started.text
        ranks = "%%px\nfrom mpi4py import MPI\ncomm = MPI.COMM_WORLD\n"
        assert "[stdout:3] 6" in book.run(ranks + "print(comm.allreduce(comm.rank))").text
        broken = book.run("%%px --timeout 5\nif comm.rank != 2:\n    comm.Barrier()")
        assert broken.error.startswith("RankError") and "comm.Barrier()" in broken.text
        assert "ranks 0, 1 and 3" in broken.text, broken.text
        assert "[stdout:3] 6" in book.run(ranks + "print(comm.allreduce(comm.rank))").text
        assert len(marked_processes(owner)) > 4  # they are found, if there are any
    finally:
        book.close(now=False)
    _, left = wait_until_gone(book, owner, 20)
    assert not left and not run_dirs(owner)
