"""The checks of lab 4, ZeRO's memory. Each is called on all ranks, in a `%%px` cell: `check.task1(predict)`.

Right means: what the formula says, and what DeepSpeed holds on these very ranks (checks/zero_memory_ranks.py measures it).
The source of the formula is that of pi2zero.costs.zero_bytes.
"""

import random

from pi2zero import costs
from pi2zero.checks.framework.base import CheckFailed, answer, close, is_whole, shown, task
from pi2zero.checks.zero_memory.ranks import LAYERS, PSI, everywhere, held_live, task4  # noqa: F401 - called through this
from pi2zero.checks.zero_memory.step import task5  # noqa: F401 - module, all of them

HELD = ("parameters", "gradients", "master", "moments")  # the components that ZeRO deals out
WITHIN = 0.05  # of the bytes that are there
ROWS = [(8_388_608, ranks, stage) for ranks in (1, 2, 4) for stage in range(4)]
PUBLISHED = [(7_500_000_000, 64, stage) for stage in range(4)]


def size(nbytes) -> str:
    """31406250000.0 -> '31.41 GB'."""
    unit, name = (1e9, "GB") if abs(nbytes) >= 1e9 else (1e6, "MB")
    return f"{nbytes / unit:.4g} {name}"


# Task 1 -----------------------------------------------------------------------------------------------------------------


def parts_at(moment, parameters, ranks, stage):
    """Component -> bytes at "initialize" or at the peak of "backward". No moments before Adam's first step; no gradients
    before the first backward, but for stage 3, which allocates its part of them at once."""
    held = costs.zero_bytes(parameters, ranks, stage)
    if moment == "initialize":
        held["moments"] = 0
        held["gradients"] = held["gradients"] if stage == 3 else 0
    return held


@task(1)
def task1(predict):
    """predict(parameters, ranks, stage) -> bytes of tensors on one rank: (after initialize, at the peak of backward)."""
    everywhere(lambda: [_judge_prediction(predict, *row) for row in (*ROWS, *PUBLISHED)])
    worst = everywhere(_against_ranks, predict, held_live())
    return f"Within 5 % for 1, 2, 4 and 64 ranks, stages 0 to 3; within {worst:.1%} of what DeepSpeed holds on your ranks now."


def _judge_prediction(predict, parameters, ranks, stage):
    pair = answer(predict, parameters, ranks, stage)
    if not isinstance(pair, tuple | list) or len(pair) != 2 or not all(hasattr(value, "__float__") for value in pair):
        raise CheckFailed(f"predict returned {pair!r}; two numbers are due: bytes after initialize, bytes at the peak.")
    moments = {"initialize": "after initialize", "backward": "at the peak of backward"}
    for (moment, words), mine in reversed(list(zip(moments.items(), pair, strict=True))):
        parts = parts_at(moment, parameters, ranks, stage)
        right = sum(parts.values())
        if (moment, stage) == ("initialize", 0) or close(mine, right, WITHIN):
            continue  # stage 0 makes its moments at once in some versions of DeepSpeed: not asked
        raise CheckFailed(
            f"{parameters:,} parameters on {ranks} rank{'s' * (ranks > 1)}, stage {stage}, {words}: you say {size(mine)}; "
            f"a rank holds {size(right)}, {shown(right / parameters)} bytes a parameter.\n"
            + _why_bytes(mine, moment, parts, parameters, ranks, stage)
        )


def _why_bytes(mine, moment, parts, parameters, ranks, stage):
    """The mistake that gives just these bytes."""
    right, peak = sum(parts.values()), sum(costs.zero_bytes(parameters, ranks, stage).values())
    if moment == "initialize":
        if stage == 3 and close(mine, parts["parameters"] + parts["master"]):
            return "Stage 3 allocates its part of the gradients at initialize already."
        if close(mine, peak):
            return "That is the peak. After initialize Adam has no moments yet, and up to stage 2 no gradient is there."
        if close(mine, peak - costs.zero_bytes(parameters, ranks, stage)["gradients"]):
            return "Are the moments in it? Adam makes them in its first step; after initialize they are not there yet."
        if close(mine, right + 2 * parameters / (ranks if stage >= 2 else 1)):
            return "Are gradients in it? Up to stage 2 there is none before the first backward."
        return "After initialize: the parameters (2 bytes), the master copy (4), and at stage 3 its part of the gradients (2)."
    known = {
        "That is all 16 bytes divided by the ranks; before stage 3 only a part of them is.": 16 * parameters / ranks,
        "That is what all ranks hold together; asked is one rank.": right * ranks,
        "Are those bytes, or MB?": right / 1e6,
    }
    known |= {f"That is what stage {k} holds.": costs.zero_total(parameters, ranks, k) for k in range(4) if k != stage}
    known |= {
        "The two moments are missing: 8 bytes a parameter.": right - parts["moments"],
        "4 bytes a parameter are missing: the master copy, or one of the two moments?": right - parts["master"],
        "The gradients are missing, or the parameters.": right - parts["gradients"],
        "The parameters are missing.": right - parts["parameters"],
    }
    if stage:
        whole = {name: costs.zero_bytes(parameters, 1, 0)[name] for name in HELD}
        for name in HELD:
            known.setdefault(f"From this stage on each rank keeps only its part of: {name}.", right - parts[name] + whole[name])
    return next(
        (text for text, value in known.items() if value != right and close(mine, value)), "Which of the 16 bytes are divided?"
    )


def _against_ranks(predict, samples):
    """The largest relative error against what this rank holds. samples: stage -> moment -> component -> bytes."""
    from mpi4py import MPI

    errors, ranks = [], MPI.COMM_WORLD.size
    for stage, held in samples.items():
        for place, moment in enumerate(("initialize", "backward")):
            if (stage, moment) == (0, "initialize"):
                continue
            measured = sum(held[moment][name] for name in HELD)
            errors.append(abs(predict(PSI, ranks, stage)[place] / measured - 1))
            if errors[-1] > WITHIN:
                where = f"{ranks} ranks, stage {stage}, {PSI:,} parameters, {moment}"
                raise CheckFailed(
                    f"DeepSpeed holds {size(measured)} on this rank ({where}); "
                    f"you predict {size(predict(PSI, ranks, stage)[place])}."
                )
    return max(errors)


# Task 2 -----------------------------------------------------------------------------------------------------------------


@task(2)
def task2(table):
    """table(results) -> one dict for each number of ranks and stage. results: the script's JSON objects, of all ranks."""
    everywhere(_judge_table, table, _made_up(), "in results made up for this check")
    everywhere(_judge_table, table, held_live(as_results=True), "in what your ranks hold now")
    return (
        f"One row for each run, rank 0's, with the bytes that were measured: {LAYERS} layers on your ranks, and 12 runs made up."
    )


def _made_up():
    """Results as the script prints them, with bytes that no formula gives: so a row is measured, or it is wrong."""
    draw = random.Random(4)
    results = []
    for ranks, stage in [(ranks, stage) for ranks in (1, 2, 4) for stage in range(4)]:
        predicted = costs.zero_bytes(2_097_152, ranks, stage)
        for rank in range(ranks):
            samples = {}
            for moment in ("initialize", "forward", "backward", "update", "step"):
                held = parts_at("initialize" if moment != "backward" else moment, 2_097_152, ranks, stage)
                sample = {name: round(value * draw.uniform(0.8, 1.2)) for name, value in held.items()}
                samples[moment] = sample | {"activations": 65_536, "in flight": 262_144, "resident": 330_000_000}
            one = {"ranks": ranks, "rank": rank, "stage": stage, "parameters": 2_097_152}
            results.append(one | {"predicted": predicted, "samples": samples})
    draw.shuffle(results)
    return results


def _judge_table(table, results, where):
    rows = answer(table, results)
    names = {"ranks", "batch", "parameters", "stage", "initialize", "training"}
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise CheckFailed(f"table returned {type(rows).__name__}; a list of dicts is due, one for each run.")
    right = {(one["ranks"], one["stage"]): one for one in results if one["rank"] == 0}
    runs = []
    for row in rows:
        if names - set(row):
            raise CheckFailed(f"a row has no {', '.join(sorted(names - set(row)))}. It has: {', '.join(map(str, row))}.")
        run = (row["ranks"], row["stage"])
        if run not in list(right):
            raise CheckFailed(
                f"{where}, a row says {run[0]} ranks, stage {run[1]}: there is no such run. Ranks are how many ran."
            )
        if run in runs:
            raise CheckFailed(
                f"{where}, {run[0]} ranks at stage {run[1]} have two rows. Each rank has its own object: take rank 0's."
            )
        runs.append(run)
    if missing := sorted(set(right) - set(runs)):
        raise CheckFailed(
            f"{where}, {len(missing)} of {len(right)} runs have no row, e.g. {missing[0][0]} ranks at stage {missing[0][1]}."
        )
    for row, run in zip(rows, runs, strict=True):
        _judge_row(row, right[run], results, f"{where}, {run[0]} rank{'s' * (run[0] > 1)}, stage {run[1]}")


def _judge_row(row, one, results, where):
    if row["parameters"] != one["parameters"]:
        raise CheckFailed(f"{where}: the model has {one['parameters']:,} parameters; the row says {shown(row['parameters'])}.")
    if row["batch"] != 4 * one["ranks"]:
        raise CheckFailed(
            f"{where}: each rank takes 4 samples, so a step learns from {4 * one['ranks']}; the row says {shown(row['batch'])}."
        )
    for column, moment in (("initialize", "initialize"), ("training", "backward")):
        right = _held(one, moment)
        if close(row[column], right, 1e-6):
            continue
        raise CheckFailed(
            f"{where}, {column}: the row says {_bytes(row[column])}, measured were {right:,}.\n"
            + _why_row(row[column], one, moment, results)
        )


def _bytes(value):
    return f"{value:,.0f} bytes" if hasattr(value, "__float__") else repr(value)


def _held(one, moment):
    return sum(one["samples"][moment][name] for name in HELD)


def _why_row(mine, one, moment, results):
    sample = one["samples"][moment]
    known = {
        f"That is the moment {other!r}; asked is {moment!r}.": _held(one, other) for other in one["samples"] if other != moment
    }
    known |= {
        "That is predicted, not measured: look into 'samples'.": sum(one["predicted"].values()),
        "That is what the process holds, Python and libraries included ('resident').": sample["resident"],
        "'resident' is in the sum: it is the whole process, and the tensors would count twice.": sum(sample.values()),
        "What is in flight is in it. The formula leaves it out, so leave it out here, too.": _held(one, moment)
        + sample["in flight"],
        "Only the four components that ZeRO deals out belong to it.": sum(sample.values()) - sample["resident"],
        "That is in MB; asked are bytes.": _held(one, moment) / 1e6,
    }
    same = [other for other in results if (other["ranks"], other["stage"]) == (one["ranks"], one["stage"])]
    known["That is the sum over the ranks; asked is one rank."] = sum(_held(other, moment) for other in same)
    known |= {f"That is rank {other['rank']}'s; asked is rank 0's.": _held(other, moment) for other in same if other["rank"]}
    known |= {f"The {name} are missing.": _held(one, moment) - sample[name] for name in HELD if sample[name]}
    return next((text for text, value in known.items() if close(mine, value, 1e-6)), f"Add up {', '.join(HELD)} of {moment!r}.")


# Task 3 -----------------------------------------------------------------------------------------------------------------

MACHINES = [  # parameters, ranks, bytes of a device
    *[(7_500_000_000, 64, gigabytes * 1e9) for gigabytes in (32, 16, 20, 121, 1.5)],
    *[(60_500_000, 2, gigabytes * 1e9) for gigabytes in (1, 0.7, 0.6, 0.5, 0.4)],
    *[(60_500_000, 1, 0.9e9), (60_500_000, 1, 1e9)],
    *[(8_388_608, 4, costs.zero_total(8_388_608, 4, stage)) for stage in range(4)],  # it fits to the byte
]


@task(3)
def task3(choose):
    """choose(parameters, ranks, memory) -> the lowest stage of which a rank's bytes are at most memory; None if none is."""
    everywhere(lambda: [_judge_choice(choose, *machine) for machine in MACHINES])
    return f"The lowest stage that fits, or None, for {len(MACHINES)} cases; 7.5 billion on 64 x 32 GB: stage 1, 31.4 GB."


def _judge_choice(choose, parameters, ranks, memory):
    held = [costs.zero_total(parameters, ranks, stage) for stage in range(4)]
    right = next((stage for stage in range(4) if held[stage] <= memory), None)
    mine = answer(choose, parameters, ranks, memory)
    if mine == right and (mine is None or is_whole(mine)):
        return
    case = f"{parameters:,} parameters on {ranks} rank{'s' * (ranks > 1)} of {size(memory)}: you say {mine!r}"
    if mine is not None and (not is_whole(mine) or not 0 <= mine <= 3):
        if right is None:
            raise CheckFailed(f"{case}; no stage fits ({size(held[3])} at stage 3), so None is due.")
        raise CheckFailed(f"{case}; the stage is due, {right}, as a whole number from 0 to 3.")
    if right is None:
        raise CheckFailed(f"{case}, which holds {size(held[mine])}. No stage fits, so None is due.")
    if mine is None:
        exactly = " To the byte: what fits exactly, fits." if held[right] == memory else ""
        raise CheckFailed(f"{case}, but stage {right} holds {size(held[right])} on a rank, and that fits.{exactly}")
    if mine < right:
        raise CheckFailed(f"{case}, but that holds {size(held[mine])} on a rank: too much. Count the peak of backward, in bytes.")
    exactly = " To the byte: what fits exactly, fits." if held[right] == memory else ""
    raise CheckFailed(f"{case}. It fits, but so does stage {right} ({size(held[right])}): the lowest is due.{exactly}")
