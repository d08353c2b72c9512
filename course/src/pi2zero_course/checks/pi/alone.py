"""The checks of the tasks that one rank solves alone: 1 to 3."""

import numpy as np

from pi2zero.costs import monte_carlo_pi_error
from pi2zero_course.checks.framework.base import (
    CheckFailed,
    answer,
    as_text,
    hint,
    is_whole,
    task,
    whole,
)

# What 4 * count / n tends to for mistakes that are often made.
_MISTAKES = [
    (2.0, "2 is what x + y < 1 gives, a triangle: the circle is x*x + y*y < 1."),
    (4.0, "4 means that every dart counts as inside."),
    (0.0, "0 means that no dart counts as inside."),
    (4 - np.pi, "That is 4 - π: you count the darts outside."),
    (
        2 * np.sqrt(2),
        "2.83 is what a single coordinate, used for x and for y, gives: each dart needs two numbers.",
    ),
    (np.pi / 4, "π/4: are darts lost, or are only some coordinates drawn from 0..1?"),
]


@task(1)
def task1(count_inside):
    """count_inside(n, rng) -> how many of n darts from rng fall inside the quarter circle."""
    for n in (1000, 0):
        given = answer(count_inside, n, np.random.default_rng(1))
        count = whole(given)  # 796.0 darts are 796
        if count is None or not 0 <= count <= n:
            part = "The estimate of π comes later, as 4 * count / n." * (count is None)
            raise CheckFailed(
                f"count_inside({n}, rng) gave {as_text(given)}; it has to be a count: a whole number from 0 to {n}.\n"
                + ("Is the `return` missing?" if given is None else part)
            )
    first, again = (answer(count_inside, 1000, np.random.default_rng(2)) for _ in range(2))
    if first != again:
        raise CheckFailed(
            "Two generators with the same seed gave two different counts: take all darts from the rng that is handed in."
        )
    if len({answer(count_inside, 1000, np.random.default_rng(seed)) for seed in range(20)}) == 1:
        raise CheckFailed(
            "20 generators with 20 seeds gave the same count: take all darts from the rng that is handed in."
        )
    rng = np.random.default_rng(3)
    if len({answer(count_inside, 1000, rng) for _ in range(20)}) == 1:
        raise CheckFailed(
            "20 calls with one rng gave the same count: are these always the same darts?"
        )
    for n in (1_000, 30_000, 1_000_000):
        estimate = 4 * answer(count_inside, n, np.random.default_rng(n)) / n
        away = abs(estimate - np.pi) / monte_carlo_pi_error(n)
        if away > 5:
            reason = hint(estimate, _MISTAKES, same=lambda mine, limit: abs(mine - limit) < 0.15)
            raise CheckFailed(
                f"With n = {n:,} your count gives π ≈ {estimate:.4f}. That is {away:,.0f} standard errors of 1.642/sqrt(n) "
                f"away from π; 5 are allowed.\n{reason}"
            )
    _as_many_darts_as_asked_for(count_inside)
    return "Counts of 1,000, 30,000 and 1,000,000 darts give π within 5 standard errors, and all darts come from your rng."


class _Middle(np.random.Generator):
    """Its random and uniform numbers are all the middle of their range, so that all darts are alike; others are as ever."""

    def random(self, size=None, dtype=np.float64, out=None):
        if out is None:
            return 0.5 if size is None else np.full(size, 0.5, dtype)
        out[...] = 0.5
        return out

    def uniform(self, low=0.0, high=1.0, size=None):
        middle = (np.asarray(low) + high) / 2
        return middle[()] if size is None else np.full(size, middle)


def _as_many_darts_as_asked_for(count_inside):
    """Statistics do not see a dart in four thousand too few."""
    rng, n = _Middle(np.random.PCG64(4)), 10_000
    before = rng.bit_generator.state
    count = answer(count_inside, n, rng)
    if (
        count not in (0, n) and rng.bit_generator.state == before
    ):  # 0: their one place is outside; else it drew others
        raise CheckFailed(
            f"With an rng whose numbers are all the middle of their range, count_inside({n}, rng) gave {as_text(count)}: all "
            f"{n:,} are inside. Are n darts thrown, and each counted once?"
        )


@task(2)
def task2(make_rng):
    """make_rng(seed, rank, size) -> a numpy Generator; independent for every rank and every seed."""
    size = 4
    streams = {}
    for seed, rank, ranks in _runs(size):
        streams[seed, rank] = _numbers(make_rng, seed, rank, ranks, count=8)
    if any(
        not np.array_equal(streams[7, rank], _numbers(make_rng, 7, rank, size, count=8))
        for rank in range(size)
    ):
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
        "40 streams (10 seeds on 4 ranks) all differ, also from those of other seeds and higher ranks; a seed repeats its "
        "darts, and 100,000 numbers of each rank do not overlap."
    )


def _runs(size):
    """(seed, rank, ranks): ten seeds, then those at which sums and products of seed and rank collide with them."""
    small = [(seed, rank, size) for seed in range(1, 11) for rank in range(size)]
    far_seeds = [(seed, rank, size) for seed in (11, 101, 1001, 10_001) for rank in range(size)]
    far_ranks = [(1, rank, rank + 1) for rank in (10, 11, 100, 1000, 10_000)]
    return (
        small
        + far_seeds
        + far_ranks
        + [(seed, rank, ranks) for seed in (12, 13) for ranks in (2, 3) for rank in range(ranks)]
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
            why = (
                "\nA float counts no darts: rng.random(26.0) is refused. Divide with //."
                * isinstance(mine, float)
            )
            raise CheckFailed(
                f"{case}, rank {rank} gets {mine!r}; it has to be a whole number, 0 or more.{why}"
            )
    shares = list(map(int, shares))
    if sum(shares) != total:
        raise CheckFailed(
            f"{case}, you hand out {' + '.join(f'{s:,}' for s in shares)} = {sum(shares):,}; it has to be {total:,}."
        )
    low, rest = divmod(total, size)
    if max(shares) - min(shares) > 1:
        rank = int(np.argmax([abs(mine - total / size) for mine in shares]))
        fair = f"{low:,} or {low + 1:,}" if rest else f"{low:,}"
        raise CheckFailed(
            f"{case}, rank {rank} gets {shares[rank]:,}; with fair shares it is {fair}. Yours: {shares}."
        )
