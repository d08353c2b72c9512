"""Answers to tasks 5 to 7: the colleague's three bugs, and others in their place."""

import torch
import torch.nn.functional as F

from . import right, wrong

# Task 5 -----------------------------------------------------------------------------------------------------------------


@right(5)
def the_sum_over_all(y, labels, n):
    return F.cross_entropy(y, labels, reduction="sum") / n


@right(5)
def weighted_by_its_images(y, labels, n):
    return F.cross_entropy(y, labels) * len(labels) / n


@right(5)
def by_log_softmax(y, labels, n):
    return -y.log_softmax(1)[torch.arange(len(y)), labels].sum() / n


@right(5)
def one_by_one(y, labels, n):
    return sum(
        F.cross_entropy(one[None], label[None]) / n for one, label in zip(y, labels, strict=True)
    )


@wrong(5, "5 times too large, about")
def colleagues_loss(y, labels, n):
    return F.cross_entropy(y, labels)


@wrong(5, "the mean of the micro-batches' means")
def divided_by_the_number_of_parts(y, labels, n):
    return F.cross_entropy(y, labels) / {13: 5, 5: 2}[n]


@wrong(5, "the sum over 13 images; the mean is due")
def the_sum(y, labels, n):
    return F.cross_entropy(y, labels, reduction="sum")


@wrong(5, "no .item(), no .detach()")
def a_number(y, labels, n):
    return F.cross_entropy(y, labels, reduction="sum").item() / n


@wrong(5, "Is the `return` missing?")
def nothing(y, labels, n):
    F.cross_entropy(y, labels, reduction="sum") / n


# Task 6 -----------------------------------------------------------------------------------------------------------------


@right(6)
def a_tensor_for_each(comm, buffer, rows):
    x = torch.empty(rows, buffer.shape[1], dtype=buffer.dtype)
    comm.Recv(x.numpy(), source=comm.rank - 1)
    return x.requires_grad_()


@right(6)
def a_copy_of_the_buffer(comm, buffer, rows):
    comm.Recv(buffer[:rows].numpy(), source=comm.rank - 1)
    return buffer[:rows].clone().requires_grad_()


@right(6)
def like_the_buffer(comm, buffer, rows):
    x = torch.zeros_like(buffer)[:rows]
    comm.Irecv(x.numpy(), source=comm.rank - 1).Wait()
    x.requires_grad = True
    return x


@right(6)
def torch_copies(comm, buffer, rows):
    into = buffer.numpy()[:rows].copy()
    comm.Recv(into, source=comm.rank - 1)
    return torch.tensor(into, requires_grad=True)


@right(6)
def as_wide_as_the_notebooks_images(comm, buffer, rows):
    x = torch.empty(rows, 8, dtype=torch.double)  # its WIDTH
    comm.Recv(x.numpy(), source=comm.rank - 1)
    return x.requires_grad_()


@wrong(6, "only the gradient of its first layer's weight is wrong")
def colleagues_receive(comm, buffer, rows):
    x = buffer[:rows]
    comm.Recv(x.numpy(), source=comm.rank - 1)
    return x.requires_grad_()


@wrong(6, "only the gradient of its first layer's weight is wrong")
def detached_is_no_copy(comm, buffer, rows):
    comm.Recv(buffer[:rows].numpy(), source=comm.rank - 1)
    return buffer[:rows].detach().requires_grad_()


@wrong(6, "has no requires_grad")
def no_gradient(comm, buffer, rows):
    comm.Recv(buffer[:rows].numpy(), source=comm.rank - 1)
    return buffer[:rows].clone()


@wrong(6, "requires_grad_() last")
def a_copy_too_late(comm, buffer, rows):
    comm.Recv(buffer[:rows].numpy(), source=comm.rank - 1)
    return buffer[:rows].requires_grad_().clone()


@wrong(6, "rows of 8 values that have come are due")
def the_whole_buffer(comm, buffer, rows):
    comm.Recv(buffer[:rows].numpy(), source=comm.rank - 1)
    return torch.cat([buffer, buffer]).clone().requires_grad_()


@wrong(6, "one process's with")
def copied_before_it_came(comm, buffer, rows):
    x = buffer[:rows].clone()
    comm.Recv(buffer[:rows].numpy(), source=comm.rank - 1)
    return x.requires_grad_()


# Task 7 -----------------------------------------------------------------------------------------------------------------


@right(7)
def as_far_as_it_helps(rank, size, micro, most):
    ahead = min(size - 1 - rank, micro, most - 1)
    return "F" * ahead + "FB" * (micro - ahead) + "B" * ahead


@right(7)
def by_what_is_held(rank, size, micro, most):
    kinds, held = [], 0
    for _ in range(micro):
        kinds, held = [*kinds, "F"], held + 1
        if held == min(size - rank, most):
            kinds, held = [*kinds, "B"], held - 1
    return "".join(kinds) + "B" * held


@right(7)
def whatever_may_go(rank, size, micro, most):
    text = ""
    while len(text) < 2 * micro:
        forwards, backwards = text.count("F"), text.count("B")
        full = forwards - backwards == min(most, size - rank) or forwards == micro
        text += "B" if full else "F"
    return text


@right(7)
def a_list_of_letters(rank, size, micro, most):
    first = min(size - rank, micro, most)
    return ["F"] * first + ["B", "F"] * (micro - first) + ["B"] * first


@wrong(7, "this would hang")
def colleagues_row(rank, size, micro, most):
    ahead = min(rank, micro, most - 1)
    return "F" * ahead + "FB" * (micro - ahead) + "B" * ahead


@wrong(7, "it holds 3 micro-batches at once")
def one_f_one_b_without_the_limit(rank, size, micro, most):
    ahead = min(size - 1 - rank, micro)
    return (
        "F" * ahead + "FB" * (micro - ahead) + "B" * ahead
        if ahead < 3
        else "FFFB" + "FB" * (micro - 3) + "BB"
    )


@wrong(7, "is possible")
def as_far_as_memory_goes_on_every_rank(rank, size, micro, most):
    ahead = min(micro, most) - 1
    return "F" * ahead + "FB" * (micro - ahead) + "B" * ahead


@wrong(7, "is possible")
def one_at_a_time(rank, size, micro, most):
    return "FB" * micro


@wrong(7, "is possible")
def in_groups_of_most(rank, size, micro, most):
    groups = [min(most, micro - begin) for begin in range(0, micro, most)]
    return "".join("F" * group + "B" * group for group in groups)


@wrong(7, "a backward before its forward")
def backward_first(rank, size, micro, most):
    return "BF" * micro


@wrong(7, "7 of each are due")
def the_rest_is_forgotten(rank, size, micro, most):
    ahead = min(size - 1 - rank, micro, most - 1)
    return "F" * ahead + "FB" * (micro - ahead)
