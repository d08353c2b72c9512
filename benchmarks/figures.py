"""The few figures of each benchmark, kept in figures.json with the conditions of their run.
pages.py makes pages of them.
"""

import datetime
import json
import platform
import statistics
import subprocess
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import psutil

from pi2zero.hosts import limits

HERE = Path(__file__).resolve().parent
KEPT = HERE / "figures.json"
PACKAGES = ("numpy", "torch", "mpi4py", "ipyparallel", "deepspeed", "horovod")
CHANGED = (
    "diff",
    "--quiet",
    "HEAD",
    "--",
    ".",
    *(f":!benchmarks/*.{end}" for end in ("md", "json", "png")),
)  # not by results


@dataclass(frozen=True)
class Figure:
    """One measured number. low and high: of its repeats. wanted: None, or a bound: at most if less
    is better, else at least.

    beside: what the machine can do, or what it is measured against, in words; no figure stands
    alone. (What others published of the like stands in published.toml.)
    """

    what: str
    unit: str
    value: float
    low: float
    high: float
    repeats: int
    less_is_better: bool = True
    wanted: float | None = None
    beside: str = ""

    def reached(self):
        if self.wanted is None:
            return None
        return self.value <= self.wanted if self.less_is_better else self.value >= self.wanted

    def within(self, other, drift):
        """Whether this median lies in the other run's spread, made wider on each side by drift, a
        share.
        """
        return other.low / (1 + drift) <= self.value <= other.high * (1 + drift)

    def worse_than(self, old, drift):
        """Whether it lies outside of that, on the wrong side."""
        return not self.within(old, drift) and (self.value > old.value) == self.less_is_better


def of(what, unit, values, **more):
    """A figure from the values of its repeats: their median, least and most."""
    values = [float(value) for value in values]
    return Figure(
        what, unit, statistics.median(values), min(values), max(values), len(values), **more
    )


def keep(page, figures, load):
    """Puts the figures of a benchmark into figures.json. page: its page without .md; load: of the
    machine before its start.
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
        "seconds": round(
            time.time() - psutil.Process().create_time()
        ),  # of the benchmark, from its program's start
    }
    found = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    found[page] = {**conditions, "figures": [asdict(figure) for figure in figures]}
    KEPT.write_text(json.dumps(dict(sorted(found.items())), indent=1, ensure_ascii=False) + "\n")


def commit():
    """The kit's commit, and "-dirty" if its files differ from it; "" outside a clone."""
    git = ("git", "-C", str(HERE.parent))
    name = subprocess.run(
        [*git, "describe", "--always"], capture_output=True, text=True
    ).stdout.strip()
    return name and name + (
        "-dirty" if subprocess.run([*git, *CHANGED], capture_output=True).returncode else ""
    )


def processor():
    """Its name, as Linux has it; elsewhere what Python knows."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.processor(),
    )


def with_what(run):
    """The conditions of a run in words."""
    versions = ", ".join(f"{name} {number}" for name, number in run.get("versions", {}).items())
    machine = ", ".join(
        filter(None, [run.get("processor"), run.get("memory"), run["machine"], versions])
    )
    return f"{run['date']}, {run['cores']:.0f} cores, {machine}, load before {run['load']}"


def read(path):
    """{page: (conditions, [Figure])}."""
    found = {}
    for page, run in json.loads(path.read_text()).items():
        found[page] = run, [Figure(**figure) for figure in run.pop("figures")]
    return found


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
