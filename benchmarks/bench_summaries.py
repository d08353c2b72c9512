"""Summarization on two cores: tokens per second by ranks and stage, ROUGE after minutes of
training, a network that is not there.

Writes benchmarks/summaries.md. Nothing is chosen here: the test stories are scored once a run.
"""

import argparse
import datetime
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import figures
import torch
from figures import of
from sklearn.feature_extraction.text import TfidfVectorizer

from pi2zero.hosts import limits
from pi2zero.mpi import mpi_env
from pi2zero_course.summarization import scores
from pi2zero_course.summarization.data import news

HERE = Path(__file__).parent
SCRIPT = HERE.parents[0] / "scripts/summarize.py"
LOAD = (
    "import time; t = time.monotonic(); from pi2zero_course.summarization import data; "
    "s = data.load({}); print(s.name, time.monotonic() - t)"
)


def summarize(ranks, *options):
    """The lines that summarize.py printed, as dictionaries. One thread a rank."""
    command = [
        "mpirun",
        "-n",
        ranks,
        sys.executable,
        SCRIPT,
        *options,
        "--data",
        "embedded",
        "--json",
    ]
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=900
    )
    if done.returncode:
        sys.exit(f"{command} ended with {done.returncode}:\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def speed_rows(rounds):
    """Lines of the table of tokens per second, and its figures; each ratio is of one round."""
    found = {(ranks, stage): [] for ranks in (1, 2) for stage in range(4)}
    for _ in range(rounds):
        for ranks, stage in found:
            with tempfile.TemporaryDirectory() as folder:
                lines = summarize(
                    ranks, "train", folder, "--steps", 20, "--stories", 2000, "--stage", stage
                )
            steady = [
                line["tokens_per_s"] for line in lines if line.get("step", 0) > 8
            ]  # the first 8 steps warm up
            found[ranks, stage].append(statistics.median(steady))
    rows, kept = [], []
    for stage in range(4):
        ratios = [two / one for one, two in zip(found[1, stage], found[2, stage], strict=True)]
        one, two = (statistics.median(found[ranks, stage]) for ranks in (1, 2))
        rows.append(
            f"| {stage} | {one:,.0f} | {two:,.0f} | {statistics.median(ratios):.2f} | "
            f"{min(ratios):.2f} to {max(ratios):.2f} |"
        )
        more = {"less_is_better": False, "beside": "two cores that share nothing: 2"}
        kept.append(of(f"tokens/s, stage {stage}: two ranks / one", "times", ratios, **more))
    return rows, kept


def nearest(stories, train):
    """The highlights of the most similar training story, for each story."""
    words = TfidfVectorizer()
    known = words.fit_transform([story["article"] for story in train])
    closest = (
        (words.transform([story["article"] for story in stories]) @ known.T)
        .toarray()
        .argmax(axis=1)
    )
    return [train[index]["highlights"] for index in closest]


def quality_rows(runs):
    """Lines of the table of scores, and its figures. runs: (minutes, seed)."""
    stories, train = news.stories("test", 500), news.stories("train", 20_000)
    near = scores.scores(nearest(stories, train), [story["highlights"] for story in stories])
    rows, reached = [], {}
    for minutes, seed in runs:
        with tempfile.TemporaryDirectory() as folder:
            lines = summarize(
                2,
                "train",
                folder,
                "--minutes",
                minutes,
                "--steps",
                10**6,
                "--seed",
                seed,
                "--save-every",
                10**6,
            )
            lead, model = summarize(2, "evaluate", folder)[-2:]
        if not rows:
            rows += [row("lead-3", "", lead), row("nearest training story", "", near)]
        rows.append(row(f"from scratch, {minutes:g} min, seed {seed}", lines[-1]["steps"], model))
        reached.setdefault(minutes, []).append(model)
    longest = reached[max(reached)]
    mean = {
        name: statistics.fmean(one[name][1] for one in longest)
        for name in ("rouge1", "rouge2", "rougeLsum", "facts")
    }
    told = ", ".join(f"{name} {value:.1f}" for name, value in mean.items())
    above = {
        name: mean["rouge1"] - other["rouge1"][1]
        for name, other in {"nearest": near, "lead-3": lead}.items()
    }
    gains = f"ROUGE-1 above nearest: {above['nearest']:.1f}; above lead-3: {above['lead-3']:.1f}."
    more = {
        "less_is_better": False,
        "beside": f"nearest training story: {near['rouge1'][1]:.1f}; lead-3: "
        f"{lead['rouge1'][1]:.1f}",
    }
    kept = of(
        "ROUGE-1 of a model trained for three minutes",
        "%",
        [one["rouge1"][1] for one in longest],
        **more,
    )
    return [
        *rows,
        "",
        f"Mean of the {len(longest)} seeds at {max(reached):g} minutes: {told}. {gains}",
    ], [kept]


def row(label, steps, result):
    cells = [
        f"{result[name][1]:.1f} ({result[name][0]:.1f} to {result[name][2]:.1f})"
        for name in ("rouge1", "rouge2", "rougeLsum", "facts")
    ]
    return f"| {label} | {steps} | {' | '.join(cells)} |"


def offline_rows(rounds):
    """Lines of the table of seconds until the stories are there.

    The hub is a socket that takes connections and says nothing.
    """
    with socket.create_server(("127.0.0.1", 0)) as silent, tempfile.TemporaryDirectory() as home:
        hub = {"HF_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}", "HF_HOME": home}
        found = {"not asked (download=False)": [], "asked, no answer": []}
        for _ in range(rounds):
            for label, arguments in zip(found, ("'auto', download=False", "'auto'"), strict=True):
                command = [sys.executable, "-c", LOAD.format(arguments)]
                start = time.monotonic()
                subprocess.run(command, env=os.environ | hub, check=True, stdout=subprocess.DEVNULL)
                found[label].append(time.monotonic() - start)
    lost = [asked - not_asked for not_asked, asked in zip(*found.values(), strict=True)]
    rows = [f"| {label} | {statistics.median(seconds):.1f} |" for label, seconds in found.items()]
    kept = of("lost to a network that does not answer", "s", lost, beside="without asking: 0")
    return [
        *rows,
        f"| **lost to the network** | **{statistics.median(lost):.1f}** ({min(lost):.1f} to "
        f"{max(lost):.1f}) |",
    ], [kept]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="of tokens per second and of the network (default: 3)"
    )
    parser.add_argument("--seeds", type=int, default=3, help="of the three-minute run (default: 3)")
    parser.add_argument(
        "--minutes",
        type=float,
        nargs="*",
        default=[1, 2],
        help="shorter runs beside it (default: 1 2)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=HERE / "summaries.md",
        help="(default: benchmarks/summaries.md)",
    )
    args = parser.parse_args()
    load = os.getloadavg()[0]
    mpi_env()
    os.environ["OMP_NUM_THREADS"] = "1"
    runs = [
        *[(minutes, 0) for minutes in args.minutes],
        *((2.9, seed) for seed in range(args.seeds)),
    ]
    speed, quality, offline = speed_rows(args.rounds), quality_rows(runs), offline_rows(args.rounds)
    lines = [
        "# Summarization: tokens per second, ROUGE, and a network that is not there",
        "",
        f"{datetime.date.today()}, {platform.system()}, {limits.cores():.0f} cores, torch "
        f"{torch.__version__.split('+')[0]}, "
        f"1 thread a rank, gloo, fp32. Load of the machine before the start: {load:.1f} (0 is "
        f"idle).",
        "",
        f"## Tokens per second: T5 of 0.26 million parameters, 64 stories a step; {args.rounds} "
        f"rounds, medians",
        "",
        "| stage | 1 rank | 2 ranks | ratio | ratio, min to max |",
        "|---|---|---|---|---|",
        *speed[0],
        "",
        "## After minutes of training from scratch: 2 ranks, stage 1, 500 test stories; mean "
        "(95 % interval), percent",
        "",
        "| | steps | ROUGE-1 | ROUGE-2 | ROUGE-Lsum | names and numbers |",
        "|---|---|---|---|---|---|",
        *quality[0],
        "",
        "## From the start of Python to 20,000 embedded stories",
        "",
        "| the hub was | s |",
        "|---|---|",
        *offline[0],
        "",
        (HERE / "summaries_explained.md").read_text(),
    ]
    args.output.write_text("\n".join(lines))
    if args.output.parent == HERE:
        figures.keep("summaries", [*speed[1], *quality[1], *offline[1]], load)
    print(args.output.read_text())


if __name__ == "__main__":
    main()
