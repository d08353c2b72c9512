#!/usr/bin/env python3
"""Make .venv with everything that the kit needs, or say in one sentence what is in the way. Called by `make`.

Standard library only, and old syntax: whatever python3 a machine has must be able to run it and be told what is missing.
A second run does nothing unless requirements.txt or pyproject.toml has changed; an interrupted run can be run again.
"""

import argparse
import contextlib
import errno
import fcntl
import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import setup_site
from setup_packages import Packages, is_whole, pins, temporary_folder
from setup_talk import is_full, say, stop, stop_full

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WANTED = ((3, 11), (3, 12), (3, 13), (3, 14))  # the first that is there
WORDS = "Python 3.11, 3.12, 3.13 or 3.14"
NEED_GB = 3.0  # .venv is 2.1 GB
NEED_GB_CUDA = 12.0  # torch's CUDA build brings several GB of NVIDIA's libraries


def probe(python, later=False):
    """(version, None) of an interpreter that can make environments, or (version or None, what is wrong with it).

    later: one of a later version will do.
    """
    code = "import sys; print('%d.%d' % sys.version_info[:2]); import venv, ensurepip"
    try:
        done = subprocess.run(
            [python, "-c", code],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
        )
    except OSError:
        return None, "it does not run"
    version = done.stdout.strip() or None
    if version is None:
        return None, "it does not run"
    number = tuple(map(int, version.split(".")))
    if number not in WANTED and not (later and number > WANTED[-1]):
        return version, "it is Python %s" % version
    return version, None if done.returncode == 0 else "its venv module is missing"


def find_python(asked, site=False):
    """The interpreter to use: the one asked for, else python3.11 or a later one, or the one that runs this; a site's: python3."""
    named = ["python%d.%d" % version for version in WANTED]
    candidates = (
        [asked] if asked else ["python3", "python"] if site else [*named, "python3", sys.executable]
    )
    seen = []
    for name in candidates:
        path = shutil.which(name)
        if not path:
            continue
        version, wrong = probe(path, later=site)
        if wrong is None:
            return path
        if wrong.startswith("its venv"):
            stop(
                "%s cannot make virtual environments, because %s." % (path, wrong),
                "on Debian or Ubuntu: apt-get install python%s-venv; then run make again."
                % version,
            )
        seen.append("%s (%s)" % (path, version or wrong))
    stop(
        "the kit needs %s; found %s."
        % (WORDS, ", ".join(seen) or "no Python by the name of %s" % asked),
        "install it (Debian 12: apt-get install python3.11 python3.11-venv), or name one: make lab PYTHON=/path/to/python3.11",
    )


def check_disk(need_gb):
    for folder, needed in ((ROOT, need_gb), (tempfile.gettempdir(), min(need_gb, 0.1))):
        free = shutil.disk_usage(folder).free / 1e9
        if free < needed:
            stop(
                "%s has %.1f GB free; the set-up needs %.1f GB." % (folder, free, needed),
                "free some space there%s, then run make again."
                % (" (or set TMPDIR to a larger disk)" if folder != ROOT else ""),
            )


def check_folder(venv):
    folder = os.path.dirname(os.path.abspath(venv))
    if not os.access(venv if os.path.exists(venv) else folder, os.W_OK):
        stop(
            "you may not write in %s." % folder,
            "clone the kit into a folder of yours, and run make there.",
        )
    if os.statvfs(folder).f_flag & getattr(
        os, "ST_NOEXEC", 0
    ):  # packages would come, for minutes, and no library load
        stop_without_programs(folder, "it is mounted noexec")


def stop_without_programs(folder, why):
    stop(
        "no program in %s can be run: %s." % (folder, why),
        "clone the kit into another folder, on another disk.",
    )


def stamp(site):
    """What the environment was made from, and on."""
    digest = hashlib.sha256()
    for name in (
        "requirements.txt",
        "requirements.lock",
        "pyproject.toml",
        "course/pyproject.toml",
    ):
        with open(os.path.join(ROOT, name), "rb") as f:
            digest.update(f.read())
    return digest.hexdigest() + " " + ROOT + (" on a site's" if site else "")


def is_done(venv, site=False):
    """Whether the environment is there, made from these very files, in this very place."""
    try:
        with open(os.path.join(venv, "pi2zero-set-up")) as f:
            return f.read() == stamp(site) and os.access(
                os.path.join(venv, "bin", "python"), os.X_OK
            )
    except OSError:
        return False


def heed_python(asked, venv):
    """Say so if an environment that is there is of another Python than the one that is asked for: it stays as it is."""
    try:
        with open(os.path.join(venv, "pyvenv.cfg")) as f:
            made_of = dict(re.findall(r"(?m)^(\w+) = (.*)$", f.read())).get("executable", "")
        code = "import os, sys; print(os.path.realpath(sys.executable))"
        wanted = subprocess.check_output(
            [asked, "-c", code], stderr=subprocess.DEVNULL, universal_newlines=True
        ).strip()
    except (OSError, subprocess.CalledProcessError):
        return
    if os.path.realpath(made_of) != wanted:
        say(
            "%s stays with the Python that it was made of, %s. To change it: make clean, then this again."
            % (venv, made_of)
        )


def take_lock(venv):
    """One set-up at a time. An installer that outlived its set-up still holds the lock: two would spoil each other's work."""
    os.makedirs(venv, exist_ok=True)
    lock = open(os.path.join(venv, "set-up.lock"), "w")  # noqa: SIM115  stays open until this process ends
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(
            "Another set-up is at work in this folder (or was interrupted, and its installer still ends). Waiting for it."
        )
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError:  # a file system without locks
        pass
    return lock


def make_environment(python, venv):
    """Python's own two steps, so that what the second one says is seen: pip comes from the files that Python brings."""
    temporary = temporary_folder(venv)
    os.makedirs(temporary, exist_ok=True)
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PYTHONHOME")
    }
    env.update(TMPDIR=temporary)
    pip = [os.path.join(venv, "bin", "python"), "-Im", "ensurepip", "--upgrade", "--default-pip"]
    # A kill may have left half of pip, and ensurepip leaves alone what calls itself installed.
    for half in glob.glob(
        os.path.join(venv, "lib", "python3*", "site-packages", "pip-*.dist-info")
    ):
        if not is_whole(half):
            shutil.rmtree(half)
    for command in ([python, "-m", "venv", "--without-pip", venv], pip):
        try:
            made = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env
            )
        except (
            PermissionError
        ) as error:  # some file systems let no link lead out of them, as Python's own is
            stop_without_programs(os.path.dirname(venv), error.strerror)
        said = made.stdout.decode(errors="replace").strip()
        if made.returncode and (is_full(venv) or os.strerror(errno.ENOSPC) in said):
            stop_full()
        if made.returncode:
            why = "%s could not make an environment: %s" % (python, said[-300:])
            stop(why, "remove the folder %s and run make again." % venv)


def set_up(args):
    """Make the environment."""
    start = time.time()
    say("[1/4] Looking at the machine")
    python = find_python(args.python, args.site)
    check_disk(args.need_gb)
    say("[2/4] Making %s with %s" % (os.path.relpath(args.venv, ROOT), python))
    lock = take_lock(args.venv)
    if is_done(args.venv, args.site):  # by the one that we waited for
        return
    with contextlib.suppress(OSError):
        os.remove(os.path.join(args.venv, "pi2zero-set-up"))
    make_environment(python, args.venv)
    log = os.path.join(args.venv, "set-up.log")
    open(log, "w").close()
    packages = Packages(args.venv, log, lock)
    packages.mend()
    locked, kept = os.path.join(ROOT, "requirements.lock"), {}
    packages.fetch_uv(locked)
    if args.site:
        kept = setup_site.build_on(
            packages.site, args.venv, setup_site.look(python, os.environ.get("SITE_PYTHONPATH", ""))
        )
        whole, locked = locked, os.path.join(args.venv, "set-up-site.lock")
        with open(locked, "w") as f:
            f.write(setup_site.without(whole, kept))
    say(
        "[3/4] Installing %d packages (the installer's own words are in %s)"
        % (pins(locked) + 1, os.path.relpath(log, ROOT))
    )
    install_all(packages, locked, args.need_gb, with_torch="torch" not in kept)
    full, cut = is_full(args.venv), packages.mend()
    while cut:
        if full:
            stop_full(log)
        if not packages.has_cache():
            stop(
                "what was installed of %s is not what the package lists: files are missing or cut."
                % ", ".join(cut),
                "a mirror or a disk may be out of order. Run make again; if it says this again, look at %s."
                % log,
            )
        packages.leave_cache("uv's cache is damaged, some packages came cut")
        install_all(packages, locked, args.need_gb, with_torch="torch" not in kept)
        full, cut = is_full(args.venv), packages.mend()
    say("[4/4] Installing the kit itself")
    packages.install_kit(ROOT, other_python=args.site)
    packages.clear()
    with open(os.path.join(args.venv, "pi2zero-set-up"), "w") as f:
        f.write(stamp(args.site))
    say("The environment is ready, %.0f s." % (time.time() - start))


def install_all(packages, locked, need_gb, with_torch):
    packages.install_lock(locked)
    if with_torch:
        install_torch(packages, need_gb)


def install_torch(packages, need_gb):
    """torch, if the pins have it: for the GPU that is there, else the small build for CPUs where that can be had."""
    requirements = os.path.join(ROOT, "requirements.txt")
    with open(requirements) as f:
        pin = [line.strip() for line in f if line.startswith("torch==")]
    if not pin:
        return
    options, cuda = packages.torch()
    if cuda:
        check_disk(max(need_gb, NEED_GB_CUDA))
        say("      torch comes with CUDA: several GB, some minutes.")
    packages.install_torch(pin[0], options, requirements)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--python", default=os.environ.get("PYTHON") or None, help="the Python to use, 3.11 to 3.14"
    )
    parser.add_argument(
        "--venv", default=os.path.join(ROOT, ".venv"), help="where to make the environment"
    )
    parser.add_argument(
        "--site",
        action="store_true",
        default=bool(os.environ.get("SITE")),
        help="keep this site's torch and MPI",
    )
    parser.add_argument("--need-gb", type=float, default=NEED_GB, help="free disk space to ask for")
    args = parser.parse_args()
    if args.site and is_done(args.venv):
        stop("%s was made without SITE=1." % args.venv, "make clean, then make lab SITE=1.")
    args.site = args.site or setup_site.is_one(args.venv)
    if not is_done(args.venv, args.site):
        check_folder(args.venv)
        try:
            set_up(args)
        except KeyboardInterrupt:
            stop(
                "you interrupted it.",
                "run make again when you like; it goes on with what is already there.",
            )
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            stop_full()
    elif args.python:
        heed_python(args.python, args.venv)


if __name__ == "__main__":
    main()
