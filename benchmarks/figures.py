"""The few figures of each benchmark, stored in figures.json with the conditions of their run.
pages.py makes pages of them. And what all benchmarks share: ranks, conditions, tables, pages.
"""

import datetime
import json
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import psutil

from pi2zero.hosts import limits
from pi2zero.mpi import mpi_library

HERE = Path(__file__).resolve().parent
REPORTS = HERE.parent / "reports"
STORED = HERE / "figures.json"
PACKAGES = ("numpy", "torch", "mpi4py", "ipyparallel", "deepspeed", "horovod")
# Results do not count as changes of the kit.
RESULTS = [f":!benchmarks/*.{end}" for end in ("md", "json", "png")] + [":!reports"]


@dataclass(frozen=True)
class Figure:
    """One measured number, with the lowest and the highest of its repeats.

    wanted: None or a bound: an upper one if less is better, else a lower one. reference: in words,
    what the machine can do or what the figure is compared with. published.toml has what others
    measured.
    """

    what: str
    unit: str
    value: float
    low: float
    high: float
    repeats: int
    less_is_better: bool = True
    wanted: float | None = None
    reference: str = ""

    def reached(self):
        if self.wanted is None:
            return None
        return self.value <= self.wanted if self.less_is_better else self.value >= self.wanted

    def within(self, other, drift):
        """Whether this median lies in the other run's spread, widened on each side by `drift`."""
        return other.low / (1 + drift) <= self.value <= other.high * (1 + drift)

    def worse_than(self, old, drift):
        """Whether this median lies outside that spread, on the wrong side."""
        return not self.within(old, drift) and (self.value > old.value) == self.less_is_better


def of(what, unit, values, **more):
    """A figure from the values of its repeats: their median, minimum and maximum."""
    values = [float(value) for value in values]
    return Figure(
        what, unit, statistics.median(values), min(values), max(values), len(values), **more
    )


def keep(page, figures, load):
    """Store the figures of a benchmark in figures.json.

    page: the name of its page without .md; load: of the machine before the start.
    """
    conditions = {
        "date": str(datetime.date.today()),
        "cores": limits.cores(),
        "machine": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "processor": processor(),
        "memory": f"{limits.total_memory() / 2**30:.0f} GiB",
        "versions": {name: version(name) for name in PACKAGES if find_spec(name)},
        "kit": commit(),
        "load": round(load, 1),
        "seconds": round(time.time() - psutil.Process().create_time()),
    }
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    stored[page] = {**conditions, "figures": [asdict(figure) for figure in figures]}
    STORED.write_text(json.dumps(dict(sorted(stored.items())), indent=1, ensure_ascii=False) + "\n")


def commit():
    """The kit's commit, with "-dirty" if its files differ from it; "" outside a clone."""
    git = ("git", "-C", str(HERE.parent))
    name = subprocess.run([*git, "describe", "--always"], capture_output=True, text=True).stdout
    changes = subprocess.run(
        [*git, "diff", "--quiet", "HEAD", "--", ".", *RESULTS], capture_output=True
    ).returncode
    return name.strip() + ("-dirty" if name and changes else "")


def processor():
    """Its name, as Linux has it; elsewhere what Python knows."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.processor(),
    )


def conditions_of(run):
    """The conditions of a stored run in words."""
    versions = ", ".join(f"{name} {number}" for name, number in run.get("versions", {}).items())
    machine = ", ".join(
        filter(None, [run.get("processor"), run.get("memory"), run["machine"], versions])
    )
    return f"{run['date']}, {run['cores']:.0f} cores, {machine}, load before {run['load']}"


def read(path):
    """{page: (conditions, [Figure])}."""
    stored = json.loads(path.read_text())
    return {
        page: (run, [Figure(**figure) for figure in run.pop("figures")])
        for page, run in stored.items()
    }


def number(value):
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def bound(figure):
    """What is wanted, in words."""
    return (
        ""
        if figure.wanted is None
        else f"{'at most' if figure.less_is_better else 'at least'} {number(figure.wanted)}"
    )


def table(header, rows):
    """Rows of strings, as a table in Markdown."""
    lines = ["| " + " | ".join(header) + " |", "|" + "|".join(" --- " for _ in header) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def conditions(load):
    """The conditions of this run in words, for the benchmark's own page."""
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES if find_spec(name))
    return (
        f"{datetime.date.today()}, {limits.cores():.0f} cores ({processor()}), "
        f"{limits.total_memory() / 2**30:.0f} GiB, {platform.system()}, "
        f"Python {platform.python_version()}, {mpi_library()}, {versions}; no GPU used. "
        f"Load before: {load:.1f} (0 is idle)."
    )


def on_ranks(ranks, *command):
    """What a Python program prints on `ranks` MPI ranks. Exits with its errors if it fails."""
    command = ["mpirun", "-n", str(ranks), sys.executable, *map(str, command)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.stdout


def page_of(page):
    """The path of PAGE.md. The soak tests quality, so its page is among the reports."""
    return (REPORTS if page == "soak" else HERE) / f"{page}.md"


def write_page(page, *parts):
    """Write PAGE.md from Markdown parts, with PAGE_explained.md at its end."""
    text = "\n\n".join([*parts, (HERE / f"{page}_explained.md").read_text()])
    page_of(page).write_text(text)
    print(f"{text}\nwritten to {page_of(page).relative_to(HERE.parent)}")
