"""Answers to the tasks that one rank solves alone: 1 to 3."""

import numpy as np

from . import right, wrong

# Task 1 -----------------------------------------------------------------------------------------------------------------


@right(1)
def whole_circle_on_a_square_of_side_two(n, rng):
    xy = rng.uniform(-1, 1, size=(n, 2))
    return (np.hypot(xy[:, 0], xy[:, 1]) <= 1).sum()


@right(1)
def dart_by_dart(n, rng):
    inside = 0
    for _ in range(n):
        x, y = rng.random(2)
        inside += x * x + y * y < 1
    return int(inside)


@right(1)
def ones_added_up(n, rng):
    x, y = rng.random(n), rng.random(n)
    return np.sum((x * x + y * y < 1) * 1.0)  # 796.0


@right(1)
def as_complex_numbers(n, rng):
    return int((abs(rng.random(n) + 1j * rng.random(n)) < 1).sum())


@right(1)
def in_pieces_that_fit_the_cache(n, rng):
    inside = 0
    for start in range(0, n, 4096):
        x, y = rng.random((2, min(4096, n - start)))
        inside += len(x[x**2 + y**2 < 1])
    return inside


@wrong(1, "gave 10001: all 10,000 are inside")
def one_dart_more(n, rng):
    inside = 0
    for start in range(-1, n, 4096):
        x, y = rng.random((2, min(4096, n - start)))
        inside += len(x[x * x + y * y < 1])
    return inside


@wrong(1, "gave 9998: all 10,000 are inside")
def a_dart_lost_between_two_pieces(n, rng):
    inside = 0
    for start in range(0, n, 4097):
        x, y = rng.random((2, min(4096, n - start)))
        inside += len(x[x * x + y * y < 1])
    return inside


@wrong(1, "has to be a count")
def estimate_instead_of_count(n, rng):
    x, y = rng.random(n), rng.random(n)
    return 4 * np.mean(x * x + y * y < 1)


@wrong(1, "gave -782; it has to be a count: a whole number from 0 to 1000.")
def counted_downwards(n, rng):
    x, y = rng.random(n), rng.random(n)
    return -int(np.sum(x * x + y * y < 1))


@wrong(1, "2 is what x + y < 1 gives")
def triangle_instead_of_circle(n, rng):
    x, y = rng.random(n), rng.random(n)
    return int(np.sum(x + y < 1))


@wrong(1, "each dart needs two numbers")
def one_coordinate_twice(n, rng):
    x = rng.random(n)
    return int(np.sum(x * x + x * x < 1))


@wrong(1, "same seed gave two different counts")
def own_generator(n, rng):
    x, y = np.random.rand(n), np.random.rand(n)
    return int(np.sum(x * x + y * y < 1))


@wrong(1, "20 seeds gave the same count")
def seed_inside(n, rng):
    rng = np.random.default_rng(0)
    x, y = rng.random(n), rng.random(n)
    return int(np.sum(x * x + y * y < 1))


@wrong(1, "Is the `return` missing?")
def no_return(n, rng):
    x, y = rng.random(n), rng.random(n)
    np.sum(x * x + y * y < 1)


@wrong(1, "raised ValueError: The truth value of an array")
def if_on_an_array(n, rng):
    x, y = rng.random(n), rng.random(n)
    if x * x + y * y < 1:
        return n
    return 0


# Task 2 -----------------------------------------------------------------------------------------------------------------


@right(1)
def shifted_to_the_whole_circle(n, rng):
    x, y = 2 * rng.random(n) - 1, rng.uniform(0, 2, n) - 1
    return int(np.sum(x * x + y * y < 1))


@right(1)
def mirrored_quarter(n, rng):
    x, y = 1 - rng.random(n), rng.random(n)
    return int(np.sum(x * x + y * y < 1))


@right(2)
def list_of_seed_and_rank(seed, rank, size):
    return np.random.default_rng([rank, seed])


@right(2)
def jumped(seed, rank, size):
    return np.random.Generator(np.random.PCG64(seed).jumped(rank))


@right(2)
def spawned_from_a_generator(seed, rank, size):
    return np.random.default_rng(seed).spawn(size)[rank]


@right(2)
def a_key_of_its_own(seed, rank, size):
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(rank,)))


@wrong(2, "Ranks 0 and 1 throw the same darts")
def same_seed_on_all_ranks(seed, rank, size):
    return np.random.default_rng(seed)


@wrong(2, "do not add or multiply them")
def seed_plus_rank(seed, rank, size):
    return np.random.default_rng(seed + rank)


@wrong(2, "Rank 0 throws the same darts with the seeds 1 and 2")
def seed_times_rank(seed, rank, size):
    return np.random.default_rng(seed * rank)


@wrong(2, "Rank 0 throws the same darts with the seeds 1 and 2")
def rank_alone(seed, rank, size):
    return np.random.default_rng(rank)


@wrong(2, "twice, starts two different streams")
def no_seed(seed, rank, size):
    return np.random.default_rng()


@wrong(2, "one stream, 1,000 numbers apart")
def one_stream_skipped_ahead(seed, rank, size):
    rng = np.random.default_rng(seed)
    rng.random(1000 * rank)
    return rng


@wrong(2, "gave SeedSequence; it has to be a numpy Generator")
def seed_instead_of_generator(seed, rank, size):
    return np.random.SeedSequence(seed).spawn(size)[rank]


@wrong(2, "do not add or multiply them")
def far_apart_by_a_factor(seed, rank, size):
    return np.random.default_rng(seed + 1000 * rank)


@wrong(2, "do not add or multiply them")
def as_many_seeds_as_ranks(seed, rank, size):
    return np.random.default_rng(seed * size + rank)


@wrong(2, "do not add or multiply them")
def room_for_a_thousand_ranks(seed, rank, size):
    return np.random.default_rng(1000 * seed + rank)


# Task 3 -----------------------------------------------------------------------------------------------------------------


@right(3)
def difference_of_bounds(total, rank, size):
    return (rank + 1) * total // size - rank * total // size


@right(3)
def dealt_like_cards(total, rank, size):
    return len(range(rank, total, size))


@right(3)
def with_divmod(total, rank, size):
    whole, rest = divmod(total, size)
    return whole + 1 if rank >= size - rest else whole  # the last ranks take one more


@right(3)
def rounded_up_for_what_is_left(total, rank, size):
    return (total - rank + size - 1) // size


@wrong(3, "you hand out 25 + 25 + 25 + 25 = 100; it has to be 103")
def remainder_forgotten(total, rank, size):
    return total // size


@wrong(3, "you hand out 26 + 26 + 26 + 26 = 104; it has to be 103")
def rounded_up(total, rank, size):
    return -(-total // size)


@wrong(3, "rank 3 gets 28; with fair shares it is 25 or 26")
def remainder_all_to_the_last(total, rank, size):
    return total // size + (total % size if rank == size - 1 else 0)


@wrong(3, "it has to be a whole number")
def not_whole(total, rank, size):
    return total / size


@wrong(3, "you hand out 26 + 26 + 26 + 26 = 104")
def remainder_off_by_one(total, rank, size):
    return total // size + (rank <= total % size)


@wrong(3, "Does a loop in it never end?")
def endless(total, rank, size):
    while total > -1:
        total += 1
    return total


@wrong(3, "Divide with //")
def a_float(total, rank, size):
    return float(total // size + (rank < total % size))
