#!/usr/bin/env python3
"""Make .venv with everything that the kit needs, or say in one sentence what is in the way. Called by `make`.

Standard library only, and old syntax: whatever python3 a machine has must be able to run it and be told what is missing.
A second run does nothing unless requirements.txt or pyproject.toml has changed; an interrupted run can be run again.
"""

import argparse
import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile

from setup_horovod import Horovod
from setup_pip import Pip, pins, say, stop

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WANTED = (3, 11)
NEED_GB = 3.0  # .venv is 2.1 GB; pip unpacks beside it
NEED_GB_CUDA = 12.0  # torch's CUDA build brings several GB of NVIDIA's libraries


def probe(python):
    """(version, None) of an interpreter that can make environments, or (version or None, what is wrong with it)."""
    code = "import sys; print('%d.%d' % sys.version_info[:2]); import venv, ensurepip"
    try:
        done = subprocess.run([python, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    except OSError:
        return None, "it does not run"
    version = done.stdout.strip() or None
    if version is None:
        return None, "it does not run"
    if version != "%d.%d" % WANTED:
        return version, "it is Python %s" % version
    return version, None if done.returncode == 0 else "its venv module is missing"


def find_python(asked):
    """The interpreter to use: the one asked for, else python3.11, python3, or the one that runs this."""
    candidates = [asked] if asked else ["python3.11", "python3", sys.executable]
    seen = []
    for name in candidates:
        path = shutil.which(name)
        if not path:
            continue
        version, wrong = probe(path)
        if wrong is None:
            return path
        if wrong.startswith("its venv"):
            stop(
                "%s cannot make virtual environments, because %s." % (path, wrong),
                "on Debian or Ubuntu: apt-get install python3.11-venv; then run make again.",
            )
        seen.append("%s (%s)" % (path, version or wrong))
    stop(
        "the kit needs Python 3.11; found %s." % (", ".join(seen) or "no Python by the name of %s" % asked),
        "install it (Debian 12: apt-get install python3.11 python3.11-venv), or name one: make lab PYTHON=/path/to/python3.11",
    )


def check_disk(need_gb):
    for folder in (ROOT, tempfile.gettempdir()):
        free = shutil.disk_usage(folder).free / 1e9
        if free < need_gb:
            stop(
                "%s has %.1f GB free; the set-up needs %.1f GB." % (folder, free, need_gb),
                "free some space there%s, then run make again." % (" (or set TMPDIR to a larger disk)" if folder != ROOT else ""),
            )


def check_folder(venv):
    folder = os.path.dirname(os.path.abspath(venv))
    if not os.access(venv if os.path.exists(venv) else folder, os.W_OK):
        stop("you may not write in %s." % folder, "clone the kit into a folder of yours, and run make there.")


def check_compiler():
    """DeepSpeed and Horovod compile; nothing else does, so a missing compiler does not stop the set-up."""
    if shutil.which("g++"):
        return
    say("      warning: there is no C++ compiler (g++). Only Horovod (notebook 05) and DeepSpeed (08, 09) need one.")
    say("      What to do: on Debian or Ubuntu: apt-get install g++")


def stamp():
    """What the environment was made from."""
    digest = hashlib.sha256()
    for name in ("requirements.txt", "pyproject.toml"):
        with open(os.path.join(ROOT, name), "rb") as f:
            digest.update(f.read())
    return digest.hexdigest() + " " + ROOT


def is_done(venv):
    """Whether the environment is there, made from these very files, in this very place."""
    try:
        with open(os.path.join(venv, "pi2zero-set-up")) as f:
            return f.read() == stamp() and os.access(os.path.join(venv, "bin", "python"), os.X_OK)
    except OSError:
        return False


def take_lock(venv):
    """One set-up at a time. A pip that outlived its set-up still holds the lock: two would spoil each other's work."""
    os.makedirs(venv, exist_ok=True)
    lock = open(os.path.join(venv, "set-up.lock"), "w")  # noqa: SIM115  stays open until this process ends
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("Another set-up is at work in this folder (or was interrupted, and its pip still ends). Waiting for it.")
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError:  # a file system without locks
        pass
    return lock


def make_environment(python, venv):
    made = subprocess.run([python, "-m", "venv", venv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if made.returncode:
        stop(
            "%s could not make an environment: %s" % (python, made.stdout.decode(errors="replace").strip()[-300:]),
            "remove the folder %s and run make again." % venv,
        )


def compile_operators(pip, log):
    """DeepSpeed would do so in the first cell that uses it. Without, all but notebooks 08, 09, 09b and lab 04 runs."""
    with open(log, "ab") as out:
        done = subprocess.run([pip.python, "-m", "pi2zero.doctor.probes", "deepspeed"], stdout=out, stderr=out, env=pip.env)
    if done.returncode:
        say("      warning: it failed; only notebooks 08, 09, 09b and lab 04 need it. `make doctor` says why and what to do.")


def set_up(args):
    """Make the environment. Returns the lock, still held."""
    say("[1/5] Looking at the machine")
    python = find_python(args.python)
    check_disk(args.need_gb)
    check_compiler()
    say("[2/5] Making %s with %s" % (os.path.relpath(args.venv, ROOT), python))
    lock = take_lock(args.venv)
    if is_done(args.venv):  # by the one that we waited for
        return lock
    with contextlib.suppress(OSError):
        os.remove(os.path.join(args.venv, "pi2zero-set-up"))
    make_environment(python, args.venv)
    log = os.path.join(args.venv, "set-up.log")
    open(log, "w").close()
    pip = Pip(args.venv, log, lock)
    pip.mend()
    cuda = pip.torch_comes_with_cuda()
    if cuda:
        check_disk(max(args.need_gb, NEED_GB_CUDA))
    requirements = os.path.join(ROOT, "requirements.txt")
    say(
        "[3/5] Installing %d packages (a few minutes; pip's own words are in %s)"
        % (pins(requirements), os.path.relpath(log, ROOT))
    )
    if cuda:
        say("      torch comes with CUDA (several GB). Without a GPU, the README says how to get the small CPU build instead.")
    seconds = pip.install_pins(requirements)
    say("[4/5] Installing the kit itself")
    seconds += pip.install(["--no-deps", "--no-build-isolation", "-e", ROOT], 1)
    say("[5/5] Compiling what DeepSpeed needs on CPUs (two minutes, once)")
    compile_operators(pip, log)
    with open(os.path.join(args.venv, "pi2zero-set-up"), "w") as f:
        f.write(stamp())
    say("The environment is ready, %.0f s." % seconds)
    return lock


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--python", default=os.environ.get("PYTHON") or None, help="the Python 3.11 to use")
    parser.add_argument("--venv", default=os.path.join(ROOT, ".venv"), help="where to make the environment")
    parser.add_argument("--need-gb", type=float, default=NEED_GB, help="free disk space to ask for")
    parser.add_argument("--horovod", action="store_true", help="try again to build Horovod, if it is not there")
    args = parser.parse_args()
    lock = None
    if not is_done(args.venv):
        check_folder(args.venv)
        lock = set_up(args)
    horovod = Horovod(args.venv, lock)
    if horovod.wanted() and not horovod.done(args.horovod):
        horovod.pip.lock = lock or take_lock(args.venv)
        there = horovod.ensure(args.horovod)
        sys.exit(1 if args.horovod and not there else 0)
    if args.horovod:
        say("Horovod is there.")


if __name__ == "__main__":
    main()
