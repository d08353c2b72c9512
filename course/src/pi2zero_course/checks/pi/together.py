"""The checks of the tasks that all ranks solve together: 4 to 6."""

import itertools

import numpy as np

from pi2zero_course.checks.framework.base import (
    CheckFailed,
    as_text,
    close,
    hint,
    is_whole,
    listed,
    several,
    single,
    task,
)
from pi2zero_course.checks.framework.collective import on_ranks


@task(4)
def task4(pi_from_counts):
    """pi_from_counts(comm, inside, total) -> π on rank 0, None on the others."""
    for counts, total in (([790, 780, 801, 775], 1000), ([20, 19, 22, 20], 26), ([0, 0, 0, 1], 1)):

        def arguments(rank, size, counts=counts, total=total):
            return counts[
                rank % 4
            ], total * size  # any total will do: right or wrong shows in every case

        def judge(size, results, counts=counts, total=total):
            _judge_pi([counts[rank % 4] for rank in range(size)], total * size, results)

        sizes = on_ranks(pi_from_counts, arguments, judge)
    return f"Rank 0 has 4 * (all counts) / (all darts), the others None; tried with {listed(sizes)} ranks."


def _judge_pi(counts, total, results):
    right, size, mine = 4 * sum(counts) / total, len(counts), results[0]
    case = f"the ranks count {' + '.join(map(str, counts))} of {total:,} darts"
    if mine is None:
        raise CheckFailed("rank 0 returned None; it has to return π.")
    if not close(mine, right):
        mistakes = [
            (4 * counts[0] / total, "That is rank 0's count alone."),
            (
                right / 4,
                "The 4 is missing: the circle's quarter is counted."
                + " (Or you divided by the 4 ranks.)" * (size == 4),
            ),
            (
                right / size,
                f"That is divided by the {size} ranks once more than is due: `total` counts all ranks' darts.",
            ),
            (
                right * size,
                "That is multiplied by the number of ranks: `total` counts all ranks' darts already.",
            ),
        ]
        reason = hint(mine, mistakes)
        raise CheckFailed(f"{case}: π is {right:.6g}, rank 0 says {as_text(mine)}.\n{reason}")
    for rank, other in enumerate(results[1:], start=1):
        if other is not None:
            raise CheckFailed(
                f"rank {rank} returned {as_text(other)}; only rank 0 returns π here, the others None."
            )


@task(5)
def task5(mean_and_error):
    """mean_and_error(comm, estimate) -> (mean, standard error of the mean) on rank 0, None on the others."""
    for estimates in (
        [3.10, 3.14, 3.18, 3.14],
        [3.0, 3.2, 3.1, 3.5],
        [3.1416, 3.1410, 3.1422, 3.1408],
    ):

        def arguments(rank, size, estimates=estimates):
            return (estimates[rank % 4] + rank // 4 * 0.01,)

        def judge(size, results, arguments=arguments):
            _judge_error([arguments(rank, size)[0] for rank in range(size)], results)

        sizes = on_ranks(mean_and_error, arguments, judge, fewest=2)
    return f"Rank 0 has the mean and its standard error s / sqrt(ranks), the others None; tried with {listed(sizes)} ranks."


def _judge_error(estimates, results):
    size, spread = len(estimates), np.std(estimates, ddof=1)
    case = f"the ranks estimate {', '.join(f'{e:g}' for e in estimates)}"
    if (pair := several(results[0], 2)) is None:
        raise CheckFailed(
            f"rank 0 returned {results[0]!r}; it has to return two numbers: mean, error."
        )
    mean, error = pair
    if not close(mean, np.mean(estimates)):
        reason = "That is their sum." if close(mean, sum(estimates)) else ""
        reason = "That is rank 0's own estimate." if close(mean, estimates[0]) else reason
        raise CheckFailed(
            f"{case}: the mean is {np.mean(estimates):.6g}, rank 0 says {as_text(mean)}.\n{reason}"
        )
    if not close(
        error, spread / np.sqrt(size), relative=1e-6
    ):  # sums of squares lose half of the digits
        own = f"The spread of {size} values about their own mean: divide by {size - 1} (ddof=1)."
        mistakes = [
            (
                spread,
                f"That is the spread s of one rank's estimate; the mean of {size} is sqrt({size}) times as exact.",
            ),
            (spread / size, f"That is s / {size}: divide by sqrt({size})."),
            (np.std(estimates) / np.sqrt(size), own),
            (
                np.std(estimates),
                "Two things: ddof=1 for the spread, and then / sqrt(ranks) for the mean.",
            ),
        ]
        reason = hint(error, mistakes)
        raise CheckFailed(
            f"{case}: the standard error is {spread / np.sqrt(size):.6g}, rank 0 says {as_text(error)}.\n{reason}"
        )
    for rank, other in enumerate(results[1:], start=1):
        if other is not None:
            raise CheckFailed(
                f"rank {rank} returned {as_text(other)}; only rank 0 has gathered the estimates, the others return None."
            )


class Thrower:
    """Darts without chance: throw(n) says how many of the next n fall inside, at a rate that differs from rank to rank."""

    RATES = (0.70, 0.79, 0.86, 0.78)

    def __init__(self, rank: int, most: int = 10**9):
        self.rate, self.most, self.thrown = self.RATES[rank % 4], most, 0

    def __call__(self, n: int) -> int:
        before, self.thrown = self.thrown, self.thrown + n
        if self.thrown > self.most:
            raise CheckFailed(
                f"{before:,} darts thrown by this rank, ten times what the target needs, and no end."
            )
        return int(self.rate * self.thrown) - int(self.rate * before)


def _after(rounds, size, batch):
    """What ranks that agree know after so many rounds: π, its standard error, darts."""
    darts = rounds * batch * size
    p = sum(Thrower(rank)(rounds * batch) for rank in range(size)) / darts
    return 4 * p, 4 * np.sqrt(p * (1 - p) / darts), darts


def _last_round(size, target, batch):
    """The first round after which the error is below the target."""
    return next(rounds for rounds in itertools.count(1) if _after(rounds, size, batch)[1] < target)


@task(6)
def task6(until_exact):
    """until_exact(comm, throw, target, batch) -> (π, error, darts), the same on all ranks."""
    for target, batch in ((0.02, 1000), (0.05, 100), (0.01, 500)):

        def arguments(rank, size, target=target, batch=batch):
            return Thrower(rank, 10 * _last_round(size, target, batch) * batch), target, batch

        def judge(size, results, target=target, batch=batch):
            _judge_agreement(results)
            _judge_stop(results[0], target, size, batch)

        sizes = on_ranks(until_exact, arguments, judge)
    return f"All ranks stop in the same round, the first with error < target, and agree on π; tried with {listed(sizes)} ranks."


def _judge_agreement(results):
    for rank, result in enumerate(results):
        if several(result, 3) is None:
            raise CheckFailed(
                f"rank {rank} returned {result!r}; it has to return three numbers: π, error, darts."
            )
        if not all(
            close(a, b) or as_text(a) == as_text(b) == "nan"
            for a, b in zip(result, results[0], strict=True)
        ):
            raise CheckFailed(
                f"rank {rank} returns {as_text(result)}, rank 0 {as_text(results[0])}; all ranks have to agree."
            )


def _judge_stop(result, target, size, batch):
    pi, error, darts = map(single, result)
    darts = (
        int(darts) if isinstance(darts, float) and darts.is_integer() else darts
    )  # 8000.0 darts are 8,000
    if not is_whole(darts) or darts <= 0 or darts % (size * batch):
        raise CheckFailed(
            f"you say {darts!r} darts; {size} ranks with {batch:,} each throw {size * batch:,} in every round."
        )
    rounds, last = darts // (size * batch), _last_round(size, target, batch)
    true_pi, true_error, _ = _after(rounds, size, batch)
    stopped = f"target {target:g}: you stopped after {darts:,} darts, in round {rounds}"
    if not close(error, true_error, relative=1e-6):
        mistakes = [
            (true_error / np.sqrt(darts), "Divide by sqrt(darts), not by darts."),
            (true_error / 4, "The 4 is missing."),
            (true_error * np.sqrt(size), "That is the error of one rank's darts alone."),
        ]
        reason = hint(error, mistakes)
        formula = f"4 * sqrt(p * (1 - p) / darts) = {true_error:.3g}"
        raise CheckFailed(
            f"{stopped}.\nThe error of these darts is {formula}, not {as_text(error)}.\n{reason}"
        )
    if not close(pi, true_pi):
        raise CheckFailed(
            f"{stopped}. 4 * inside / darts over all ranks is {true_pi:.6f}, not {as_text(pi)}."
        )
    if rounds < last:
        raise CheckFailed(
            f"{stopped}, with error {true_error:.5f}: that is not below the target yet."
        )
    if rounds > last:
        raise CheckFailed(
            f"{stopped}; round {last} was exact enough (error {_after(last, size, batch)[1]:.5f})."
        )
