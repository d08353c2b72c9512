"""`make r`, and R's kernel in a clean environment."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import r  # noqa: E402

# A kernel whose four children wait for a reduce that never comes; then Jupyter dies.
STUCK = """
import os, signal, sys
from jupyter_client.manager import KernelManager
manager = KernelManager(kernel_name="ir", transport="ipc", ip=sys.argv[1])
manager.start_kernel()
client = manager.client()
client.start_channels()
client.wait_for_ready(timeout=60)
spawn = "library(Rmpi); mpi.spawn.Rslaves(nslaves = 4, needlog = FALSE, quiet = TRUE)"
client.execute(spawn + "; cat('here')")
while client.get_iopub_msg(timeout=60)["content"].get("text") != "here":
    pass
client.execute("mpi.reduce(0, type = 2)")
while client.get_iopub_msg(timeout=60)["content"].get("execution_state") != "busy":
    pass
print("stuck", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def has_r():
    if lacks := r.missing():
        pytest.skip(f"{', '.join(lacks)} not here: make r installs them, or says what to do")


def tool(*, path=None, before="pass"):
    """(exit code, output) of `make r`'s program, with another PATH or place for the kernel."""
    command = (
        f"import sys; sys.path.insert(0, 'tools'); import r; {before}; sys.argv[1:] = []; r.main()"
    )
    env = dict(os.environ, PATH=path or os.environ["PATH"])
    done = subprocess.run(
        [sys.executable, "-c", command],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=200,
    )
    return done.returncode, done.stdout + done.stderr


def test_r_sees_no_other_mpi(monkeypatch):
    for name in (
        "OMPI_MCA_btl",
        "PRTE_MCA_rmaps_default_mapping_policy",
        "MPI4PY_LIBMPI",
        "PMIX_RANK",
    ):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("PATH", f"{sys.prefix}/bin:/usr/bin:/bin")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{sys.prefix}/lib")
    env = r.environment()
    assert env["PATH"] == "/usr/bin:/bin" and "LD_LIBRARY_PATH" not in env
    assert {name for name in env if r.OTHER_MPI.match(name)} == set(r.SETTINGS)


def test_without_r_it_says_what_to_install(tmp_path):
    status, words = tool(path=str(tmp_path))
    assert status == 1 and "Traceback" not in words
    assert (
        "Missing here: R, Rmpi, IRkernel." in words
        and "apt-get install" in words
        and "install.packages" in words
    )


@pytest.mark.long
def test_make_r_twice(tmp_path, has_r):
    spec = tmp_path / "kernels" / "ir" / "kernel.json"
    for _ in range(2):
        status, words = tool(before=f"r.SPEC = r.Path({str(spec)!r})")
        assert status == 0, words
        assert "two children spawned, their sum right" in words
    assert '"{connection_file}"' in spec.read_text()


@pytest.mark.long
def test_the_notebook_is_skipped_where_its_kernel_is_not():
    begin = "import sys; sys.path.insert(0, 'tools'); import r, compare_notebooks"
    begin += "; r.SPEC = r.Path('/nowhere/ir/kernel.json')"
    command = f"{begin}; sys.argv[1:] = ['notebooks/A1_mpi_in_r.ipynb', '--workers=1']"
    done = subprocess.run(
        [sys.executable, "-c", f"{command}; compare_notebooks.main()"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "A1_mpi_in_r.ipynb: its kernel is R" in done.stdout and "make r" in done.stdout
    assert "passed" not in done.stdout


@pytest.mark.long
def test_nothing_is_left_of_a_stuck_kernel_when_jupyter_is_killed(tmp_path, has_r):
    if not r.SPEC.exists():
        pytest.skip("R is here, its kernel is not registered: make r")
    before = set(of_r())
    done = subprocess.run(
        [sys.executable, "-c", STUCK, tmp_path / "k"], capture_output=True, text=True, timeout=100
    )
    assert "stuck" in done.stdout, done.stderr
    deadline = time.monotonic() + 30
    while (left := set(of_r()) - before) and time.monotonic() < deadline:
        time.sleep(0.3)
    assert not left


def of_r():
    """Processes of R, and of the Open MPI that started its children."""
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.name() in (
                "R",
                "Rslaves.sh",
                "orted",
            ):
                yield process.pid, process.name()
        except psutil.Error:
            pass
