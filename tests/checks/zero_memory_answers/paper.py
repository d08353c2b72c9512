"""Answers to tasks 1 to 3: bytes predicted, bytes tabulated, a stage chosen."""

from . import right, wrong

HELD = ("parameters", "gradients", "master", "moments")

# Task 1 -----------------------------------------------------------------------------------------------------------------


@right(1)
def from_a_table(parameters, ranks, stage):
    peak = [16, 4 + 12 / ranks, 2 + 14 / ranks, 16 / ranks][stage]
    start = [6, 2 + 4 / ranks, 2 + 4 / ranks, 8 / ranks][stage]
    return [start * parameters, peak * parameters]


def formula(parameters, ranks, stage, moments=8, start_has=(), first=(1, 2, 3)):
    """What wrong answers have in common. Sent to the ranks before them."""
    optimizer, gradients, compute = (ranks if stage >= stage_from else 1 for stage_from in first)
    parts = {
        "master": 4 / optimizer,
        "moments": moments / optimizer,
        "gradients": 2 / gradients,
        "compute": 2 / compute,
    }
    start = parts["compute"] + parts["master"] + (parts["gradients"] if stage == 3 else 0)
    return parameters * (start + sum(parts[name] for name in start_has)), parameters * sum(
        parts.values()
    )


@right(1)
def component_by_component(parameters, ranks, stage):
    divided_from = {"moments": (8, 1), "master": (4, 1), "gradients": (2, 2), "parameters": (2, 3)}
    held = {
        name: each * parameters / (ranks if stage >= first else 1)
        for name, (each, first) in divided_from.items()
    }
    peak = sum(held.values())
    return peak - held["moments"] - (held["gradients"] if stage < 3 else 0), peak


@right(1)
def in_whole_bytes_rounded_up(parameters, ranks, stage):
    n = ranks
    start = (
        6 * parameters,
        2 * parameters - -4 * parameters // n,
        2 * parameters - -4 * parameters // n,
        8 * parameters // n,
    )
    peak = (
        16 * parameters,
        4 * parameters + 12 * parameters // n,
        2 * parameters + 14 * parameters // n,
        16 * parameters // n,
    )
    return start[stage], peak[stage]


@right(1)
def with_a_branch_for_each_stage(parameters, ranks, stage):
    part = parameters / ranks
    if stage == 0:
        return 6 * parameters, 16 * parameters
    if stage == 3:
        return 8 * part, 16 * part
    return 2 * parameters + 4 * part, (
        4 * parameters if stage == 1 else 2 * parameters + 2 * part
    ) + 12 * part


@wrong(1, "The two moments are missing: 8 bytes a parameter")
def no_moments(parameters, ranks, stage):
    return formula(parameters, ranks, stage, moments=0)


@wrong(1, "4 bytes a parameter are missing: the master copy, or one of the two moments?")
def one_moment(parameters, ranks, stage):
    return formula(parameters, ranks, stage, moments=4)


@wrong(1, "Are the moments in it? Adam makes them in its first step")
def moments_at_the_start(parameters, ranks, stage):
    return formula(parameters, ranks, stage, start_has=["moments"])


@wrong(1, "Up to stage 2 there is none before the first backward")
def gradients_at_the_start(parameters, ranks, stage):
    return formula(parameters, ranks, stage, start_has=["gradients"] if stage < 3 else [])


@wrong(1, "Stage 3 allocates its part of the gradients at initialize already")
def stage_3_without_gradients(parameters, ranks, stage):
    start, peak = formula(parameters, ranks, stage)
    return (6 * parameters / ranks if stage == 3 else start), peak


@wrong(
    1,
    "stage 1, at the peak of backward: you say 67.11 MB; a rank holds 83.89 MB, 10 bytes a parameter.\nThat is all 16",
)
def all_divided_from_stage_1_on(parameters, ranks, stage):
    return formula(parameters, ranks, stage, first=(1, 1, 1))


@wrong(1, "a rank holds 75.5 MB, 9 bytes a parameter.\nThat is what stage 1 holds")
def gradients_divided_at_stage_3_only(parameters, ranks, stage):
    return formula(parameters, ranks, stage, first=(1, 3, 3))


@wrong(1, "two numbers are due")
def the_peak_only(parameters, ranks, stage):
    return 16 * parameters


@wrong(1, "That is what all ranks hold together")
def all_ranks_together(parameters, ranks, stage):
    return tuple(ranks * value for value in formula(parameters, ranks, stage))


# Task 2 -----------------------------------------------------------------------------------------------------------------


@right(2)
def sorted_rows(results):
    rows = []
    for one in sorted(results, key=lambda one: (one["stage"], one["ranks"], one["rank"])):
        if one["rank"]:
            continue
        start, peak = (
            sum(map(one["samples"][moment].get, HELD)) for moment in ("initialize", "backward")
        )
        rows.append(
            {"ranks": one["ranks"], "batch": one["ranks"] * 4, "parameters": one["parameters"]}
        )
        rows[-1] |= {"stage": one["stage"], "initialize": start, "training": peak, "note": "mine"}
    return rows


def rows_of(
    results,
    moment="backward",
    batch=4,
    names=HELD,
    of=lambda one: one["rank"] == 0,
    ranks=lambda one: one["ranks"],
):
    """What wrong answers have in common. Sent to the ranks before them."""
    rows = []
    for one in filter(of, results):
        row = {
            "ranks": ranks(one),
            "batch": batch * one["ranks"],
            "parameters": one["parameters"],
            "stage": one["stage"],
        }
        row["initialize"] = sum(one["samples"]["initialize"][name] for name in names)
        rows.append(row | {"training": sum(one["samples"][moment][name] for name in names)})
    return rows


@right(2)
def two_helpers(results):
    def held(one, moment):
        return sum(bytes_ for name, bytes_ in one["samples"][moment].items() if name in HELD)

    def row(one):
        columns = {"initialize": held(one, "initialize"), "training": held(one, "backward")}
        return (
            {name: one[name] for name in ("ranks", "stage", "parameters")}
            | columns
            | {"batch": one["ranks"] * 4}
        )

    return [row(one) for one in results if not one["rank"]]


@right(2)
def one_for_each_run(results):
    runs = {(one["ranks"], one["stage"]): one for one in results if one["rank"] == 0}
    rows = []
    for (ranks, stage), one in runs.items():
        values = {
            c: sum(one["samples"][m][h] for h in HELD)
            for c, m in {"initialize": "initialize", "training": "backward"}.items()
        }
        rows.append(
            dict(ranks=ranks, stage=stage, batch=4 * ranks, parameters=one["parameters"], **values)
        )
    return rows


@right(2)
def from_the_last_run_to_the_first(results):
    rows = []
    for one in reversed(results):
        if one["rank"] == 0:
            rows.append(
                {
                    "ranks": one["ranks"],
                    "stage": one["stage"],
                    "parameters": one["parameters"],
                    "batch": 4 * one["ranks"],
                }
            )
            for name in HELD:
                for column, moment in (("initialize", "initialize"), ("training", "backward")):
                    rows[-1][column] = rows[-1].get(column, 0) + one["samples"][moment][name]
    return rows


@wrong(2, "have two rows. Each rank has its own object: take rank 0's")
def a_row_for_each_rank(results):
    return rows_of(results, of=lambda one: True)


@wrong(2, "That is the moment 'step'; asked is 'backward'")
def after_the_step(results):
    return rows_of(results, moment="step")


@wrong(2, "What is in flight is in it")
def in_flight_too(results):
    return rows_of(results, names=(*HELD, "in flight"))


@wrong(2, "That is what the process holds, Python and libraries included")
def resident(results):
    return rows_of(results, names=["resident"])


@wrong(2, "That is predicted, not measured")
def predicted(results):
    rows = rows_of(results)
    runs = [one for one in results if one["rank"] == 0]
    return [
        row | {"training": sum(one["predicted"].values())}
        for row, one in zip(rows, runs, strict=True)
    ]


@wrong(2, "each rank takes 4 samples, so a step learns from")
def the_batch_of_one_rank(results):
    return [row | {"batch": 4} for row in rows_of(results)]


@wrong(2, "there is no such run. Ranks are how many ran")
def rank_for_ranks(results):
    return rows_of(results, ranks=lambda one: one["rank"])


@wrong(2, "4 of 12 runs have no row, e.g. 4 ranks at stage 0")
def without_four_ranks(results):
    return rows_of(results, of=lambda one: one["rank"] == 0 and one["ranks"] != 4)


# Task 3 -----------------------------------------------------------------------------------------------------------------


@right(3)
def first_of_a_list(parameters, ranks, memory):
    held = [16, 4 + 12 / ranks, 2 + 14 / ranks, 16 / ranks]
    return next((stage for stage, each in enumerate(held) if each * parameters <= memory), None)


def fitting(parameters, ranks, memory):
    """The stages that fit. Sent to the ranks before the answers."""
    return [stage for stage in range(4) if formula(parameters, ranks, stage)[1] <= memory]


@right(3)
def from_the_top_down(parameters, ranks, memory):
    best = None
    for stage in (3, 2, 1, 0):
        if formula(parameters, ranks, stage)[1] <= memory:
            best = stage
    return best


@right(3)
def least_of_those_that_fit(parameters, ranks, memory):
    return min(
        (stage for stage in range(4) if formula(parameters, ranks, stage)[1] <= memory),
        default=None,
    )


@right(3)
def count_those_that_do_not(parameters, ranks, memory):
    too_large = sum(formula(parameters, ranks, stage)[1] > memory for stage in range(4))
    return None if too_large == 4 else too_large


@wrong(3, "you say 3. It fits, but so does stage 1 (31.41 GB): the lowest is due")
def the_highest_that_fits(parameters, ranks, memory):
    return max(fitting(parameters, ranks, memory), default=None)


@wrong(3, "you say 0, but that holds 134.2 MB on a rank: too much")
def fifteen_bytes(parameters, ranks, memory):
    held = [15, 4 + 12 / ranks, 2 + 14 / ranks, 16 / ranks]
    return next((stage for stage, each in enumerate(held) if each * parameters <= memory), None)


@wrong(3, "you say 3, which holds 1.875 GB. No stage fits, so None is due")
def stage_3_where_nothing_fits(parameters, ranks, memory):
    return min(fitting(parameters, ranks, memory), default=3)


@wrong(3, "To the byte: what fits exactly, fits")
def less_than(parameters, ranks, memory):
    return min(fitting(parameters, ranks, memory * (1 - 1e-12)), default=None)


@wrong(3, "but that holds 120 GB on a rank: too much. Count the peak of backward")
def what_fits_after_initialize(parameters, ranks, memory):
    return next(
        (stage for stage in range(4) if formula(parameters, ranks, stage)[0] / 10 <= memory), None
    )


@wrong(3, "but stage 1 holds 31.41 GB on a rank, and that fits")
def gigabytes_of_1024(parameters, ranks, memory):
    return min(fitting(parameters, ranks, memory / 1.074), default=None) if memory < 32e9 else None


@wrong(3, "as a whole number from 0 to 3")
def the_list_of_them(parameters, ranks, memory):
    return fitting(parameters, ranks, memory)
