"""Answers to tasks 1 to 3: a layer by columns, one by rows, and the MLP of both."""

import numpy as np
import torch
from mpi4py import MPI

from . import right, wrong


def column(comm, x, w, b):
    """As in the lab. Sent to the ranks before the answers, as is `row`."""
    return x @ w + b, lambda g: (comm.allreduce(g @ w.T), x.T @ g, g.sum(0))


def row(comm, x, w, b):
    return comm.allreduce(x @ w) + b, lambda g: (g @ w.T, x.T @ g, g.sum(0))


# Task 1 -----------------------------------------------------------------------------------------------------------------


@right(1)
def into_place(comm, x, w, b):
    def back(g):
        whole = np.ascontiguousarray(g @ w.T)
        comm.Allreduce(MPI.IN_PLACE, whole)
        return whole, x.T @ g, g.sum(axis=0)

    return x @ w + b, back


@right(1)
def by_torch(comm, x, w, b):
    x, w, b = (torch.from_numpy(one).requires_grad_() for one in (x, w, b))
    y = torch.addmm(b, x, w)

    def back(g):
        y.backward(torch.from_numpy(g))
        return comm.allreduce(x.grad.numpy()), w.grad.numpy(), b.grad.numpy()

    return y.detach().numpy(), back


@right(1)
def by_einsum_and_a_list(comm, x, w, b):
    def back(g):
        total = np.empty_like(x)
        comm.Allreduce(np.einsum("no,io->ni", g, w), total)
        return [total, np.einsum("ni,no->io", x, g), np.einsum("no->o", g)]

    return [np.einsum("ni,io->no", x, w) + b, back]


@right(1)
def sample_by_sample(comm, x, w, b):
    y = np.stack([one @ w + b for one in x])

    def back(g):
        request_of = np.stack([w @ one for one in g])
        total = np.zeros_like(request_of)
        comm.Iallreduce(request_of, total).Wait()
        return total, sum(np.outer(one, its) for one, its in zip(x, g, strict=True)), sum(g)

    return y, back


@wrong(1, "add up over the ranks")
def without_the_sum(comm, x, w, b):
    return x @ w + b, lambda g: (g @ w.T, x.T @ g, g.sum(0))


@wrong(1, "not their mean")
def the_mean(comm, x, w, b):
    return x @ w + b, lambda g: (comm.allreduce(g @ w.T) / comm.size, x.T @ g, g.sum(0))


@wrong(1, "allreduce of shape (7, 3)")
def all_gradients_summed(comm, x, w, b):
    return x @ w + b, lambda g: (
        comm.allreduce(g @ w.T),
        comm.allreduce(x.T @ g),
        comm.allreduce(g.sum(0)),
    )


@wrong(1, "the target is none")
def gathered_for_nothing(comm, x, w, b):
    comm.allgather(x @ w)
    return column(comm, x, w, b)


@wrong(1, "the function `back` itself")
def only_the_output(comm, x, w, b):
    return x @ w + b


@wrong(1, "That is the mean over the samples")
def the_mean_bias(comm, x, w, b):
    return x @ w + b, lambda g: (comm.allreduce(g @ w.T), x.T @ g, g.mean(0))


# Task 2 -----------------------------------------------------------------------------------------------------------------


@right(2)
def in_place(comm, x, w, b):
    y = x @ w
    comm.Allreduce(MPI.IN_PLACE, y)
    return y + b, lambda g: (g @ w.T, x.T @ g, g.sum(0))


@right(2)
def the_bias_on_one_rank(comm, x, w, b):
    def back(g):
        return g @ w.T, x.T @ g, g.sum(0)

    return comm.allreduce(x @ w + (b if comm.rank == 0 else 0)), back


@right(2)
def a_share_of_the_bias(comm, x, w, b):
    return comm.allreduce(x @ w + b / comm.size), lambda g: (
        np.dot(g, w.T),
        np.dot(x.T, g),
        np.ones(len(g)) @ g,
    )


@right(2)
def torch_does_the_rest(comm, x, w, b):
    x, w, b = (torch.from_numpy(one).requires_grad_() for one in (x, w, b))
    part = x @ w

    def back(g):
        part.backward(torch.from_numpy(g))
        return x.grad, w.grad, torch.from_numpy(g).sum(0)

    return comm.allreduce(part.detach().numpy()) + b.detach().numpy(), back


@wrong(2, "Add it after the sum")
def the_bias_counts_often(comm, x, w, b):
    return comm.allreduce(x @ w + b), lambda g: (g @ w.T, x.T @ g, g.sum(0))


@wrong(2, "add up over the ranks")
def a_part_only(comm, x, w, b):
    return x @ w + b, lambda g: (g @ w.T, x.T @ g, g.sum(0))


@wrong(2, "so its gradient needs no sum over them")
def the_bias_summed_backward(comm, x, w, b):
    return comm.allreduce(x @ w) + b, lambda g: (g @ w.T, x.T @ g, comm.allreduce(g.sum(0)))


@wrong(2, "g is whole on all ranks already")
def g_summed_backward(comm, x, w, b):
    def back(g):
        return g @ w.T, x.T @ comm.allreduce(g), g.sum(0)

    return comm.allreduce(x @ w) + b, back


@wrong(2, "the target is one all-reduce")
def all_gathered(comm, x, w, b):
    return sum(comm.allgather(x @ w)) + b, lambda g: (g @ w.T, x.T @ g, g.sum(0))


# Task 3 -----------------------------------------------------------------------------------------------------------------


@right(3)
def of_both(comm, x, w1, b1, w2, b2):
    hidden, first = column(comm, x, w1, b1)
    active = np.tanh(hidden)
    y, second = row(comm, active, w2, b2)

    def back(g):
        into, *others = second(g)
        return (*first(into * (1 - active * active)), *others)

    return y, back


@right(3)
def by_hand(comm, x, w1, b1, w2, b2):
    a = np.tanh(x @ w1 + b1)

    def back(g):
        h = (g @ w2.T) / np.cosh(x @ w1 + b1) ** 2
        return comm.allreduce(h @ w1.T), x.T @ h, h.sum(0), a.T @ g, g.sum(0)

    return comm.allreduce(a @ w2) + b2, back


@right(3)
def autograd_between(comm, x, w1, b1, w2, b2):
    leaves = [torch.from_numpy(one).requires_grad_() for one in (x, w1, b1, w2)]
    part = torch.tanh(leaves[0] @ leaves[1] + leaves[2]) @ leaves[3]

    def back(g):
        part.backward(torch.from_numpy(g))
        whole = leaves[0].grad.numpy().copy()
        comm.Allreduce(MPI.IN_PLACE, whole)
        return [whole, *(one.grad for one in leaves[1:]), g.sum(0)]

    return comm.allreduce(part.detach().numpy()) + b2, back


@right(3)
def the_layers_again_in_back(comm, x, w1, b1, w2, b2):
    def back(g):
        active = np.tanh(x @ w1 + b1)  # computed again, not kept
        slope = 1 - active**2
        return (*column(comm, x, w1, b1)[1](slope * (g @ w2.T)), active.T @ g, g.sum(0))

    return row(comm, np.tanh(x @ w1 + b1), w2, b2)[0], back


@wrong(3, "The slope of tanh is missing")
def without_the_slope(comm, x, w1, b1, w2, b2):
    hidden, first = column(comm, x, w1, b1)
    y, second = row(comm, np.tanh(hidden), w2, b2)

    def back(g):
        into, *others = second(g)
        return (*first(into), *others)

    return y, back


@wrong(3, "The tanh between the layers is missing")
def without_tanh(comm, x, w1, b1, w2, b2):
    hidden, first = column(comm, x, w1, b1)
    y, second = row(comm, hidden, w2, b2)
    return y, lambda g: (*first(second(g)[0]), *second(g)[1:])


@wrong(3, "forward, each rank makes allgather and allreduce")
def gathers_the_hidden_layer(comm, x, w1, b1, w2, b2):
    parts = comm.allgather(x @ w1 + b1)
    return of_these(comm, parts[comm.rank], x, w1, w2, b2)


@wrong(3, "backward, each rank makes allreduce and allreduce")
def calls_the_second_back_twice(comm, x, w1, b1, w2, b2):
    y, back = of_these(comm, x @ w1 + b1, x, w1, w2, b2)
    return y, lambda g: back(g) and back(g)


@wrong(3, "in the first layer's back")
def no_sum_backward(comm, x, w1, b1, w2, b2):
    active = np.tanh(x @ w1 + b1)

    def back(g):
        h = (g @ w2.T) * (1 - active**2)
        return h @ w1.T, x.T @ h, h.sum(0), active.T @ g, g.sum(0)

    return comm.allreduce(active @ w2) + b2, back


def of_these(comm, hidden, x, w1, w2, b2):
    """Sent to the ranks before the answers."""
    active = np.tanh(hidden)

    def back(g):
        h = (g @ w2.T) * (1 - active**2)
        return comm.allreduce(h @ w1.T), x.T @ h, h.sum(0), active.T @ g, g.sum(0)

    return comm.allreduce(active @ w2) + b2, back
