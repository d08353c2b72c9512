"""Answers to lab 1, as learners write them: right ones, and wrong ones with words of the check's
message."""

import numpy as np
from lab_answers import LabAnswers

lab = LabAnswers("01_pi")


@lab.right("count_inside")
def whole_circle_on_a_square_of_side_two(n, rng):
    xy = rng.uniform(-1, 1, size=(n, 2))
    return (np.hypot(xy[:, 0], xy[:, 1]) <= 1).sum()


@lab.right("count_inside")
def dart_by_dart(n, rng):
    inside = 0
    for _ in range(n):
        x, y = rng.random(2)
        inside += x * x + y * y < 1
    return int(inside)


@lab.right("count_inside")
def ones_added_up(n, rng):
    x, y = rng.random(n), rng.random(n)
    return np.sum((x * x + y * y < 1) * 1.0)  # 796.0


lab.wrong_variants(
    "count_inside",
    ("np.count_nonzero(", "4 * np.mean(", "has to be a count"),
    ("x * x + y * y", "x + y", "2 is what x + y < 1 gives"),
    ("y * y", "x * x", "each dart needs two numbers"),
    (
        "rng.random(n), rng.random(n)",
        "np.random.rand(n), np.random.rand(n)",
        "same seed gave two different counts",
    ),
    ("    x, y", "    rng = np.random.default_rng(0)\n    x, y", "20 seeds gave the same count"),
    ("return ", "", "Is the `return` missing?"),
    (
        "return np.count_nonzero(x * x + y * y < 1)",
        "return n if x * x + y * y < 1 else 0",
        "raised ValueError: The truth value of an array",
    ),
)


lab.wrong_variants(
    "count_inside",
    ("range(n)", "range(-1, n)", "gave 1; it has to be a count: a whole number from 0 to 0"),
    of=dart_by_dart,
)


@lab.right("make_rng")
def list_of_seed_and_rank(seed, rank, size):
    return np.random.default_rng([rank, seed])


lab.wrong_variants(
    "make_rng",
    ("streams[rank]", "seed", "Ranks 0 and 1 throw the same darts"),
    ("streams[rank]", "seed + rank", "do not add or multiply them"),
    ("streams[rank]", "seed * rank", "Rank 0 throws the same darts with the seeds 1 and 2"),
    ("streams[rank]", "", "twice, starts two different streams"),
    ("np.random.default_rng(streams[rank])", "streams[rank]", "gave SeedSequence; it has to be a"),
    (
        "return np.random.default_rng(streams[rank])",
        "rng = np.random.default_rng(seed)\n    rng.random(1000 * rank)\n    return rng",
        "one stream, 1,000 numbers apart",
    ),
)


@lab.right("share")
def with_divmod(total, rank, size):
    whole, rest = divmod(total, size)
    return whole + 1 if rank >= size - rest else whole  # the last ranks take one more


lab.wrong_variants(
    "share",
    ("(rank < total % size)", "0", "you hand out 25 + 25 + 25 + 25 = 100; it has to be 103"),
    ("(rank < total % size)", "total % size * (rank == size - 1)", "rank 3 gets 28; with fair"),
    ("return total // size", "return 0.0 + total // size", "Divide with //"),
)


@lab.right("pi_from_counts")
def messages_by_hand(comm, inside, total):
    if comm.rank > 0:
        comm.send(inside, dest=0)
        return None
    return 4 * (inside + sum(comm.recv(source=source) for source in range(1, comm.size))) / total


@lab.right("pi_from_counts")
def non_blocking(comm, inside, total):
    counts = np.zeros(comm.size, dtype=np.int64)
    comm.Iallgather(np.array([inside], dtype=np.int64), counts).Wait()
    return 4 * counts.sum() / total if comm.rank == 0 else None


lab.wrong_variants(
    "pi_from_counts",
    ("if comm.rank", "if MPI.COMM_WORLD.rank", "take rank and size from the comm that it is given"),
    ("comm.reduce(inside)", "inside", "That is rank 0's count alone"),
    ("4 * count", "count", "The 4 is missing"),
    ("count / total", "count / comm.size / total", "Or you divided by the 4 ranks"),
    ("/ total", "/ (total / comm.size)", "multiplied by the number of ranks"),
    (
        "    count = comm.reduce(inside)\n    if comm.rank == 0:\n        return 4 * count",
        "    return 4 * comm.allreduce(inside)",
        "only rank 0 returns π",
    ),
    (
        "    count = comm.reduce(inside)\n    if comm.rank == 0:\n",
        "    if comm.rank == 0:\n        count = comm.reduce(inside)\n",
        "Rank 0 calls reduce, ranks 1, 2 and 3 have returned",
    ),
    ("comm.reduce", "MPI.COMM_WORLD.reduce", "Use that one, not MPI.COMM_WORLD"),
    ("reduce(inside)", "bcast((one for one in [inside]))", "cannot pickle 'generator' object"),
    ("reduce(inside)", "reduce(inside, root=min(comm.rank, 1))", "Rank 0 calls reduce, ranks 1, 2"),
)


@lab.right("mean_and_error")
def gather_into_an_array(comm, estimate):
    everyone = np.zeros(comm.size) if comm.rank == 0 else None
    comm.Gather(np.array([estimate]), everyone, root=0)
    return (everyone.mean(), everyone.std(ddof=1) / np.sqrt(comm.size)) if comm.rank == 0 else None


@lab.right("mean_and_error")
def in_one_pass(comm, estimate):
    total, squares, p = comm.reduce(estimate), comm.reduce(estimate**2), comm.size
    return None if comm.rank else (total / p, np.sqrt((squares / p - (total / p) ** 2) / (p - 1)))


lab.wrong_variants(
    "mean_and_error",
    ("np.mean(", "np.sum(", "That is their sum"),
    ("np.sqrt(comm.size)", "comm.size", "divide by sqrt(4)"),
    (" / np.sqrt(comm.size)", "", "the mean of 4 is sqrt(4) times as exact"),
    (", ddof=1", "", "divide by 3 (ddof=1)"),
    ("np.mean(everyone)", "estimate", "That is rank 0's own estimate"),
    (
        "gather(estimate)\n    if comm.rank == 0:\n        return",
        "allgather(estimate)\n    return",
        "only rank 0 has gathered",
    ),
)


@lab.right("until_exact")
def rank_0_decides_and_tells(comm, throw, target, batch):
    inside, darts, go_on = 0, 0, True
    while go_on:
        count = comm.reduce(throw(batch))
        darts += comm.size * batch
        if comm.rank == 0:
            inside += count
            p = inside / darts
            error = 4 * np.sqrt(p * (1 - p) / darts)
            go_on = error >= target
        go_on = comm.bcast(go_on)
    return comm.bcast((4 * p, error, darts) if comm.rank == 0 else None)


@lab.right("until_exact")
def darts_as_a_float(comm, throw, target, batch):
    counts, error = np.zeros(2), np.inf
    while error >= target:
        counts += comm.allreduce(np.array([throw(batch), batch], dtype=float))
        p = counts[0] / counts[1]
        error = 4 * np.sqrt(p * (1 - p) / counts[1])
    return np.array([4 * p, error, counts[1]])


@lab.wrong("until_exact", "this would hang. After 2 calls that all ranks made")
def each_rank_decides_alone(comm, throw, target, batch):
    mine, inside, darts, error = 0, 0, 0, 1.0
    while error >= target:
        count = throw(batch)
        mine += count
        inside += comm.allreduce(count)
        darts += comm.size * batch
        p = mine / (darts // comm.size)
        error = 4 * np.sqrt(p * (1 - p) / darts)
    return 4 * inside / darts, error, darts


lab.wrong_variants(
    "until_exact",
    ("allreduce", "reduce", "give their result to rank 0 only; the other ranks get None"),
    ("/ darts)\n", ") / darts\n", "Divide by sqrt(darts), not by darts"),
    ("4 * np.sqrt", "np.sqrt", "The 4 is missing"),
    ("(1 - p) / darts", "(1 - p) / (darts / comm.size)", "error of one rank's darts alone"),
    ("inside +=", "inside =", "darts +=", "darts =", "ten times what the target needs"),
    ("while error >= target:", "for _ in range(1):", "not below the target yet"),
    (
        "allreduce(throw(batch))",
        "allreduce(mine := throw(batch))",
        "4 * inside / darts,",
        "4 * mine / darts,",
        "all ranks have to agree",
    ),
)


# Mistakes at the collectives ----------------------------------------------------------------------

lab.wrong_variants(
    "pi_from_counts",
    ("comm.reduce(inside)", "comm.Reduce(inside)", "Reduce takes two arrays"),
    (
        "    count = comm.reduce(inside)\n    if comm.rank == 0:\n",
        "    if comm.rank == 0:\n        count = comm.reduce(inside)\n",
        "Rank 0 calls reduce, ranks 1, 2 and 3 have returned",
    ),
    (
        "count = comm.reduce(inside)",
        "count = np.zeros(1)\n    comm.Reduce(np.array([inside]), count)",
        "all ranks send 1 number of int64, rank 0 has room for 1 number of float64",
    ),
    ("comm.reduce(inside)", "comm.reduce(np.full(2 + comm.rank, inside))", "reduce of shape (2,)"),
    (
        "if comm.rank == 0:\n        return 4 * count / total",
        "return 4 * count / total",
        "reduce and gather give their result to rank 0 only",
    ),
)
lab.wrong_variants(
    "mean_and_error",
    (
        "comm.gather(estimate)",
        "np.empty(comm.size)\n    comm.Gather(np.array([estimate, 1.0]), everyone)",
        "send 2 numbers, rank 0 has room for 1 number from each rank",
    ),
    ("comm.gather(estimate)", "comm.scatter([estimate])", "a list with one object for each of 4"),
    (
        "comm.gather(estimate)",
        "comm.gather(estimate, np.empty(4))",
        "Gather, with a capital letter, fills the array",
    ),
)
lab.wrong_variants(
    "until_exact",
    (
        "inside += comm.allreduce(throw(batch))",
        "inside += comm.allreduce(throw(batch)) if comm.rank == 0 else throw(batch)",
        "calls allreduce, ",
    ),
)
