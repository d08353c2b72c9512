"""Answers to lab 7, as learners write them: right ones, and wrong ones with words of the check's
message."""

import numpy as np
import torch
from lab_answers import LabAnswers
from mpi4py import MPI

SETUP = "import torch, torch.nn.functional as F\ntorch.set_num_threads(1)"
lab = LabAnswers("07_tensor_and_space", cells=["neighbours", "convolve-back"], setup=SETUP)
column = row = neighbours = convolve = convolve_back = halo = halo_backward = None  # the notebook's


@lab.right("column")
def by_torch(comm, x, w, b):
    x, w, b = (torch.from_numpy(one).requires_grad_() for one in (x, w, b))
    y = torch.addmm(b, x, w)

    def back(g):
        y.backward(torch.from_numpy(g))
        return comm.allreduce(x.grad.numpy()), w.grad.numpy(), b.grad.numpy()

    return y.detach().numpy(), back


lab.wrong_variants(
    "column",
    ("comm.allreduce(g @ w.T)", "g @ w.T", "add up over the ranks"),
    ("comm.allreduce(g @ w.T)", "comm.allreduce(g @ w.T) / comm.size", "not their mean"),
    ("x.T @ g, g.sum(0)", "comm.allreduce(x.T @ g), g.sum(0)", "allreduce of shape (7, 3)"),
    ("    return x @ w", "    comm.allgather(x @ w)\n    return x @ w", "the target is none"),
    ("x @ w + b, back", "x @ w + b", "the function `back` itself"),
    ("g.sum(0)", "g.mean(0)", "That is the mean over the samples"),
)


@lab.right("row")
def torch_does_the_rest(comm, x, w, b):
    x, w, b = (torch.from_numpy(one).requires_grad_() for one in (x, w, b))
    part = x @ w

    def back(g):
        part.backward(torch.from_numpy(g))
        return x.grad, w.grad, torch.from_numpy(g).sum(0)

    return comm.allreduce(part.detach().numpy()) + b.detach().numpy(), back


lab.wrong_variants(
    "row",
    ("comm.allreduce(x @ w) + b", "comm.allreduce(x @ w + b)", "Add it after the sum"),
    ("comm.allreduce(x @ w)", "x @ w", "add up over the ranks"),
    ("g.sum(0)", "comm.allreduce(g.sum(0))", "so its gradient needs no sum over them"),
    ("x.T @ g", "x.T @ comm.allreduce(g)", "g is whole on all ranks already"),
    ("comm.allreduce(x @ w)", "sum(comm.allgather(x @ w))", "the target is one all-reduce"),
)


@lab.right("mlp")
def autograd_between(comm, x, w1, b1, w2, b2):
    leaves = [torch.from_numpy(one).requires_grad_() for one in (x, w1, b1, w2)]
    part = torch.tanh(leaves[0] @ leaves[1] + leaves[2]) @ leaves[3]

    def back(g):
        part.backward(torch.from_numpy(g))
        whole = leaves[0].grad.numpy().copy()
        comm.Allreduce(MPI.IN_PLACE, whole)
        return [whole, *(one.grad for one in leaves[1:]), g.sum(0)]

    return comm.allreduce(part.detach().numpy()) + b2, back


lab.wrong_variants(
    "mlp",
    ("of_a * (1 - a**2)", "of_a", "The slope of tanh is missing"),
    ("np.tanh(h)", "h", "The tanh between the layers is missing"),
    ("np.tanh(h)", "np.tanh(comm.allgather(h)[comm.rank])", "forward, each rank makes allgather"),
    ("return y, back", "return y, lambda g: back(g) and back(g)", "backward, each rank makes"),
    (
        "back1(",
        "(lambda into: (into @ w1.T, x.T @ into, into.sum(0)))(",
        "in the first layer's back",
    ),
)


@lab.right("halo")
def by_requests(comm, x, k):
    above, below = neighbours(comm)
    y = np.zeros((len(x) + 2 * k, x.shape[1]))
    y[k:-k] = x
    waits = [
        comm.Irecv(y[:k], above),
        comm.Irecv(y[-k:], below),
        comm.Isend(x[:k], above),
        comm.Isend(x[-k:], below),
    ]
    MPI.Request.Waitall(waits)
    return y


@lab.right("halo")
def pickled_with_tags(comm, x, k):
    above, below = neighbours(comm)
    sent = [comm.isend(x[:k], above, tag=1), comm.isend(x[-k:], below, tag=2)]
    first, last = comm.recv(source=above, tag=2), comm.recv(source=below, tag=1)
    MPI.Request.waitall(sent)
    zeros = np.zeros((k, x.shape[1]))
    return np.vstack([zeros if first is None else first, x, zeros if last is None else last])


@lab.wrong("halo", "this would hang")
def first_all_receive(comm, x, k):
    y = np.pad(x, ((k, k), (0, 0)))
    if comm.rank > 0:
        comm.Recv(y[:k], comm.rank - 1)
        comm.Send(x[:k], comm.rank - 1)
    if comm.rank + 1 < comm.size:
        comm.Recv(y[-k:], comm.rank + 1)
        comm.Send(x[-k:], comm.rank + 1)
    return y


@lab.wrong("halo", "bytes; the target is 80: 1 row to each neighbour")
def whole_strips(comm, x, k):
    above, below = neighbours(comm)
    first, last = (comm.sendrecv(x, to, source=of) for to, of in ((below, above), (above, below)))
    zeros = np.zeros((k, x.shape[1]))
    return np.vstack(
        [zeros if first is None else first[-k:], x, zeros if last is None else last[:k]]
    )


lab.wrong_variants(
    "halo",
    (
        "Sendrecv(x[-k:]",
        "Sendrecv(x[:k]",
        "Sendrecv(x[:k], above",
        "Sendrecv(x[-k:], above",
        "is row 3 of the image; row 2 of the image is due",
    ),
    (
        "neighbours(comm)",
        "(comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size",
        "zeros are due: there the image has ended",
    ),
    (
        "    comm.Sendrecv(x[-k:]",
        "    return y\n    comm.Sendrecv(x[-k:]",
        "is zeros; row 2 of the image is due",
    ),
)


@lab.right("halo_backward")
def added_within_g(comm, g, k):
    above, below = neighbours(comm)
    out, came = g.copy(), np.zeros((k, g.shape[1]))
    comm.Sendrecv(out[-k:], below, recvbuf=came, source=above)
    g[k : 2 * k] += came
    came[:] = 0
    comm.Sendrecv(out[:k], above, recvbuf=came, source=below)
    g[-2 * k : -k] += came
    return g[k:-k]


lab.wrong_variants(
    "halo_backward",
    ("    from_above", "    return x\n    from_above", "its own rows only"),
    (
        "np.zeros_like(g[:k]), np.zeros_like(g[:k])",
        "x[:k].copy(), x[-k:].copy()",
        "x[:k] +=",
        "x[:k] =",
        "x[-k:] +=",
        "x[-k:] =",
        "not put in its place",
    ),
    ("return x", "g[k:-k] = x\n    return g", "the strip's own 2 are due"),
    (
        "Sendrecv(g[:k], above",
        "Sendrecv(g[-k:], above",
        "Sendrecv(g[-k:], below",
        "Sendrecv(g[:k], below",
        "one process has",
    ),
)


@lab.right("conv")
def the_whole_image_everywhere(comm, x, w):
    k, wide = len(w) // 2, np.pad(np.vstack(comm.allgather(x)), ((len(w) // 2,) * 2, (0, 0)))
    begin = comm.scan(len(x)) - len(x)

    def back(g):
        whole, of_w = convolve_back(wide, w, np.vstack(comm.allgather(g)))
        return whole[k + begin : k + begin + len(x)], of_w

    return convolve(wide[begin : begin + len(x) + 2 * k], w), back


lab.wrong_variants(
    "conv",
    ("halo(comm, x, k)", "np.pad(x, ((k, k), (0, 0)))", "lines at the seams"),
    ("halo_backward(comm, of_wide, k)", "of_wide[k:-k]", "the exchange has a backward"),
    ("comm.allreduce(of_w)", "of_w", "every position of the image is in the kernel's gradient"),
    ("comm.allreduce(of_w)", "comm.allreduce(of_w) / comm.size", "That is the mean over the ranks"),
)


@lab.right("two")
def cut_and_padded(comm, x, v, w):
    k, j = len(v) // 2, len(w) // 2
    between = convolve(halo(comm, x, k + j), v)
    above, below = (j if comm.rank == 0 else 0), (j if comm.rank + 1 == comm.size else 0)
    return convolve(np.pad(between[above : len(between) - below], ((above, below), (0, 0))), w)


lab.wrong_variants(
    "two",
    ("    h[: j", "    return convolve(h, w)\n    h[: j", "Yours hold what v made"),
    ("    h[: j", "    j = len(w) // 3\n    h[: j", "rank 0: y"),
    (
        "    j =",
        "    return convolve(halo(comm, convolve(halo(comm, x, len(v) // 2), v), len(w) // 2), "
        "w)\n    j =",
        "4 messages; the target is 2",
    ),
    (
        "halo(comm, x, len(v) // 2 + j)",
        "np.pad(x, [(len(v) // 2 + j,) * 2, (0, 0)])",
        "j * (comm.rank == 0)",
        "j",
        "j * (comm.rank == comm.size - 1)",
        "j",
        "lines at the seams",
    ),
)
