"""The set-up's Horovod step: built once, goes on after an interruption, and a failure is one sentence, not the end.

The real build takes minutes; it has made the Horovod that tests/test_horovod.py runs. Here a stand-in for the environment's
Python answers `pip` as a good or a failing build would, and keeps a list of what it was asked.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYTHON = """#!{python}
import os, sys, tarfile
from pathlib import Path
arguments = sys.argv[1:]
verb = arguments[2] if arguments[0] == "-m" else "import"
with open({calls!r}, "a") as file:
    print(verb, file=file)
if verb == os.environ.get("FAILING"):
    print(os.environ.get("WORDS", ""))
    sys.exit(1)
if verb == "download":
    folder = Path(arguments[arguments.index("-d") + 1])
    folder.mkdir()
    (folder / "horovod-{version}").mkdir()
    (folder / "horovod-{version}" / "setup.py").write_text("")
    with tarfile.open(folder / "horovod-{version}.tar.gz", "w:gz") as tar:
        tar.add(folder / "horovod-{version}", "horovod-{version}")
if verb == "wheel":
    assert (Path(arguments[-1]) / "setup.py").exists()
    assert "-std=c++17" in Path(os.environ["CXX"]).read_text() and os.environ["HOROVOD_WITHOUT_TENSORFLOW"] == "1"
    folder = Path(arguments[arguments.index("-w") + 1])
    folder.mkdir()
    (folder / "horovod-{version}-cp311-cp311-linux_x86_64.whl").write_text("")
"""


class Kit:
    """A clone's set-up with an environment that is made already, all but Horovod."""

    def __init__(self, folder):
        self.folder, self.venv, self.bin = folder, folder / ".venv", folder / "path"
        shutil.copytree(ROOT / "tools", folder / "tools", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("requirements.txt", "pyproject.toml"):
            shutil.copy(ROOT / name, folder)
        (version,) = re.findall(r"^# horovod==(\S+)$", (folder / "requirements.txt").read_text(), re.M)
        (self.venv / "bin").mkdir(parents=True)
        python = self.venv / "bin" / "python"
        self.list = folder / "calls"
        python.write_text(PYTHON.format(python=sys.executable, version=version, calls=str(self.list)))
        python.chmod(0o755)
        self.bin.mkdir()
        for tool in ("g++", "make"):
            (self.bin / tool).symlink_to("/bin/true")
        stamp = "import sys; sys.path.insert(0, 'tools'); import setup; print(setup.stamp(), end='')"
        made = subprocess.run([sys.executable, "-c", stamp], cwd=folder, capture_output=True, text=True, check=True)
        (self.venv / "pi2zero-set-up").write_text(made.stdout)

    def set_up(self, *options, failing="", words="", **env):
        """Run tools/setup.py; returns (exit status, what it printed, what was asked of the environment's Python)."""
        self.list.write_text("")
        command = [sys.executable, str(self.folder / "tools" / "setup.py"), "--venv", str(self.venv), *options]
        env = dict(os.environ, PATH=str(self.bin), FAILING=failing, WORDS=words) | env
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=60)
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout, self.list.read_text().split()


@pytest.fixture
def kit(tmp_path):
    return Kit(tmp_path)


def test_built_once(kit):
    code, text, calls = kit.set_up()
    assert (code, calls) == (0, ["download", "wheel", "install", "import"]), text
    assert "Building Horovod" in text and "is ready" in text
    assert kit.set_up() == (0, "", [])
    assert kit.set_up("--horovod") == (0, "Horovod is there.\n", ["import"])
    (folder,) = (kit.folder / "build" / "horovod").iterdir()
    assert sorted(path.suffix for path in folder.iterdir()) == ["", ".gz", ".whl"], "sources and object files are gone"


def test_a_new_environment_takes_the_wheel_that_is_there(kit):
    kit.set_up()
    (kit.venv / "pi2zero-horovod").unlink()  # as after make clean
    assert kit.set_up()[::2] == (0, ["install", "import"])


def test_an_interrupted_build_goes_on(kit):
    kit.set_up(failing="wheel", words="Terminated")
    (folder,) = (kit.folder / "build" / "horovod").iterdir()
    (source,) = (folder / "source").iterdir()
    (source / "half.o").write_text("what make had done")
    assert kit.set_up("--horovod")[::2] == (0, ["wheel", "install", "import"]), "neither fetched nor unpacked again"


def test_another_torch_or_other_options_are_another_build(kit):
    kit.set_up()
    assert "wheel" in kit.set_up(HOROVOD_GPU_OPERATIONS="NCCL")[2]
    assert "wheel" not in kit.set_up(HOROVOD_TIMELINE="file.json")[2], "that is for running"
    pins = (kit.folder / "requirements.txt").read_text()
    (kit.folder / "requirements.txt").write_text(re.sub(r"(?m)^torch==.*", "torch==9.9", pins))
    kit.folder.joinpath("stamp").write_text("")
    stamp = "import sys; sys.path.insert(0, 'tools'); import setup; print(setup.stamp(), end='')"
    made = subprocess.run([sys.executable, "-c", stamp], cwd=kit.folder, capture_output=True, text=True, check=True)
    (kit.venv / "pi2zero-set-up").write_text(made.stdout)
    assert "wheel" in kit.set_up()[2]


FAILURES = [
    ("download", "WARNING: Retrying (Retry(total=1)) after NewConnectionError", "could not reach a package index", "network"),
    ("wheel", "cc1plus: error: write: No space left on device", "the disk is full", "free some space"),
    ("wheel", "c++: fatal error: Killed signal terminated program cc1plus", "ran out of memory", "JOBS=1"),
    (
        "wheel",
        "ok\n  a.cc:3:1: error: 'x' was not declared\nb.cc:1:1: error: y",
        "a.cc:3:1: error: 'x' was not",
        "read the log",
    ),
    ("wheel", "CMake Error at CMakeLists.txt:1: no MPI", "CMake Error at CMakeLists.txt:1: no MPI", "read the log"),
    ("install", "", "could not install the wheel", "delete the folder"),
    ("import", "", "cannot be imported", "make clean"),
]


@pytest.mark.parametrize(("failing", "words", "why", "remedy"), FAILURES)
def test_a_failed_build_says_why_and_the_set_up_succeeds(kit, failing, words, why, remedy):
    code, text, _ = kit.set_up(failing=failing, words=words)
    assert code == 0 and "warning: Horovod could not be built" in text
    assert why in text and remedy in text and "make horovod" in text
    assert why in (kit.venv / "pi2zero-horovod").read_text(), "for the doctor"


@pytest.mark.parametrize("tool", ["g++", "make"])
def test_a_missing_tool_is_named_and_tried_again_when_it_is_there(kit, tool):
    (kit.bin / tool).unlink()
    code, text, calls = kit.set_up()
    assert code == 0 and f"there is no {tool}" in text and f"apt-get install {tool}" in text and calls == []
    (kit.bin / tool).symlink_to("/bin/true")
    assert kit.set_up()[::2] == (0, ["download", "wheel", "install", "import"])


def test_a_failed_build_is_tried_again_only_when_asked(kit):
    kit.set_up(failing="wheel", words="a.cc:3:1: error: no")
    code, text, calls = kit.set_up()
    assert (code, calls) == (0, []) and "`make horovod` tries again" in text
    assert kit.set_up("--horovod", failing="wheel")[0] == 1, "who asked gets the exit status"
    assert kit.set_up("--horovod")[0] == 0


def test_no_disk_space(kit):
    script = kit.folder / "tools" / "setup_horovod.py"
    script.write_text(script.read_text().replace("NEED_GB = 0.5", "NEED_GB = 1e9"))
    code, text, calls = kit.set_up()
    assert code == 0 and "GB free; the build needs" in text and calls == []


def test_progress_is_what_make_says(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    from setup_horovod import Building

    building = Building()
    assert building.doing() == "preparing"
    for line in (b"  -- Found MPI\n", b"  [  9%] Building CXX object a.o\n", b"  [ 42%] Linking CXX\n"):
        building.hear(line)
    assert building.doing() == "42 % of the files compiled"
