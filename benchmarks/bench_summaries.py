"""Summarization on two cores: tokens per second by ranks and stage, ROUGE after short trainings.

Writes benchmarks/summaries.md. Nothing is chosen here: the test stories are scored once per run.
"""

import argparse
import json
import os
import statistics
import tempfile

import figures
from figures import HERE, conditions, of, on_ranks, table
from sklearn.feature_extraction.text import TfidfVectorizer

from pi2zero.mpi import mpi_env
from pi2zero_course.summarization import scores
from pi2zero_course.summarization.data import news

SCRIPT = HERE.parent / "scripts" / "summarize.py"
SCORES = ("rouge1", "rouge2", "rougeLsum", "facts")


def summarize(ranks, *options):
    """The lines that summarize.py printed, as dictionaries. One thread per rank."""
    lines = on_ranks(ranks, SCRIPT, *options, "--data", "embedded", "--json").splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def speed_of(ranks, stage):
    """Tokens per second, after 8 steps of warm-up."""
    with tempfile.TemporaryDirectory() as folder:
        options = ("--steps", 20, "--stories", 2000, "--stage", stage)
        lines = summarize(ranks, "train", folder, *options)
    return statistics.median(line["tokens_per_s"] for line in lines if line.get("step", 0) > 8)


def speed(rounds):
    """Rows of the table of tokens per second, and its figures; each ratio is of one round."""
    pairs = [(ranks, stage) for ranks in (1, 2) for stage in range(4)]
    speeds_of = {pair: [] for pair in pairs}
    for _ in range(rounds):
        for pair in pairs:
            speeds_of[pair].append(speed_of(*pair))
    rows, results = [], []
    for stage in range(4):
        one, two = speeds_of[1, stage], speeds_of[2, stage]
        ratios = [b / a for a, b in zip(one, two, strict=True)]
        more = {"less_is_better": False, "reference": "two independent cores: 2"}
        results.append(of(f"tokens/s, stage {stage}: two ranks / one", "times", ratios, **more))
        medians = [f"{statistics.median(values):,.0f}" for values in (one, two)]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        rows.append([str(stage), *medians, f"{results[-1].value:.2f}", spread])
    return rows, results


def nearest(stories, train):
    """The highlights of the most similar training story, for each story."""
    words = TfidfVectorizer()
    known = words.fit_transform([story["article"] for story in train])
    asked = words.transform([story["article"] for story in stories])
    return [train[index]["highlights"] for index in (asked @ known.T).toarray().argmax(axis=1)]


def train_and_score(minutes, seed):
    """(steps, scores of lead-3, scores of the model) after minutes of training."""
    with tempfile.TemporaryDirectory() as folder:
        options = ("--minutes", minutes, "--steps", 10**6, "--seed", seed, "--save-every", 10**6)
        steps = summarize(2, "train", folder, *options)[-1]["steps"]
        lead, model = summarize(2, "evaluate", folder)[-2:]
    return steps, lead, model


def quality(runs):
    """Rows of the table of scores, a sentence, and the figure. runs: (minutes, seed)."""
    stories, train = news.stories("test", 500), news.stories("train", 20_000)
    near = scores.scores(nearest(stories, train), [story["highlights"] for story in stories])
    rows, reached = [], {}
    for minutes, seed in runs:
        steps, lead, model = train_and_score(minutes, seed)
        rows.append(score_row(f"from scratch, {minutes:g} min, seed {seed}", steps, model))
        reached.setdefault(minutes, []).append(model)
    rows = [score_row("lead-3", "", lead), score_row("nearest training story", "", near), *rows]
    longest = reached[max(reached)]
    mean = {name: statistics.fmean(model[name][1] for model in longest) for name in SCORES}
    means = ", ".join(f"{name} {value:.1f}" for name, value in mean.items())
    nearest_score, lead_score = near["rouge1"][1], lead["rouge1"][1]
    reference = f"nearest training story: {nearest_score:.1f}; lead-3: {lead_score:.1f}"
    sentence = (
        f"Mean of the {len(longest)} seeds at {max(reached):g} minutes: {means}. "
        f"ROUGE-1 above nearest: {mean['rouge1'] - nearest_score:.1f}; "
        f"above lead-3: {mean['rouge1'] - lead_score:.1f}."
    )
    what, values = "ROUGE-1 of a model trained for three minutes", [m["rouge1"][1] for m in longest]
    return rows, sentence, of(what, "%", values, less_is_better=False, reference=reference)


def score_row(label, steps, result):
    cells = [f"{mid:.1f} ({low:.1f} to {high:.1f})" for low, mid, high in map(result.get, SCORES)]
    return [label, str(steps), *cells]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--rounds", type=int, default=3, help="of tokens per second (default: 3)")
    add("--seeds", type=int, default=3, help="of the three-minute run (default: 3)")
    add("--minutes", type=float, nargs="*", default=[1, 2], help="shorter runs (default: 1 2)")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    mpi_env()
    os.environ["OMP_NUM_THREADS"] = "1"
    runs = [(minutes, 0) for minutes in args.minutes] + [(2.9, seed) for seed in range(args.seeds)]
    speed_rows, speeds = speed(args.rounds)
    quality_rows, sentence, rouge = quality(runs)
    header = ["", "steps", "ROUGE-1", "ROUGE-2", "ROUGE-Lsum", "names and numbers"]
    figures.write_page(
        "summaries",
        "# Summarization: tokens per second and ROUGE",
        f"{conditions(load)} 1 thread per rank, gloo, fp32.",
        "## Tokens per second: T5 of 0.26 million parameters, 64 stories per step; "
        f"{args.rounds} rounds, medians",
        table(["stage", "1 rank", "2 ranks", "ratio", "ratio, min to max"], speed_rows),
        "## After minutes of training from scratch: 2 ranks, stage 1, 500 test stories; mean "
        "(95 % interval), percent",
        table(header, quality_rows),
        sentence,
    )
    figures.keep("summaries", [*speeds, rouge], load)


if __name__ == "__main__":
    main()
