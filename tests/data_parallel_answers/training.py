"""Answers to tasks 1 to 3: the serial program made data-parallel by hand, with Horovod, with DDP."""

import horovod.torch as hvd
import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from mpi4py import MPI
from torch import nn

from . import right, wrong

# Task 1 -----------------------------------------------------------------------------------------------------------------


@right(1)
def one_message_for_all_gradients(comm, model, batches):
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
    for mine, first in zip(model.parameters(), comm.bcast([p.data for p in model.parameters()]), strict=True):
        mine.data.copy_(first)
    for images, labels in batches:
        share = len(images) // comm.size
        rows = slice(comm.rank * share, (comm.rank + 1) * share)
        loss = F.cross_entropy(model(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        flat = np.concatenate([p.grad.numpy().ravel() for p in model.parameters()] + [[loss.item()]]).astype(np.float32)
        comm.Allreduce(MPI.IN_PLACE, flat)
        flat /= comm.size
        nn.utils.vector_to_parameters(torch.from_numpy(flat[:-1]), [p.grad for p in model.parameters()])
        optimizer.step()
        losses.append(flat[-1])
    return losses


def hand(comm, model, batches, start=True, all_images=False, divide=1, mean_loss=True):
    """What wrong answers have in common. Sent to the ranks before them."""
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
    for parameter in model.parameters() if start else ():
        comm.Bcast(parameter.data.numpy())
    for images, labels in batches:
        rows = slice(None) if all_images else slice(comm.rank, None, comm.size)
        loss = F.cross_entropy(model(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            comm.Allreduce(MPI.IN_PLACE, parameter.grad.numpy())
            parameter.grad /= comm.size**divide
        optimizer.step()
        losses.append(comm.allreduce(loss.item()) / comm.size if mean_loss else loss.item())
    return losses


@right(1)
def parameters_averaged_after_each_step(comm, model, batches):
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
    for parameter in model.parameters():
        comm.Bcast(parameter.data.numpy())
    for images, labels in batches:
        loss = F.cross_entropy(model(images[comm.rank :: comm.size]), labels[comm.rank :: comm.size])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for parameter in model.parameters():
            comm.Allreduce(MPI.IN_PLACE, parameter.data.numpy())
            parameter.data /= comm.size
        losses.append(comm.allreduce(loss.item()) / comm.size)
    return losses


@wrong(1, "Did all ranks start from rank 0's parameters?")
def different_starts(comm, model, batches):
    return hand(comm, model, batches, start=False)


@wrong(1, "that is the serial program, 4 times")
def all_images_on_all_ranks(comm, model, batches):
    return hand(comm, model, batches, all_images=True)


@wrong(1, "the sum of the ranks' gradients gives: the mean is due")
def sum_for_mean(comm, model, batches):
    return hand(comm, model, batches, divide=0)


@wrong(1, "divided by the number of ranks twice")
def divided_twice(comm, model, batches):
    return hand(comm, model, batches, divide=2)


@wrong(1, "That is the loss of its own share")
def own_loss(comm, model, batches):
    return hand(comm, model, batches, mean_loss=False)


@wrong(1, "not one bit")
def gradients_not_reduced(comm, model, batches):
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
    for parameter in model.parameters():
        comm.Bcast(parameter.data.numpy())
    for images, labels in batches:
        loss = F.cross_entropy(model(images[comm.rank :: comm.size]), labels[comm.rank :: comm.size])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(comm.allreduce(loss.item()) / comm.size)
    return losses


@wrong(1, "this would hang")
def only_rank_0_reduces(comm, model, batches):
    return hand(comm, model, batches) if comm.rank == 0 else serial_loss(batches)


def serial_loss(batches):
    """Losses that another rank makes up. Sent to the ranks with the answers."""
    return [0.0] * len(batches)


# Task 2 -----------------------------------------------------------------------------------------------------------------


def horovod(model, batches, start=True, wrap=True, op=None, all_images=False):
    """What answers to task 2 have in common. Sent to the ranks before them."""
    if start:
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
    if wrap:
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), op=op or hvd.Average)
    for images, labels in batches:
        rows = slice(None) if all_images else slice(hvd.rank(), None, hvd.size())
        loss = F.cross_entropy(model(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(hvd.allreduce(loss.detach()).item())
    return losses


@right(2)
def horovods_own_rank(model, batches):
    return horovod(model, batches)


@wrong(2, "Did all ranks start from rank 0's parameters?")
def no_broadcast(model, batches):
    return horovod(model, batches, start=False)


@wrong(2, "Did every rank step with the same gradient")
def optimizer_not_wrapped(model, batches):
    return horovod(model, batches, wrap=False)


@wrong(2, "the sum of the ranks' gradients gives: the mean is due")
def horovod_sums(model, batches):
    return horovod(model, batches, op=hvd.Sum)


@wrong(2, "that is the serial program, 4 times")
def horovod_on_all_images(model, batches):
    return horovod(model, batches, all_images=True)


# Task 3 -----------------------------------------------------------------------------------------------------------------


def ddp(model, batches, through=True, all_images=False, again=False, mean_loss=True):
    """What answers to task 3 have in common. Sent to the ranks before them."""
    rank, size = dist.get_rank(), dist.get_world_size()
    wrapped = nn.parallel.DistributedDataParallel(model)
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
    for images, labels in batches:
        rows = slice(None) if all_images else slice(rank, None, size)
        loss = F.cross_entropy((wrapped if through else model)(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters() if again else ():
            parameter.grad /= size
        optimizer.step()
        mean = loss.detach()
        dist.all_reduce(mean)
        losses.append(mean.item() / size if mean_loss else mean.item())
    return losses


@right(3)
def ranks_from_dist(model, batches):
    return ddp(model, batches)


@wrong(3, "Did every rank step with the same gradient")
def past_the_wrapper(model, batches):
    return ddp(model, batches, through=False)


@wrong(3, "divided by the number of ranks twice")
def averaged_once_more(model, batches):
    return ddp(model, batches, again=True)


@wrong(3, "that is the serial program, 4 times")
def ddp_on_all_images(model, batches):
    return ddp(model, batches, all_images=True)


@wrong(3, "returned the losses")
def sum_of_losses(model, batches):
    return ddp(model, batches, mean_loss=False)
