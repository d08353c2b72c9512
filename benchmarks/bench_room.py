"""Ten attendees at once on this machine, by the hub, in notebook 02. Writes benchmarks/room.md.

Needs root; see docs/room.md. make hub CONFIG=install && .venv/bin/python benchmarks/bench_room.py
"""

import argparse
import os
import statistics
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import psutil
from figures import HERE, conditions, table

sys.path.insert(0, str(HERE.parent / "hub"))
import room
from person_group import PersonGroup

NOTEBOOK, HEAVY = "notebooks/02_mpi_pi.ipynb", "notebooks/06_ddp.ipynb"
LESSON = 50 * 60  # s that the plans give notebook 02
RANKS = """import os, pi2zero
cluster = pi2zero.start(n=4)
cluster.run("import os; from mpi4py import MPI; secret = {name!r}")
cluster.run("who = MPI.COMM_WORLD.allgather(os.getuid())")"""
UNDISTURBED = (
    "assert cluster.view['secret'] == [{name!r}] * 4 and cluster.view['who'] == "
    "[[os.getuid()] * 4] * 4"
)


@dataclass
class Record:
    """What is measured of a person: seconds since the room was opened, or of a part."""

    opened: float = 0.0
    notebook: float = 0.0
    finished: float = 0.0
    cells: int = 0
    errors: list = field(default_factory=list)
    cpu: float = 0.0
    start: float = 0.0  # CPU time from log in until JupyterLab is open
    peak: dict = field(default_factory=lambda: {"bytes": 0, "tasks": 0})
    attempts: dict = field(default_factory=dict)
    breaches: list = field(default_factory=list)


def sample_usage(records: dict[str, Record], over: threading.Event) -> None:
    """Twice a second, record the peak of each person's group."""
    while not over.wait(0.5):
        for name, record in records.items():
            try:
                used = PersonGroup(name).usage()
            except OSError:  # not there yet
                continue
            record.peak = {what: max(record.peak[what], used[what]) for what in record.peak}


def attend(person, record: Record, notebook: str, everybody, barrier: threading.Barrier) -> None:
    """What one person does. With others, each tries to reach the others' ranks while all run."""
    begin = time.monotonic()
    person.log_in()
    person.open_lab(600)
    record.opened = time.monotonic() - begin
    record.start = PersonGroup(person.name).usage()["seconds"]
    person.take_token()
    start = time.monotonic()
    record.cells, record.errors = person.run_notebook(notebook)
    record.notebook, record.finished = time.monotonic() - start, time.monotonic() - begin
    record.cpu = PersonGroup(person.name).usage()["seconds"]
    barrier.wait(timeout=1800)
    if len(everybody) > 1:
        run(person, RANKS)
        run(person, UNDISTURBED)
        barrier.wait(timeout=600)
        record.attempts, record.breaches = room.try_others(person, everybody)
        barrier.wait(timeout=600)
        run(person, UNDISTURBED + "\ncluster.stop()")


def run(person, code):
    _, error = person.run(code.format(name=person.name))
    assert not error, error


def measure(count: int, notebook: str):
    """({name: Record}, the strangers' answers, seconds until all have stopped, bytes of the hub and
    its proxy, what is left)
    """
    with room.make_users(count) as passwords, room.run_hub() as (address, proxy, process, _):
        people = room.attendees(address, passwords)
        records = {person.name: Record() for person in people}
        barrier, over = threading.Barrier(count), threading.Event()
        sampler = threading.Thread(target=sample_usage, args=(records, over))
        sampler.start()
        try:
            with ThreadPoolExecutor(count) as pool:
                futures = [
                    pool.submit(attend, person, records[person.name], notebook, people, barrier)
                    for person in people
                ]
                for future in futures:
                    future.add_done_callback(lambda done: done.exception() and barrier.abort())
            for future in futures:
                future.result()
        finally:
            over.set()
            sampler.join()
        answers = room.try_as_stranger(people[0], people[1], proxy) if count > 1 else {}
        memory = sum(each.memory_full_info().uss for each in hub_processes(process.pid))
        start = time.monotonic()
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(lambda person: person.stop(), people))
        stopped = time.monotonic() - start
        return records, answers, stopped, memory, room.leftovers(passwords)


def hub_processes(pid: int):
    """The hub itself and its proxy, without the people's servers."""
    hub = psutil.Process(pid)
    return [hub, *(child for child in hub.children() if child.uids().real == os.getuid())]


# --- the page

TEXT = """# A room of people

`make bench-room`. {conditions} {count} simulated attendees, ordinary users of this machine, log in
at the hub (`hub/one_node.py`) at the same moment, open JupyterLab and run all {cells} code cells of
notebook 02, each in a kernel with four ranks.

{figures}

**{finished} of {count} finished**, each with all {cells} cells doing what they should.{errors}

**No one reached anyone else.** While all had four ranks, each person's kernel tried, with that
person's id and token, what it could find of the other {others}: {processes} times a process (its
environment, a signal), {files} times a home or a file in `/tmp`, `/var/tmp`, `/dev/shm` (list,
read, rename), {ports} times a port on which another's process listens (files through it). It
reached: {breaches}. All ranks of each world had their user's id, and the value that this user had
put there.

**Strangers** got these answers (403: forbidden; 404: no answer whether there is such a thing):

{answers}

When all had pressed "Stop my server", it took {stopped:.0f} s. Of their processes, control groups
and temporary files were left: {left}. The hub and its proxy take {hub:.0f} MB.

Notebook 06 (DDP: torch on four ranks), one person alone: {heavy:.2f} GB at its peak,
{heavy_tasks} processes and threads, {heavy_s:.0f} s.

{explained}"""


def extrapolated(count: int, heavy: int, alone: Record) -> str:
    """Rows on what this number of people, 30 and 300 need."""
    rows = []
    for people in (count, 30, 300):
        average, start = people * alone.cpu / LESSON, people * alone.start
        rows.append(
            f"| {people} | {people * heavy / 1e9:.0f} GB | {average:.1f} | {2 * people} | "
            f"{start:.0f} s |"
        )
    return "\n".join(rows)


FIGURES = {
    "log in until JupyterLab is open, s": lambda record: record.opened,
    "notebook 02, all cells, s": lambda record: record.notebook,
    "log in until all is done, s": lambda record: record.finished,
    "CPU time of all that, s": lambda record: record.cpu,
    "of it until JupyterLab is open, s": lambda record: record.start,
    "memory at its peak, MB": lambda record: record.peak["bytes"] / 1e6,
    "processes and threads at their peak": lambda record: record.peak["tasks"],
}


def figure_table(alone: Record, records: list[Record]) -> str:
    rows = []
    for what, value in FIGURES.items():
        values = [value(record) for record in records]
        numbers = (value(alone), statistics.median(values), min(values), max(values))
        rows.append([what, *(f"{number:.0f}" for number in numbers)])
    median = f"{len(records)} at once: median"
    return table(["per person", "one alone", median, "lowest", "highest"], rows)


def write(load: float, alone: Record, heavy: Record, measured) -> bool:
    """Write the page. Returns whether all is as it should be."""
    records, answers, stopped, memory, left = measured
    records = list(records.values())
    breaches = sorted(each for record in records for each in record.breaches)
    errors = [record.errors[0] for record in records if record.errors]
    explained = (HERE / "room_explained.md").read_text()
    text = TEXT.format(
        conditions=conditions(load),
        count=len(records),
        others=len(records) - 1,
        cells=records[0].cells,
        figures=figure_table(alone, records),
        finished=len(records) - len(errors),
        errors="".join(f" The first cell that did not:\n\n```\n{cell}\n```" for cell in errors),
        **{
            what: sum(record.attempts.get(what, 0) for record in records)
            for what in ("processes", "files", "ports")
        },
        breaches=", ".join(breaches) or "nothing",
        answers=table(["what", "answer"], [[what, str(code)] for what, code in answers.items()]),
        stopped=stopped,
        left=", ".join(left) or "none",
        hub=memory / 1e6,
        heavy=heavy.peak["bytes"] / 1e9,
        heavy_tasks=heavy.peak["tasks"],
        heavy_s=heavy.notebook,
        explained=explained.format(paper=extrapolated(len(records), heavy.peak["bytes"], alone)),
    )
    (HERE / "room.md").write_text(text)
    print(text)
    return not (breaches or left or errors) and all(answer >= 400 for answer in answers.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=10)
    count = parser.parse_args().people
    load = os.getloadavg()[0]
    (alone,) = measure(1, NOTEBOOK)[0].values()
    (heavy,) = measure(1, HEAVY)[0].values()
    if not write(load, alone, heavy, measure(count, NOTEBOOK)):
        sys.exit("A cell failed, one person reached another, or something was left: see above.")


if __name__ == "__main__":
    main()
