"""The figures that matter, of all benchmarks, on one page: `python benchmarks/figures.py` writes benchmarks/README.md.

Each benchmark keeps its few figures in figures.json, with the conditions of that run. `make bench` puts the former ones aside
(`--aside`) and in the end names what got worse (`--compare`): the new median lies beyond the old spread, on the wrong side.
A whole run on another machine, kept as machines/NAME.json, stands beside these figures on machines.md.
"""

import argparse
import datetime
import json
import platform
import statistics
import subprocess
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path

import matplotlib.pyplot as plt
import psutil

from pi2zero import plots
from pi2zero.hosts import limits

HERE = Path(__file__).resolve().parent
KEPT = HERE / "figures.json"
PACKAGES = ("numpy", "torch", "mpi4py", "ipyparallel", "deepspeed", "horovod")
CHANGED = ("diff", "--quiet", "HEAD", "--", ".", *(f":!benchmarks/*.{end}" for end in ("md", "json", "png")))  # not by results
MACHINES = HERE / "machines"
ASIDE = HERE.parent / "build" / "figures_before.json"


@dataclass(frozen=True)
class Figure:
    """One measured number. low and high: of its repeats. wanted: None, or a bound: at most if less is better, else at least.

    beside: a published figure or a physical limit, with its source, in words; no figure stands alone.
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

    def worse_than(self, old):
        """Whether this median lies outside the older run's spread, on the wrong side."""
        return self.value > old.high if self.less_is_better else self.value < old.low


def of(what, unit, values, **more):
    """A figure from the values of its repeats: their median, least and most."""
    values = [float(value) for value in values]
    return Figure(what, unit, statistics.median(values), min(values), max(values), len(values), **more)


def keep(page, figures, load):
    """Puts the figures of a benchmark into figures.json. page: its page without .md; load: of the machine before its start."""
    conditions = {
        "date": str(datetime.date.today()),
        "cores": limits.cores(),
        "machine": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "processor": processor(),
        "memory": f"{limits.total_memory() / 2**30:.0f} GiB",
        "versions": {name: version(name) for name in PACKAGES if find_spec(name)},
        "kit": commit(),
        "load": round(load, 1),
        "seconds": round(time.time() - psutil.Process().create_time()),  # of the benchmark, from its program's start
    }
    found = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    found[page] = {**conditions, "figures": [asdict(figure) for figure in figures]}
    KEPT.write_text(json.dumps(dict(sorted(found.items())), indent=1, ensure_ascii=False) + "\n")


def commit():
    """The kit's commit, and "-dirty" if its files differ from it; "" outside a clone."""
    git = ("git", "-C", str(HERE.parent))
    name = subprocess.run([*git, "describe", "--always"], capture_output=True, text=True).stdout.strip()
    return name and name + ("-dirty" if subprocess.run([*git, *CHANGED], capture_output=True).returncode else "")


def processor():
    """Its name, as Linux has it; elsewhere what Python knows."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor())


def with_what(run):
    """The conditions of a run in words."""
    versions = ", ".join(f"{name} {number}" for name, number in run.get("versions", {}).items())
    machine = ", ".join(filter(None, [run.get("processor"), run.get("memory"), run["machine"], versions]))
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
    return "" if figure.wanted is None else f"{'at most' if figure.less_is_better else 'at least'} {number(figure.wanted)}"


def table(header, rows):
    """Rows of strings, as a table in Markdown."""
    lines = ["| " + " | ".join(header) + " |", "|" + "|".join(" --- " for _ in header) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def row(figure):
    verdict = {None: "", True: ", reached", False: ", **missed**"}[figure.reached()]
    spread = f"{number(figure.low)} to {number(figure.high)}, {figure.repeats} times" if figure.repeats > 1 else "once"
    return f"| {figure.what} | {number(figure.value)} {figure.unit} | {spread} | {bound(figure)}{verdict} | {figure.beside} |"


def minutes(found):
    """What `make bench` takes in all, if all of its programs have noted it."""
    seconds = [run.get("seconds", 0) for page, (run, _) in found.items() if page != "soak"]
    return f" The {len(seconds)} programs of `make bench` took {sum(seconds) / 60:.0f} minutes." if all(seconds) else ""


def text(found):
    parts = [
        "# What the kit measured, on one page",
        "`make bench` writes it, and figures.json beside it with the same numbers (those of the soak are `make soak`'s; "
        "[hosts.md](hosts.md), [room.md](room.md), [stories.md](stories.md) and [mpi.md](mpi.md) have programs of their own)."
        f"{minutes(found)} "
        "Each figure is a median, with the least and "
        "the most of its repeats. A ratio is of runs that took turns, because the speed of a machine drifts. *Wanted* is what "
        "this kit asks of itself; *beside it*: what others published, or what the machine can do. The load before is "
        "the mean of the minute before the start, so it has what the benchmark before it left. Other machines: "
        "[machines.md](machines.md).",
        "![Each figure as a share of what is wanted](figures.png)",
    ]
    for page, (run, figures) in found.items():
        title = (HERE / f"{page}.md").read_text().split("\n", 1)[0].lstrip("# ")
        parts += [
            f"## {title}",
            f"{with_what(run)}. All of it, and why a figure is what it is: [{page}.md]({page}.md).",
            "\n".join(["| | measured | least to most | wanted | beside it |", "|---|---|---|---|---|", *map(row, figures)]),
        ]
    return "\n\n".join(parts) + "\n"


def draw(found):
    """Each figure that has a bound, as a multiple of the bound: to the right of the line is better than wanted.

    A growth of nothing is no multiple of anything: it stands in the table only.
    """
    figures = [figure for _, several in found.values() for figure in several if figure.wanted and figure.low > 0]
    fig, ax = plt.subplots(figsize=(9, 0.42 * len(figures) + 1.2))
    for at, figure in enumerate(figures):
        shares = [
            figure.wanted / x if figure.less_is_better else x / figure.wanted for x in (figure.low, figure.value, figure.high)
        ]
        ax.plot([shares[0], shares[2]], [at, at], "-", color="0.6", lw=3)
        ax.plot(shares[1], at, "o" if figure.reached() else "X", ms=9, color=plots.rank_color(0 if figure.reached() else 1))
    ax.axvline(1, color="0.2", lw=1)
    ax.set_xscale("log")
    ax.set_xticks([0.5, 1, 2, 5, 10], ["0.5", "1", "2", "5", "10"])
    ax.minorticks_off()
    ax.set_yticks(range(len(figures)), [figure.what.replace("`", "") for figure in figures])
    ax.invert_yaxis()
    ax.set_xlabel("times as good as wanted (a cross: missed)")
    ax.set_title("Right of the line: what the kit asks of itself is reached", loc="left")
    fig.savefig(HERE / "figures.png", dpi=110, bbox_inches="tight")
    plt.close(fig)


def compare(before, now):
    """Sentences on what got worse."""
    old = {(page, figure.what): figure for page, (_, several) in before.items() for figure in several}
    return [
        f"{page}: {figure.what}: {number(figure.value)} {figure.unit}; before: {number(was.value)} ({number(was.low)} to "
        f"{number(was.high)})."
        for page, (_, several) in now.items()
        for figure in several
        if (was := old.get((page, figure.what))) and figure.worse_than(was)
    ]


def processors(found):
    """On which figures were measured, in words."""
    return " and ".join(sorted({run.get("processor", "") for run, _ in found.values()}))


def other_processors(before, now):
    """A sentence if the two were measured on different processors: then worse is no loss."""
    old, new = processors(before), processors(now)
    return [f"Not the same processor: {new}; before: {old}. Compare on one machine."] if old != new else []


def agreement(one, other):
    """A sentence on two runs on the same processor: whose spreads overlap, and what the others differ by."""
    beside = {(page, figure.what): figure for page, (_, several) in other.items() for figure in several}
    pairs = [(x, beside[page, x.what]) for page, (_, several) in one.items() for x in several if (page, x.what) in beside]
    apart = [(abs(y.value / x.value - 1), x.what) for x, y in pairs if x.low > y.high or y.low > x.high]
    rest = ", ".join(f"{what} by {share:.0%}" for share, what in sorted(apart, reverse=True)[:3])
    told = f"the spreads of {len(pairs) - len(apart)} of {len(pairs)} figures overlap"
    return f"{told}; the others differ, most of all {rest}." if apart else f"{told}."


def agreements(runs):
    """What runs on the same processor say of each other."""
    pairs = [(a, b) for a, b in combinations(runs, 2) if processors(runs[a]) == processors(runs[b])]
    return [f"- {a} and {b}, the same processor: {agreement(runs[a], runs[b])}" for a, b in pairs]


def machines(found):
    """The page that shows the same figures as measured on several machines."""
    runs = {"figures.json": found} | {path.name: read(path) for path in sorted(MACHINES.glob("*.json"))}
    names = [processors(several) for several in runs.values()]
    rows = []
    for page, (_, figures) in found.items():
        for figure in figures:
            same = [[one for one in several.get(page, ({}, []))[1] if one.what == figure.what] for several in runs.values()]
            cells = [f"{number(one[0].value)} ({number(one[0].low)} to {number(one[0].high)})" if one else "" for one in same]
            rows.append([page, figure.what, figure.unit, *cells, bound(figure)])
    first = [next(iter(several.values()))[0] for several in runs.values()]
    lines = [
        f"- {name}: {file}, {with_what(run)}, kit {run['kit']}.{minutes(several)}"
        for name, (file, several), run in zip(names, runs.items(), first, strict=True)
    ]
    return "\n\n".join([
        "# The same figures on other machines",
        "Written by `python benchmarks/figures.py`. Medians, with the least and the most of the repeats. The repeats lie "
        "minutes apart; two runs lie hours apart and may differ by more. The packages are the same. The pages of the benchmarks "
        "explain the first run.",
        "\n".join([*lines, *agreements(runs)]),
        table(["page", "figure", "unit", *names, "wanted"], rows),
    ]) + "\n"  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aside", action="store_true", help="put the kept figures aside, for --compare")
    parser.add_argument("--compare", action="store_true", help="name the figures that got worse since --aside")
    args = parser.parse_args()
    if args.aside:
        ASIDE.parent.mkdir(exist_ok=True)
        ASIDE.write_text(KEPT.read_text())
        return
    found = read(KEPT)
    draw(found)
    (HERE / "README.md").write_text(text(found))
    (HERE / "machines.md").write_text(machines(found))
    print("written: benchmarks/README.md, benchmarks/figures.png")
    if args.compare and ASIDE.exists():
        print(f"{(time.time() - ASIDE.stat().st_mtime) / 60:.0f} minutes since the former figures were put aside.")
        before = read(ASIDE)
        worse = compare(before, found)
        for line in other_processors(before, found):
            print(line)
        if worse:
            print("Worse than before, beyond the spread of that run (was the machine idle?):", *worse, sep="\n")
        else:
            print("No figure got worse beyond the spread of the run before.")


if __name__ == "__main__":
    main()
