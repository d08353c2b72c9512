"""`make stick`: all that a room without a network needs, in a folder for a USB stick: python tools/stick.py [FOLDER].

The clone with its history (kit.bundle), the packages as wheels, what was compiled here, the site, and install.sh, which makes the
kit from these alone. For machines like this one: Linux of the same processor family, with the same Python.
"""

import argparse
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import setup_uv

from pi2zero.built import cache
from pi2zero.built.known import parts

ROOT = Path(__file__).resolve().parents[1]
NEED_GB = 2.0
OWN = (
    "kit.bundle",
    "wheels",
    "built",
    "site",
    "README.txt",
    "install.sh",
)  # all that it writes, but their checksums
SUMS = "SHA256SUMS"
READ = """From π to ZeRO, for a room without a network. Made on {machine}, Python {python}.

    sh install.sh             makes the kit in ~/pi2zero (sh install.sh FOLDER: there), half a minute
    cd ~/pi2zero && make lab

Needed on the machine: Linux, Python {minor} with venv, git, make.
What was compiled (Horovod, DeepSpeed's operators) fits Python {python} and this processor to the letter; elsewhere notebook 05
waits for a network, and g++ compiles DeepSpeed's operators.
To read only: site/index.html, with the slides. The site is also where the kit is: site/build/html/index.html.
"""


def run(*command, **options):
    done = subprocess.run(
        list(map(str, command)), cwd=ROOT, capture_output=True, text=True, **options
    )
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        sys.exit(
            f"The stick is not complete: {' '.join(map(str, command[:4]))} ... says: {lines[-1] if lines else 'nothing'}"
        )
    return done.stdout


def clone(stick: Path) -> str:
    """What is committed, with its history, as one file: what is on a stick has no links and no rights."""
    branch = run("git", "branch", "--show-current").strip()
    run("git", "bundle", "create", stick / "kit.bundle", "HEAD", *[branch] * bool(branch))
    changed = run("git", "status", "--porcelain", "--untracked-files=no")
    return "the last commit" + ("; your changes since then are not in it" if changed else "")


def wheels(stick: Path) -> str:
    """The packages of requirements.lock, with its hashes, and torch in the build that is here."""
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "download",
        "-q",
        "-d",
        stick / "wheels",
    ]
    run(
        *pip,
        "--no-deps",
        "--no-build-isolation",
        "--require-hashes",
        "-r",
        ROOT / "requirements.lock",
    )
    torch, options = version("torch"), []
    settings = setup_uv.pip_settings(sys.executable, os.environ)
    if "+" in torch and setup_uv.torch_backend(settings, sys.executable, os.environ, gpu=False):
        options = ["--extra-index-url", setup_uv.PYTORCH + torch.partition("+")[2]]
    run(
        *pip,
        *options,
        "--find-links",
        stick / "wheels",
        f"torch=={torch}",
        "-c",
        ROOT / "requirements.txt",
    )
    return f"{len(list((stick / 'wheels').iterdir()))} packages"


def built(stick: Path) -> str:
    """What was compiled here and fits this very environment."""
    there = [
        entry for part in parts().values() if (entry := cache.cache_folder() / part.key()).is_dir()
    ]
    for entry in there:
        shutil.copytree(entry, stick / "built" / entry.name, dirs_exist_ok=True)
    missing = len(parts()) - len(there)
    return f"{len(there)} compiled parts" + (
        f"; {missing} are not compiled yet: make lab does it" if missing else ""
    )


def site(stick: Path) -> str:
    page = ROOT / "site" / "build" / "html"
    if not (page / "index.html").exists():
        return "no site: run make site, then make stick again"
    shutil.copytree(page, stick / "site", dirs_exist_ok=True)
    return "the site"


def sums(stick: Path) -> None:
    """The checksums that install.sh compares: sticks lose bits."""
    files = sorted(
        path for own in OWN for path in (stick / own, *(stick / own).rglob("*")) if path.is_file()
    )
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  ./{path.relative_to(stick)}\n"
        for path in files
    ]
    (stick / SUMS).write_text("".join(lines))


def write(stick: Path) -> None:
    """Write the stick's folder anew; what it had from an earlier time goes. Somebody's own files beside it stay."""
    if stick.exists() and any(stick.iterdir()) and not (stick / "kit.bundle").exists():
        sys.exit(f"{stick} has other files in it. Name a new folder: make stick FOLDER=...")
    stick.mkdir(parents=True, exist_ok=True)
    for own in (*OWN, SUMS):
        shutil.rmtree(stick / own) if (stick / own).is_dir() else (stick / own).unlink(
            missing_ok=True
        )
    free = shutil.disk_usage(stick).free / 1e9
    if free < NEED_GB:
        sys.exit(
            f"{stick} has {free:.1f} GB free; the stick needs {NEED_GB:g} GB. Free some, or name another folder."
        )
    for what in (clone, wheels, built, site):
        print(f"  {what(stick)}", flush=True)
    python = platform.python_version()
    words = READ.format(
        machine=f"{platform.system()} {platform.machine()}",
        python=python,
        minor=python.rpartition(".")[0],
    )
    (stick / "README.txt").write_text(words)
    shutil.copyfile(ROOT / "tools" / "stick_install.sh", stick / "install.sh")
    sums(stick)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=ROOT / "build" / "stick",
        help="default: build/stick",
    )
    stick = parser.parse_args().folder.resolve()
    write(stick)
    size = sum(path.stat().st_size for path in stick.rglob("*") if path.is_file())
    print(
        f"{stick}: {size / 1e6:,.0f} MB. Copy the folder to a stick; on each machine: sh install.sh"
    )


if __name__ == "__main__":
    main()
