"""The set-up: a clear sentence for what is in the way, and nothing to do the second time."""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from no_network import CUT, cut_here
from test_pins import pin_of

from pi2zero.doctor.table import patience

ROOT = Path(__file__).parents[2]


def run_setup(folder, *options, path=None, script=None):
    """tools/setup.py in a folder of its own; `path` replaces the PATH."""
    env = dict(os.environ, PATH=path or os.environ["PATH"])
    env.pop("PYTHON", None)
    command = [
        sys.executable,
        str(script or ROOT / "tools" / "setup.py"),
        "--venv",
        str(folder / "venv"),
        *options,
    ]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)


@pytest.fixture
def copy(tmp_path):
    """A clone's worth of files that the set-up reads, with three small packages in place of the real list."""
    for name in ("tools", "src", "course"):
        shutil.copytree(
            ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__")
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copy(ROOT / "README.md", tmp_path)
    want(tmp_path, "uv", "setuptools", "psutil")
    return tmp_path


def want(copy, *packages, also=""):
    """Let the copy's lists have these packages only, and what `also` adds to its lock."""
    lines = (ROOT / "requirements.lock").read_text().splitlines(keepends=True)
    entries = re.findall(r"(?m)^[\w.-]+==(?:.*\\\n)*.*\n", "".join(lines))
    mine = [entry for entry in entries if entry.partition("==")[0] in packages]
    (copy / "requirements.lock").write_text("".join(mine) + also)
    (copy / "requirements.txt").write_text("".join(pin_of(package) + "\n" for package in packages))


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
    assert "needs Python 3.11, 3.12, 3.13 or 3.14; found" in text and "3.9" in text


def test_python_without_venv(tmp_path):
    fake = tmp_path / "python3.11"
    fake.write_text("#!/bin/sh\necho 3.11\nexit 1\n")
    fake.chmod(0o755)
    assert "apt-get install python3.11-venv" in sentences(
        run_setup(tmp_path, "--python", str(fake))
    )


def test_no_disk_space(tmp_path):
    assert "GB free" in sentences(run_setup(tmp_path, "--need-gb", "1e9"))


def only_these(copy, conf):
    """The environment in which pip and uv have these settings and no others: not those of whoever runs the tests, either."""
    (copy / "pip.conf").write_text(f"[global]\n{conf}\n")
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PIP_", "UV_", "PYTHON"))
    }
    return kept | {
        "PIP_CONFIG_FILE": str(copy / "pip.conf"),
        "XDG_CONFIG_DIRS": str(copy),
        "HOME": str(copy),
    }


def in_copy(copy, *options, conf="", within=(), **env):
    """tools/setup.py of a copy, with these settings of pip. within: the words of a command that starts it."""
    command = [
        *within,
        sys.executable,
        str(copy / "tools" / "setup.py"),
        "--venv",
        str(copy / "venv"),
        *options,
    ]
    return subprocess.run(
        command, capture_output=True, text=True, env=only_these(copy, conf) | env, timeout=120
    )


def python_of(copy, code):
    return subprocess.run(
        [copy / "venv" / "bin" / "python", "-c", code], capture_output=True, text=True, check=True
    ).stdout


NOWHERE = "index-url = http://127.0.0.1:9/simple\nretries = 1"


@pytest.mark.long
def test_no_network_for_pip_that_fetches_uv(copy):
    assert "a package index could not be reached" in sentences(in_copy(copy, conf=NOWHERE))


@pytest.mark.long
@cut_here
def test_a_network_that_is_cut(copy):
    """No refusal comes back from anywhere: no name is known, no host is reached."""
    assert "a package index could not be reached" in sentences(
        in_copy(copy, conf="retries = 1", within=CUT)
    )


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """A folder with the wheels of uv and setuptools, as a site without a network may have one."""
    folder = tmp_path_factory.mktemp("wheels")
    pins = [pin_of("uv"), pin_of("setuptools"), pin_of("psutil")]
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, *pins],
        check=True,
    )
    return folder


def small_wheel(folder, name, code="", short=0):
    """Make a wheel of a package that is one file, shorter than it should be by some bytes. Returns its entry for a lock."""
    wheel, info = folder / f"{name}-1.0-py3-none-any.whl", f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = (
        "".join(f"{path},,{len(text) + short}\n" for path, text in files.items())
        + f"{info}/RECORD,,\n"
    )
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return f"{name}==1.0 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"


@pytest.mark.long
def test_uv_installs_from_where_pip_would_and_takes_only_what_the_hashes_name(copy, wheels):
    """pip's folders and extra indexes in a file of several lines; then another wheel under the same name."""
    folder, index = copy / "folder", copy / "index" / "beta"
    folder.mkdir()
    index.mkdir(parents=True)
    also = small_wheel(folder, "alpha") + small_wheel(index, "beta")
    (index / "index.html").write_text(
        '<a href="beta-1.0-py3-none-any.whl">beta-1.0-py3-none-any.whl</a>'
    )
    want(copy, "uv", "setuptools", also=also)
    empty = (copy / "empty").mkdir() or (copy / "empty").as_uri()
    conf = f"index-url = {empty}\nextra-index-url =\n  {index.parent.as_uri()}\nfind-links =\n  {wheels}\n  {folder}"
    done = in_copy(copy, conf=conf)
    assert done.returncode == 0, done.stderr + (copy / "venv" / "set-up.log").read_text()
    python_of(copy, "import alpha, beta, pi2zero")
    assert "alpha==1.0" in (copy / "venv" / "set-up.log").read_text().split("Installed")[-2], (
        "in uv's words"
    )
    with zipfile.ZipFile(folder / "alpha-1.0-py3-none-any.whl", "a") as archive:
        archive.writestr("more.py", "")
    shutil.rmtree(copy / "venv" / "lib" / "python3.11" / "site-packages" / "alpha-1.0.dist-info")
    (copy / "venv" / "pi2zero-set-up").unlink()
    shutil.rmtree(copy / ".cache")
    assert "its hash differs" in sentences(in_copy(copy, conf=conf))


@pytest.mark.long
def test_no_network_for_uv_nor_for_pip(copy, wheels):
    want(
        copy, "uv", "setuptools", also=f"no-such-package-of-the-kit==1.0 --hash=sha256:{64 * '0'}\n"
    )
    conf = f"{NOWHERE}\nfind-links = {wheels}"
    done = in_copy(copy, conf=conf, UV_HTTP_RETRIES="0")
    assert "a package index could not be reached" in sentences(done) and "pip tries" in done.stdout


@pytest.mark.long
def test_without_uv_pip_does_it_and_says_so(copy, wheels):
    want(copy, "setuptools", "psutil")  # what an index without uv comes down to
    done = in_copy(copy, conf=f"no-index = true\nfind-links = {wheels}")
    assert done.returncode == 0, done.stderr + (copy / "venv" / "set-up.log").read_text()
    assert "uv, the fast installer, cannot be had here; pip does the same" in done.stdout
    python_of(copy, "import psutil, pi2zero")


def start_setup(folder, **options):
    """tools/setup.py of a copy, running; its output up to the line where the installer is at work is read."""
    command = [sys.executable, str(folder / "tools" / "setup.py"), "--venv", str(folder / "venv")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)
    assert any(line.startswith("[3/4]") for line in process.stdout)
    return process


@pytest.mark.long
def test_twice_and_after_an_interruption(copy):
    script = copy / "tools" / "setup.py"
    first = start_setup(copy, start_new_session=True)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    # What an installer that is killed while it writes leaves: a package that looks installed, and has no list of its files.
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
    assert time.monotonic() - start < 2 * patience()
    assert run_setup(copy, "--python", str(copy / "venv/bin/python"), script=script).stdout == ""
    other = shutil.copy(Path(sys.executable).resolve(), copy / "another")
    assert (
        "stays with the Python that it was made of"
        in run_setup(copy, "--python", other, script=script).stdout
    )
    want(copy, "uv", "setuptools")
    assert "[3/4]" in run_setup(copy, script=script).stdout  # other pins


@pytest.mark.long
def test_two_at_once(copy):
    """The second waits for the first, and then has nothing to do: also when only the first's installer is left of it."""
    first = start_setup(copy)
    first.send_signal(signal.SIGSTOP)
    command = [sys.executable, str(copy / "tools" / "setup.py"), "--venv", str(copy / "venv")]
    second = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert any("Waiting for it" in line for line in second.stdout)
    first.send_signal(signal.SIGCONT)
    rest, _ = second.communicate(timeout=120)
    first.communicate(timeout=120)
    assert "[3/4]" not in rest and first.returncode == second.returncode == 0
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
