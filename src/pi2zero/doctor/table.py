"""All of the doctor's checks, at once where they may be, and their table."""

import contextlib
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from pi2zero.doctor.checks import (
    BUDGET,
    Limits,
    Result,
    check_cluster,
    check_cores,
    check_deepspeed,
    check_disk,
    check_environment,
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
    """All checks. Takes about 10 s; on a busy machine the `budget` of seconds grows."""
    probe = Probe(time.monotonic() + budget * patience())
    left = timed(check_leftovers)  # first: what is started below is no leftover
    with ThreadPoolExecutor() as pool:
        slow = [pool.submit(check_ranks, probe)]
        for check in (check_torch, check_horovod, check_deepspeed):
            slow.append(pool.submit(timed, partial(check, probe)))
        python, machine = timed(check_python), check_machine(limits or Limits())
        machine += timed(check_environment)
    return [*python, *(result for each in slow for result in each.result()), *machine, *left]


def quick(limits: Limits | None = None) -> list[Result]:
    """The checks in front of JupyterLab: no ranks, no torch. Prints only what is not ok."""
    probe = Probe(time.monotonic() + BUDGET)
    with ThreadPoolExecutor() as pool:
        mpi = pool.submit(timed, partial(check_mpi, probe))
        results = [*timed(check_python), *check_machine(limits or Limits())]
        results += timed(check_environment) + timed(check_leftovers)
    results += mpi.result()
    if status(results) != "ok":
        show([result for result in results if result.status != "ok"])
    return results


def run_in_background() -> list[Result]:
    """All checks next to JupyterLab, with more time; prints one line on how it went."""
    results = run(budget=4 * BUDGET)
    found = "".join(
        f"\n  {r.name} {r.status}: {r.detail}. {r.remedy}" for r in results if r.status != "ok"
    )
    with contextlib.suppress(OSError):  # the terminal may be closed
        print(
            f"The doctor has looked at this machine: {counts(results)} (make doctor shows all)."
            f"{found}",
            flush=True,
        )
    return results


def patience() -> float:
    """How many times longer everything takes on a machine that has other work, too."""
    return max(1.0, os.getloadavg()[0] / cores())


def check_machine(limits: Limits) -> list[Result]:
    """Cores, memory and disk."""
    checks = (check_cores, check_memory, check_disk)
    return [result for check in checks for result in timed(partial(check, limits))]


def check_ranks(probe: Probe) -> list[Result]:
    """What needs MPI, one after another, because each starts several processes."""
    results = timed(partial(check_mpi, probe))
    if results[0].status == "failed":
        why, remedy = "not tried: it needs MPI", "See the MPI line."
        names = ("MPI world of 4", "spawn", "ipyparallel")
        return results + [Result(name, "failed", why, remedy) for name in names]
    for check in (check_world, check_spawn, check_cluster):
        results += timed(partial(check, probe))
    return results


def timed(check: Callable[[], Result | list[Result]]) -> list[Result]:
    """The results of a check, each with the seconds that the whole check took."""
    start = time.monotonic()
    found = check()
    results = found if isinstance(found, list) else [found]
    return [replace(result, seconds=time.monotonic() - start) for result in results]


def status(results: list[Result]) -> str:
    """The worst of them."""
    return max((result.status for result in results), key=list(STYLE).index)


def counts(results: list[Result]) -> str:
    """'11 ok, 1 warning, 0 failed'."""
    return ", ".join(f"{sum(r.status == word for r in results)} {word}" for word in STYLE)


def show(results: list[Result] | None = None) -> list[Result]:
    """Print the table, after running the checks if there are no results yet; returns them."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    start = time.monotonic()
    if results is None:
        # No line that replaces itself: notebooks garble it.
        print("The doctor looks at this machine (about 10 s).", flush=True)
        results = run()
    table = Table("check", "", "what was found")
    for result in results:
        remedy = f"\n[bold]What to do:[/] {escape(result.remedy)}" if result.remedy else ""
        colored = f"[{STYLE[result.status]}]{result.status}[/]"
        table.add_row(result.name, colored, escape(result.detail) + remedy)
    Console().print(table)
    print(f"{counts(results)}; {time.monotonic() - start:.0f} s")
    return results
