"""Answers to task 7: the colleague's script, mended; a wrong one leaves one of its bugs."""

import numpy as np
import torch
import torch.nn.functional as F
from mpi4py import MPI

from . import right, wrong


def quiet(*things):
    """What the script calls if nobody looks. Sent to the ranks before the answers, as repaired is."""


def repaired(
    comm,
    model,
    images,
    labels,
    epochs,
    batch,
    start=True,
    share=None,
    reduce=None,
    every=lambda p: True,
):
    """The script mended, or with one of the bugs."""
    for parameter in model.parameters() if start else ():
        comm.Bcast(parameter.data.numpy())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(epochs):
        order = np.random.default_rng(epoch).permutation(len(images))
        rows = share(comm, order, epoch) if share else order[comm.rank :: comm.size]
        for some in np.array_split(rows, len(images) // batch):
            optimizer.zero_grad()
            F.cross_entropy(model(images[some]), labels[some]).backward()
            for parameter in filter(every, model.parameters()):
                comm.Allreduce(MPI.IN_PLACE, parameter.grad.numpy())
                parameter.grad /= comm.size if reduce is None else reduce
            optimizer.step()


@right(7)
def in_blocks(comm, model, images, labels, epochs=2, batch=64):
    repaired(
        comm,
        model,
        images,
        labels,
        epochs,
        batch,
        share=lambda comm, order, epoch: np.split(order, comm.size)[comm.rank],
    )


@right(7)
def each_batch_shared(comm, model, images, labels, epochs=2, batch=64):
    model.load_state_dict(comm.bcast(model.state_dict()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(epochs):
        order = np.random.default_rng([epoch, 1]).permutation(len(images))
        for start in range(0, len(order), batch):
            rows = order[start : start + batch][comm.rank :: comm.size]
            optimizer.zero_grad()
            F.cross_entropy(model(images[rows]), labels[rows]).backward()
            flat = torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).numpy()
            comm.Allreduce(MPI.IN_PLACE, flat)
            torch.nn.utils.vector_to_parameters(
                torch.from_numpy(flat / comm.size), [p.grad for p in model.parameters()]
            )
            optimizer.step()


@right(7)
def by_hooks(comm, model, images, labels, epochs=2, batch=64):
    def reduce(p):
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
        p.grad /= comm.size

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(reduce)
    repaired(comm, model, images, labels, epochs, batch, every=lambda p: False)


@right(7)
def loss_divided_before(comm, model, images, labels, epochs=2, batch=64):
    for parameter in model.parameters():
        comm.Bcast(parameter.data.numpy())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(epochs):
        rows = np.random.default_rng(epoch).permutation(len(images))[comm.rank :: comm.size]
        for some in rows.reshape(len(images) // batch, -1):
            optimizer.zero_grad()
            (F.cross_entropy(model(images[some]), labels[some]) / comm.size).backward()
            for parameter in model.parameters():
                comm.Allreduce(MPI.IN_PLACE, parameter.grad.numpy())
            optimizer.step()


@wrong(7, "ranks 0 and 1 read the same images")
def colleagues(comm, model, images, labels, look=quiet, epochs=2, batch=64):
    for parameter in model.parameters():
        comm.bcast(parameter.data)
    look("start", model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(epochs):
        rows = np.random.default_rng(epoch).permutation(len(images))[: len(images) // comm.size]
        look("rows", rows, len(images))
        for some in np.array_split(rows, len(images) // batch):
            optimizer.zero_grad()
            F.cross_entropy(model(images[some]), labels[some]).backward()
            own = [parameter.grad.clone() for parameter in model.parameters()]
            for layer in (model[0], model[2]):
                comm.Allreduce(MPI.IN_PLACE, layer.weight.grad.numpy())
            look("gradients", own, [parameter.grad for parameter in model.parameters()])
            optimizer.step()


@wrong(7, "Did all ranks start from rank 0's parameters?")
def start_left(comm, model, images, labels, epochs=2, batch=64):
    repaired(comm, model, images, labels, epochs, batch, start=False)


@wrong(
    7,
    "the model that you were given saw no image. Did you train a copy? comm.bcast(model) returns a new one",
)
def a_copy_of_rank_0s_model(comm, model, images, labels, epochs=2, batch=64):
    repaired(comm, comm.bcast(model), images, labels, epochs, batch, start=False)


@wrong(7, "Only biases differ: which gradients are reduced, and which are not?")
def biases_left(comm, model, images, labels, epochs=2, batch=64):
    repaired(
        comm, model, images, labels, epochs, batch, every=lambda parameter: parameter.dim() > 1
    )


@wrong(7, "the sum of the ranks' gradients gives: the mean is due")
def sum_left(comm, model, images, labels, epochs=2, batch=64):
    repaired(comm, model, images, labels, epochs, batch, reduce=1)


@wrong(7, "All ranks have to shuffle alike (the same seed), then take different rows of it.")
def seed_by_rank(comm, model, images, labels, epochs=2, batch=64):
    def share(comm, order, epoch):
        return np.random.default_rng([epoch, comm.rank]).permutation(len(order))[
            : len(order) // comm.size
        ]

    repaired(comm, model, images, labels, epochs, batch, share=share)


@wrong(7, "the second epoch has the order of the first")
def never_mixed(comm, model, images, labels, epochs=2, batch=64):
    repaired(
        comm,
        model,
        images,
        labels,
        epochs,
        batch,
        share=lambda comm, order, epoch: np.arange(48)[comm.rank :: comm.size],
    )


@wrong(7, "that is the serial program, 4 times")
def all_images_on_all_ranks(comm, model, images, labels, epochs=2, batch=64):
    repaired(comm, model, images, labels, epochs, batch, share=lambda comm, order, epoch: order)


@wrong(7, "Did every rank step with the same gradient")
def parameters_reduced_instead(comm, model, images, labels, epochs=2, batch=64):
    repaired(comm, model, images, labels, epochs, batch, every=lambda parameter: False)
    for parameter in model.parameters():
        comm.allreduce(parameter.data)
