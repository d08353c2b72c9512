"""The planner against 20 layouts run on 4 ranks, and against published figures.

Writes benchmarks/plan.md.

Bytes: of the fullest rank, by pi2zero.meters.Memory. Seconds: the shortest of the rounds' medians,
of the slowest rank; the same for what calibrates the machine: a step of the whole model on one rank
alone and on all at once, Adam, all-reduces of three sizes.
"""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import figures
import numpy as np
import torch
from plan_model import Size
from plan_published import (
    INPUTS,
    agreement_rows,
    data_rows,
    gems_rows,
    korthikanti_rows,
    megatron_rows,
    mt_nlg_rows,
)
from plan_worker import BATCH, LAYOUTS
from scipy.stats import kendalltau

from pi2zero import costs
from pi2zero.hosts import limits
from pi2zero.mpi import mpi_env

HERE = Path(__file__).parent
PUBLISHED = "## Published figures"
EXACT = "a plan that is right: 0"
COMPONENTS = ("parameters", "gradients", "master", "moments", "activations")
LAID = [replace(layout, sequence_parallel=False) for layout in LAYOUTS]


def model():
    size = Size()
    gpt = (size.layers, size.width, size.heads, size.vocabulary, size.sequence)
    return costs.transformer(*gpt, precision="fp32", shard_vocab=False)


def report_of(worker, **options):
    """What a worker beside this file, on four ranks, writes into its --output."""
    mpi_env()
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.json"
        words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
        worker = [str(HERE / worker), *words, "--output", str(found)]
        subprocess.run(
            ["mpirun", "-n", "4", sys.executable, "-m", "mpi4py", *worker], check=True, timeout=3600
        )
        return json.loads(found.read_text())


def machine_of(rounds):
    """The machine as measured: the best of all rounds.

    Nothing travels behind computing here: the same cores do both.
    """
    best = {
        name: min(one["machine"][name] for one in rounds)
        for name in ("alone", "together", "update")
    }
    rings = np.min([one["machine"]["rings"] for one in rounds], axis=0)
    alpha, beta = costs.fit_alpha_beta(*rings.T, costs.ring_allreduce_seconds, ranks=4)
    first = rounds[0]["machine"]
    return costs.Machine(
        ranks=4,
        ranks_per_node=4,
        memory=1e9,
        flops_per_s=model().flops * first["samples"] / best["alone"],
        intra_node_bandwidth=1 / beta,
        inter_node_bandwidth=1 / beta,
        latency=alpha,
        optimizer_bandwidth=28 * first["parameters"] / best["update"],
        overlap=0,
        devices=min(4, 4 * best["alone"] / best["together"]),
    )


def head(*names):
    """The first two lines of a table."""
    return f"| {' | '.join(names)} |", "|---" * len(names) + "|"


def predicted_bytes(layout):
    """Without buffers; but where layers are made again, what is measured has all that is in flight
    then (plan_worker.py).
    """
    parts = costs.bytes_per_rank(model(), layout, BATCH)
    return sum(parts.values()) - (parts["buffers"] if layout.recompute == "none" else 0)


def measured_bytes(held):
    """Of what one layout's fullest rank held, as plan_worker.py reports it."""
    return sum(held[part] for part in COMPONENTS)


def bytes_table(found):
    yield from head(
        "layout", "micro-batch", "predicted, MB", "measured, MB", "error", "losses equal"
    )
    first = found[0][1]
    for layout, (held, losses) in zip(LAID, found, strict=True):
        predicted, measured = predicted_bytes(layout), measured_bytes(held)
        equal = "yes" if np.allclose(losses, first, atol=1e-4) else f"no: {losses}"
        error = f"{predicted / measured - 1:+.1%}"
        yield (
            f"| {layout.name} | {layout.micro_batch} | {predicted / 1e6:.1f} | "
            f"{measured / 1e6:.1f} | {error} | {equal} |"
        )


@dataclass(frozen=True)
class Times:
    """Predicted and measured seconds of a step of every layout, and how far they agree."""

    machine: costs.Machine
    parts: list  # of {part of the step: predicted seconds}
    predicted: np.ndarray
    measured: np.ndarray

    @property
    def factor(self):
        """The median of predicted / measured: what all predictions have in common."""
        return float(np.median(self.predicted / self.measured))

    @property
    def errors(self):
        """Of each layout, once the common factor is taken out."""
        return np.abs(self.predicted / self.measured / self.factor - 1)

    @property
    def ranked(self):
        """The share of all pairs of layouts that are in the right order."""
        return (1 + kendalltau(self.predicted, self.measured).statistic) / 2


def times_of(rounds):
    machine = machine_of(rounds)
    parts = [costs.step_time(model(), layout, machine, BATCH)[0] for layout in LAID]
    measured = np.min([one["seconds"] for one in rounds], axis=0)
    return Times(machine, parts, np.array([sum(one.values()) for one in parts]), measured)


def kept(found):
    """For figures.json.

    Each round is calibrated and compared by itself, so that its spread is that of a whole run.
    """
    pairs = zip(LAID, found["bytes"], strict=True)
    off = max(
        abs(predicted_bytes(layout) / measured_bytes(held) - 1) for layout, (held, _) in pairs
    )
    each = [times_of([one]) for one in found["rounds"]]
    yield figures.of(
        "bytes of the fullest rank, the largest of 20 layouts' errors",
        "%",
        [100 * off],
        wanted=5,
        reference=EXACT,
    )
    yield figures.of(
        "seconds of a step, median error",
        "%",
        [100 * np.median(one.errors) for one in each],
        reference=EXACT,
    )
    shares = [100 * one.ranked for one in each]
    chance = "chance: 50; a plan that is right: 100"
    yield figures.of(
        "pairs of layouts in the right order", "%", shares, less_is_better=False, reference=chance
    )


def times_table(rounds):
    found = times_of(rounds)
    machine, errors = found.machine, found.errors
    yield (
        f"As calibrated: {machine.flops_per_s / 1e9:.0f} G operations/s on a rank alone; "
        f"{machine.devices:.1f} ranks compute at"
    )
    yield (
        f"once; a message {1e3 * machine.latency:.1f} ms and "
        f"{machine.intra_node_bandwidth / 1e6:.0f} MB/s;"
    )
    yield f"Adam {machine.optimizer_bandwidth / 1e9:.1f} GB/s."
    yield from (
        "",
        *head(
            "layout",
            "micro-batch",
            "predicted, s",
            "measured, s",
            "ratio",
            "ratio / median",
            "most of the prediction, s",
        ),
    )
    for layout, one, guess, took in zip(
        LAID, found.parts, found.predicted, found.measured, strict=True
    ):
        most = ", ".join(
            f"{name} {one[name]:.2f}"
            for name in sorted(one, key=one.get)[:-4:-1]
            if one[name] > 0.01
        )
        ratio = guess / took
        yield (
            f"| {layout.name} | {layout.micro_batch} | {guess:.2f} | {took:.2f} | {ratio:.2f} "
            f"| {ratio / found.factor:.2f} | {most} |"
        )
    yield ""
    yield (
        f"The ratio is predicted / measured; its median is {found.factor:.2f}. Once this "
        f"common factor is taken out,"
    )
    yield (
        f"the error of a run is {np.median(errors):.0%} in the median and {errors.max():.0%} "
        f"at most. Ranking:"
    )
    missed = ", ".join(
        f"{LAID[k].name}, micro-batch {LAID[k].micro_batch}" for k in errors.argsort()[:-3:-1]
    )
    yield (
        f"{found.ranked:.0%} of all pairs of layouts are in the right order (50 % is chance). "
        f"Largest misses: {missed}."
    )


def published_tables():
    for title, unit, rows in (
        ("Megatron-LM, A100, operations done of the peak (table 1)", "", megatron_rows()),
        (
            "Megatron-LM, full recomputing, seconds a step (Korthikanti, table 5)",
            "s",
            korthikanti_rows(),
        ),
        ("MT-NLG, 530 billion parameters, seconds a step", "s", mt_nlg_rows()),
    ):
        columns = (
            "model",
            *INPUTS,
            "published",
            "predicted",
            "error",
            "MFU published",
            "predicted",
            "GB on the fullest GPU",
        )
        yield from ("", f"### {title}", "", *head(*columns))
        for row in rows:
            shown = [
                f"{value:.1f} {unit}" if unit else f"{value:.0%}"
                for value in (row.published, row.predicted)
            ]
            inputs = (f"{each:,}" if isinstance(each, int) else each for each in row.inputs)
            off, share = (
                f"{row.predicted / row.published - 1:+.0%}",
                (f"{each:.1%}" for each in row.share),
            )
            yield f"| {' | '.join([row.name, *inputs, *shown, off, *share, f'{row.held:.0f}'])} |"
    yield from (
        "",
        "### Published figures among themselves",
        "",
        *head("figure", "its source", "from other published figures"),
    )
    for row in agreement_rows():
        yield f"| {' | '.join(row)} |"
    yield from (
        "",
        "### GEMS, times as fast as Basic on 4 GPUs",
        "",
        *head("scheme", "published", "predicted", "error"),
    )
    for name, published, predicted in gems_rows():
        yield f"| {name} | {published:.2f} | {predicted:.2f} | {predicted / published - 1:+.0%} |"
    yield from (
        "",
        "### Data parallelism of images: efficiency",
        "",
        *head("run", "published", "predicted", "assumed"),
    )
    for name, published, predicted, assumed in data_rows():
        yield f"| {name} | {published:.1%} | {predicted:.1%} | {assumed} |"


def published_part():
    return [PUBLISHED, *published_tables(), "", (HERE / "plan_explained.md").read_text()]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3, help="(default: 3)")
    parser.add_argument("--steps", type=int, default=3, help="in a round (default: 3)")
    parser.add_argument(
        "--published",
        action="store_true",
        help="write these figures again; what was measured stays as it is",
    )
    parser.add_argument(
        "--found", type=Path, help="a file that plan_worker.py wrote, instead of a run now"
    )
    parser.add_argument(
        "--keep",
        type=Path,
        help="write what plan_worker.py found there, to write the page again with --found",
    )
    parser.add_argument("--load", help="of the machine while that file was written")
    parser.add_argument(
        "--output", type=Path, default=HERE / "plan.md", help="(default: benchmarks/plan.md)"
    )
    args = parser.parse_args()
    if args.published:
        measured, _, _ = args.output.read_text().partition(PUBLISHED)
        args.output.write_text(measured + "\n".join(published_part()))
        return
    load = args.load or f"{os.getloadavg()[0]:.1f}"
    found = (
        json.loads(args.found.read_text())
        if args.found
        else report_of("plan_worker.py", rounds=args.rounds, steps=args.steps)
    )
    if args.keep:
        args.keep.write_text(json.dumps(found))
    lines = [
        "# The planner, beside what was measured and what was published",
        "",
        f"{datetime.date.today()}, {platform.system()}, {limits.cores():.0f} cores, "
        f"torch {torch.__version__.split('+')[0]}, 4 ranks, 1 thread a rank, gloo. Load of the "
        f"machine before the start: {load} "
        "(0 is idle).",
        "",
        f"A transformer of {model().parameters / 1e6:.1f} million parameters in fp32, Adam, "
        f"{BATCH} sequences of "
        f"{Size().sequence} a step; a micro-batch is given in sequences.",
        "",
        "## Bytes of the fullest rank",
        "",
        *bytes_table(found["bytes"]),
        "",
        f"## Seconds of a step, best of {len(found['rounds'])} rounds",
        "",
        *times_table(found["rounds"]),
        "",
        *published_part(),
    ]
    args.output.write_text("\n".join(lines))
    if args.output.parent == HERE:
        figures.keep("plan", list(kept(found)), float(load))
    print(args.output.read_text())


if __name__ == "__main__":
    main()
