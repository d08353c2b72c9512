"""Answers to tasks 4 to 7: the colleague's four bugs, and others in their place."""

import numpy as np
import torch
from mpi4py import MPI

from . import right, wrong

# Task 4 -----------------------------------------------------------------------------------------------------------------


@right(4)
def load_state(comm, model):
    model.load_state_dict(comm.bcast(model.state_dict()))


@wrong(4, "is the rank's own, as before")
def colleagues_start(comm, model):
    for parameter in model.parameters():
        comm.bcast(parameter.data)


@wrong(4, "is the mean over the ranks. Rank 0's is due")
def mean_of_all_starts(comm, model):
    for parameter in model.parameters():
        comm.Allreduce(MPI.IN_PLACE, parameter.data.numpy())
        parameter.data /= comm.size


@wrong(4, "parameter 1 of rank 1 is the rank's own")
def weights_without_biases(comm, model):
    for parameter in model.parameters():
        if parameter.dim() > 1:
            comm.Bcast(parameter.data.numpy())


@wrong(4, "another rank's; all take rank 0's")
def from_the_last_rank(comm, model):
    for parameter in model.parameters():
        comm.Bcast(parameter.data.numpy(), root=comm.size - 1)


@wrong(4, "rank 0's begins with")
def the_same_seed_but_another(comm, model):
    torch.manual_seed(12)
    for parameter in model.parameters():
        parameter.data.uniform_(-0.1, 0.1)
    comm.Barrier()


# Task 5 -----------------------------------------------------------------------------------------------------------------


@right(5)
def divided_before(comm, model):
    for parameter in model.parameters():
        parameter.grad /= comm.size
        comm.Allreduce(MPI.IN_PLACE, parameter.grad.numpy())


@wrong(5, "that is the sum over 4 ranks; the mean is due")
def colleagues_average(comm, model):
    for parameter in model.parameters():
        comm.Allreduce(MPI.IN_PLACE, parameter.grad.numpy())


@wrong(5, "Only .grad is to be reduced")
def parameters_averaged(comm, model):
    for parameter in model.parameters():
        comm.Allreduce(MPI.IN_PLACE, parameter.data.numpy())
        parameter.data.mul_(2 / comm.size)


@wrong(5, "the gradient is the rank's own, as before")
def result_dropped(comm, model):
    for parameter in model.parameters():
        comm.allreduce(parameter.grad) / comm.size


@wrong(5, "divided by 4 once more")
def divided_twice(comm, model):
    for parameter in model.parameters():
        comm.Allreduce(MPI.IN_PLACE, parameter.grad.numpy())
        parameter.grad /= comm.size**2


# Task 6 -----------------------------------------------------------------------------------------------------------------


@right(6)
def equal_parts(comm, n, epoch):
    order = np.random.default_rng([epoch, 5]).permutation(n)
    return np.array_split(order, comm.size)[comm.rank]


@wrong(6, "ranks 0, 1, 2 and 3 read the same images")
def colleagues_rows(comm, n, epoch):
    return np.random.default_rng(epoch).permutation(n)[: n // comm.size]


@wrong(6, "are read by two ranks or more")
def seed_by_rank(comm, n, epoch):
    return np.random.default_rng([epoch, comm.rank]).permutation(n)[: n // comm.size]


@wrong(6, "DistributedSampler does so with drop_last=True")
def padded_as_the_sampler_does_by_default(comm, n, epoch):
    from torch.utils.data import DistributedSampler

    sampler = DistributedSampler(range(n), comm.size, comm.rank)
    sampler.set_epoch(epoch)
    return list(sampler)


@right(6)
def by_the_sampler(comm, n, epoch):
    from torch.utils.data import DistributedSampler

    sampler = DistributedSampler(range(n), comm.size, comm.rank, drop_last=True)
    sampler.set_epoch(epoch)
    return list(sampler)


@wrong(6, "its share is 6 or one more")
def everything(comm, n, epoch):
    return np.random.default_rng(epoch).permutation(n)


@wrong(6, "reads the same images in the next epoch")
def never_mixed(comm, n, epoch):
    return np.arange(n)[comm.rank :: comm.size]


@wrong(6, "asked twice and got two orders")
def no_seed(comm, n, epoch):
    return np.random.permutation(n)[comm.rank :: comm.size]


# Task 7 -----------------------------------------------------------------------------------------------------------------


@right(7)
def hook_that_returns_the_gradient(comm, model):
    def reduce(gradient):
        total = np.empty(gradient.shape, np.float32)
        comm.Allreduce(gradient.contiguous().numpy(), total)
        return torch.from_numpy(total / comm.size)

    for parameter in model.parameters():
        parameter.register_hook(reduce)


@wrong(7, "Only .grad is to be reduced")
def colleagues_hooks(comm, model):
    def reduce(p):
        comm.Allreduce(MPI.IN_PLACE, p.data.numpy())
        p.data /= 1 + comm.size

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(reduce)


@wrong(7, "that is the sum over 4 ranks")
def hook_that_sums(comm, model):
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: comm.Allreduce(MPI.IN_PLACE, p.grad.numpy()))


@wrong(7, "the gradient is the rank's own, as before")
def hook_on_the_first_only(comm, model):
    def reduce(p):
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
        p.grad /= comm.size

    next(model.parameters()).register_post_accumulate_grad_hook(reduce)


@wrong(7, "this would hang")
def rank_0_has_no_hooks(comm, model):
    for parameter in model.parameters() if comm.rank else ():
        parameter.register_post_accumulate_grad_hook(lambda p: comm.Allreduce(MPI.IN_PLACE, p.grad.numpy()))
