"""The pages of all stored figures: `python benchmarks/pages.py` writes README.md, machines.md and
figures.png next to this file.

`make bench` saves the previous figures (`--save`) and at the end names those that got worse
(`--compare`): the new median lies outside the old spread, on the wrong side. machines/ has whole
runs on other machines, as copies of figures.json.
"""

import argparse
import os
import re
import textwrap
import tomllib

import figures
import matplotlib.pyplot as plt
from figures import HERE, bound, conditions_of, number, page_of, read, table

from pi2zero import plots

MACHINES = HERE / "machines"
PREVIOUS = HERE.parent / "build" / "figures_before.json"
PUBLISHED = tomllib.loads((HERE / "published.toml").read_text())["published"]
COLUMNS = ("", "measured", "lowest to highest", "wanted", "compared with", "published")
# Nine of ten medians of two runs on one computer differ by less: the drift of a machine over hours,
# which the repeats of one run do not show. Measured on six runs (machines.md).
DRIFT = 0.14


def published(figure):
    """What others published of the like, with the source; "" if we know of nothing."""
    fits = [entry for entry in PUBLISHED if re.search(entry["figures"], figure.what)]
    return "; ".join(f"{entry['says']} ({entry['source']})" for entry in fits)


def row(figure):
    verdict = {None: "", True: ", reached", False: ", **missed**"}[figure.reached()]
    spread = f"{number(figure.low)} to {number(figure.high)}, {figure.repeats} times"
    return [
        figure.what,
        f"{number(figure.value)} {figure.unit}".strip(),
        spread if figure.repeats > 1 else "once",
        bound(figure) + verdict,
        figure.reference,
        published(figure),
    ]


def text(runs):
    parts = [
        "# What the kit measured, on one page",
        "`make bench` writes this page, and figures.json with the same numbers. (`make soak` "
        "measures the soak. [hosts.md](hosts.md), [room.md](room.md), [stories.md](stories.md) "
        "and [mpi.md](mpi.md) have programs of their own.) Each figure is a median, with the "
        "lowest and the highest of its repeats. The runs of a ratio took turns, because the speed "
        "of a machine drifts. Nine of ten medians of two runs on one computer differ by less than "
        f"{DRIFT:.0%}. [machines.md](machines.md) has the same figures from other machines. "
        "*Wanted* is what this kit asks of itself. *Compared with* is what the machine can do, or "
        "a reference. *Published* is what others measured, mostly on GPUs; it is empty where we "
        "know of nothing. The load is the mean of the minute before the start, so it contains "
        "the benchmark before.",
        "![Each figure as a share of what is wanted](figures.png)",
    ]
    for page, (run, several) in runs.items():
        title = page_of(page).read_text().split("\n", 1)[0].lstrip("# ")
        parts += [
            f"## {title}",
            f"{conditions_of(run)}. Details and explanations: "
            f"[{page}.md]({os.path.relpath(page_of(page), figures.HERE)}).",
            table(COLUMNS, map(row, several)),
        ]
    return "\n\n".join(parts) + "\n"


def draw(runs):
    """Each figure that has a bound, as a multiple of the bound: right of the line is better."""
    every = [figure for _, several in runs.values() for figure in several]
    # A growth of 0 is no multiple of a bound, so only the table has it.
    bounded = [figure for figure in every if figure.wanted and figure.low > 0]
    fig, ax = plt.subplots(figsize=(11, 0.42 * len(bounded) + 1.2))
    for y, figure in enumerate(bounded):
        values = (figure.low, figure.value, figure.high)
        ratios = [x / figure.wanted for x in values]
        low, median, high = [1 / ratio for ratio in ratios] if figure.less_is_better else ratios
        color = plots.rank_color(0 if figure.reached() else 1)
        ax.plot([low, high], [y, y], "-", color="0.6", lw=3)
        ax.plot(median, y, "o" if figure.reached() else "X", ms=9, color=color)
    ax.axvline(1, color="0.2", lw=1)
    ax.set_xscale("log")
    ax.set_xticks([0.5, 1, 2, 5, 10], ["0.5", "1", "2", "5", "10"])
    ax.minorticks_off()
    names = [textwrap.fill(figure.what.replace("`", ""), 52) for figure in bounded]
    ax.set_yticks(range(len(bounded)), names)
    ax.invert_yaxis()
    ax.set_xlabel("times as good as wanted (a cross: missed)")
    ax.set_title("Right of the line: what the kit asks of itself is reached", loc="left")
    fig.savefig(HERE / "figures.png", dpi=110, bbox_inches="tight")
    plt.close(fig)


def by_name(runs):
    """{(page, name of the figure): figure}."""
    return {
        (page, figure.what): figure for page, (_, several) in runs.items() for figure in several
    }


def with_spread(figure):
    return f"{number(figure.value)} ({number(figure.low)} to {number(figure.high)})"


def processors(runs):
    """On which processors a run was measured, in words."""
    return " and ".join(sorted({run.get("processor", "") for run, _ in runs.values()}))


def compare(before, after):
    """Sentences on what got worse and what is no longer measured."""
    old, new = by_name(before), by_name(after)
    for key in [key for key in new if key in old]:
        figure = new[key]
        # Most growths of a soak are 0, and any growth is outside that spread: the bound decides.
        if not figure.reached() if key[0] == "soak" else figure.worse_than(old[key], DRIFT):
            value = f"{number(figure.value)} {figure.unit}"
            yield f"{': '.join(key)}: {value}; before: {with_spread(old[key])}."
    for key in [key for key in old if key not in new]:
        yield f"{': '.join(key)}: is no longer measured."


def machines(runs):
    """The page that shows the same figures from several machines."""
    every = {"figures.json": runs}
    every |= {path.name: read(path) for path in sorted(MACHINES.glob("*.json"))}
    conditions = [next(iter(several.values()))[0] for several in every.values()]
    lines = [
        f"- {file}: {conditions_of(run)}, kit {run['kit']}"
        for file, run in zip(every, conditions, strict=True)
    ]
    columns = [by_name(several) for several in every.values()]
    rows = []
    for key, figure in by_name(runs).items():
        cells = [with_spread(column[key]) if key in column else "" for column in columns]
        rows.append([*key, figure.unit, *cells, bound(figure)])
    names = map(processors, every.values())
    parts = [
        "# The same figures on other machines",
        "Written by `python benchmarks/pages.py`. Medians, with the lowest and the highest of the "
        "repeats. The packages are the same. The pages of the benchmarks explain the first run. "
        "The shares of two independent runs are measured differently since the end of 2026-11-28: "
        "those of the other runs are of 96 images, and their ceilings were computed wrongly "
        "([training.md](training.md)).",
        "\n".join(lines),
        table(["page", "figure", "unit", *names, "wanted"], rows),
    ]
    return "\n\n".join(parts) + "\n"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--save", action="store_true", help="save the figures for --compare")
    parser.add_argument("--compare", action="store_true", help="name what got worse since --save")
    args = parser.parse_args()
    if args.save:
        PREVIOUS.parent.mkdir(exist_ok=True)
        PREVIOUS.write_text(figures.STORED.read_text())
        return
    runs = read(figures.STORED)
    draw(runs)
    (HERE / "README.md").write_text(text(runs))
    (HERE / "machines.md").write_text(machines(runs))
    print("written: benchmarks/README.md, machines.md and figures.png")
    if args.compare and PREVIOUS.exists():
        before = read(PREVIOUS)
        worse = list(compare(before, runs))
        if processors(before) != processors(runs):
            print(f"Another computer: {processors(runs)}; before: {processors(before)}.")
        print(
            f"Worse than before, by more than the spread and {DRIFT:.0%} (was the machine idle?):"
            if worse
            else "No figure got worse.",
            *worse,
            sep="\n",
        )


if __name__ == "__main__":
    main()
