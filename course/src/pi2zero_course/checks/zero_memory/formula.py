"""The checks of lab 4's tasks 1 and 3: the formula, and what follows from it. Its source is that
of pi2zero.costs.zero_bytes."""

from mpi4py import MPI

from pi2zero import costs
from pi2zero_course.checks.framework.agree import agree
from pi2zero_course.checks.framework.answers import CheckError, call_answer
from pi2zero_course.checks.framework.task import LabTask, lab_task
from pi2zero_course.checks.framework.values import (
    as_list_of,
    as_number,
    as_text,
    close,
    in_units,
    is_int,
    pick_hint,
    plural,
)
from pi2zero_course.checks.zero_memory.ranks import HELD, PSI, bytes_on_ranks, parts_at

WITHIN = 0.05  # of the bytes that are there
ROWS = [(8_388_608, ranks, stage) for ranks in (1, 2, 4) for stage in range(4)]
PUBLISHED = [(7_500_000_000, 64, stage) for stage in range(4)]


@lab_task(4, 1)
def predict(function):
    """predict(parameters, ranks, stage) -> bytes of tensors on one rank: (after initialize, at the
    peak of backward)."""
    agree(lambda: [_judge_prediction(function, *row) for row in (*ROWS, *PUBLISHED)])
    worst = agree(_compare_with_ranks, function, bytes_on_ranks())
    return (
        f"Within 5 % for 1, 2, 4 and 64 ranks, stages 0 to 3; within {worst:.1%} of what "
        "DeepSpeed holds on your ranks now."
    )


def _judge_prediction(function, parameters, ranks, stage):
    given = call_answer(function, parameters, ranks, stage)
    pair = as_list_of(given, 2)
    if pair is None or None in map(as_number, pair):
        raise CheckError(
            f"predict returned {given!r}; two numbers are due: bytes after initialize, bytes at "
            "the peak."
        )
    start, peak = map(as_number, pair)
    # Stage 0 makes its moments at once in some versions of DeepSpeed: not asked.
    answers = [("backward", peak)] + [("initialize", start)] * (stage > 0)
    for moment, answer in answers:
        parts = parts_at(moment, parameters, ranks, stage)
        right = sum(parts.values())
        if close(answer, right, WITHIN):
            continue
        find = _mistakes_at_the_peak if moment == "backward" else _mistakes_at_initialize
        words = "at the peak of backward" if moment == "backward" else "after initialize"
        raise CheckError(
            f"{parameters:,} parameters on {plural(ranks, 'rank')}, stage {stage}, {words}: you "
            f"say {in_units(answer)}; a rank holds {in_units(right)}, "
            f"{as_text(right / parameters)} bytes a parameter.\n"
            f"{pick_hint(answer, find(parts, parameters, ranks, stage))}"
        )


def _mistakes_at_initialize(parts, parameters, ranks, stage):
    whole = costs.zero_bytes(parameters, ranks, stage)
    right, peak = sum(parts.values()), sum(whole.values())
    return {
        "Stage 3 allocates its part of the gradients at initialize.": right - parts["gradients"],
        "That is the peak. After initialize Adam has no moments yet, and up to stage 2 no "
        "gradient is there.": peak,
        "Are the moments in it? Adam makes them in its first step.": peak - whole["gradients"],
        "Are gradients in it? Up to stage 2 there is none before the first backward.": right
        + 2 * parameters / (ranks if stage >= 2 else 1),
    }


def _mistakes_at_the_peak(parts, parameters, ranks, stage):
    right, whole = sum(parts.values()), costs.zero_bytes(parameters, 1, 0)
    known = {
        "That is all 16 bytes divided by the ranks; before stage 3 only a part of them is.": 16
        * parameters
        / ranks,
        "That is what all ranks hold together; asked is one rank.": right * ranks,
        "Are those bytes, or MB?": right / 1e6,
        **{
            f"That is what stage {other} holds.": costs.zero_total(parameters, ranks, other)
            for other in range(4)
        },
        "The two moments are missing: 8 bytes a parameter.": right - parts["moments"],
        "4 bytes a parameter are missing: the master copy, or one of the two moments?": right
        - parts["master"],
        "The gradients are missing, or the parameters.": right - parts["gradients"],
        **{
            f"From this stage on each rank keeps only its part of: {name}.": right
            - parts[name]
            + whole[name]
            for name in HELD
        },
    }
    return {hint: value for hint, value in known.items() if value != right}


def _compare_with_ranks(function, samples):
    """The largest relative error against what this rank holds. samples: stage -> moment ->
    component -> bytes."""
    errors, ranks = [], MPI.COMM_WORLD.size
    for stage, held in samples.items():
        for place, moment in enumerate(("initialize", "backward")):
            if (stage, moment) == (0, "initialize"):
                continue
            measured = sum(held[moment][name] for name in HELD)
            predicted = as_number(function(PSI, ranks, stage)[place])
            errors.append(abs(predicted / measured - 1))
            if errors[-1] > WITHIN:
                where = f"{ranks} ranks, stage {stage}, {PSI:,} parameters, {moment}"
                raise CheckError(
                    f"DeepSpeed holds {in_units(measured)} on this rank ({where}); you predict "
                    f"{in_units(predicted)}."
                )
    return max(errors)


MACHINES = [  # parameters, ranks, bytes of a device
    *[(7_500_000_000, 64, gigabytes * 1e9) for gigabytes in (32, 16, 20, 121, 1.5)],
    *[(60_500_000, 2, gigabytes * 1e9) for gigabytes in (1, 0.7, 0.6, 0.5, 0.4)],
    *[(60_500_000, 1, 0.9e9), (60_500_000, 1, 1e9)],
    *[
        (8_388_608, 4, costs.zero_total(8_388_608, 4, stage) - less)
        for stage in range(4)
        for less in (0, 1)
    ],  # to the byte
]


def _judge_choice(function, parameters, ranks, memory):
    held = [costs.zero_total(parameters, ranks, stage) for stage in range(4)]
    right = next((stage for stage in range(4) if held[stage] <= memory), None)
    answer = call_answer(function, parameters, ranks, memory)
    if answer == right and (answer is None or is_int(answer)):
        return
    why = f"stage {right} is the lowest that fits: {in_units(held[right or 0])} on a rank."
    if right is None:
        why = f"no stage fits ({in_units(held[3])} at stage 3), so None is due."
    elif held[right] == memory:
        why += " To the byte: what fits exactly, fits."
    elif answer is not None and (not is_int(answer) or not 0 <= answer <= 3):
        why += " The stage is due, as a whole number from 0 to 3."
    elif answer is not None and answer < right:
        why += " Count the peak of backward, in bytes."
    raise CheckError(
        f"{parameters:,} parameters on {plural(ranks, 'rank')} of {in_units(memory)}: you say "
        f"{answer!r}; {why}"
    )


# choose(parameters, ranks, memory) -> the lowest stage of which a rank's bytes are at most memory;
# None if none is
choose = LabTask(
    lab=4,
    number=3,
    name="choose",
    cases=MACHINES,
    judge_case=_judge_choice,
    verified=f"The lowest stage that fits, or None, for {len(MACHINES)} cases; 7.5 billion on 64 "
    "x 32 GB: stage 1, 31.4 GB.",
)
