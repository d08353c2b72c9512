"""From `git clone` to JupyterLab that answers, nothing cached, by root and by an ordinary user.

Writes benchmarks/start.md. Each clone is made of what is committed, from a copy that everybody may
read, with a home folder of its own. Root makes an ordinary user for the second half and removes it
afterwards.
"""

import argparse
import contextlib
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import figures
import psutil
from figures import HERE, conditions, of, table

ROOT = HERE.parent
USER = "pi2zero-bench"
ADDRESS = re.compile(r"(http://127\.0\.0\.1:\d+)/lab\S*\?token=(\w+)")
PATHS = {"root": os.environ["PATH"], "user": "/usr/local/bin:/usr/bin:/bin"}


# Settings of this shell that would reach the new person's programs
PRIVATE = ("UV_", "XDG_", "PI2ZERO", "JUPYTER", "DISPLAY", "BROWSER", "WAYLAND", "PYTHON", "MAKE")
PRIVATE += ("MFLAGS", "VIRTUAL_ENV")


class Person:
    """root or an ordinary user, with an empty home folder below `folder`."""

    def __init__(self, name, folder):
        self.home, self.origin = Path(folder, name), Path(folder, "origin")
        self.home.mkdir(mode=0o755)
        # The kit may lie where only root can read.
        subprocess.run(["git", "clone", "-q", "--bare", ROOT, self.origin], check=True)
        self.become = []
        if name == "user":
            shutil.chown(self.home, USER, USER)
            self.become = [shutil.which("runuser"), "-u", USER, "--", "env", f"HOME={self.home}"]
        self.env = {key: value for key, value in os.environ.items() if not key.startswith(PRIVATE)}
        self.env |= {"HOME": str(self.home), "PATH": PATHS[name]}
        # The clone is of a folder that belongs to another user.
        self.run("git", "config", "--global", "safe.directory", "*")

    def run(self, *command, **options):
        command = [*self.become, *map(str, command)]
        more = {"cwd": self.home, "env": self.env, "stdout": subprocess.PIPE, "check": True}
        return subprocess.run(command, text=True, **more | options).stdout

    def clone(self, name):
        """A clone of what is committed; returns (folder, seconds)."""
        folder, start = self.home / name, time.monotonic()
        self.run("git", "clone", "-q", f"file://{self.origin}", folder)
        return folder, time.monotonic() - start

    @contextlib.contextmanager
    def lab(self, folder, bare=False):
        """`make lab`, or JupyterLab without the kit (bare).

        Gives the seconds until JupyterLab answers with its token, the CPU seconds, and the log.
        """
        log, start = self.home / "terminal.log", time.monotonic()
        command = ["make", "-C", folder, "lab"]
        if bare:
            jupyter = folder / ".venv" / "bin" / "jupyter-lab"
            command = [jupyter, "--no-browser", "--allow-root", f"--notebook-dir={self.home}"]
        with log.open("w") as out:
            process = subprocess.Popen(
                [*self.become, *map(str, command)],
                env=self.env,
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        try:
            while not answers(log.read_text()):
                if process.poll() is not None:
                    sys.exit(f"the server ended:\n{log.read_text()}")
                time.sleep(0.1)
            yield time.monotonic() - start, cpu_seconds(process.pid), log
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(timeout=60)
            self.end_all()

    def end_all(self):
        """End what outlives JupyterLab: it would disturb what comes next, and keep its user."""
        left = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                # Only this measurement has this home folder.
                if process.environ().get("HOME") == str(self.home):
                    process.terminate()
                    left.append(process)
        for process in psutil.wait_procs(left, timeout=20)[1]:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=20)

    def python(self, folder, *arguments):
        """Seconds of the clone's Python with these arguments."""
        start = time.monotonic()
        self.run(folder / ".venv" / "bin" / "python", *arguments, cwd=folder)
        return time.monotonic() - start


def answers(text):
    """Whether the server whose address is in the text answers, with its token, 200."""
    address = ADDRESS.search(text)
    with contextlib.suppress(OSError):
        if address:
            with urllib.request.urlopen(f"{address[1]}/lab?token={address[2]}", timeout=5) as reply:  # noqa: S310  (its own server)
                return reply.status == 200
    return False


def cpu_seconds(pid):
    """CPU time of a process and of all that it has started, those that have ended included."""
    processes = (psutil.Process(pid), *psutil.Process(pid).children(recursive=True))
    return sum(sum(process.cpu_times()[:4]) for process in processes)


@contextlib.contextmanager
def ordinary_user():
    """The names of the people who can be measured: root makes a user for it."""
    if os.getuid():
        yield ["user"]
        return
    subprocess.run(["useradd", "--no-create-home", "--shell", "/bin/bash", USER], check=True)
    try:
        yield ["root", "user"]
    finally:
        subprocess.run(["userdel", USER], check=True)


def measure(name, build):
    """{what: seconds} for one person with an empty home. build: also wait for what is compiled."""
    times = {}
    with tempfile.TemporaryDirectory(
        dir="/tmp", prefix="start-", ignore_cleanup_errors=True
    ) as folder:
        Path(folder).chmod(0o755)
        person = Person(name, folder)
        clone, cloning = person.clone("first")
        with person.lab(clone) as (seconds, times["cpu"], log):
            times["cold"] = cloning + seconds
            ready = re.search(r"environment is ready, (\d+) s", log.read_text())
            times["packages"] = float(ready[1])
            if build:
                times["compiled"] = person.python(clone, *BUILD)
        with person.lab(clone) as (times["again"], times["cpu, again"], _):
            pass
        with person.lab(clone, bare=True) as (times["JupyterLab alone"], *_):
            pass
        if build:
            second, cloning = person.clone("second")
            with person.lab(second) as (seconds, *_):
                times["second clone"] = cloning + seconds
                times["compiled, second clone"] = person.python(second, *BUILD)
        times["doctor, quick"] = person.python(clone, "-m", "pi2zero", "doctor", "--quick")
        times["Python alone"] = person.python(clone, "-c", "pass")
    return times


BUILD = ("-m", "pi2zero", "build", "--wait")
WORDS = {
    "cold": "clone to JupyterLab, nothing cached",
    "packages": "of that, the environment",
    "cpu": "CPU time meanwhile",
    "again": "`make lab` again",
    "cpu, again": "CPU time meanwhile",
    "JupyterLab alone": "JupyterLab alone, without the kit",
    "second clone": "a second clone to JupyterLab",
    "doctor, quick": "the doctor's quick part",
    "Python alone": "a Python that does nothing",
    "compiled": "until Horovod and DeepSpeed's operators are compiled, from then on",
    "compiled, second clone": "the same in the second clone",
}
# Upper bounds in s, and what each is compared with
WANTED = {
    "cold": (60, None),
    "again": (10, "JupyterLab alone"),
    "doctor, quick": (3, "Python alone"),
}


def shown(values):
    if not values:
        return ""
    spread = f" ({min(values):.1f} to {max(values):.1f})" if len(values) > 1 else ""
    return f"{statistics.median(values):.1f}{spread}"


def figure(times, what):
    bound, bare = WANTED[what]
    reference = f"{WORDS[bare]}: {statistics.median(times[bare]):.2g} s" if bare else ""
    return of(WORDS[what], "s", times[what], wanted=bound, reference=reference)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    rounds, load, columns = parser.parse_args().rounds, os.getloadavg()[0], {}
    # An exception lets everything that was made be removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    with ordinary_user() as people:
        for number in range(rounds):
            for name in people:
                build = number == 0 and name == people[0]
                for what, seconds in measure(name, build).items():
                    columns.setdefault(name, {}).setdefault(what, []).append(seconds)
                    print(f"round {number + 1}, {name}: {what}: {seconds:.1f} s", flush=True)
    rows = [
        [words, *(shown(times.get(what, [])) for times in columns.values())]
        for what, words in WORDS.items()
    ]
    names = {"root": "root", "user": "ordinary user"}
    figures.write_page(
        "start",
        "# From clone to JupyterLab",
        f"{conditions(load)} Seconds, medians of {rounds} rounds (min to max); what is compiled: "
        "once.",
        table(["", *(names[name] for name in columns)], rows),
    )
    figures.keep("start", [figure(columns[people[0]], what) for what in WANTED], load)


if __name__ == "__main__":
    main()
