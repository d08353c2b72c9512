"""All of the doctor's checks, side by side where they may be, and their table."""

import contextlib
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from pi2zero.doctor.checks import (
    BUDGET,
    Limits,
    Result,
    check_cluster,
    check_cores,
    check_deepspeed,
    check_disk,
    check_horovod,
    check_leftovers,
    check_memory,
    check_mpi,
    check_python,
    check_spawn,
    check_torch,
    check_world,
)
from pi2zero.doctor.probes import Probe
from pi2zero.hosts.limits import cores

STYLE = {"ok": "green", "warning": "yellow", "failed": "bold red"}


def run(limits: Limits | None = None, budget: float = BUDGET) -> list[Result]:
    """All checks, as a list of Result. Takes about 10 s; on a busy machine `budget` s grow with its load."""
    limits = limits or Limits()
    probe = Probe(time.monotonic() + budget * patience())
    left = timed(check_leftovers)  # first: what is started below is nobody's leftover
    with ThreadPoolExecutor() as pool:
        torch = pool.submit(timed, lambda: check_torch(probe))
        built = [
            pool.submit(timed, lambda check=check: check(probe))
            for check in (check_horovod, check_deepspeed)
        ]
        ranks = pool.submit(check_ranks, probe)
        first, last = timed(check_python), check_machine(limits)
    return [
        *first,
        *ranks.result(),
        *torch.result(),
        *(result for each in built for result in each.result()),
        *last,
        *left,
    ]


def quick(limits: Limits | None = None) -> list[Result]:
    """What stands in front of JupyterLab: the checks that start no ranks and load no torch. Prints only what is not ok."""
    probe = Probe(time.monotonic() + BUDGET)
    with ThreadPoolExecutor() as pool:
        mpi = pool.submit(timed, lambda: check_mpi(probe))
        results = [
            *timed(check_python),
            *check_machine(limits or Limits()),
            *timed(check_leftovers),
        ]
    results += mpi.result()
    if status(results) != "ok":
        show([result for result in results if result.status != "ok"])
    return results


def beside() -> list[Result]:
    """All checks beside JupyterLab, with more time than somebody would wait; says in a line of the terminal how it went."""
    results = run(budget=4 * BUDGET)
    counts = ", ".join(f"{sum(r.status == word for r in results)} {word}" for word in STYLE)
    found = "".join(
        f"\n  {r.name} {r.status}: {r.detail}. {r.remedy}" for r in results if r.status != "ok"
    )
    with contextlib.suppress(OSError):  # the terminal may be closed
        print(
            f"The doctor has looked at this machine: {counts} (make doctor shows all).{found}",
            flush=True,
        )
    return results


def patience() -> float:
    """How many times longer everything takes on a machine that has other work, too."""
    return max(1.0, os.getloadavg()[0] / cores())


def check_machine(limits: Limits) -> list[Result]:
    """Cores, memory and disk."""
    checks = (check_cores, check_memory, check_disk)
    return [result for check in checks for result in timed(lambda check=check: check(limits))]


def check_ranks(probe: Probe) -> list[Result]:
    """What needs MPI, one after another: each starts several processes. Without MPI, there is nothing to try."""
    results = timed(lambda: check_mpi(probe))
    if results[0].status == "failed":
        names = ("MPI world of 4", "spawn", "ipyparallel")
        return results + [
            Result(name, "failed", "not tried: it needs MPI", "See the MPI line.") for name in names
        ]
    for check in (check_world, check_spawn, check_cluster):
        results += timed(lambda check=check: check(probe))
    return results


def timed(check: Callable[[], Result | list[Result]]) -> list[Result]:
    """The results of a check, one or several; each with the seconds that the whole check took."""
    start = time.monotonic()
    found = check()
    results = found if isinstance(found, list) else [found]
    return [replace(result, seconds=time.monotonic() - start) for result in results]


def status(results: list[Result]) -> str:
    """The worst of them."""
    return max((result.status for result in results), key=["ok", "warning", "failed"].index)


def show(results: list[Result] | None = None) -> list[Result]:
    """Print the table, after running the checks if there are no results yet, and return the results."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    start = time.monotonic()
    if results is None:
        print(
            "The doctor looks at this machine (about 10 s).", flush=True
        )  # no line that replaces itself: pages garble it
        results = run()
    table = Table("check", "", "what was found")
    for result in results:
        remedy = f"\n[bold]What to do:[/] {escape(result.remedy)}" if result.remedy else ""
        table.add_row(
            result.name,
            f"[{STYLE[result.status]}]{result.status}[/]",
            escape(result.detail) + remedy,
        )
    Console().print(table)
    print(
        ", ".join(f"{sum(r.status == word for r in results)} {word}" for word in STYLE)
        + f"; {time.monotonic() - start:.0f} s"
    )
    return results
