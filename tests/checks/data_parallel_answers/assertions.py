"""Answers to tasks 4 to 6: assertions on all ranks."""

import numpy as np
import torch
from mpi4py import MPI

from . import right, wrong

# Task 4 -----------------------------------------------------------------------------------------------------------------


@right(4)
def all_gathered(comm, model):
    mine = torch.cat([parameter.data.flatten() for parameter in model.parameters()]).numpy()
    assert len({other.tobytes() for other in comm.allgather(mine)}) == 1, (
        "the ranks have different parameters"
    )


@right(4)
def smallest_and_largest(comm, model):
    for parameter in model.parameters():
        least, most = np.empty(parameter.shape, np.float32), np.empty(parameter.shape, np.float32)
        comm.Allreduce(parameter.detach().numpy(), least, op=MPI.MIN)
        comm.Allreduce(parameter.detach().numpy(), most, op=MPI.MAX)
        assert np.array_equal(least, most)


@right(4)
def verdicts_counted(comm, model):
    different = 0
    for parameter in model.parameters():
        different += not torch.equal(parameter.data, comm.bcast(parameter.data))
    if comm.allreduce(different):
        raise AssertionError("not alike")


@right(4)
def by_a_digest_of_all_bytes(comm, model):
    import hashlib

    digest = hashlib.sha256()
    for value in model.state_dict().values():
        digest.update(value.numpy().tobytes())
    assert len(set(comm.allgather(digest.hexdigest()))) == 1


@wrong(4, "ranks 1, 2 and 3 raised AssertionError, rank 0 did not. Those go on, and wait")
def each_rank_for_itself(comm, model):
    equal = [
        torch.equal(parameter.data, comm.bcast(parameter.data)) for parameter in model.parameters()
    ]
    assert all(equal)


@wrong(4, "Not one bit may differ; biases count as well.")
def nearly_equal(comm, model):
    for parameter in model.parameters():
        first = comm.bcast(parameter.data)
        assert comm.allreduce(bool(torch.allclose(parameter.data, first)), op=MPI.LAND)


@wrong(4, "Their sum is the same: compare each of them.")
def one_sum(comm, model):
    mine = sum(parameter.double().sum().item() for parameter in model.parameters())
    assert np.allclose(comm.allgather(mine), mine, rtol=0, atol=1e-5)


@wrong(4, "biases count as well")
def weights_only(comm, model):
    for parameter in model.parameters():
        if parameter.dim() > 1:
            assert len({other.numpy().tobytes() for other in comm.allgather(parameter.data)}) == 1


@wrong(4, "Look at it only; compute with copies.")
def makes_them_alike_first(comm, model):
    for parameter in model.parameters():
        parameter.data.mul_(1.5)
    assert (
        len({parameter.shape for parameter in comm.allgather(next(model.parameters()).data)}) == 1
    )


@wrong(4, "Look at it only; compute with copies.")
def compared_with_what_it_has_overwritten(comm, model):
    mine = [parameter.detach().clone() for parameter in model.parameters()]
    for parameter in model.parameters():
        comm.Bcast(parameter.data.numpy())
    assert comm.allreduce(all(map(torch.equal, mine, model.parameters())), op=MPI.LAND)


@wrong(4, "this would hang")
def rank_0_does_not_ask(comm, model):
    if comm.rank:
        assert comm.allreduce(1) == comm.size


# Task 5 -----------------------------------------------------------------------------------------------------------------


@right(5)
def counted(comm, rows, n):
    times = np.bincount(np.concatenate(comm.allgather(rows)), minlength=n)
    assert times.max() <= 1 and (times == 0).sum() < comm.size


@right(5)
def as_sets(comm, rows, n):
    everyone = [row for part in comm.allgather(list(rows)) for row in part]
    assert len(everyone) == len(set(everyone)), "an image is read twice"
    assert len(everyone) > n - comm.size, "too many are left out"


@right(5)
def added_up_over_the_ranks(comm, rows, n):
    mine, times = np.zeros(n, int), np.zeros(n, int)
    np.add.at(mine, rows, 1)
    comm.Allreduce(mine, times)
    assert set(times) <= {0, 1} and times.sum() > n - comm.size


@right(5)
def rank_0_judges_for_all(comm, rows, n):
    parts, verdict = comm.gather(np.asarray(rows)), None
    if comm.rank == 0:
        every = np.sort(np.concatenate(parts))
        verdict = bool((np.diff(every) > 0).all() and n - len(every) < comm.size)
    assert comm.bcast(verdict)


@wrong(5, "All ranks read the same share, and your assertion passed.")
def as_many_as_there_should_be(comm, rows, n):
    assert comm.allreduce(len(rows)) > n - comm.size


@wrong(5, "Those go on, and wait")
def only_rank_0_knows(comm, rows, n):
    parts = comm.gather(rows)
    if comm.rank == 0:
        assert n - len(set(np.concatenate(parts).tolist())) < comm.size


@wrong(5, "Of 25 images those are left out that do not divide, and your assertion raised")
def every_single_one(comm, rows, n):
    assert sorted(np.concatenate(comm.allgather(rows))) == list(range(n))


@wrong(
    5,
    "(DistributedSampler's default), and your assertion passed.\nCount how often each image is read.",
)
def all_are_read(comm, rows, n):
    assert n - len(set(np.concatenate(comm.allgather(rows)).tolist())) < comm.size


@wrong(5, "Of 25 images those are left out that do not divide")
def shares_to_the_rounding(comm, rows, n):
    times = np.bincount(np.concatenate(comm.allgather(rows)), minlength=n)
    assert (times == 1).all()


@wrong(5, "The second half is read by nobody, and your assertion passed.\nCount up to n.")
def counted_up_to_the_last_that_is_read(comm, rows, n):
    times = np.bincount(np.concatenate(comm.allgather(rows)))
    assert times.max() <= 1 and (times == 0).sum() < comm.size


@wrong(5, "p images are read by nobody, and your assertion passed.\nFewer than p may be left out")
def one_more_left_out(comm, rows, n):
    times = np.bincount(np.concatenate(comm.allgather(rows)), minlength=n)
    assert times.max() <= 1 and (times == 0).sum() <= comm.size


@wrong(5, "p - 1 images are left out, and your assertion raised: that is right, and has to pass.")
def one_left_out_at_most(comm, rows, n):
    times = np.bincount(np.concatenate(comm.allgather(rows)), minlength=n)
    assert times.max() <= 1 and (times == 0).sum() <= 1


# Task 6 -----------------------------------------------------------------------------------------------------------------


@right(6)
def tensor_by_tensor(comm, own, used):
    means = [comm.allreduce(gradient) / comm.size for gradient in own]
    close = all(
        torch.allclose(mean, given, rtol=1e-5, atol=1e-6)
        for mean, given in zip(means, used, strict=True)
    )
    assert comm.allreduce(close, op=MPI.LAND)


@right(6)
def as_one_vector(comm, own, used):
    flat = torch.cat([gradient.flatten() for gradient in own]).numpy()
    mean = np.empty_like(flat)
    comm.Allreduce(flat, mean)
    off = np.abs(
        mean / comm.size - torch.cat([gradient.flatten() for gradient in used]).numpy()
    ).max()
    assert comm.allreduce(off, op=MPI.MAX) < 1e-5


@right(6)
def everything_gathered(comm, own, used):
    every = comm.allgather([([a.numpy() for a in own], [b.numpy() for b in used])])
    means = [np.mean(parts, axis=0) for parts in zip(*(one[0][0] for one in every), strict=True)]
    for [(_, given)] in every:
        for mean, mine in zip(means, given, strict=True):
            np.testing.assert_allclose(mine, mean, atol=1e-5)


@right(6)
def rank_0_decides(comm, own, used):
    every_own, every_used = comm.gather(own), comm.gather(used)
    wrong = 0
    for given in every_used or ():
        for at, mine in enumerate(given):
            mean = sum(one[at] for one in every_own) / comm.size
            wrong += not torch.allclose(mean, mine, atol=1e-5)
    assert not comm.bcast(wrong), f"{wrong} tensors are not the mean"


@wrong(
    6,
    "The last rank alone uses its own gradient: rank 3 raised AssertionError, ranks 0, 1 and 2 did not.",
)
def verdicts_kept(comm, own, used):
    means = [comm.allreduce(gradient) / comm.size for gradient in own]
    assert all(
        torch.allclose(mean, given, atol=1e-5) for mean, given in zip(means, used, strict=True)
    )


@wrong(6, "allreduce with LAND")
def until_the_first_that_differs(comm, own, used):
    ok = all(
        torch.allclose(comm.allreduce(o) / comm.size, u, atol=1e-5)
        for o, u in zip(own, used, strict=True)
    )
    assert comm.allreduce(ok, op=MPI.LAND)


@wrong(6, "with float32's rounding, and your assertion raised: that is right, and has to pass.")
def to_the_bit(comm, own, used):
    means = [comm.allreduce(gradient) / comm.size for gradient in own]
    assert comm.allreduce(all(map(torch.equal, means, used)), op=MPI.LAND)


@wrong(
    6,
    "The optimizer gets the sum, and your assertion passed.\nCompare with the mean of all ranks' `own`.",
)
def equal_on_all_ranks(comm, own, used):
    for given in used:
        assert len({one.numpy().tobytes() for one in comm.allgather(given)}) == 1


@wrong(6, "Look at every tensor of the list, not at the first only.")
def the_first_tensor(comm, own, used):
    close = torch.allclose(comm.allreduce(own[0]) / comm.size, used[0], atol=1e-5)
    assert comm.allreduce(close, op=MPI.LAND)


@wrong(6, "The optimizer gets the mean, with float32's rounding, and your assertion raised")
def the_sum_is_due(comm, own, used):
    close = all(
        torch.allclose(comm.allreduce(mine), given, atol=1e-5)
        for mine, given in zip(own, used, strict=True)
    )
    assert close
