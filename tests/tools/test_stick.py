"""`make stick`, for a room without a network. The real one is slow: 0.7 GB of packages. install.sh itself is tried on a toy."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from no_network import CUT, cut_here

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import stick as tool  # noqa: E402

# What stands in for the kit: its set-up writes down where it was told to take packages from.
MAKEFILE = "set-up:\n\t@echo $$PIP_NO_INDEX $$UV_NO_CONFIG $$(ls $$PIP_FIND_LINKS) > said\n"


def git(folder, *words):
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)


@pytest.fixture
def toy(tmp_path):
    """A stick with a kit of one file, in a folder with a space in its name, as sticks have."""
    kit, stick = tmp_path / "kit", tmp_path / "MY STICK"
    kit.mkdir()
    (kit / "Makefile").write_text(MAKEFILE)
    git(kit, "init", "-q", "-b", "main")
    git(kit, "add", ".")
    git(kit, "commit", "-qm", "kit")
    for folder in ("wheels", "built/horovod-1", "built/deepspeed-1", "site"):
        (stick / folder).mkdir(parents=True)
    git(kit, "bundle", "create", str(stick / "kit.bundle"), "HEAD", "main")
    (stick / "wheels" / "a.whl").write_text("a")
    (stick / "built" / "horovod-1" / "manifest.json").write_text("{}")
    (stick / "site" / "index.html").write_text("site")
    shutil.copyfile(ROOT / "tools" / "stick_install.sh", stick / "install.sh")
    tool.sums(stick)
    return stick


def install(stick, home, *words):
    home.mkdir(exist_ok=True)
    env = {"PATH": os.environ["PATH"], "HOME": str(home)}
    return subprocess.run(
        ["sh", str(stick / "install.sh"), *map(str, words)],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_it_installs_from_the_stick_alone(toy, tmp_path):
    home = tmp_path / "home"
    done = install(toy, home)
    assert done.returncode == 0, done.stderr
    kit = home / "pi2zero"
    assert (kit / "said").read_text().split() == ["1", "1", "a.whl"], (
        "packages from the stick, and from nowhere else"
    )
    assert (kit / "site" / "build" / "html" / "index.html").read_text() == "site"
    assert done.stdout.splitlines()[-1] == f"The kit is in {kit}. Next: cd {kit} && make lab"
    remotes = subprocess.run(
        ["git", "-C", str(kit), "remote"], capture_output=True, text=True, check=True
    ).stdout
    assert remotes == "", "the stick will not stay"
    cache = home / ".cache" / "pi2zero"
    assert (cache / "horovod-1" / "manifest.json").exists()
    assert not [path for path in (cache, *cache.rglob("*")) if path.stat().st_mode & 0o077], (
        "others cannot lay code there"
    )


def test_compiled_parts_that_are_there_stay(toy, tmp_path):
    mine = tmp_path / "home" / ".cache" / "pi2zero" / "horovod-1"
    mine.mkdir(parents=True)
    (mine / "manifest.json").write_text("mine")
    assert install(toy, tmp_path / "home").returncode == 0
    assert (mine / "manifest.json").read_text() == "mine" and (mine.parent / "deepspeed-1").is_dir()


def test_another_folder(toy, tmp_path):
    assert install(toy, tmp_path / "home", tmp_path / "there").returncode == 0
    assert (tmp_path / "there" / "said").exists() and not (tmp_path / "home" / "pi2zero").exists()


def test_what_is_there_is_left_alone(toy, tmp_path):
    (tmp_path / "mine").mkdir()
    done = install(toy, tmp_path / "home", tmp_path / "mine")
    assert (
        done.returncode == 1
        and "What to do: name another folder" in done.stderr
        and not list((tmp_path / "mine").iterdir())
    )


@pytest.mark.parametrize("harm", ["changed", "lost"])
def test_a_stick_that_has_lost_something(toy, tmp_path, harm):
    file = toy / "wheels" / "a.whl"
    file.write_text("b") if harm == "changed" else file.unlink()
    done = install(toy, tmp_path / "home")
    assert (
        done.returncode == 1
        and "copy it again" in done.stderr
        and not (tmp_path / "home" / "pi2zero").exists()
    )


def test_a_folder_with_other_files_is_not_emptied(tmp_path):
    (tmp_path / "photo.jpg").write_text("mine")
    with pytest.raises(SystemExit, match="has other files in it"):
        tool.write(tmp_path)
    assert (tmp_path / "photo.jpg").exists()


def test_written_again_it_leaves_other_files_alone(toy, monkeypatch):
    """An instructor's own slides beside the kit, on a stick that gets a correction."""
    (toy / "my slides.pdf").write_text("mine")
    for part in ("clone", "wheels", "built", "site"):
        monkeypatch.setattr(tool, part, lambda stick: str((stick / "kit.bundle").write_text("new")))
    tool.write(toy)
    names = {path.name for path in toy.iterdir()}
    assert names == {"kit.bundle", "README.txt", "install.sh", "SHA256SUMS", "my slides.pdf"}
    assert "my slides.pdf" not in (toy / "SHA256SUMS").read_text(), "it may be changed"


@cut_here
def test_ranks_are_spawned_where_there_is_no_network():
    """Open MPI leaves the loopback interface out, unless it is told that there is no other."""
    done = subprocess.run(
        [*CUT, sys.executable, "-m", "pi2zero.doctor.probes", "spawn"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.splitlines()[-1] == '{"sum": 21}', done.stderr


@pytest.mark.nightly
@cut_here
def test_the_real_stick_with_the_network_cut(tmp_path):
    """A new user's home, no network: the kit, its compiled parts, ranks and the site, in a minute or two."""
    made = subprocess.run(
        [sys.executable, ROOT / "tools" / "stick.py", tmp_path / "stick"],
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    home, kit = tmp_path / "home", tmp_path / "home" / "pi2zero"
    home.mkdir()
    env = {"PATH": os.environ["PATH"], "HOME": str(home)}
    begin = time.monotonic()
    done = subprocess.run(
        [*CUT, "sh", tmp_path / "stick" / "install.sh"],
        env=env,
        capture_output=True,
        text=True,
        timeout=580,
    )
    print(f"installed in {time.monotonic() - begin:.0f} s")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    python = kit / ".venv" / "bin" / "python"

    def said(*words):
        told = subprocess.run(
            [*CUT, python, "-m", "pi2zero", *words],
            cwd=kit,
            env=env,
            capture_output=True,
            text=True,
            timeout=300,
        )
        return told.stdout

    try:
        assert said("doctor", "--short").splitlines()[-1].startswith("GREEN"), said("doctor")
        # With the very Python of the stick nothing is left to compile.
        states = said("built", "--wait").splitlines()
        assert len(states) == 2 and all("ready" in state for state in states), states
    finally:
        said("built", "--stop")
        said("reset")
