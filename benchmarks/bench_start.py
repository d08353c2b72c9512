"""From `git clone` to JupyterLab that answers, nothing cached, by root and by an ordinary user.

Writes benchmarks/start.md.

Each clone is made of what is committed, from a copy that everybody may read, with a home folder of
its own. As root, an ordinary user is made for the second half and removed afterwards.
"""

import argparse
import contextlib
import datetime
import os
import platform
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
from figures import of

HERE = Path(__file__).parent
ROOT = HERE.parent
USER = "pi2zero-bench"
ADDRESS = re.compile(r"(http://127\.0\.0\.1:\d+)/lab\S*\?token=(\w+)")
PATHS = {"root": os.environ["PATH"], "user": "/usr/local/bin:/usr/bin:/bin"}


class Person:
    """root or an ordinary user, with an empty home folder below `folder`."""

    def __init__(self, name, folder):
        self.home, self.origin = Path(folder, name), Path(folder, "origin")
        self.home.mkdir(mode=0o755)
        subprocess.run(
            ["git", "clone", "-q", "--bare", ROOT, self.origin], check=True
        )  # the kit may lie where only root reads
        self.words = []
        if name == "user":
            shutil.chown(self.home, USER, USER)
            self.words = [
                shutil.which("runuser"),
                "-u",
                USER,
                "--",
                "env",
                f"HOME={self.home}",
            ]  # it sets another
        drop = (
            "UV_",
            "XDG_",
            "PI2ZERO",
            "JUPYTER",
            "DISPLAY",
            "BROWSER",
            "WAYLAND",
            "PYTHON",
            "MAKE",
            "MFLAGS",
            "VIRTUAL_ENV",
        )
        self.env = {key: value for key, value in os.environ.items() if not key.startswith(drop)}
        self.env |= {"HOME": str(self.home), "PATH": PATHS[name]}
        self.run(
            "git", "config", "--global", "safe.directory", "*"
        )  # the clone is made of somebody else's

    def run(self, *command, **options):
        command = [*self.words, *map(str, command)]
        options = {"cwd": self.home, **options}
        return subprocess.run(
            command, env=self.env, stdout=subprocess.PIPE, text=True, check=True, **options
        ).stdout

    def clone(self, name):
        """A clone of what is committed; returns (folder, seconds)."""
        folder, start = self.home / name, time.monotonic()
        self.run("git", "clone", "-q", f"file://{self.origin}", folder)
        seconds = time.monotonic() - start
        return folder, seconds

    @contextlib.contextmanager
    def lab(self, folder, bare=False):
        """`make lab`; gives the seconds until JupyterLab answers with its token, those of the
        processor, and the terminal.

        bare: JupyterLab alone, with nothing of the kit's around it.
        """
        log, start = self.home / "terminal.log", time.monotonic()
        alone = [
            str(folder / ".venv" / "bin" / "jupyter-lab"),
            "--no-browser",
            "--allow-root",
            f"--notebook-dir={self.home}",
        ]
        with log.open("w") as out:
            process = subprocess.Popen(
                [*self.words, *(alone if bare else ["make", "-C", str(folder), "lab"])],
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
            yield time.monotonic() - start, processor_seconds(process.pid), log
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(timeout=60)
            self.end_all()

    def end_all(self):
        """Ends what goes on beside JupyterLab and outlives it: it would disturb what comes next,
        and its user could not go.
        """
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("HOME") == str(
                    self.home
                ):  # a folder made for this measurement: nobody else's
                    process.terminate()
                    found.append(process)
        for process in psutil.wait_procs(found, timeout=20)[1]:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(found, timeout=20)

    def python(self, folder, *arguments):
        return self.run(folder / ".venv" / "bin" / "python", *arguments, cwd=folder)


def answers(text):
    """Whether the server whose address is in the text answers, with its token, 200."""
    found = ADDRESS.search(text)
    with contextlib.suppress(OSError):
        if found:
            with urllib.request.urlopen(f"{found[1]}/lab?token={found[2]}", timeout=5) as reply:  # noqa: S310  (its own server)
                return reply.status == 200
    return False


def processor_seconds(pid):
    """What a process and all that it has started have computed so far."""
    times = [
        process.cpu_times()
        for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True))
    ]
    return sum(
        sum(each[:4]) for each in times
    )  # user and system, its own and those of its children that have ended


@contextlib.contextmanager
def ordinary_user():
    """The names of those who can be measured: root makes a user for it."""
    if os.getuid():
        yield ["user"]
        return
    subprocess.run(["useradd", "--no-create-home", "--shell", "/bin/bash", USER], check=True)
    try:
        yield ["root", "user"]
    finally:
        subprocess.run(["userdel", USER], check=True)


def measure(name, build):
    """{what: seconds} for one person with an empty home. build: also wait until everything is
    compiled.
    """
    found = {}
    with tempfile.TemporaryDirectory(
        dir="/tmp", prefix="start-", ignore_cleanup_errors=True
    ) as folder:
        Path(folder).chmod(0o755)
        person = Person(name, folder)
        clone, cloning = person.clone("first")
        with person.lab(clone) as (seconds, found["processor"], log):
            found["cold"] = cloning + seconds
            found["packages"] = float(
                re.search(r"environment is ready, (\d+) s", log.read_text())[1]
            )
            if build:
                start = time.monotonic()
                person.python(clone, "-m", "pi2zero", "build", "--wait")
                found["compiled"] = time.monotonic() - start
        with person.lab(clone) as (found["again"], found["processor, again"], _):
            pass
        with person.lab(clone, bare=True) as (found["JupyterLab alone"], *_):
            pass
        if build:
            second, cloning = person.clone("second")
            with person.lab(second) as (seconds, *_):
                found["second clone"] = cloning + seconds
                start = time.monotonic()
                person.python(second, "-m", "pi2zero", "build", "--wait")
                found["compiled, second clone"] = time.monotonic() - start
        found["doctor, quick"] = clocked(person, clone, "-m", "pi2zero", "doctor", "--quick")
        found["Python alone"] = clocked(person, clone, "-c", "pass")
    return found


def clocked(person, clone, *arguments):
    """Seconds of the clone's Python with these arguments."""
    start = time.monotonic()
    person.python(clone, *arguments)
    return time.monotonic() - start


WORDS = {
    "cold": "clone to JupyterLab, nothing cached",
    "packages": "of that, the environment",
    "processor": "computed meanwhile (processor's seconds, whatever else the machine does)",
    "again": "`make lab` again",
    "processor, again": "computed meanwhile",
    "JupyterLab alone": "JupyterLab alone, without the kit",
    "second clone": "a second clone to JupyterLab",
    "doctor, quick": "the doctor's quick part",
    "Python alone": "a Python that does nothing",
    "compiled": "until Horovod and DeepSpeed's operators are there, from then on",
    "compiled, second clone": "the same in the second clone",
}


WANTED = {"cold": 60, "again": 10, "doctor, quick": 3}  # s
BESIDE = {
    "cold": None,
    "again": "JupyterLab alone",
    "doctor, quick": "Python alone",
}  # what it is measured against


def shown(values):
    if not values:
        return ""
    return f"{statistics.median(values):.1f}" + (
        f" ({min(values):.1f} to {max(values):.1f})" if len(values) > 1 else ""
    )


def kept(columns, what):
    """A figure of the first person's, next to the bare program's."""
    first, bare = next(iter(columns.values())), BESIDE[what]
    beside = f"{WORDS[bare]}: {statistics.median(first[bare]):.2g} s" if bare else ""
    return of(WORDS[what], "s", first[what], wanted=WANTED[what], beside=beside)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--builds", type=int, default=1, help="in how many of them to wait for all that is compiled"
    )
    parser.add_argument("--output", type=Path, default=HERE / "start.md")
    args = parser.parse_args()
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit("ended from outside")
    )  # what was made is removed
    load, columns = os.getloadavg()[0], {}
    with ordinary_user() as people:
        for number in range(args.rounds):
            for name in people:
                for what, seconds in measure(
                    name, build=number < args.builds and name == people[0]
                ).items():
                    columns.setdefault(name, {}).setdefault(what, []).append(seconds)
                    print(f"round {number + 1}, {name}: {what}: {seconds:.1f} s", flush=True)
    people = list(columns)
    names = {"root": "root", "user": "ordinary user"}
    rows = [
        f"| {words} | {' | '.join(shown(columns[p].get(what, [])) for p in people)} |"
        for what, words in WORDS.items()
    ]
    lines = [
        "# From clone to JupyterLab",
        "",
        f"{datetime.date.today()}, {platform.system()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}. "
        f"Load of the machine before the start: {load:.1f} (0 is idle). "
        f"Seconds, medians of {args.rounds} rounds (min to max); what is compiled: once.",
        "",
        f"| | {' | '.join(names[p] for p in people)} |",
        f"|{' --- |' * (len(people) + 1)}",
        *rows,
        "",
        (HERE / "start_explained.md").read_text(),
    ]
    args.output.write_text("\n".join(lines))
    if args.output.parent == HERE:
        figures.keep("start", [kept(columns, what) for what in WANTED], load)
    print(f"written to {args.output}")


if __name__ == "__main__":
    main()
