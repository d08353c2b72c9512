"""The pages of all kept figures: `python benchmarks/pages.py` writes README.md, machines.md and
figures.png beside this file.

`make bench` puts the former figures aside (`--aside`) and in the end names what got worse
(`--compare`): the new median lies beyond the old spread, on the wrong side. Two runs differ by more
than the repeats of one: how much more is measured, from the runs in machines/ that one kind of
computer made (`drift`). A whole run is kept there as NAME.json.
"""

import argparse
import re
import statistics
import textwrap
import time
import tomllib
from itertools import combinations

import figures
import matplotlib.pyplot as plt
from figures import HERE, bound, number, read, table, with_what

from pi2zero import plots

MACHINES = HERE / "machines"
ASIDE = HERE.parent / "build" / "figures_before.json"
PUBLISHED = tomllib.loads((HERE / "published.toml").read_text())["published"]


def published(figure):
    """What others published of the like, with the source; "" if we know of nothing."""
    fits = [one for one in PUBLISHED if re.search(one["figures"], figure.what)]
    return "; ".join(f"{one['says']} ({one['source']})" for one in fits)


COLUMNS = ("measured", "least to most", "wanted", "beside it", "published")


def row(figure):
    verdict = {None: "", True: ", reached", False: ", **missed**"}[figure.reached()]
    spread = (
        f"{number(figure.low)} to {number(figure.high)}, {figure.repeats} times"
        if figure.repeats > 1
        else "once"
    )
    cells = [
        figure.what,
        f"{number(figure.value)} {figure.unit}".strip(),
        spread,
        bound(figure) + verdict,
        figure.beside,
    ]
    return "| " + " | ".join([*cells, published(figure)]) + " |"


def minutes(found):
    """What `make bench` takes in all, if all of its programs have noted it."""
    seconds = [run.get("seconds", 0) for page, (run, _) in found.items() if page != "soak"]
    return (
        f" The {len(seconds)} programs of `make bench` took {sum(seconds) / 60:.0f} minutes."
        if all(seconds)
        else ""
    )


def text(found):
    parts = [
        "# What the kit measured, on one page",
        "`make bench` writes it, and figures.json beside it with the same numbers (those of the "
        "soak are `make soak`'s; "
        "[hosts.md](hosts.md), [room.md](room.md), [stories.md](stories.md) and "
        "[mpi.md](mpi.md) have programs of their own)."
        f"{minutes(found)} "
        "Each figure is a median, with the least and "
        "the most of its repeats. A ratio is of runs that took turns, because the speed of a "
        "machine drifts. Between two runs on "
        f"one kind of computer nine medians in ten differ by less than {drift(kept()):.0%} "
        f"([machines.md](machines.md)): a "
        "second run agrees, and a figure has got worse, by a spread that is so much wider on "
        "each side. *Wanted* is what "
        "this kit asks of itself; *beside it*: what the machine can do, or what is measured "
        "against; *published*: the like of "
        "it, by others, mostly on GPUs; empty where we know of none. The load before is "
        "the mean of the minute before the start, so it has what the benchmark before it left.",
        "![Each figure as a share of what is wanted](figures.png)",
    ]
    for page, (run, several) in found.items():
        title = (HERE / f"{page}.md").read_text().split("\n", 1)[0].lstrip("# ")
        parts += [
            f"## {title}",
            f"{with_what(run)}. All of it, and why a figure is what it is: [{page}.md]({page}.md).",
            "\n".join(
                [
                    f"| | {' | '.join(COLUMNS)} |",
                    "|---" * (len(COLUMNS) + 1) + "|",
                    *map(row, several),
                ]
            ),
        ]
    return "\n\n".join(parts) + "\n"


def draw(found):
    """Each figure that has a bound, as a multiple of the bound: to the right of the line is better
    than wanted.

    A growth of nothing is no multiple of anything: it stands in the table only.
    """
    bounded = [
        figure
        for _, several in found.values()
        for figure in several
        if figure.wanted and figure.low > 0
    ]
    fig, ax = plt.subplots(figsize=(11, 0.42 * len(bounded) + 1.2))
    for at, figure in enumerate(bounded):
        shares = [
            figure.wanted / x if figure.less_is_better else x / figure.wanted
            for x in (figure.low, figure.value, figure.high)
        ]
        ax.plot([shares[0], shares[2]], [at, at], "-", color="0.6", lw=3)
        ax.plot(
            shares[1],
            at,
            "o" if figure.reached() else "X",
            ms=9,
            color=plots.rank_color(0 if figure.reached() else 1),
        )
    ax.axvline(1, color="0.2", lw=1)
    ax.set_xscale("log")
    ax.set_xticks([0.5, 1, 2, 5, 10], ["0.5", "1", "2", "5", "10"])
    ax.minorticks_off()
    ax.set_yticks(
        range(len(bounded)), [textwrap.fill(figure.what.replace("`", ""), 52) for figure in bounded]
    )
    ax.invert_yaxis()
    ax.set_xlabel("times as good as wanted (a cross: missed)")
    ax.set_title("Right of the line: what the kit asks of itself is reached", loc="left")
    fig.savefig(HERE / "figures.png", dpi=110, bbox_inches="tight")
    plt.close(fig)


def kept():
    """The whole runs in machines/, {name: what `read` gives}."""
    return {path.name: read(path) for path in sorted(MACHINES.glob("*.json"))}


def flat(found):
    """{(page, words): figure}."""
    return {
        (page, figure.what): figure for page, (_, several) in found.items() for figure in several
    }


def computer(found, pages=None):
    """On what these pages were measured, processors and Pythons in words. Without pages: `make
    bench`, which has no soak.
    """
    ran = [run for page, (run, _) in found.items() if (page in pages if pages else page != "soak")]
    return " and ".join(sorted({f"{run.get('processor', '')}, {run['machine']}" for run in ran}))


def pairs(runs):
    """The names of each two runs that one kind of computer made."""
    return [(a, b) for a, b in combinations(runs, 2) if computer(runs[a]) == computer(runs[b])]


def drift(runs):
    """How far two runs on one kind of computer lie apart: the share by which nine in ten medians
    differ at most.

    One share for all figures: between two runs a figure of its own has too few values. 0 where
    there are no two such runs.
    """
    apart = []
    for one, other in pairs(runs):
        old, new = flat(runs[one]), flat(runs[other])
        apart += [differ(old[key], new[key]) for key in old if key in new]
    return statistics.quantiles(apart, n=10)[-1] if len(apart) > 1 else 0.0


def differ(one, other):
    """By what share the larger of two medians is larger than the other, whichever was first; 0 if
    one of them is 0.
    """
    low, high = sorted([one.value, other.value])
    return high / low - 1 if low > 0 else 0.0


def compare(before, now):
    """Sentences on what got worse.

    The soak's growths, most of them 0, are so by what is wanted alone.
    """
    old, wider = flat(before), drift(kept())

    def worse(page, figure, was):
        return (
            was.reached() and not figure.reached()
            if page == "soak"
            else figure.worse_than(was, wider)
        )

    return [
        f"{page}: {what}: {number(figure.value)} {figure.unit}; before: {number(was.value)} "
        f"({number(was.low)} to "
        f"{number(was.high)})."
        for (page, what), figure in flat(now).items()
        if (was := old.get((page, what))) and worse(page, figure, was)
    ]


def gone(before, now):
    """Sentences on what is no longer there."""
    new = flat(now)
    return [
        f"{page}: {what}: is no longer measured."
        for page, what in flat(before)
        if (page, what) not in new
    ]


def other_computers(before, now):
    """A sentence if a page was measured on different ones: then worse is no loss."""
    other = [
        page for page in before if page in now and computer(before, [page]) != computer(now, [page])
    ]
    old, new, words = computer(before, other), computer(now, other), ", ".join(other)
    return (
        [f"Not the same computer ({words}): {new}; before: {old}. Compare on one machine."]
        if other
        else []
    )


def agreement(one, other, wider):
    """A sentence on two runs on one kind of computer: of which figures the second lies within the
    spread of the first.
    """
    old, new = flat(one), flat(other)
    both = [key for key in old if key in new]
    out = {key: differ(old[key], new[key]) for key in both if not new[key].within(old[key], wider)}
    told = f"{len(both) - len(out)} of {len(both)} figures agree"
    rest = ", ".join(
        f"{key[1]} by {out[key]:.0%}" for key in sorted(out, key=out.get, reverse=True)
    )
    return f"{told}; not: {rest}." if out else f"{told}."


def agreements(runs):
    """What runs on one kind of computer say of each other, by the drift that *other* computers'
    runs show: none judges itself.
    """
    for a, b in pairs(runs):
        wider = drift(
            {name: run for name, run in runs.items() if computer(run) != computer(runs[a])}
        )
        yield (
            f"- {a}, then {b}, by a spread {wider:.0%} wider on each side: "
            f"{agreement(runs[a], runs[b], wider)}"
        )


def machines(found):
    """The page that shows the same figures as measured on several machines."""
    runs = {"figures.json": found} | kept()
    names = [
        " and ".join(sorted({run.get("processor", "") for run, _ in several.values()}))
        for several in runs.values()
    ]
    tables = [flat(several) for several in runs.values()]
    rows = []
    for (page, what), figure in flat(found).items():
        same = [several.get((page, what)) for several in tables]
        cells = [
            f"{number(one.value)} ({number(one.low)} to {number(one.high)})" if one else ""
            for one in same
        ]
        rows.append([page, what, figure.unit, *cells, bound(figure)])
    first = [next(iter(several.values()))[0] for several in runs.values()]
    lines = [
        f"- {name}: {file}, {with_what(run)}, kit {run['kit']}.{minutes(several)}"
        for name, (file, several), run in zip(names, runs.items(), first, strict=True)
    ]
    return "\n\n".join([
        "# The same figures on other machines",
        "Written by `python benchmarks/pages.py`. Medians, with the least and the most of the "
        "repeats. The packages are the "
        "same. The pages of the benchmarks explain the first run. The shares of two independent "
        "runs are measured "
        "otherwise since the end of 2026-11-28: those of the other runs are of 96 images and of "
        "ceilings that were told wrongly "
        "([training.md](training.md)).",
        "\n".join(lines),
        "## Does a second run agree?",
        "The repeats of a run lie minutes apart, two runs hours. So the spread of one run is "
        "not all: between two runs that one "
        f"kind of computer made (processor, Python) nine medians in ten differ by less than "
        f"{drift(kept()):.0%}; changes of the "
        "kit between them are in it. A later run agrees with an earlier one if its median lies "
        "between the earlier one's least "
        "and most, made wider on each side by such a share. So that no run judges itself, two "
        "runs are judged by the share that "
        "the other computers' runs show.",
        "\n".join(agreements(kept() | {"figures.json": found})) or "There are no two runs of "
        "one computer.",  # the latest is last
        "## The figures",
        table(["page", "figure", "unit", *names, "wanted"], rows),
    ]) + "\n"  # fmt: skip


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--aside", action="store_true", help="put the kept figures aside, for --compare"
    )
    parser.add_argument(
        "--compare", action="store_true", help="name the figures that got worse since --aside"
    )
    args = parser.parse_args()
    if args.aside:
        ASIDE.parent.mkdir(exist_ok=True)
        ASIDE.write_text(figures.KEPT.read_text())
        return
    found = read(figures.KEPT)
    draw(found)
    (HERE / "README.md").write_text(text(found))
    (HERE / "machines.md").write_text(machines(found))
    print("written: benchmarks/README.md, machines.md and figures.png")
    if args.compare and ASIDE.exists():
        print(
            f"{(time.time() - ASIDE.stat().st_mtime) / 60:.0f} minutes since the former figures "
            f"were put aside."
        )
        before = read(ASIDE)
        worse = compare(before, found)
        for line in (*other_computers(before, found), *gone(before, found)):
            print(line)
        beyond = f"beyond the spread of the run before, {drift(kept()):.0%} wider on each side"
        print(
            f"Worse than before, {beyond} (was the machine idle?):"
            if worse
            else f"No figure got worse {beyond}.",
            *worse,
            sep="\n",
        )


if __name__ == "__main__":
    main()
