"""All of the doctor's checks, side by side where they may be, and their table."""

import contextlib
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


def run(limits: Limits | None = None, budget: float = BUDGET) -> list[Result]:
    """All checks, as a list of Result. Takes about 10 s, and at most `budget` s and a little."""
    limits = limits or Limits()
    probe = Probe(time.monotonic() + budget)
    left = timed(check_leftovers)  # first: what is started below is nobody's leftover
    with ThreadPoolExecutor() as pool:
        torch = pool.submit(timed, lambda: check_torch(probe))
        horovod = pool.submit(timed, lambda: check_horovod(probe))
        deepspeed = pool.submit(timed, lambda: check_deepspeed(probe))
        ranks = pool.submit(check_ranks, probe)
        first = timed(check_python)
        last = [*timed(lambda: check_cores(limits)), *timed(lambda: check_memory(limits)), *timed(lambda: check_disk(limits))]
    return [*first, *ranks.result(), *torch.result(), *horovod.result(), *deepspeed.result(), *last, *left]


def check_ranks(probe: Probe) -> list[Result]:
    """What needs MPI, one after another: each starts several processes. Without MPI, there is nothing to try."""
    results = timed(lambda: check_mpi(probe))
    if results[0].status == "failed":
        names = ("MPI world of 4", "spawn", "ipyparallel")
        return results + [Result(name, "failed", "not tried: it needs MPI", "See the MPI line.") for name in names]
    for check in (check_world, check_spawn, check_cluster):
        results += timed(lambda check=check: check(probe))
    return results


def timed(check: Callable[[], Result | list[Result]]) -> list[Result]:
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
    console = Console()
    if results is None:
        with console.status("The doctor looks at this machine (about 10 s)") if console.is_terminal else contextlib.nullcontext():
            results = run()
    table = Table("check", "", "what was found")
    style = {"ok": "green", "warning": "yellow", "failed": "bold red"}
    for result in results:
        remedy = f"\n[bold]What to do:[/] {escape(result.remedy)}" if result.remedy else ""
        table.add_row(result.name, f"[{style[result.status]}]{result.status}[/]", escape(result.detail) + remedy)
    console.print(table)
    counts = {word: sum(result.status == word for result in results) for word in style}
    print(", ".join(f"{count} {word}" for word, count in counts.items()) + f"; {time.monotonic() - start:.0f} s")
    return results
