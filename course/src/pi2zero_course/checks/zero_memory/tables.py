"""The check of lab 4's task 2: what the script measured, as a table."""

import random
from functools import partial

from pi2zero import costs
from pi2zero_course.checks.framework.agree import agree
from pi2zero_course.checks.framework.answers import CheckError, call_answer
from pi2zero_course.checks.framework.task import lab_task
from pi2zero_course.checks.framework.values import as_number, as_text, close, pick_hint
from pi2zero_course.checks.zero_memory.ranks import HELD, LAYERS, bytes_on_ranks, parts_at


@lab_task(4, 2)
def table(function):
    """table(results) -> one dict for each number of ranks and stage. results: the script's JSON
    objects, of all ranks."""
    agree(_judge_table, function, _made_up(), "in results made up for this check")
    agree(_judge_table, function, bytes_on_ranks(as_results=True), "in what your ranks hold now")
    return (
        f"One row for each run, rank 0's, with the bytes that were measured: {LAYERS} layers on "
        "your ranks, and 12 runs made up."
    )


def _made_up():
    """Results as the script prints them, with bytes that no formula gives: so a row is measured,
    or it is wrong."""
    draw = random.Random(4)
    results = []
    for ranks, stage in [(ranks, stage) for ranks in (1, 2, 4) for stage in range(4)]:
        predicted = costs.zero_bytes(2_097_152, ranks, stage)
        for rank in range(ranks):
            others = {"activations": 65_536, "in flight": 262_144, "resident": 330_000_000}
            samples = {}
            for moment in ("initialize", "forward", "backward", "update", "step"):
                kind = moment if moment == "backward" else "initialize"
                held = parts_at(kind, 2_097_152, ranks, stage).items()
                samples[moment] = others | {
                    name: round(value * draw.uniform(0.8, 1.2)) for name, value in held
                }
            run = {"ranks": ranks, "rank": rank, "stage": stage, "parameters": 2_097_152}
            results.append(run | {"predicted": predicted, "samples": samples})
    draw.shuffle(results)
    return results


def _judge_table(function, results, where):
    rows = call_answer(function, results)
    names = {"ranks", "batch", "parameters", "stage", "initialize", "training"}
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise CheckError(
            f"table returned {type(rows).__name__}; a list of dicts is due, one for each run."
        )
    right = {(one["ranks"], one["stage"]): one for one in results if one["rank"] == 0}
    runs = []
    for row in rows:
        if names - set(row):
            raise CheckError(
                f"a row has no {', '.join(sorted(names - set(row)))}. It has: "
                f"{', '.join(map(str, row))}."
            )
        run = (row["ranks"], row["stage"])
        if run not in list(right):
            raise CheckError(
                f"{where}, a row says {run[0]} ranks, stage {run[1]}: there is no such run. Ranks "
                "are how many ran."
            )
        if run in runs:
            raise CheckError(
                f"{where}, {run[0]} ranks at stage {run[1]} have two rows. Each rank has its own "
                "object: take rank 0's."
            )
        runs.append(run)
    if missing := sorted(set(right) - set(runs)):
        raise CheckError(
            f"{where}, {len(missing)} of {len(right)} runs have no row, e.g. {missing[0][0]} ranks "
            f"at stage {missing[0][1]}."
        )
    for row, run in zip(rows, runs, strict=True):
        _judge_row(
            row, right[run], results, f"{where}, {run[0]} rank{'s' * (run[0] > 1)}, stage {run[1]}"
        )


def _judge_row(row, one, results, where):
    if row["parameters"] != one["parameters"]:
        raise CheckError(
            f"{where}: the model has {one['parameters']:,} parameters; the row says "
            f"{as_text(row['parameters'])}."
        )
    if row["batch"] != 4 * one["ranks"]:
        raise CheckError(
            f"{where}: each rank takes 4 samples, so a step learns from {4 * one['ranks']}; the "
            f"row says {as_text(row['batch'])}."
        )
    for column, moment in (("initialize", "initialize"), ("training", "backward")):
        right = _held(one, moment)
        if close(row[column], right, 1e-6):
            continue
        raise CheckError(
            f"{where}, {column}: the row says {_bytes(row[column])}, measured were {right:,}.\n"
            + _why_row(row[column], one, moment, results)
        )


def _bytes(value):
    return repr(value) if as_number(value) is None else f"{as_number(value):,.0f} bytes"


def _held(one, moment):
    return sum(one["samples"][moment][name] for name in HELD)


def _why_row(bytes_said, run, moment, results):
    sample, right = run["samples"][moment], _held(run, moment)
    same_run = [
        other
        for other in results
        if (other["ranks"], other["stage"]) == (run["ranks"], run["stage"])
    ]
    known = {
        **{
            f"That is the moment {other!r}; asked is {moment!r}.": _held(run, other)
            for other in run["samples"]
            if other != moment
        },
        "That is predicted, not measured: look into 'samples'.": sum(run["predicted"].values()),
        "That is what the process holds, Python and libraries included ('resident').": sample[
            "resident"
        ],
        "What is in flight is in it. The formula leaves it out, so leave it out here, too.": right
        + sample["in flight"],
        "Only the four components that ZeRO partitions belong to it.": sum(sample.values())
        - sample["resident"],
        "That is in MB; asked are bytes.": right / 1e6,
        "That is the sum over the ranks; asked is one rank.": sum(
            _held(other, moment) for other in same_run
        ),
        **{
            f"That is rank {other['rank']}'s; asked is rank 0's.": _held(other, moment)
            for other in same_run
            if other["rank"]
        },
    }
    return pick_hint(
        bytes_said,
        known,
        same=partial(close, relative=1e-6),
        otherwise=f"Add up {', '.join(HELD)} of {moment!r}.",
    )
