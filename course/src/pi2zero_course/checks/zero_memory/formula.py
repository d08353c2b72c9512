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
    moments = {"initialize": "after initialize", "backward": "at the peak of backward"}
    for (moment, words), mine in reversed(
        list(zip(moments.items(), map(as_number, pair), strict=True))
    ):
        parts = parts_at(moment, parameters, ranks, stage)
        right = sum(parts.values())
        if (moment, stage) == ("initialize", 0) or close(mine, right, WITHIN):
            continue  # stage 0 makes its moments at once in some versions of DeepSpeed: not asked
        raise CheckError(
            f"{parameters:,} parameters on {ranks} rank{'s' * (ranks > 1)}, stage {stage}, "
            f"{words}: you say {in_units(mine)}; "
            f"a rank holds {in_units(right)}, {as_text(right / parameters)} bytes a parameter.\n"
            + _why_bytes(mine, moment, parts, parameters, ranks, stage)
        )


def _why_bytes(mine, moment, parts, parameters, ranks, stage):
    """The mistake that gives just these bytes."""
    if moment == "initialize":
        known = _mistakes_at_initialize(parts, parameters, ranks, stage)
        other = (
            "After initialize: the parameters (2 bytes), the master copy (4), and at stage 3 its "
            "part of the gradients (2)."
        )
    else:
        known = _mistakes_at_the_peak(parts, parameters, ranks, stage)
        other = "Which of the 16 bytes are divided?"
    return pick_hint(mine, known, otherwise=other)


def _mistakes_at_initialize(parts, parameters, ranks, stage):
    whole = costs.zero_bytes(parameters, ranks, stage)
    right, peak = sum(parts.values()), sum(whole.values())
    known = [
        (
            parts["parameters"] + parts["master"],
            "Stage 3 allocates its part of the gradients at initialize already.",
        )
    ]
    known = known if stage == 3 else []
    return [
        *known,
        (
            peak,
            "That is the peak. After initialize Adam has no moments yet, and up to stage 2 no "
            "gradient is there.",
        ),
        (
            peak - whole["gradients"],
            "Are the moments in it? Adam makes them in its first step; after initialize they are "
            "not there yet.",
        ),
        (
            right + 2 * parameters / (ranks if stage >= 2 else 1),
            "Are gradients in it? Up to stage 2 there is none before the first backward.",
        ),
    ]


def _mistakes_at_the_peak(parts, parameters, ranks, stage):
    right = sum(parts.values())
    whole = costs.zero_bytes(parameters, 1, 0)
    known = [
        (
            16 * parameters / ranks,
            "That is all 16 bytes divided by the ranks; before stage 3 only a part of them is.",
        ),
        (right * ranks, "That is what all ranks hold together; asked is one rank."),
        (right / 1e6, "Are those bytes, or MB?"),
        *(
            (costs.zero_total(parameters, ranks, k), f"That is what stage {k} holds.")
            for k in range(4)
            if k != stage
        ),
        (right - parts["moments"], "The two moments are missing: 8 bytes a parameter."),
        (
            right - parts["master"],
            "4 bytes a parameter are missing: the master copy, or one of the two moments?",
        ),
        (right - parts["gradients"], "The gradients are missing, or the parameters."),
        (right - parts["parameters"], "The parameters are missing."),
    ]
    divided = [
        (
            right - parts[one] + whole[one],
            f"From this stage on each rank keeps only its part of: {one}.",
        )
        for one in HELD
    ]
    return [(value, text) for value, text in known + divided * (stage > 0) if value != right]


def _compare_with_ranks(function, samples):
    """The largest relative error against what this rank holds. samples: stage -> moment ->
    component -> bytes."""
    errors, ranks = [], MPI.COMM_WORLD.size
    for stage, held in samples.items():
        for place, moment in enumerate(("initialize", "backward")):
            if (stage, moment) == (0, "initialize"):
                continue
            measured = sum(held[moment][name] for name in HELD)
            mine = as_number(function(PSI, ranks, stage)[place])
            errors.append(abs(mine / measured - 1))
            if errors[-1] > WITHIN:
                where = f"{ranks} ranks, stage {stage}, {PSI:,} parameters, {moment}"
                raise CheckError(
                    f"DeepSpeed holds {in_units(measured)} on this rank ({where}); you predict "
                    f"{in_units(mine)}."
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
    mine = call_answer(function, parameters, ranks, memory)
    if mine == right and (mine is None or is_int(mine)):
        return
    case = (
        f"{parameters:,} parameters on {ranks} rank{'s' * (ranks > 1)} of {in_units(memory)}: you "
        f"say {mine!r}"
    )
    if mine is not None and (not is_int(mine) or not 0 <= mine <= 3):
        if right is None:
            raise CheckError(
                f"{case}; no stage fits ({in_units(held[3])} at stage 3), so None is due."
            )
        raise CheckError(f"{case}; the stage is due, {right}, as a whole number from 0 to 3.")
    if right is None:
        raise CheckError(
            f"{case}, which holds {in_units(held[mine])}. No stage fits, so None is due."
        )
    if mine is None:
        exactly = " To the byte: what fits exactly, fits." if held[right] == memory else ""
        raise CheckError(
            f"{case}, but stage {right} holds {in_units(held[right])} on a rank, and that "
            f"fits.{exactly}"
        )
    if mine < right:
        raise CheckError(
            f"{case}, but that holds {in_units(held[mine])} on a rank: too much. Count the peak of "
            "backward, in bytes."
        )
    exactly = " To the byte: what fits exactly, fits." if held[right] == memory else ""
    raise CheckError(
        f"{case}. It fits, but so does stage {right} ({in_units(held[right])}): the lowest is "
        f"due.{exactly}"
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
