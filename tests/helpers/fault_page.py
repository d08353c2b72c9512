"""`make faults`: a plugin of pytest that runs the tests of faults.toml alone, and writes docs/faults.md from what came of them.

Seconds are those of the test, the injection included. After each file's tests the processes that they have left are counted, by
the scope in their environment; at the end what is in the temporary folder, which is this run's own, and in /dev/shm.
"""

import ctypes
import os
import platform
import re
import shutil
import socket
import subprocess
import tempfile
import time
import tomllib
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "faults.md"
FAULTS = {
    test: (layer, name, sees, then)
    for layer, faults in tomllib.loads(Path(__file__).with_name("faults.toml").read_text()).items()
    for name, (test, sees, then) in faults.items()
}
HEADER = ("fault", "the learner sees", "s", "afterwards", "processes left")
SHARED = 0.05  # s: a test that is shorter reads what a start that many tests share has given
HEAD = """# Faults

Each is injected for real, in real kernels, ranks, file systems and checkpoints: `tests/helpers/faults.toml` names it. `make faults`
runs them and writes this page; `make test` runs them, too, but of those from every notebook three, and `make cluster-test` most
of those of "hosts and Slurm" (`tests/several_hosts/conftest.py` names what it leaves out). A test fails if the words are not seen (in
brackets: told in our words) or what holds afterwards does not. "s": the seconds of the test, with the injection, beside another
test on two cores; "-": one start served many faults. "processes left": after all tests of the row's file. Not counted as left:
torch's cache and torchrun's notes on a run that failed, and Open MPI's folder of a user. What Open MPI leaves in /dev/shm goes
at the kernel's end. A machine's own lacks (no compiler, no MPI, another Python, a broken torch or Horovod) are made by a program
or module of that name which fails as the real one does. What a build does that is interrupted or damaged is tried with a small
package in Horovod's place; "too little space" of the set-up is, beside disks that are really full, a need above what there is.
Rows of "hosts and Slurm" are written by `PI2ZERO_FAULTS=all python tools/hosts.py -- python -m pytest -p tests.helpers.fault_page
tests/several_hosts`; what is left there is looked for on all hosts by the tests.
The lines of counts are those of the last run as a whole; rows that came after it were run by themselves.
"""
NOT_YET = """
## Not injected

On macOS, nothing was tried.
"""
done: dict[str, tuple[str, str, str]] = {}  # by test: what came of it, seconds, processes left
of_file: dict[str, list[str]] = {}  # by file: the command lines of processes left
seen_after: dict[
    str, str
] = {}  # by path in the temporary folder: the test at whose end it was first there
before: set[Path] = set()
told: list[str] = []  # at the end
SHM = Path("/dev/shm")
# torch keeps its cache, and torchrun the errors of a run that failed; Open MPI keeps one folder for a user
NOT_OURS = ("pytest-of-", "torchinductor_", "torchelastic_", f"ompi.{socket.gethostname()}.")


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(
            prefix="f", dir="/tmp"
        )  # short: it holds sockets
        Path(tempfile.tempdir).chmod(0o1777)  # as /tmp: tests try what another user may
        own_shared_memory()
        before.update(SHM.glob("*"))


def own_shared_memory():
    """As root: a /dev/shm that only this run and what it starts have, so that what is left there is this run's."""
    if (
        not os.getuid()
        and hasattr(libc := ctypes.CDLL(None), "unshare")
        and libc.unshare(0x20000) == 0
    ):  # CLONE_NEWNS
        for words in (
            ["--make-rprivate", "/"],
            ["-t", "tmpfs", "-o", "mode=1777", "tmpfs", str(SHM)],
        ):
            subprocess.run(["mount", *words], check=True)


def pytest_collection_modifyitems(config, items):
    kept = [item for item in items if item.nodeid in FAULTS]
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in FAULTS])
    items[:] = kept


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item, nextitem):
    result = yield
    item.user_properties.append(("files", [str(path) for path in files_left()]))
    if nextitem is None or nextitem.path != item.path:
        item.user_properties.append(("left", left(item.config)))
    return result


def left(config):
    """The processes of this run's scope, but for its own and those that files share: ranks, JupyterLab's server (not what
    it has started), the browser. They get 20 s to end."""
    from pi2zero import ownership

    deadline = time.monotonic() + 20
    while True:
        own, found = (
            {os.getpid(), *(p.pid for p in psutil.Process().parents()), *shared_by_files(config)},
            [],
        )
        for process in psutil.process_iter():
            try:
                env, line = process.environ(), " ".join(process.cmdline())
            except psutil.Error:
                continue
            shared = ownership.owner_mark() in env.get(ownership.MARK, "") + line
            if (
                env.get(ownership.SCOPE) == os.environ[ownership.SCOPE]
                and process.pid not in own
                and not shared
            ):
                found.append(line)
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.2)


def files_left():
    return [
        path for path in Path(tempfile.gettempdir()).iterdir() if not path.name.startswith(NOT_OURS)
    ]


def shared_by_files(config):
    """The processes of tests/browser that live until the last of its files; its fixtures note the first of them."""
    yield getattr(config, "serves_all_files", 0)
    for pid in getattr(config, "drives_browser", ()):
        yield pid
        if psutil.pid_exists(pid):
            yield from (process.pid for process in psutil.Process(pid).children(recursive=True))
            handlers = (
                one
                for one in psutil.process_iter(["name"])
                if "crashpad" in (one.info["name"] or "")
            )
            yield from (one.pid for one in handlers)  # Chromium detaches them


def pytest_runtest_logreport(report):
    for name, value in report.user_properties if report.when == "teardown" else ():
        if name == "left":
            of_file[report.nodeid.partition("::")[0]] = value
        if name == "files":
            for path in value:
                seen_after.setdefault(path, report.nodeid)
    if report.nodeid in FAULTS and (report.when == "call" or not report.passed):
        seconds = f"{report.duration:.1f}" if report.duration > SHARED else "-"
        done[report.nodeid] = (
            "passed" if report.passed else "skipped" if report.skipped else "FAILED",
            seconds,
            "",
        )


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    """Count what is left, write the page, and fail if there is anything."""
    from pi2zero import ownership

    if hasattr(session.config, "workerinput"):
        return
    ownership.remove_unused_segments(age=0)  # as the end of a kernel does
    segments = [
        path
        for path in SHM.glob("*")
        if path not in before and path.exists() and not is_mapped(path)
    ]
    files = files_left()
    processes = [f"{file}: {line[:200]}" for file, lines in of_file.items() for line in lines]
    counts = {
        state: sum(what == state for what, *_ in done.values())
        for state in ("passed", "skipped", "FAILED")
    }
    end = f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, {platform.system()}, one run: {counts['passed']} faults clear, "
    end += f"{counts['skipped']} skipped, {counts['FAILED']} FAILED; "
    end += f"left in the temporary folder: {len(files)}, in /dev/shm: {len(segments)}. Load at its end: {os.getloadavg()[0]:.0f}."
    PAGE.write_text(page(PAGE.read_text() if PAGE.exists() else "", end))
    told.extend(
        [
            end,
            *processes,
            *(f"{path}, seen after {seen_after.get(str(path))}" for path in files),
            *map(str, segments),
        ]
    )
    shutil.rmtree(tempfile.gettempdir(), ignore_errors=True)
    if len(told) > 1:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter):
    if told:
        terminalreporter.section("faults, and what is left")
        terminalreporter.write("\n".join(told) + "\n")


def is_mapped(path):
    """Whether a process still uses that piece of memory."""
    for process in psutil.process_iter():
        try:
            if str(path) in Path(f"/proc/{process.pid}/maps").read_text():
                return True
        except OSError:
            continue
    return False


def page(former, end):
    """The page, with the rows of a former one for faults that this run has not injected."""
    rows = {line.split(" | ")[0]: line for line in former.splitlines() if line.startswith("| ")}
    # By layer: of a run of its own, unless this run has injected some of it among all others
    told = dict(re.findall(r"^## (.+)\n\n(\d{4}-.*)\n", former, re.MULTILINE))
    if len(done) >= len(FAULTS) / 2:
        told = {
            layer: line
            for layer, line in told.items()
            if layer not in {FAULTS[test][0] for test in done}
        }
    else:  # a few run again: the line of the whole run stays
        told |= whole_layers(end)
        end = next((line for line in former.splitlines() if " faults clear, " in line), end)
    text, layers = [HEAD, end, ""], dict.fromkeys(layer for layer, *_ in FAULTS.values())
    for layer in layers:
        text += [f"## {layer}", "", *([told[layer], ""] if layer in told else [])]
        text += [f"| {' | '.join(HEADER)} |", "|" + "---|" * len(HEADER)]
        text += [row(test, rows) for test, (where, *_) in FAULTS.items() if where == layer]
        text += [""]
    return "\n".join(text) + NOT_YET


def whole_layers(end):
    """The line of a run, for each layer that it has injected as a whole."""
    by_layer = {
        where: [test for test, (layer, *_) in FAULTS.items() if layer == where]
        for where, *_ in FAULTS.values()
    }
    return {layer: end for layer, tests in by_layer.items() if done.keys() >= set(tests)}


def row(test, former):
    _, name, sees, then = FAULTS[test]
    sees = sees if sees.startswith("(") else f"`{sees}`"
    if test not in done:
        return former.get(f"| {name}", f"| {name} | {sees} | not run yet | {then} | |")
    state, seconds, _ = done[test]
    file = test.partition("::")[0]
    gone = len(of_file[file]) if file in of_file else "?"
    return f"| {name} | {sees} | {seconds} | {then if state == 'passed' else state} | {gone} |"
