"""Compile what an environment lacks in one background process, and wait for it.

The process outlives the notebook and the terminal. If it is killed, the next one starts that part
anew. Finished wheels stay in the user's cache, so that the next clone need not compile.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from pi2zero.hosts import limits
from pi2zero.native_build.parts import PARTS, Part

COMMAND = [sys.executable, "-c", "from pi2zero.native_build.builder import main; main()"]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
NICE = 10  # a tenth of the processor while somebody else wants it
LONGEST = 7200  # s; an older lock was left by a process that was killed on another host
ERROR = re.compile(r"^.*(?:\berror: |CMake Error.*\n|ERROR: |NewConnectionError|Errno).*$", re.M)


class NotBuiltError(ImportError):
    """A part could not be compiled. The text says why, and what to do."""

    def _render_traceback_(self) -> list[str]:
        """IPython shows this instead of the traceback."""
        return [str(self)]


class Status(NamedTuple):
    """state: "ready", "failed" (why: the reason, and what to do), or "pending"."""

    part: Part
    state: str
    why: str = ""

    def __str__(self) -> str:
        pending = f"is compiled in the background, about {self.part.MINUTES} min on two cores"
        words = {"failed": f"could not be compiled: {self.why}", "pending": pending}
        return f"{self.part.TITLE}: {words.get(self.state, self.state)}"


def folder() -> Path:
    """Where an environment keeps the outcome of its builds, and their logs."""
    return Path(sys.prefix) / "native_build"


def can_build() -> bool:
    """Whether the set-up made this environment, or somebody has asked for a build in it."""
    ours = (Path(sys.prefix) / "pi2zero-set-up").exists() or folder().exists()
    return ours and os.access(sys.prefix, os.W_OK)


def status_of(part: Part) -> Status:
    """The outcome of the last build; pending if the part was made for another torch or MPI."""
    try:
        state, why, key = json.loads((folder() / f"{part.NAME}.json").read_text())
    except (OSError, ValueError, TypeError, RecursionError):
        return Status(part, "pending")
    known = key == part.key() and (state == "failed" or part.is_installed())
    return Status(part, str(state), str(why)) if known else Status(part, "pending")


def statuses() -> list[Status]:
    """The status of each part that this environment needs."""
    return [status_of(part) for part in PARTS.values() if part.is_wanted()]


def wait_for(*names: str, needed: bool = True, show: bool = True) -> None:
    """Wait until these parts are compiled ("horovod", "deepspeed"; no name: all of them).

    Raises NotBuiltError if one could not be compiled; with needed=False its message is printed.
    Returns at once in an environment in which nothing is compiled.
    """
    for name in names or PARTS:
        try:
            if name not in PARTS:
                raise NotBuiltError(f"{name!r} is not compiled here. What is: {', '.join(PARTS)}.")
            _wait_for(PARTS[name], show)
        except NotBuiltError as error:
            if needed:
                raise
            print(error)


def _wait_for(part: Part, show: bool) -> None:
    from pi2zero.cluster.display import StatusLine

    progress, process, asked = StatusLine(part.TITLE, transient=True), None, 0.0
    while part.is_wanted() and can_build() and (status := status_of(part)).state != "ready":
        if status.state == "failed":
            raise NotBuiltError(f"{status}. Then run `make horovod` in a terminal.")
        if process and process.poll():
            raise NotBuiltError(
                f"{part.TITLE}: the build broke off. Read {folder() / 'builder.log'}."
            )
        # A process that finds another one at work ends at once; that one may be killed later.
        pause = 120 if is_building() else 10  # s
        if not (process and process.poll() is None) and time.monotonic() - asked > pause:
            process, asked = start(), time.monotonic()
            set_session_priority(lock().pid, 0)
        if show:
            progress(f"the compiler (about {part.MINUTES} min on two cores)")
        time.sleep(0.5)
    if asked and show:
        progress.done(f"{part.TITLE}: ready, {{seconds:.0f}} s")


def is_custom() -> bool:
    """Whether the user gives build options: such a build neither uses the cache nor goes there."""
    return any(re.match("HOROVOD_(WITH|GPU|NCCL|CUDA|BUILD)", name) for name in os.environ)


def start(again: bool = False) -> subprocess.Popen | None:
    """Start the background process if it is needed. again: also for what failed, or for options."""
    folder().mkdir(exist_ok=True)
    for status in statuses() if again else []:
        if status.state == "failed" or is_custom():
            (folder() / f"{status.part.NAME}.json").unlink(missing_ok=True)
    if all(status.state != "pending" for status in statuses()):
        return None
    env = {name: os.environ[name] for name in os.environ if name not in ("PI2ZERO_MARK", "MFLAGS")}
    with (folder() / "builder.log").open("ab") as log:
        streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
        # The caller's folder may be removed before the build ends.
        return subprocess.Popen(COMMAND, env=env, cwd=sys.prefix, start_new_session=True, **streams)


def stop() -> None:
    """End the background process of this environment, with all that it has started."""
    for process in psutil.process_iter(["cmdline"]):
        if process.info["cmdline"] == COMMAND:
            for each in (*process.children(recursive=True), process):
                each.kill()


def lock():
    """The lock of the background process. It also works on file systems without flock."""
    from filelock import SoftFileLock

    return SoftFileLock(folder() / "lock", timeout=0)


def is_building() -> bool:
    """Whether the background process of this environment is at work on this host."""
    pid = lock().pid
    return pid is not None and psutil.pid_exists(pid)


def set_session_priority(pid: int | None, nice: int) -> None:
    """Where Linux shares the processor out by session, only this counts, and can be taken back."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(nice))


def main() -> None:
    """Compile all that is pending. Ends at once if another such process is at work."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the terminal may be closed
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
    with contextlib.suppress(FileNotFoundError):
        if time.time() - (folder() / "lock").stat().st_mtime > LONGEST:
            (folder() / "lock").unlink()
    try:
        held = lock().acquire()
    except TimeoutError:
        return
    with held:
        if os.getsid(0) == os.getpid():
            set_session_priority(os.getpid(), NICE)
        for work in folder().glob("work-*"):  # of a process that was killed
            shutil.rmtree(work, ignore_errors=True)
        while pending := [each.part for each in statuses() if each.state == "pending"]:
            build(min(pending, key=lambda part: not cached_wheel(part)))


def build(part: Part) -> None:
    """Install a part from the cache, or compile it; note the outcome."""
    (folder() / f"{part.NAME}.log").write_text("")
    outcome = ("ready", "", part.key())
    try:
        with tempfile.TemporaryDirectory(prefix="work-", dir=folder()) as work, turn_of(part):
            if not ((wheel := cached_wheel(part)) and install(part, wheel)):
                wheel = compile_wheel(part, Path(work))
                if not install(part, wheel):
                    raise NotBuiltError(f"it was compiled, but does not work: {first_error(part)}")
                store(part, wheel)
    except (NotBuiltError, OSError) as error:
        outcome = ("failed", str(error), part.key())
    new = folder() / f"{part.NAME}.new"
    new.write_text(json.dumps(outcome))
    new.replace(folder() / f"{part.NAME}.json")


def compile_wheel(part: Part, work: Path) -> Path:
    """Fetch the source into the folder `work`, compile it, and return the wheel."""
    for tool in (os.environ.get("CXX", "g++"), "make"):
        if not shutil.which(tool):
            raise NotBuiltError(f"there is no {tool} (Debian or Ubuntu: apt-get install g++ make)")
    pin = work / "pin.txt"
    pin.write_text(f"{part.NAME}=={part.VERSION} --hash=sha256:{part.SHA256}\n")
    fetch = ["download", "--require-hashes", "--no-binary=:all:", "-d", work, "-r", pin]
    common = ["--no-deps", "--no-build-isolation", "--no-cache-dir"]
    run(part, [*PIP, *fetch, *common], TMPDIR=str(work))
    source = work / f"{part.NAME}-{part.VERSION}"
    run(part, ["tar", "-xf", f"{source}.tar.gz", "-C", work])
    part.prepare(source)
    # Each compiler takes up to 2 GB.
    parallel = max(1, min(int(limits.cores()), int(limits.free_memory() // 2e9)))
    jobs = os.environ.get("JOBS", str(parallel))
    settings = {"TMPDIR": str(work), "MAKEFLAGS": f"-j{jobs}", "MAX_JOBS": jobs}
    command = [*PIP, "wheel", "-v", *common, "-w", work, source]
    run(part, command, **settings | part.settings(work))
    return next(work.glob("*.whl"))


def install(part: Part, wheel: Path) -> bool:
    """Install a wheel; returns whether the part works then."""
    try:
        run(part, [*PIP, "install", "--no-deps", "--force-reinstall", "--no-index", wheel])
        run(part, [sys.executable, "-c", part.CHECK])
    except NotBuiltError:
        return False
    return part.is_installed()


def run(part: Part, command: list, **settings: str) -> None:
    """Run a command, whose words go to the part's log; NotBuiltError if it fails."""
    words, env = list(map(str, command)), os.environ | settings
    with (folder() / f"{part.NAME}.log").open("ab") as log:
        streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
        if subprocess.run(words, env=env, **streams).returncode:
            raise NotBuiltError(first_error(part))


def first_error(part: Part) -> str:
    """The first error in a part's log, and where to read on."""
    text = (log := folder() / f"{part.NAME}.log").read_text(errors="replace")
    found = [*ERROR.findall(text), text[-200:]][0]
    return f"{' '.join(found.split())[:300]}. What to do: read {log}, and mend what it says"


def cache() -> Path:
    """$XDG_CACHE_HOME/pi2zero, else ~/.cache/pi2zero."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pi2zero"


@contextlib.contextmanager
def turn_of(part: Part) -> Iterator[None]:
    """Wait while another environment of this user compiles the same wheel: it goes to the cache."""
    from filelock import SoftFileLock, Timeout

    with contextlib.ExitStack() as turn:
        if not (is_custom() or cached_wheel(part)):
            with contextlib.suppress(OSError, Timeout):  # a cache that cannot be written
                cache().mkdir(mode=0o700, parents=True, exist_ok=True)
                same = SoftFileLock(cache() / f"{part.key()}.lock", timeout=LONGEST)
                turn.enter_context(same)
        yield


def cached_wheel(part: Part) -> Path | None:
    """The wheel of an earlier build; None if there is none, or if others may write there."""
    wheel = next((cache() / part.key()).glob("*.whl"), None)
    if not wheel or is_custom():
        return None
    owner, mode = cache().stat().st_uid, cache().stat().st_mode
    return wheel if owner == os.getuid() and not mode & 0o022 else None


def store(part: Part, wheel: Path) -> None:
    """Keep a wheel in the cache, if that can be written: whole, or not at all."""
    place = cache() / part.key() / wheel.name
    if is_custom():
        return
    try:
        cache().mkdir(mode=0o700, parents=True, exist_ok=True)
        place.parent.mkdir(exist_ok=True)
        shutil.copyfile(wheel, new := place.with_suffix(".new"))
        new.replace(place)
    except OSError as error:
        print(f"{part.TITLE} is not kept for the next clone: {error}", flush=True)
