"""The check of lab 5's first task: a stage, and the stories that fit next to its states."""

import operator

from pi2zero import costs
from pi2zero_course.checks.framework.answers import CheckError, call_answer
from pi2zero_course.checks.framework.task import LabTask
from pi2zero_course.checks.framework.values import as_int, as_list_of, in_units, pick_hint

WANTED = 8  # stories a rank, at least
T5_SMALL, STORY = 60_506_624, 50_000_000
MACHINES = [  # limit in bytes, world size, parameters, bytes of a story
    *[(limit * 1e9, 2, T5_SMALL, STORY) for limit in (1.1, 1.2, 1.38, 2, 8, 0.9, 0.7)],
    *[(limit * 1e9, 8, T5_SMALL, 23_456_789.5) for limit in (0.25, 0.35, 0.5, 0.6, 1.2)],
    *[(1.5e9, 1, T5_SMALL, STORY), (1.2e9, 1, T5_SMALL, STORY)],
    *[
        (costs.zero_total(2**20, 4, stage) + WANTED * 2**20, 4, 2**20, 2**20) for stage in range(4)
    ],  # 8 to the byte
    (costs.zero_total(2**20, 4, 3) + WANTED * 2**20 - 1, 4, 2**20, 2**20),  # one byte less
]


def _judge_choice(function, limit, world_size, parameters, each):
    held = [costs.zero_total(parameters, world_size, stage) for stage in range(4)]
    fit = [int((limit - states) // each) for states in held]
    right = next(((stage, fit[stage]) for stage in range(4) if fit[stage] >= WANTED), None)
    answer = call_answer(function, limit, world_size, parameters, each)
    pair = as_list_of(answer, 2) or (None, None)
    stage, stories = as_int(pair[0]), as_int(pair[1])  # // gives 9.0, because the limit is a float
    if (answer if answer is None else (stage, stories)) == right:
        return
    case = (
        f"{in_units(limit)} on each of {world_size} ranks, {parameters:,} parameters, "
        f"{in_units(each)} a story: you say {answer!r}"
    )
    due = f"{case}. No stage leaves room for {WANTED}, so None is due."
    if right is not None:
        due = (
            f"{case}. Stage {right[0]} holds {in_units(held[right[0]])} on a rank and leaves room "
            f"for {right[1]} stories"
        )
        if held[right[0]] + WANTED * each == limit:
            due += ". To the byte: what fits exactly, fits"
    if answer is not None and (stage is None or stories is None or not 0 <= stage <= 3):
        raise CheckError(
            f"{case}; two whole numbers are due, (stage 0 to 3, stories a rank), or None."
        )
    if right is None or answer is None:
        raise CheckError(due)
    if stage > right[0]:
        raise CheckError(f"{due}: the lowest stage is due.")
    if stage < right[0]:
        raise CheckError(
            f"{case}. Stage {stage} holds {in_units(held[stage])} on a rank and leaves room for "
            f"{max(fit[stage], 0)} stories: fewer than {WANTED}. Take a higher stage."
        )
    known = {
        "That is all ranks together; asked is one rank.": right[1] * world_size,
        "A story's activations are on one rank, whole: their bytes are not divided.": int(
            (limit - held[stage]) // (each / world_size)
        ),
        "That is the fewest that are wanted; asked is how many fit.": WANTED,
        "The states need room, too: 16 bytes a parameter, of which the stage divides a part.": int(
            limit // each
        ),
        "Round down: a part of a story does not fit.": right[1] + 1,
    }
    raise CheckError(f"{due}.\n{pick_hint(stories, known, same=operator.eq)}")


# choose(limit, world_size, parameters, bytes_per_story) -> (stage, stories per rank), or None
choose = LabTask(
    lab=5,
    number=1,
    name="choose",
    cases=MACHINES,
    judge_case=_judge_choice,
    verified=f"The lowest stage with room for {WANTED} stories a rank, and as many as fit, or "
    f"None: {len(MACHINES)} cases.",
)
