"""Run pip for tools/setup.py: progress that a person can follow, one sentence if it fails, and mending after a kill.

Standard library only, as tools/setup.py.
"""

import contextlib
import glob
import os
import re
import shutil
import subprocess
import sys
import threading
import time

NO_NETWORK = r"Retrying \(Retry|NewConnectionError|Temporary failure in name resolution|Network is unreachable|ReadTimeout"


def stop(problem, remedy):
    """End with one clear sentence, and what to do."""
    sys.stdout.flush()
    sys.stderr.write("\nset-up stopped: %s\nWhat to do: %s\n" % (problem, remedy))
    sys.exit(1)


def say(text):
    print(text)
    sys.stdout.flush()


def pins(requirements):
    """How many packages a file of pins lists."""
    with open(requirements) as f:
        return sum("==" in line and not line.startswith("#") for line in f)


class Pip:
    """pip of one environment. Its own words go to the file `log`; `lock` is a descriptor that stays open while pip lives."""

    def __init__(self, venv, log, lock):
        self.python = os.path.join(venv, "bin", "python")
        self.packages = os.path.join(venv, "lib", "python3.11", "site-packages")
        self.log = log
        self.lock = lock
        # Options for another Python than the environment's would send packages elsewhere. The rest of pip's settings
        # (indexes, proxies, certificates, caches) is the user's and stays.
        drop = ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT")
        self.env = {name: value for name, value in os.environ.items() if name not in drop}
        self.env.update(PIP_USER="0", PYTHONUNBUFFERED="1", PYTHONIOENCODING="utf-8", PIP_DISABLE_PIP_VERSION_CHECK="1")

    def torch_comes_with_cuda(self):
        """Whether pip, as it is set, will fetch torch's CUDA build: PyPI's torch for Linux is that."""
        if not sys.platform.startswith("linux"):
            return False
        done = subprocess.run([self.python, "-m", "pip", "config", "list"], stdout=subprocess.PIPE, env=self.env)
        return not re.search(r"index-url=|find-links=|no-index=", done.stdout.decode(errors="replace"))

    def install(self, arguments, total):
        """Run `pip install`, or end with a sentence that says why not. Returns the seconds."""
        start = time.time()
        command = ["install", "--progress-bar", "off", "--retries", "2"] + arguments
        if self.run(command, Packages(self.installed, total)):
            self.explain()
        return time.time() - start

    def install_pins(self, requirements):
        """Install what a file of pins lists. Returns the seconds."""
        return self.install(["-r", requirements], pins(requirements))

    def run(self, arguments, follow):
        """Run pip; its words go to the log and to `follow`. Returns its exit status."""
        process = subprocess.Popen(
            [self.python, "-m", "pip"] + arguments,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self.env,
            pass_fds=[self.lock.fileno()],
        )
        follow.begin()
        try:
            with open(self.log, "ab") as out:
                for line in process.stdout:
                    out.write(line)
                    out.flush()
                    follow.hear(line)
            code = process.wait()
        except KeyboardInterrupt:
            process.terminate()
            process.wait()
            follow.end()
            stop("you interrupted it.", "run make again when you like; it goes on with what is already there.")
        follow.end()
        return code

    def installed(self):
        """How many packages are in the environment."""
        return len(glob.glob(os.path.join(self.packages, "*.dist-info")))

    def mend(self):
        """Forget packages that a killed pip had half installed: their list of files, written last, is missing."""
        for folder in glob.glob(os.path.join(self.packages, "*.dist-info")):
            if not os.path.exists(os.path.join(folder, "RECORD")):
                shutil.rmtree(folder)
        for folder in glob.glob(os.path.join(self.packages, "~*")):  # what pip had put aside
            shutil.rmtree(folder, ignore_errors=True)

    def explain(self):
        """Turn pip's failure into a sentence."""
        with open(self.log, errors="replace") as f:
            text = f.read()
        if "No space left on device" in text or "Disk quota exceeded" in text:
            stop("the disk is full (or your quota is).", "free some space, then run make again. Details: %s" % self.log)
        if re.search(NO_NETWORK, text):
            stop(
                "pip could not reach a package index (no network, or a proxy that pip does not know).",
                "check the network (and HTTPS_PROXY or pip.conf, if you need them), then run make again. Details: %s" % self.log,
            )
        last = [line for line in text.splitlines() if line.startswith("ERROR")][-1:] or text.splitlines()[-1:]
        stop("pip failed: %s" % "".join(last), "read %s, mend what it says, then run make again." % self.log)


class Follow:
    """Says every second (in a log: every 20 s) how far pip is: in a line that replaces itself.

    Who inherits from it hears each line that pip says, as bytes, and answers what is being done.
    """

    def hear(self, line):
        raise NotImplementedError

    def doing(self):
        raise NotImplementedError

    def begin(self):
        self.start = time.time()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.tick)
        self.thread.daemon = True
        self.thread.start()

    def tick(self):
        every = 1 if sys.stdout.isatty() else 20
        while not self.over.wait(every):
            self.show("      %s, %.0f s" % (self.doing(), time.time() - self.start))

    def show(self, text):
        with contextlib.suppress(OSError):
            if sys.stdout.isatty():
                sys.stdout.write("\r%-70s%s" % (text, "" if text else "\r"))
                sys.stdout.flush()
            elif text:
                say(text)

    def end(self):
        self.over.set()
        self.thread.join()
        self.show("")


class Packages(Follow):
    """How many packages are fetched, then installed."""

    def __init__(self, installed, total):
        self.installed, self.total = installed, total
        self.found, self.before = 0, None

    def hear(self, line):
        self.found += line.startswith((b"Collecting ", b"Processing ", b"Requirement already"))
        if line.startswith(b"Installing collected"):
            self.before = self.installed()

    def doing(self):
        if self.before is not None:
            return "%d packages installed" % max(0, self.installed() - self.before)
        return "%d of %d packages fetched" % (min(self.found, self.total), self.total)
