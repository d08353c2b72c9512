"""The checks of lab 1, π on MPI ranks. Each is called on all ranks, in a `%%px` cell: `check.task1(count_inside)`."""

import itertools

import numpy as np

from pi2zero.checks.framework.base import CheckFailed, answer, close, is_whole, listed, shown, task
from pi2zero.checks.framework.collective import on_ranks
from pi2zero.costs import monte_carlo_pi_error

# What 4 * count / n tends to for mistakes that are often made.
_KNOWN_LIMITS = {
    2.0: "2 is what x + y < 1 gives, a triangle: the circle is x*x + y*y < 1.",
    4.0: "4 means that every dart counts as inside.",
    0.0: "0 means that no dart counts as inside.",
    4 - np.pi: "That is 4 - π: you count the darts outside.",
    2 * np.sqrt(2): "2.83 is what a single coordinate, used for x and for y, gives: each dart needs two numbers.",
    np.pi / 4: "π/4: are darts lost, or are only some coordinates drawn from 0..1?",
}


@task(1)
def task1(count_inside):
    """count_inside(n, rng) -> how many of n darts from rng fall inside the quarter circle."""
    for n in (1000, 0):
        count = answer(count_inside, n, np.random.default_rng(1))
        if not is_whole(count) or not 0 <= count <= n:
            raise CheckFailed(
                f"count_inside({n}, rng) gave {shown(count)}; it has to be a count: a whole number from 0 to {n}.\n"
                + ("Is the `return` missing?" if count is None else "The estimate of π comes later, as 4 * count / n.")
            )
    first, again = (answer(count_inside, 1000, np.random.default_rng(2)) for _ in range(2))
    if first != again:
        raise CheckFailed(
            "Two generators with the same seed gave two different counts: take all darts from the rng that is handed in."
        )
    if len({answer(count_inside, 1000, np.random.default_rng(seed)) for seed in range(20)}) == 1:
        raise CheckFailed("20 generators with 20 seeds gave the same count: take all darts from the rng that is handed in.")
    rng = np.random.default_rng(3)
    if len({answer(count_inside, 1000, rng) for _ in range(20)}) == 1:
        raise CheckFailed("20 calls with one rng gave the same count: are these always the same darts?")
    for n in (1_000, 30_000, 1_000_000):
        estimate = 4 * answer(count_inside, n, np.random.default_rng(n)) / n
        away = abs(estimate - np.pi) / monte_carlo_pi_error(n)
        if away > 5:
            reason = next((text for limit, text in _KNOWN_LIMITS.items() if abs(estimate - limit) < 0.15), "")
            raise CheckFailed(
                f"With n = {n:,} your count gives π ≈ {estimate:.4f}. That is {away:,.0f} standard errors of 1.642/sqrt(n) "
                f"away from π; 5 are allowed.\n{reason}"
            )
    return "Counts of 1,000, 30,000 and 1,000,000 darts give π within 5 standard errors, and all darts come from your rng."


@task(2)
def task2(make_rng):
    """make_rng(seed, rank, size) -> a numpy Generator; independent for every rank and every seed."""
    size = 4
    streams = {}
    for seed in range(1, 11):
        for rank in range(size):
            streams[seed, rank] = _numbers(make_rng, seed, rank, size)[:8]
    if any(not np.array_equal(streams[7, rank], _numbers(make_rng, 7, rank, size)[:8]) for rank in range(size)):
        raise CheckFailed(
            "make_rng(7, rank, 4), called twice, starts two different streams. A seed has to give the same darts each time."
        )
    owner = {}
    for (seed, rank), numbers in streams.items():
        other = owner.setdefault(numbers.tobytes(), (seed, rank))
        if other != (seed, rank):
            raise CheckFailed(_same_stream(other, (seed, rank)))
    _no_overlap([_numbers(make_rng, 7, rank, size) for rank in range(size)])
    return (
        "40 streams (10 seeds on 4 ranks) all differ, a seed repeats its darts, and 100,000 numbers of each rank do not overlap."
    )


def _numbers(make_rng, seed, rank, size, count=100_000):
    rng = answer(make_rng, seed, rank, size)
    if not isinstance(rng, np.random.Generator):
        raise CheckFailed(
            f"make_rng(seed, rank, size) gave {type(rng).__name__}; it has to be a numpy Generator, from default_rng."
        )
    return rng.random(count)


def _same_stream(one, two):
    (seed1, rank1), (seed2, rank2) = one, two
    if seed1 == seed2:
        return f"Ranks {rank1} and {rank2} throw the same darts (seed {seed1}): together they know no more than one of them."
    if rank1 == rank2:
        return f"Rank {rank1} throws the same darts with the seeds {seed1} and {seed2}: no second run would tell anything new."
    return (
        f"Rank {rank1} with seed {seed1} throws the same darts as rank {rank2} with seed {seed2}: two runs with neighbouring "
        "seeds\nshare most of their darts. Let NumPy mix seed and rank; do not add or multiply them."
    )


def _no_overlap(streams):
    """A number of 53 random bits turns up twice only if two streams are one stream, shifted."""
    for a, first in enumerate(streams):
        for b in range(a + 1, len(streams)):
            common, at_first, at_other = np.intersect1d(first, streams[b], return_indices=True)
            if common.size > 2:
                shift = abs(int(at_first[0]) - int(at_other[0]))
                raise CheckFailed(
                    f"The streams of ranks {a} and {b} are one stream, {shift:,} numbers apart: of 100,000 numbers they share "
                    f"{common.size:,}.\nAs soon as a rank throws more darts, it throws the other's again."
                )


@task(3)
def task3(share):
    """share(total, rank, size) -> how many of `total` darts this rank throws."""
    totals = (103, 100, 1_000_003, 4, 3, 1, 0)
    for total in totals:
        for size in (4, 3, 2, 1, 5, 8, 9):
            shares = [answer(share, total, rank, size) for rank in range(size)]
            _judge_shares(total, size, shares)
    tried = f"{len(totals)} numbers of darts, up to {max(totals):,}, on 1 to 9 ranks"
    return f"Tried with {tried}: every dart is thrown once, and shares differ by at most one."


def _judge_shares(total, size, shares):
    case = f"With {total:,} dart{'s' * (total != 1)} on {size} rank{'s' * (size > 1)}"
    for rank, mine in enumerate(shares):
        if not is_whole(mine) or mine < 0:
            raise CheckFailed(f"{case}, rank {rank} gets {mine!r}; it has to be a whole number, 0 or more.")
    if sum(shares) != total:
        raise CheckFailed(
            f"{case}, you hand out {' + '.join(f'{s:,}' for s in shares)} = {sum(shares):,}; it has to be {total:,}."
        )
    low, rest = divmod(total, size)
    if max(shares) - min(shares) > 1:
        rank = int(np.argmax([abs(mine - total / size) for mine in shares]))
        fair = f"{low:,} or {low + 1:,}" if rest else f"{low:,}"
        raise CheckFailed(f"{case}, rank {rank} gets {shares[rank]:,}; with fair shares it is {fair}. Yours: {shares}.")


@task(4)
def task4(pi_from_counts):
    """pi_from_counts(comm, inside, total) -> π on rank 0, None on the others."""
    for counts, total in (([790, 780, 801, 775], 1000), ([20, 19, 22, 20], 26), ([0, 0, 0, 1], 1)):

        def arguments(rank, size, counts=counts, total=total):
            return counts[rank % 4], total * size  # any total will do: right or wrong shows in every case

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
        reasons = {
            4 * counts[0] / total: "That is rank 0's count alone.",
            right / size: f"That is divided by the {size} ranks once more than is due: `total` counts all ranks' darts.",
            right / 4: "The 4 is missing: the circle's quarter is counted." + " (Or you divided by the 4 ranks.)" * (size == 4),
            right * size: "That is multiplied by the number of ranks: `total` counts all ranks' darts already.",
        }
        reason = next((text for value, text in reasons.items() if close(mine, value)), "")
        raise CheckFailed(f"{case}: π is {right:.6g}, rank 0 says {shown(mine)}.\n{reason}")
    for rank, other in enumerate(results[1:], start=1):
        if other is not None:
            raise CheckFailed(f"rank {rank} returned {shown(other)}; only rank 0 returns π here, the others None.")


@task(5)
def task5(mean_and_error):
    """mean_and_error(comm, estimate) -> (mean, standard error of the mean) on rank 0, None on the others."""
    for estimates in ([3.10, 3.14, 3.18, 3.14], [3.0, 3.2, 3.1, 3.5], [3.1416, 3.1410, 3.1422, 3.1408]):

        def arguments(rank, size, estimates=estimates):
            return (estimates[rank % 4] + rank // 4 * 0.01,)

        def judge(size, results, arguments=arguments):
            _judge_error([arguments(rank, size)[0] for rank in range(size)], results)

        sizes = on_ranks(mean_and_error, arguments, judge, fewest=2)
    return f"Rank 0 has the mean and its standard error s / sqrt(ranks), the others None; tried with {listed(sizes)} ranks."


def _judge_error(estimates, results):
    size, spread = len(estimates), np.std(estimates, ddof=1)
    case = f"the ranks estimate {', '.join(f'{e:g}' for e in estimates)}"
    if not (isinstance(results[0], tuple | list) and len(results[0]) == 2):
        raise CheckFailed(f"rank 0 returned {results[0]!r}; it has to return two numbers: mean, error.")
    mean, error = results[0]
    if not close(mean, np.mean(estimates)):
        reason = "That is their sum." if close(mean, sum(estimates)) else ""
        reason = "That is rank 0's own estimate." if close(mean, estimates[0]) else reason
        raise CheckFailed(f"{case}: the mean is {np.mean(estimates):.6g}, rank 0 says {shown(mean)}.\n{reason}")
    if not close(error, spread / np.sqrt(size)):
        reasons = {
            spread: f"That is the spread s of one rank's estimate; the mean of {size} is sqrt({size}) times as exact.",
            spread / size: f"That is s / {size}: divide by sqrt({size}).",
            np.std(estimates)
            / np.sqrt(size): f"The spread of {size} values about their own mean: divide by {size - 1} (ddof=1).",
            np.std(estimates): "Two things: ddof=1 for the spread, and then / sqrt(ranks) for the mean.",
        }
        reason = next((text for value, text in reasons.items() if close(error, value)), "")
        raise CheckFailed(f"{case}: the standard error is {spread / np.sqrt(size):.6g}, rank 0 says {shown(error)}.\n{reason}")
    for rank, other in enumerate(results[1:], start=1):
        if other is not None:
            raise CheckFailed(
                f"rank {rank} returned {shown(other)}; only rank 0 has gathered the estimates, the others return None."
            )


class Thrower:
    """Darts without chance: throw(n) says how many of the next n fall inside, at a rate that differs from rank to rank."""

    RATES = (0.70, 0.79, 0.86, 0.78)

    def __init__(self, rank: int, most: int = 10**9):
        self.rate, self.most, self.thrown = self.RATES[rank % 4], most, 0

    def __call__(self, n: int) -> int:
        before, self.thrown = self.thrown, self.thrown + n
        if self.thrown > self.most:
            raise CheckFailed(f"{before:,} darts thrown by this rank, ten times what the target needs, and no end.")
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
        if not (isinstance(result, tuple | list) and len(result) == 3):
            raise CheckFailed(f"rank {rank} returned {result!r}; it has to return three numbers: π, error, darts.")
        if not all(close(a, b) for a, b in zip(result, results[0], strict=True)):
            raise CheckFailed(f"rank {rank} returns {shown(result)}, rank 0 {shown(results[0])}; all ranks have to agree.")


def _judge_stop(result, target, size, batch):
    pi, error, darts = result
    if not is_whole(darts) or darts <= 0 or darts % (size * batch):
        raise CheckFailed(f"you say {darts!r} darts; {size} ranks with {batch:,} each throw {size * batch:,} in every round.")
    rounds, last = darts // (size * batch), _last_round(size, target, batch)
    true_pi, true_error, _ = _after(rounds, size, batch)
    stopped = f"target {target:g}: you stopped after {darts:,} darts, in round {rounds}"
    if not close(error, true_error):
        reasons = {
            true_error / np.sqrt(darts): "Divide by sqrt(darts), not by darts.",
            true_error / 4: "The 4 is missing.",
            true_error * np.sqrt(size): "That is the error of one rank's darts alone.",
        }
        reason = next((text for value, text in reasons.items() if close(error, value)), "")
        formula = f"4 * sqrt(p * (1 - p) / darts) = {true_error:.3g}"
        raise CheckFailed(f"{stopped}.\nThe error of these darts is {formula}, not {shown(error)}.\n{reason}")
    if not close(pi, true_pi):
        raise CheckFailed(f"{stopped}. 4 * inside / darts over all ranks is {true_pi:.6f}, not {shown(pi)}.")
    if rounds < last:
        raise CheckFailed(f"{stopped}, with error {error:.5f}: that is not below the target yet.")
    if rounds > last:
        raise CheckFailed(f"{stopped}; round {last} was exact enough (error {_after(last, size, batch)[1]:.5f}).")
