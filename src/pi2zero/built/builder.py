"""The one background process of an environment that builds what is missing. `start()` sees to it that it runs.

It outlives the browser, the terminal and JupyterLab, takes only processor time that nobody else wants, and can be killed at any
time: the next start goes on with what is there. Whoever holds the lock is the builder; what an earlier, killed one had started
carries BUILDER in its environment, and is ended first.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil

from pi2zero.built import bytecode, cache, state
from pi2zero.built.known import parts
from pi2zero.built.parts import Failed, Part, folder, search_path

BUILDER = "PI2ZERO_BUILDER"
REASONS = (  # what the log says, what it means, what to do
    (
        "No space left on device|Disk quota exceeded",
        "the disk is full (or your quota is)",
        "free some space",
    ),
    (
        "Killed signal terminated program",
        "the compiler ran out of memory",
        "close other programs, or set JOBS=1",
    ),
    (
        r"Retrying \(Retry|NewConnectionError|Temporary failure in name resolution|Network is unreachable|ReadTimeout",
        "pip could not reach a package index to fetch its source",
        "check the network",
    ),
    (
        "Could NOT find CUDAToolkit",
        "torch is the build for CUDA and there is an nvcc, but its toolkit's libraries are not found",
        "set HOROVOD_CUDA_HOME to its folder; where there is no GPU, take nvcc off the PATH",
    ),
    (
        r"No matching distribution found for ([\w.-]+)",
        r"the package index that pip uses does not have \1",
        "check pip.conf",
    ),
)


def start(again: bool = False) -> None:
    """Let the builder run, if something is missing. again: also for what has failed, or would be made otherwise today."""
    if not state.can_be_built():
        return
    wanted = [each for each in state.states() if each.wanted(again)]
    if not wanted and bytecode.is_there():
        return
    folder().mkdir(exist_ok=True)
    for each in wanted:
        if each.state in ("failed", "ready"):
            state.Note(each.part).write("asked for")
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PI2ZERO_MARK", "MAKEFLAGS", "MFLAGS")
    }
    with (folder() / "builder.log").open("ab") as log:
        subprocess.Popen(
            [sys.executable, "-m", "pi2zero.built.builder"],
            env=env | {BUILDER: sys.prefix},
            cwd=sys.prefix,  # where this was called may be gone before the builder is done: pip would end at once
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def stop() -> None:
    """End the builder, and what it has started; before its environment is removed."""
    for process in ours():
        with contextlib.suppress(psutil.Error):
            process.kill()


def ours() -> list[psutil.Process]:
    """Processes of builders of this environment, this one left out."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get(BUILDER) == sys.prefix:
                found.append(process)
    return found


def main() -> None:
    """Build, one after another, all parts that are wanted. Ends at once if another builder of this environment is at it."""
    os.environ[BUILDER] = sys.prefix
    with state.lock() as mine:
        if not mine:
            return
        stop()  # what a killed one has left
        be_modest()
        threading.Thread(target=heed_whoever_waits, daemon=True).start()
        os.environ.update(PATH=search_path(), CXX=os.environ.get("CXX", "g++"))
        provide_all(cache.take)  # seconds: before all that takes minutes
        if not bytecode.is_there():
            subprocess.run(
                [sys.executable, "-m", "pi2zero.built.bytecode"]
            )  # its own process, so that all of it can be ended
        provide_all(lambda part: True)


def provide_all(these) -> None:
    """The wanted parts of which these(part) holds, one after another."""
    for part in parts().values():
        if state.of(part).wanted() and these(part):
            Building(part).run()


def be_modest() -> None:
    """Only what nobody else wants of processor and disk."""
    os.nice(19)
    share_by_session(19)
    with contextlib.suppress(AttributeError, OSError, psutil.Error):  # macOS knows no such classes
        psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)


def share_by_session(nice: int) -> None:
    """Where Linux deals the processor out by sessions, nice counts inside of one, this among them. It can be taken back."""
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(nice))


def heed_whoever_waits() -> None:
    """Every second, in all that the builder does: be less modest while somebody waits."""
    while True:
        share_by_session(0 if state.is_waited_for() else 19)
        time.sleep(1)


class Building:
    """One part on its way: from the cache, or from its source."""

    def __init__(self, part: Part):
        self.part = part
        self.work = folder() / part.name
        self.log = folder() / f"{part.name}.log"
        self.note = state.Note(part)

    def run(self) -> None:
        """Have it in the environment, or note why not."""
        self.log.write_bytes(b"")
        self.note.write("building")
        over = threading.Event()
        telling = threading.Thread(target=self.tell, args=(over,), daemon=True)
        telling.start()
        try:
            self.provide()
            outcome = {"state": "ready"}
        except Failed as failure:
            outcome = {"state": "failed", "why": failure.args[0], "remedy": failure.args[1]}
        except OSError as error:
            outcome = {"state": "failed", "why": str(error), "remedy": "mend that"}
        over.set()
        telling.join()  # the last word is not its
        self.note.write(**outcome)

    def tell(self, over: threading.Event) -> None:
        """Note every second how far it is."""
        while not over.wait(1):
            with contextlib.suppress(OSError):
                self.note.write("building", share=self.part.share(self.work))

    def provide(self) -> None:
        """Install the part from the cache, or build, install and keep it there. Raises Failed if it cannot be used then."""
        part = self.part
        if (
            self.note.is_first and part.is_installed() and part.works(self.command)
        ):  # somebody has installed it by hand
            return
        files = cache.take(part)
        if files:
            with contextlib.suppress(Failed):
                part.install(files, self.command)
                if part.works(self.command):
                    return
            # Not the entry's fault, perhaps: its checksums are right. What is built now replaces it.
        self.fresh_work()
        files = part.build(self.work, self.command)
        part.install(files, self.command)
        if not part.works(self.command):
            shutil.rmtree(self.work)
            raise Failed("it was built, but cannot be loaded", f"read {self.log}")
        if files:
            cache.keep(part, files)
        shutil.rmtree(self.work)

    def fresh_work(self) -> None:
        """The folder to build in. What another try has left there is kept only if it was for the same."""
        key = self.work / "key"
        if not key.exists() or key.read_text() != self.part.key():
            shutil.rmtree(self.work, ignore_errors=True)
            self.work.mkdir(parents=True)
            key.write_text(self.part.key())

    def command(self, words: list[str], env: dict | None = None, check: bool = False) -> int:
        """Run a program; its words go to the log and to the part. Returns its exit status, or raises Failed if it has to work."""
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | (env or {}),
            cwd=self.work if self.work.exists() else None,
        )
        with self.log.open("ab") as log:
            for line in process.stdout:
                log.write(line)
                log.flush()
                self.part.hear(line)
        if process.wait() and check:
            raise Failed(*reason(self.log.read_text(errors="replace")))
        return process.returncode


def reason(log: str) -> tuple[str, str]:
    """(why, what to do) from the words of a build that failed."""
    for pattern, why, remedy in REASONS:
        if found := re.search(pattern, log):
            return found.expand(why), remedy
    log = re.sub(
        r"CMake Error at .*\(message\):\s*", "CMake Error: ", log
    )  # what is wrong is on the next line
    errors = (
        re.findall(r"^.*(?:\berror: |CMake Error|Error: ).*$", log, re.M)
        or log.strip().splitlines()[-1:]
        or ["no words"]
    )
    return f"the build says: {errors[0].strip()[:200]}", "read the log, mend what it says"


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the terminal may be closed
    main()
