"""Ten attendees at once on this machine, by the hub, in notebook 02. Writes benchmarks/room.md.

Root; see docs/room.md.

make hub CONFIG=install && .venv/bin/python benchmarks/bench_room.py
"""

import argparse
import datetime
import os
import statistics
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import psutil

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "hub"))
import room  # noqa: E402
from person_group import PersonGroup  # noqa: E402

PAGE, EXPLAINED = HERE / "room.md", HERE / "room_explained.md"
NOTEBOOK, HEAVY = "notebooks/02_mpi_pi.ipynb", "notebooks/06_ddp.ipynb"
LESSON = 50 * 60  # s that the plans give notebook 02
RANKS = """import pi2zero
cluster = pi2zero.start(n=4)
cluster.run("import os; from mpi4py import MPI; secret = {name!r}")
cluster.run("who = MPI.COMM_WORLD.allgather(os.getuid())")"""
ALL_MINE = (
    "assert cluster.view['secret'] == [{name!r}] * 4 and cluster.view['who'] == "
    "[[os.getuid()] * 4] * 4"
)


@dataclass
class Told:
    """What is measured of a person.

    Seconds since the room was opened, or of a part; bytes and tasks at their peak.
    """

    opened: float = 0.0
    notebook: float = 0.0
    finished: float = 0.0
    cells: int = 0
    wrong: list = field(default_factory=list)
    processor: float = 0.0
    start: float = 0.0  # of processor time: log in until JupyterLab is open
    peak: dict = field(default_factory=lambda: {"bytes": 0, "tasks": 0})
    tried: dict = field(default_factory=dict)
    got: list = field(default_factory=list)


def watch(told: dict[str, Told], over: threading.Event) -> None:
    """Twice a second, look what each person's group uses."""
    while not over.wait(0.5):
        for name, one in told.items():
            try:
                used = PersonGroup(name).usage()
            except OSError:  # not there yet
                continue
            one.peak = {what: max(one.peak[what], used[what]) for what in one.peak}


def attend(person, told: Told, notebook: str, everybody, together: threading.Barrier) -> None:
    """What one person does; with others, ranks are looked at while all have some."""
    begin = time.monotonic()
    person.log_in()
    person.open_lab(600)
    told.opened = time.monotonic() - begin
    told.start = PersonGroup(person.name).usage()["seconds"]
    person.take_token()
    start = time.monotonic()
    told.cells, told.wrong = person.run_notebook(notebook)
    told.notebook, told.finished = time.monotonic() - start, time.monotonic() - begin
    told.processor = PersonGroup(person.name).usage()["seconds"]
    together.wait(timeout=1800)
    if len(everybody) > 1:
        for code in (RANKS, "import os", ALL_MINE):
            _, error = person.run(code.format(name=person.name))
            assert not error, error
        together.wait(timeout=600)
        told.tried, told.got = room.try_others(person, everybody)
        together.wait(timeout=600)
        _, error = person.run(
            "import os\n" + ALL_MINE.format(name=person.name) + "\ncluster.stop()"
        )
        assert not error, error


def measure(count: int, notebook: str):
    """({name: Told}, the strangers' answers, seconds until all have stopped, bytes of the hub and
    its proxy, what is left)
    """
    with room.make_users(count) as passwords, room.run_hub() as (address, proxy, process, _):
        people = room.attendees(address, passwords)
        told = {one.name: Told() for one in people}
        together, over = threading.Barrier(count), threading.Event()
        watcher = threading.Thread(target=watch, args=(told, over))
        watcher.start()
        try:
            with ThreadPoolExecutor(count) as pool:
                done = [
                    pool.submit(attend, one, told[one.name], notebook, people, together)
                    for one in people
                ]
                for one in done:
                    one.add_done_callback(lambda future: future.exception() and together.abort())
            for one in done:
                one.result()
        finally:
            over.set()
            watcher.join()
        answers = room.try_as_stranger(people[0], people[1], proxy) if count > 1 else {}
        family = [process_of_hub for process_of_hub in hub_processes(process.pid)]
        memory = sum(one.memory_full_info().uss for one in family)
        start = time.monotonic()
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(lambda one: one.stop(), people))
        stopped = time.monotonic() - start
        return told, answers, stopped, memory, room.leftovers(passwords)


def hub_processes(pid: int):
    """The hub itself and its proxy: not the people's servers."""
    hub = psutil.Process(pid)
    return [hub, *(child for child in hub.children() if child.uids().real == os.getuid())]


# --- the page

TEXT = """# A room of people

`make bench-room`, {when}; {cores} cores, {memory:.0f} GB, {system}; load before it: {load:.1f}.
{count} simulated attendees, ordinary users of this machine, log in at the hub (`hub/one_node.py`)
at the same moment, open JupyterLab and run all {cells} code cells of notebook 02, each in a kernel
with four ranks.

| a person | one alone | {count} at once: median | least | most |
|---|---|---|---|---|
{rows}

**{finished} of {count} finished**, each with all {cells} cells doing what they should.{wrong}

**Nobody met anybody.** While all had four ranks, each person's kernel tried, with that person's
id and token, what it could find of the other {others}: {processes} times a process (its
environment, a signal), {files} times a home or a file in `/tmp`, `/var/tmp`, `/dev/shm` (list,
read, rename), {ports} times a port on which another's process listens (files through it). It got:
{got}. All ranks of each world had their user's id, and the value that this user had put there.

**Strangers** got these answers (403: forbidden; 404: whether there is such a thing is not told):

| what | answer |
|---|---|
{answers}

When all had pressed "Stop my server", it took {stopped:.0f} s. Of their processes, control groups
and temporary files were left: {left}. The hub and its proxy take {hub:.0f} MB.

Notebook 06 (DDP: torch on four ranks), one person alone: {heavy:.2f} GB at its peak,
{heavy_tasks} processes and threads, {heavy_s:.0f} s.

{explained}"""


def paper(count: int, heavy: int, alone: Told) -> str:
    """What as many people, 30 and 300 need."""
    rows = []
    for people in (count, 30, 300):
        average, start = people * alone.processor / LESSON, people * alone.start
        rows.append(
            f"| {people} | {people * heavy / 1e9:.0f} GB | {average:.1f} | {2 * people} | "
            f"{start:.0f} s |"
        )
    return "\n".join(rows)


FIGURES = {
    "log in until JupyterLab is open, s": lambda one: one.opened,
    "notebook 02, all cells, s": lambda one: one.notebook,
    "log in until all is done, s": lambda one: one.finished,
    "processor time of all that, s": lambda one: one.processor,
    "of it until JupyterLab is open, s": lambda one: one.start,
    "memory at its peak, MB": lambda one: one.peak["bytes"] / 1e6,
    "processes and threads at their peak": lambda one: one.peak["tasks"],
}


def row(what: str, value, alone: Told, told: list[Told]) -> str:
    values = [value(one) for one in told]
    return (
        f"| {what} | {value(alone):.0f} | {statistics.median(values):.0f} | "
        f"{min(values):.0f} | {max(values):.0f} |"
    )


def write(load: float, alone: Told, heavy: Told, measured) -> bool:
    """The page; whether all is as it should be."""
    told, answers, stopped, memory, rest = measured
    told = list(told.values())
    got = sorted(each for one in told for each in one.got)
    wrong = [cell for one in told for cell in one.wrong]
    text = TEXT.format(
        when=datetime.date.today(),
        cores=os.cpu_count(),
        memory=psutil.virtual_memory().total / 1e9,
        system=os.uname().sysname,
        load=load,
        count=len(told),
        others=len(told) - 1,
        cells=told[0].cells,
        rows="\n".join(row(what, value, alone, told) for what, value in FIGURES.items()),
        finished=sum(not one.wrong for one in told),
        wrong="".join(
            f" The first cell that did not:\n\n```\n{one.wrong[0]}\n```"
            for one in told
            if one.wrong
        ),
        **{
            what: sum(one.tried.get(what, 0) for one in told)
            for what in ("processes", "files", "ports")
        },
        got=", ".join(got) or "nothing",
        answers="\n".join(f"| {what} | {answer} |" for what, answer in answers.items()),
        stopped=stopped,
        left=", ".join(rest) or "none",
        hub=memory / 1e6,
        heavy=heavy.peak["bytes"] / 1e9,
        heavy_tasks=heavy.peak["tasks"],
        heavy_s=heavy.notebook,
        explained=EXPLAINED.read_text().format(paper=paper(len(told), heavy.peak["bytes"], alone)),
    )
    PAGE.write_text(text)
    print(text)
    return not (got or rest or wrong) and all(answer >= 400 for answer in answers.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=10)
    count = parser.parse_args().people
    load = os.getloadavg()[0]
    (alone,) = measure(1, NOTEBOOK)[0].values()
    (heavy,) = measure(1, HEAVY)[0].values()
    if not write(load, alone, heavy, measure(count, NOTEBOOK)):
        sys.exit("A cell failed, somebody got something, or something was left: see above.")


if __name__ == "__main__":
    main()
