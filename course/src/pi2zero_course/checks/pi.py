"""The checks of lab 1, π on MPI ranks. Each is called on all ranks, in a `%%px` cell:
`check.share(share)`."""

import itertools
from functools import partial

import numpy as np

from pi2zero.costs import monte_carlo_pi_error
from pi2zero_course.checks.blanks.pi import explain_estimate
from pi2zero_course.checks.framework.answers import CheckError, call_answer
from pi2zero_course.checks.framework.on_ranks import OnRanks
from pi2zero_course.checks.framework.task import LabTask, lab_task
from pi2zero_course.checks.framework.values import (
    as_int,
    as_list_of,
    as_text,
    close,
    is_int,
    pick_hint,
    plural,
    scalar,
)

Task = partial(LabTask, lab=1)


@lab_task(1, 1)
def count_inside(function):
    """count_inside(n, rng) -> how many of n darts from rng fall inside the quarter circle."""

    def count(n, seed):
        return call_answer(function, n, np.random.default_rng(seed))

    # One dart too many shows without darts: it is inside for most seeds.
    for n, seed in [(1000, 1), *((0, seed) for seed in range(20))]:
        value = count(n, seed)
        number = as_int(value)  # 796.0 darts are 796
        if number is None or not 0 <= number <= n:
            why = "The estimate of π comes later, as 4 * count / n." * (number is None)
            raise CheckError(
                f"count_inside({n}, rng) gave {as_text(value)}; it has to be a count: a whole "
                f"number from 0 to {n}.\n" + ("Is the `return` missing?" if value is None else why)
            )
    if count(1000, 2) != count(1000, 2):
        raise CheckError(
            "Two generators with the same seed gave two different counts: take all darts from the "
            "rng that is handed in."
        )
    if len({count(1000, seed) for seed in range(20)}) == 1:
        raise CheckError(
            "20 generators with 20 seeds gave the same count: take all darts from the rng that is "
            "handed in."
        )
    for n in (1_000, 30_000, 1_000_000):
        estimate = 4 * count(n, n) / n
        distance = abs(estimate - np.pi) / monte_carlo_pi_error(n)
        if distance > 5:
            raise CheckError(
                f"With n = {n:,} your count gives π ≈ {estimate:.4f}. That is {distance:,.0f} "
                "standard errors of 1.642/sqrt(n) away from π; 5 are allowed.\n"
                f"{explain_estimate(estimate)}"
            )
    return (
        "Counts of 1,000, 30,000 and 1,000,000 darts give π within 5 standard errors, and all "
        "darts come from your rng."
    )


@lab_task(1, 2)
def make_rng(function):
    """make_rng(seed, rank, size) -> a numpy Generator; independent for every rank and every
    seed."""
    size = 4
    streams = {
        (seed, rank): _numbers(function, seed, rank, ranks, count=8)
        for seed, rank, ranks in _runs(size)
    }
    for rank in range(size):
        if not np.array_equal(streams[7, rank], _numbers(function, 7, rank, size, count=8)):
            raise CheckError(
                "make_rng(7, rank, 4), called twice, starts two different streams. A seed has to "
                "give the same darts each time."
            )
    owner = {}
    for run, numbers in streams.items():
        other = owner.setdefault(numbers.tobytes(), run)
        if other != run:
            raise CheckError(_explain_same_stream(other, run))
    _judge_overlap([_numbers(function, 7, rank, size) for rank in range(size)])
    return (
        "40 streams (10 seeds on 4 ranks) all differ, also from those of other seeds and higher "
        "ranks; a seed repeats its darts, and 100,000 numbers of each rank do not overlap."
    )


def _runs(size):
    """(seed, rank, ranks): ten seeds, then those whose sums and products of seed and rank collide
    with them."""
    near = [(seed, rank, size) for seed in range(1, 11) for rank in range(size)]
    far_seeds = [(seed, rank, size) for seed in (11, 101, 1001, 10_001) for rank in range(size)]
    far_ranks = [(1, rank, rank + 1) for rank in (10, 11, 100, 1000, 10_000)]
    return near + far_seeds + far_ranks


def _numbers(function, seed, rank, size, count=100_000):
    rng = call_answer(function, seed, rank, size)
    if not isinstance(rng, np.random.Generator):
        raise CheckError(
            f"make_rng(seed, rank, size) gave {type(rng).__name__}; it has to be a numpy "
            "Generator, from default_rng."
        )
    return rng.random(count)


def _explain_same_stream(one, two):
    (seed1, rank1), (seed2, rank2) = one, two
    if seed1 == seed2:
        return (
            f"Ranks {rank1} and {rank2} throw the same darts (seed {seed1}): together they know "
            "no more than one of them."
        )
    if rank1 == rank2:
        return (
            f"Rank {rank1} throws the same darts with the seeds {seed1} and {seed2}: no second "
            "run would tell anything new."
        )
    return (
        f"Rank {rank1} with seed {seed1} throws the same darts as rank {rank2} with seed {seed2}: "
        "two runs with neighbouring seeds\nshare most of their darts. Let NumPy mix seed and rank; "
        "do not add or multiply them."
    )


def _judge_overlap(streams):
    """A number of 53 random bits turns up twice only if two streams are one stream, shifted."""
    for (a, first), (b, second) in itertools.combinations(enumerate(streams), 2):
        common, at_first, at_second = np.intersect1d(first, second, return_indices=True)
        if common.size > 2:
            shift = abs(int(at_first[0]) - int(at_second[0]))
            raise CheckError(
                f"The streams of ranks {a} and {b} are one stream, {shift:,} numbers apart: of "
                f"100,000 numbers they share {common.size:,}.\nAs soon as a rank throws more "
                "darts, it throws the other's again."
            )


def _judge_shares(function, total, size):
    shares = [call_answer(function, total, rank, size) for rank in range(size)]
    case = f"With {plural(total, 'dart')} on {plural(size, 'rank')}"
    for rank, share in enumerate(shares):
        if not is_int(share) or share < 0:
            why = "\nA float counts no darts: rng.random(26.0) is refused. Divide with //."
            raise CheckError(
                f"{case}, rank {rank} gets {share!r}; it has to be a whole number, 0 or more."
                + why * isinstance(share, float)
            )
    shares = list(map(int, shares))
    if sum(shares) != total:
        raise CheckError(
            f"{case}, you hand out {' + '.join(f'{share:,}' for share in shares)} = "
            f"{sum(shares):,}; it has to be {total:,}."
        )
    low, rest = divmod(total, size)
    if max(shares) - min(shares) > 1:
        rank = int(np.argmax([abs(share - total / size) for share in shares]))
        fair = f"{low:,} or {low + 1:,}" if rest else f"{low:,}"
        raise CheckError(
            f"{case}, rank {rank} gets {shares[rank]:,}; with fair shares it is {fair}. Yours: "
            f"{shares}."
        )


# share(total, rank, size) -> how many of `total` darts this rank throws
share = Task(
    number=3,
    name="share",
    cases=list(itertools.product((103, 100, 1_000_003, 4, 3, 1, 0), (4, 3, 2, 1, 5, 8, 9))),
    judge_case=_judge_shares,
    verified="Tried with 7 numbers of darts, up to 1,000,003, on 1 to 9 ranks: every dart is "
    "thrown once, and shares differ by at most one.",
)


def _judge_pi(results, counts, total):
    size, value = len(results), results[0]
    counts, total = [counts[rank % 4] for rank in range(size)], total * size
    right = 4 * sum(counts) / total
    case = f"the ranks count {' + '.join(map(str, counts))} of {total:,} darts"
    if value is None:
        raise CheckError("rank 0 returned None; it has to return π.")
    if not close(value, right):
        by_ranks = " (Or you divided by the 4 ranks.)" * (size == 4)
        mistakes = {
            "That is rank 0's count alone.": 4 * counts[0] / total,
            f"The 4 is missing: the circle's quarter is counted.{by_ranks}": right / 4,
            f"That is divided by the {size} ranks once more than is due: `total` counts all "
            "ranks' darts.": right / size,
            "That is multiplied by the number of ranks: `total` counts all ranks' darts "
            "already.": right * size,
        }
        hint = pick_hint(value, mistakes)
        raise CheckError(f"{case}: π is {right:.6g}, rank 0 says {as_text(value)}.\n{hint}")
    _require_none(results, "only rank 0 returns π here, the others None.")


def _require_none(results, why):
    for rank, result in enumerate(results[1:], start=1):
        if result is not None:
            raise CheckError(f"rank {rank} returned {as_text(result)}; {why}")


# pi_from_counts(comm, inside, total) -> π on rank 0, None on the others
pi_from_counts = Task(
    number=4,
    name="pi_from_counts",
    cases=[([790, 780, 801, 775], 1000), ([20, 19, 22, 20], 26), ([0, 0, 0, 1], 1)],
    on_ranks=OnRanks(
        arguments=lambda rank, size, counts, total: (counts[rank % 4], total * size),
        judge=_judge_pi,
    ),
    verified="Rank 0 has 4 * (all counts) / (all darts), the others None; tried with {ranks} "
    "ranks.",
)


def _estimate(rank, size, estimates):
    return (estimates[rank % 4] + rank // 4 * 0.01,)


def _judge_error(results, estimates):
    size = len(results)
    estimates = [_estimate(rank, size, estimates)[0] for rank in range(size)]
    spread = np.std(estimates, ddof=1)
    right = spread / np.sqrt(size)
    case = f"the ranks estimate {', '.join(f'{e:g}' for e in estimates)}"
    if (pair := as_list_of(results[0], 2)) is None:
        raise CheckError(
            f"rank 0 returned {results[0]!r}; it has to return two numbers: mean, error."
        )
    mean, error = pair
    if not close(mean, np.mean(estimates)):
        mistakes = {
            "That is rank 0's own estimate.": estimates[0],
            "That is their sum.": sum(estimates),
        }
        hint = pick_hint(mean, mistakes)
        raise CheckError(
            f"{case}: the mean is {np.mean(estimates):.6g}, rank 0 says {as_text(mean)}.\n{hint}"
        )
    if not close(error, right, relative=1e-6):  # sums of squares lose half of the digits
        own_mean = (
            f"The spread of {size} values about their own mean: divide by {size - 1} (ddof=1)."
        )
        mistakes = {
            f"That is the spread s of one rank's estimate; the mean of {size} is sqrt({size}) "
            "times as exact.": spread,
            f"That is s / {size}: divide by sqrt({size}).": spread / size,
            own_mean: np.std(estimates) / np.sqrt(size),
        }
        hint = pick_hint(error, mistakes)
        raise CheckError(
            f"{case}: the standard error is {right:.6g}, rank 0 says {as_text(error)}.\n{hint}"
        )
    _require_none(results, "only rank 0 has gathered the estimates, the others return None.")


# mean_and_error(comm, estimate) -> (mean, standard error of the mean) on rank 0, None on the others
mean_and_error = Task(
    number=5,
    name="mean_and_error",
    cases=[
        ([3.10, 3.14, 3.18, 3.14],),
        ([3.0, 3.2, 3.1, 3.5],),
        ([3.1416, 3.1410, 3.1422, 3.1408],),
    ],
    on_ranks=OnRanks(arguments=_estimate, judge=_judge_error, fewest=2),
    verified="Rank 0 has the mean and its standard error s / sqrt(ranks), the others None; tried "
    "with {ranks} ranks.",
)


class Thrower:
    """Darts without chance: throw(n) says how many of the next n fall inside, at a rate of each
    rank's own."""

    RATES = (0.70, 0.79, 0.86, 0.78)

    def __init__(self, rank: int, most: int = 10**9):
        self.rate, self.most, self.thrown = self.RATES[rank % 4], most, 0

    def __call__(self, n: int) -> int:
        before, self.thrown = self.thrown, self.thrown + n
        if self.thrown > self.most:
            raise CheckError(
                f"{before:,} darts thrown by this rank, ten times what the target needs, and no "
                "end."
            )
        return int(self.rate * self.thrown) - int(self.rate * before)


def _after(rounds, size, batch):
    """What ranks that agree know after so many rounds: π, its standard error."""
    darts = rounds * batch * size
    p = sum(Thrower(rank)(rounds * batch) for rank in range(size)) / darts
    return 4 * p, 4 * np.sqrt(p * (1 - p) / darts)


def _last_round(size, target, batch):
    """The first round after which the error is below the target."""
    return next(rounds for rounds in itertools.count(1) if _after(rounds, size, batch)[1] < target)


def _until_exact_arguments(rank, size, target, batch):
    return Thrower(rank, 10 * _last_round(size, target, batch) * batch), target, batch


def _judge_until_exact(results, target, batch):
    for rank, result in enumerate(results):
        if as_list_of(result, 3) is None:
            raise CheckError(
                f"rank {rank} returned {result!r}; it has to return three numbers: π, error, darts."
            )
        if not all(
            close(a, b) or as_text(a) == as_text(b) == "nan"
            for a, b in zip(result, results[0], strict=True)
        ):
            raise CheckError(
                f"rank {rank} returns {as_text(result)}, rank 0 {as_text(results[0])}; all ranks "
                "have to agree."
            )
    _judge_stop(results[0], target, len(results), batch)


def _judge_stop(result, target, size, batch):
    pi, error, darts = map(scalar, result)
    if not as_int(darts) or darts <= 0 or darts % (size * batch):
        raise CheckError(
            f"you say {darts!r} darts; {size} ranks with {batch:,} each throw {size * batch:,} in "
            "every round."
        )
    darts = as_int(darts)
    rounds, last = darts // (size * batch), _last_round(size, target, batch)
    true_pi, true_error = _after(rounds, size, batch)
    stopped = f"target {target:g}: you stopped after {darts:,} darts, in round {rounds}"
    if not close(error, true_error, relative=1e-6):
        mistakes = {
            "Divide by sqrt(darts), not by darts.": true_error / np.sqrt(darts),
            "The 4 is missing.": true_error / 4,
            "That is the error of one rank's darts alone.": true_error * np.sqrt(size),
        }
        raise CheckError(
            f"{stopped}.\nThe error of these darts is 4 * sqrt(p * (1 - p) / darts) = "
            f"{true_error:.3g}, not {as_text(error)}.\n{pick_hint(error, mistakes)}"
        )
    if not close(pi, true_pi):
        raise CheckError(
            f"{stopped}. 4 * inside / darts over all ranks is {true_pi:.6f}, not {as_text(pi)}."
        )
    if rounds < last:
        raise CheckError(
            f"{stopped}, with error {true_error:.5f}: that is not below the target yet."
        )
    if rounds > last:
        enough = _after(last, size, batch)[1]
        raise CheckError(f"{stopped}; round {last} was exact enough (error {enough:.5f}).")


# until_exact(comm, throw, target, batch) -> (π, error, darts), the same on all ranks
until_exact = Task(
    number=6,
    name="until_exact",
    cases=[(0.02, 1000), (0.05, 100), (0.01, 500)],
    on_ranks=OnRanks(arguments=_until_exact_arguments, judge=_judge_until_exact),
    verified="All ranks stop in the same round, the first with error < target, and agree on π; "
    "tried with {ranks} ranks.",
)
