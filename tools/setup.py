#!/usr/bin/env python3
"""Make .venv with everything that the kit needs, or say in one sentence what is in the way. Called by `make`.

Standard library only, and old syntax: whatever python3 a machine has must be able to run it and be told what is missing.
A second run does nothing unless requirements.txt or pyproject.toml has changed; an interrupted run can be run again.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WANTED = (3, 11)
NEED_GB = 3.0  # .venv is 1.6 GB; pip unpacks beside it
NO_NETWORK = r"Retrying \(Retry|NewConnectionError|Temporary failure in name resolution|Network is unreachable|ReadTimeout"


def stop(problem, remedy):
    """End with one clear sentence, and what to do."""
    sys.stdout.flush()
    sys.stderr.write("\nset-up stopped: %s\nWhat to do: %s\n" % (problem, remedy))
    sys.exit(1)


def say(text):
    print(text)
    sys.stdout.flush()


def probe(python):
    """(version, None) of an interpreter that can make environments, or (version or None, what is wrong with it)."""
    code = "import sys; print('%d.%d' % sys.version_info[:2]); import venv, ensurepip"
    try:
        done = subprocess.run([python, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    except OSError:
        return None, "it does not run"
    version = done.stdout.strip() or None
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


def check_compiler():
    """DeepSpeed and Horovod compile; nothing else does, so a missing compiler does not stop the set-up."""
    if shutil.which("g++"):
        return
    say("      warning: there is no C++ compiler (g++). Notebooks 00 to 02 and lab 1 do not need one; Horovod and DeepSpeed")
    say("      will. What to do: on Debian or Ubuntu: apt-get install g++")


def stamp():
    """What the environment was made from."""
    digest = hashlib.sha256()
    for name in ("requirements.txt", "pyproject.toml"):
        with open(os.path.join(ROOT, name), "rb") as f:
            digest.update(f.read())
    return digest.hexdigest() + " " + ROOT


def pip(venv, arguments, log, total):
    """Run pip with its output in a file, and a line that says how far it is."""
    command = [os.path.join(venv, "bin", "python"), "-m", "pip", "install", "--progress-bar", "off", "--retries", "2"]
    start, seen, installing = time.time(), 0, False
    with open(log, "a") as out:
        env = dict(os.environ, PYTHONUNBUFFERED="1", PIP_DISABLE_PIP_VERSION_CHECK="1")
        process = subprocess.Popen(
            command + arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, env=env
        )
        try:
            for line in process.stdout:
                out.write(line)
                out.flush()
                seen += line.startswith(("Collecting ", "Processing ", "Requirement already"))
                installing = installing or line.startswith("Installing collected")
                doing = "installing them" if installing else "%d of %d packages found" % (seen, total)
                progress("      %s, %.0f s" % (doing, time.time() - start))
        except KeyboardInterrupt:
            process.terminate()
            process.wait()
            stop("you interrupted it.", "run make again when you like; it goes on with what is already there.")
        code = process.wait()
    progress("")
    if code:
        explain(log)
    return time.time() - start


_last_shown = [0.0]


def progress(text):
    """One line that replaces itself on a terminal; in a log, a line every 20 s."""
    if sys.stdout.isatty():
        sys.stdout.write("\r%-70s%s" % (text, "" if text else "\r"))
        sys.stdout.flush()
    elif text and time.time() - _last_shown[0] > 20:
        _last_shown[0] = time.time()
        say(text)


def explain(log):
    """Turn pip's failure into a sentence."""
    with open(log) as f:
        text = f.read()
    if "No space left on device" in text:
        stop("the disk is full.", "free at least %.0f GB, then run make again." % NEED_GB)
    if re.search(NO_NETWORK, text):
        stop(
            "pip could not reach a package index (no network, or a proxy that pip does not know).",
            "check the network (and HTTPS_PROXY or pip.conf, if you need them), then run make again. Details: %s" % log,
        )
    last = [line for line in text.splitlines() if line.startswith("ERROR")][-1:] or text.splitlines()[-1:]
    stop("pip failed: %s" % "".join(last), "read %s, mend what it says, then run make again." % log)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--python", default=os.environ.get("PYTHON") or None, help="the Python 3.11 to use")
    parser.add_argument("--venv", default=os.path.join(ROOT, ".venv"), help="where to make the environment")
    parser.add_argument("--need-gb", type=float, default=NEED_GB, help="free disk space to ask for")
    args = parser.parse_args()
    done = os.path.join(args.venv, "pi2zero-set-up")
    if os.path.exists(done):
        with open(done) as f:
            if f.read() == stamp():
                return
    say("[1/4] Looking at the machine")
    python = find_python(args.python)
    check_disk(args.need_gb)
    check_compiler()
    log = os.path.join(args.venv, "set-up.log")
    say("[2/4] Making %s with %s" % (os.path.relpath(args.venv, ROOT), python))
    made = subprocess.run([python, "-m", "venv", args.venv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if made.returncode:
        stop(
            "%s could not make an environment: %s" % (python, made.stdout.decode(errors="replace").strip()[-300:]),
            "remove the folder %s and run make again." % args.venv,
        )
    open(log, "w").close()
    requirements = os.path.join(ROOT, "requirements.txt")
    with open(requirements) as f:
        total = sum("==" in line and not line.startswith("#") for line in f)
    say("[3/4] Installing %d packages (a few minutes; pip's own words are in %s)" % (total, os.path.relpath(log, ROOT)))
    seconds = pip(args.venv, ["-r", requirements], log, total)
    say("[4/4] Installing the kit itself")
    seconds += pip(args.venv, ["--no-deps", "--no-build-isolation", "-e", ROOT], log, 1)
    with open(done, "w") as f:
        f.write(stamp())
    say("The environment is ready, %.0f s." % seconds)


if __name__ == "__main__":
    main()
