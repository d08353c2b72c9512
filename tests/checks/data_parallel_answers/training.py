"""Answers to tasks 1 to 3: the serial program made data-parallel by hand, with Horovod, with DDP."""

import horovod.torch as hvd
import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from mpi4py import MPI
from torch import nn

from . import right, wrong

rank, size = (
    MPI.COMM_WORLD.rank,
    MPI.COMM_WORLD.size,
)  # as in the notebook: the checks' comm has others

# Task 1 -----------------------------------------------------------------------------------------------------------------


@right(1)
def one_message_for_all_gradients(comm, model, batches):
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
    for mine, first in zip(
        model.parameters(), comm.bcast([p.data for p in model.parameters()]), strict=True
    ):
        mine.data.copy_(first)
    for images, labels in batches:
        share = len(images) // comm.size
        rows = slice(comm.rank * share, (comm.rank + 1) * share)
        loss = F.cross_entropy(model(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        flat = np.concatenate(
            [p.grad.numpy().ravel() for p in model.parameters()] + [[loss.item()]]
        ).astype(np.float32)
        comm.Allreduce(MPI.IN_PLACE, flat)
        flat /= comm.size
        nn.utils.vector_to_parameters(
            torch.from_numpy(flat[:-1]), [p.grad for p in model.parameters()]
        )
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
        loss = F.cross_entropy(
            model(images[comm.rank :: comm.size]), labels[comm.rank :: comm.size]
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for parameter in model.parameters():
            comm.Allreduce(MPI.IN_PLACE, parameter.data.numpy())
            parameter.data /= comm.size
        losses.append(comm.allreduce(loss.item()) / comm.size)
    return losses


@right(1)
def shares_by_array_split(comm, model, batches):
    model.load_state_dict(comm.bcast(model.state_dict()))
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
    for images, labels in batches:
        rows = np.array_split(np.arange(len(images)), comm.size)[comm.rank]
        loss = F.cross_entropy(model(images[rows]), labels[rows], reduction="sum") / len(images)
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            parameter.grad = comm.allreduce(parameter.grad)
        optimizer.step()
        losses.append(comm.allreduce(loss.item()))
    return losses


@right(1)
def momentum_by_hand(comm, model, batches):
    parameters, losses = list(model.parameters()), []
    for parameter in parameters:
        comm.Bcast(parameter.data.numpy())
    speeds = [torch.zeros_like(parameter) for parameter in parameters]
    for images, labels in batches:
        loss = F.cross_entropy(
            model(images[comm.rank :: comm.size]), labels[comm.rank :: comm.size]
        )
        for parameter, speed, gradient in zip(
            parameters, speeds, torch.autograd.grad(loss, parameters), strict=True
        ):
            total = np.empty(gradient.shape, np.float32)
            comm.Allreduce(gradient.contiguous().numpy(), total)
            speed.mul_(0.9).add_(torch.from_numpy(total) / comm.size)
            parameter.data.sub_(0.1 * speed)
        losses.append(comm.allreduce(loss.item()) / comm.size)
    return losses


@wrong(1, "Reduce takes MPI.IN_PLACE on the root, 0, only")
def in_place_everywhere(comm, model, batches):
    for parameter in model.parameters():
        comm.Reduce(MPI.IN_PLACE, parameter.data.numpy())


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


@wrong(1, "returned the losses 0.0000, 0.0000, ")
def no_losses(comm, model, batches):
    return [0.0 for _ in hand(comm, model, batches)]


@wrong(1, "That is the loss of its own share")
def own_loss(comm, model, batches):
    return hand(comm, model, batches, mean_loss=False)


@wrong(1, "not one bit")
def gradients_not_reduced(comm, model, batches):
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
    for parameter in model.parameters():
        comm.Bcast(parameter.data.numpy())
    for images, labels in batches:
        loss = F.cross_entropy(
            model(images[comm.rank :: comm.size]), labels[comm.rank :: comm.size]
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(comm.allreduce(loss.item()) / comm.size)
    return losses


@wrong(
    1,
    "Your function uses the notebook's rank and size: take rank and size from the comm that it is given",
)
def rows_by_the_notebooks_rank(comm, model, batches):
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
    for parameter in model.parameters():
        comm.Bcast(parameter.data.numpy())
    for images, labels in batches:
        loss = F.cross_entropy(model(images[rank::size]), labels[rank::size])
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            comm.Allreduce(MPI.IN_PLACE, parameter.grad.numpy())
            parameter.grad /= comm.size
        optimizer.step()
        losses.append(comm.allreduce(loss.item()) / comm.size)
    return losses


@wrong(
    1,
    "the model that you were given saw no image. Did you train a copy? comm.bcast(model) returns a new one",
)
def a_copy_of_rank_0s_model(comm, model, batches):
    return hand(comm, comm.bcast(model), batches, start=False)


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
        optimizer = hvd.DistributedOptimizer(
            optimizer, named_parameters=model.named_parameters(), op=op or hvd.Average
        )
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


@right(2)
def gradients_reduced_by_name(model, batches):
    hvd.broadcast_parameters(dict(model.named_parameters()), root_rank=0)
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
    for images, labels in batches:
        loss = F.cross_entropy(
            model(images[hvd.rank() :: hvd.size()]), labels[hvd.rank() :: hvd.size()]
        )
        optimizer.zero_grad()
        loss.backward()
        for name, parameter in model.named_parameters():
            hvd.allreduce_(parameter.grad, name=name)
        optimizer.step()
        losses.append(hvd.allreduce(loss.detach()).item())
    return losses


@right(2)
def all_at_once_and_synchronized(model, batches):
    model.load_state_dict(hvd.broadcast_object(model.state_dict(), root_rank=0))
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
    for images, labels in batches:
        share = len(images) // hvd.size()
        rows = slice(hvd.rank() * share, (hvd.rank() + 1) * share)
        loss = F.cross_entropy(model(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        hvd.grouped_allreduce_([parameter.grad for parameter in model.parameters()])
        optimizer.step()
        losses.append(float(np.mean(hvd.allgather_object(loss.item()))))
    return losses


@right(2)
def the_sum_of_what_is_divided(model, batches):
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    wrapped, losses = (
        hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), op=hvd.Sum),
        [],
    )
    for images, labels in batches:
        loss = (
            F.cross_entropy(
                model(images[hvd.rank() :: hvd.size()]), labels[hvd.rank() :: hvd.size()]
            )
            / hvd.size()
        )
        wrapped.zero_grad()
        loss.backward()
        wrapped.step()
        losses.append(hvd.allreduce(loss.detach(), op=hvd.Sum).item())
    return losses


@wrong(2, "optimizer_in_place_of_losses returned 'SGD' objects")
def optimizer_in_place_of_losses(model, batches):
    horovod(model, batches)
    return hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1)
    )  # of a class that cannot be sent


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


@right(3)
def blocks_and_gathered_losses(model, batches):
    rank, size = dist.get_rank(), dist.get_world_size()
    wrapped, losses = nn.parallel.DistributedDataParallel(model), []
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1, momentum=0.9)
    for images, labels in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(wrapped(images.chunk(size)[rank]), labels.chunk(size)[rank])
        loss.backward()
        optimizer.step()
        dist.all_gather_object(every := [None] * size, loss.item())
        losses.append(sum(every) / size)
    return losses


@right(3)
def views_in_small_buckets(model, batches):
    rank, size = dist.get_rank(), dist.get_world_size()
    wrapped, losses = (
        nn.parallel.DistributedDataParallel(
            model, gradient_as_bucket_view=True, bucket_cap_mb=0.001
        ),
        [],
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for images, labels in batches:
        loss = F.cross_entropy(wrapped(images[rank::size]), labels[rank::size])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach() / size
        dist.all_reduce(mean, op=dist.ReduceOp.SUM)
        losses.append(mean.item())
    return losses


@right(3)
def no_wrapper_but_the_same_calls(model, batches):
    rank, size, losses = dist.get_rank(), dist.get_world_size(), []
    for parameter in model.parameters():
        dist.broadcast(parameter.data, 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for images, labels in batches:
        loss = F.cross_entropy(model(images[rank::size]), labels[rank::size])
        optimizer.zero_grad()
        loss.backward()
        for tensor in (
            *(parameter.grad for parameter in model.parameters()),
            mean := loss.detach(),
        ):
            dist.all_reduce(tensor)
            tensor /= size
        optimizer.step()
        losses.append(mean.item())
    return losses


@wrong(3, "the list of losses is due")
def the_model_in_place_of_losses(model, batches):
    ddp(model, batches)
    return model


@wrong(3, "rank 0: mean_by_the_rank raised ZeroDivisionError")
def mean_by_the_rank(model, batches):
    """The others go on, into DDP's own communication."""
    wrapped, losses = nn.parallel.DistributedDataParallel(model), []
    for images, labels in batches:
        loss = F.cross_entropy(wrapped(images), labels)
        loss.backward()
        losses.append(loss.item() / dist.get_rank())
    return losses


@wrong(3, "Did every rank step with the same gradient")
def past_the_wrapper(model, batches):
    return ddp(model, batches, through=False)


@wrong(3, "divided by the number of ranks twice")
def averaged_once_more(model, batches):
    return ddp(model, batches, again=True)


@wrong(3, "that is the serial program, 4 times")
def ddp_on_all_images(model, batches):
    return ddp(model, batches, all_images=True)


@wrong(3, "That is the sum over the ranks: divide by them.")
def sum_of_losses(model, batches):
    return ddp(model, batches, mean_loss=False)


@wrong(3, "hold on to their graph, and its memory: loss.item()")
def losses_that_could_go_backward(model, batches):
    return [torch.ones((), requires_grad=True) * mean for mean in ddp(model, batches)]
