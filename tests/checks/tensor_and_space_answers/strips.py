"""Answers to tasks 4 to 7: the halo exchange, its backward, a convolution over strips, two of them with one exchange."""

import numpy as np
import torch
import torch.nn.functional as F
from mpi4py import MPI

from . import right, wrong


def neighbours(comm):
    """As in the lab. Sent to the ranks before the answers, as is all up to task 4."""
    return (
        comm.rank - 1 if comm.rank > 0 else MPI.PROC_NULL,
        comm.rank + 1 if comm.rank + 1 < comm.size else MPI.PROC_NULL,
    )


def convolve(x, w):
    wide = np.pad(x, ((0, 0), [len(w) // 2] * 2))
    return np.einsum("ijkl,kl->ij", np.lib.stride_tricks.sliding_window_view(wide, w.shape), w)


def convolve_back(x, w, g):
    x, w = (torch.from_numpy(np.ascontiguousarray(one)).requires_grad_() for one in (x, w))
    y = F.conv2d(x[None, None], w[None, None], padding=(0, len(w) // 2))[0, 0]
    return [
        one.numpy()
        for one in torch.autograd.grad(y, (x, w), torch.from_numpy(np.ascontiguousarray(g)))
    ]


def halo(comm, x, k):
    above, below = neighbours(comm)
    y = np.pad(x, ((k, k), (0, 0)))
    comm.Sendrecv(x[-k:], below, recvbuf=y[:k], source=above)
    comm.Sendrecv(x[:k], above, recvbuf=y[-k:], source=below)
    return y


def halo_backward(comm, g, k):
    above, below = neighbours(comm)
    x, came = g[k:-k].copy(), np.zeros((2, k, g.shape[1]))
    comm.Sendrecv(g[:k], above, recvbuf=came[1], source=below)
    comm.Sendrecv(g[-k:], below, recvbuf=came[0], source=above)
    x[:k] += came[0]
    x[-k:] += came[1]
    return x


# Task 4 -----------------------------------------------------------------------------------------------------------------


@right(4)
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


@right(4)
def pieces_put_together(comm, x, k):
    none = np.zeros((k, x.shape[1]))
    first = last = none
    if comm.rank + 1 < comm.size:
        last = comm.sendrecv(x[-k:], comm.rank + 1, source=comm.rank + 1)
    if comm.rank > 0:
        first = comm.sendrecv(x[:k], comm.rank - 1, source=comm.rank - 1)
    return np.concatenate([first, x, last])


@right(4)
def even_and_odd(comm, x, k):
    y = np.pad(x, ((k, k), (0, 0)))
    for turn in (0, 1):
        partner = comm.rank + 1 if comm.rank % 2 == turn else comm.rank - 1
        if 0 <= partner < comm.size:
            mine, place = (
                (x[-k:], slice(len(y) - k, None)) if partner > comm.rank else (x[:k], slice(0, k))
            )
            if comm.rank % 2:
                comm.Send(mine.copy(), partner)
                comm.Recv(y[place], partner)
            else:
                comm.Recv(y[place], partner)
                comm.Send(mine.copy(), partner)
    return y


@right(4)
def pickled_with_tags(comm, x, k):
    above, below = neighbours(comm)
    sent = [comm.isend(x[:k], above, tag=1), comm.isend(x[-k:], below, tag=2)]
    first, last = comm.recv(source=above, tag=2), comm.recv(source=below, tag=1)
    MPI.Request.waitall(sent)
    zeros = np.zeros((k, x.shape[1]))
    return np.vstack([zeros if first is None else first, x, zeros if last is None else last])


@wrong(4, "is row 3 of the image; row 2 of the image is due")
def the_wrong_end(comm, x, k):
    above, below = neighbours(comm)
    y = np.pad(x, ((k, k), (0, 0)))
    comm.Sendrecv(x[:k].copy(), below, recvbuf=y[:k], source=above)
    comm.Sendrecv(x[-k:].copy(), above, recvbuf=y[-k:], source=below)
    return y


@wrong(4, "zeros are due: there the image has ended")
def round_the_ring(comm, x, k):
    y = np.pad(x, ((k, k), (0, 0)))
    above, below = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    comm.Sendrecv(x[-k:], below, recvbuf=y[:k], source=above)
    comm.Sendrecv(x[:k], above, recvbuf=y[-k:], source=below)
    return y


@wrong(4, "is zeros; row 2 of the image is due")
def no_exchange(comm, x, k):
    return np.pad(x, ((k, k), (0, 0)))


@wrong(4, "this would hang")
def first_all_receive(comm, x, k):
    y = np.pad(x, ((k, k), (0, 0)))
    if comm.rank > 0:
        comm.Recv(y[:k], comm.rank - 1)
        comm.Send(x[:k], comm.rank - 1)
    if comm.rank + 1 < comm.size:
        comm.Recv(y[-k:], comm.rank + 1)
        comm.Send(x[-k:], comm.rank + 1)
    return y


@wrong(4, "bytes; 80 are the target: 1 row to each neighbour")
def whole_strips(comm, x, k):
    above, below = neighbours(comm)
    first, last = (comm.sendrecv(x, to, source=of) for to, of in ((below, above), (above, below)))
    zeros = np.zeros((k, x.shape[1]))
    return np.vstack(
        [zeros if first is None else first[-k:], x, zeros if last is None else last[:k]]
    )


@wrong(4, "6 messages; two are the target")
def to_everybody(comm, x, k):
    others = [r for r in range(comm.size) if r != comm.rank]
    sent = [comm.isend(part, r) for r in others for part in (x[:k], x[-k:])]
    parts = {r: (comm.recv(source=r), comm.recv(source=r)) for r in others}
    MPI.Request.waitall(sent)
    none = (np.zeros((k, x.shape[1])),) * 2
    return np.vstack([parts.get(comm.rank - 1, none)[1], x, parts.get(comm.rank + 1, none)[0]])


# Task 5 -----------------------------------------------------------------------------------------------------------------


@right(5)
def home_by_requests(comm, g, k):
    above, below = neighbours(comm)
    x, first, last = g[k:-k].copy(), np.zeros_like(g[:k]), np.zeros_like(g[:k])
    waits = [
        comm.Irecv(first, above),
        comm.Irecv(last, below),
        comm.Isend(g[:k], above),
        comm.Isend(g[-k:], below),
    ]
    MPI.Request.Waitall(waits)
    x[:k] += first
    x[len(x) - k :] += last
    return x


@right(5)
def home_by_pickle(comm, g, k):
    x = np.array(g[k : len(g) - k])
    if comm.rank + 1 < comm.size:
        x[-k:] += comm.sendrecv(g[-k:], comm.rank + 1, source=comm.rank + 1)
    if comm.rank > 0:
        x[:k] += comm.sendrecv(g[:k], comm.rank - 1, source=comm.rank - 1)
    return x


@right(5)
def added_within_g(comm, g, k):
    above, below = neighbours(comm)
    out, came = g.copy(), np.zeros((k, g.shape[1]))
    comm.Sendrecv(out[-k:], below, recvbuf=came, source=above)
    g[k : 2 * k] += came
    came[:] = 0
    comm.Sendrecv(out[:k], above, recvbuf=came, source=below)
    g[-2 * k : -k] += came
    return g[k:-k]


@right(5)
def in_two_waves(comm, g, k):
    x, n = g[k:-k].copy(), comm.size
    if comm.rank > 0:
        x[:k] += comm.recv(source=comm.rank - 1)
    if comm.rank + 1 < n:
        comm.send(g[-k:], comm.rank + 1)
        x[-k:] += comm.recv(source=comm.rank + 1)
    if comm.rank > 0:
        comm.send(g[:k], comm.rank - 1)
    return x


@wrong(5, "its own rows only")
def cut_off(comm, g, k):
    return g[k:-k]


@wrong(5, "not put in its place")
def put_in_place(comm, g, k):
    above, below = neighbours(comm)
    x = g[k:-k].copy()
    comm.Sendrecv(g[-k:], below, recvbuf=x[:k], source=above)
    comm.Sendrecv(g[:k], above, recvbuf=x[-k:], source=below)
    return x


@wrong(5, "the strip's own 2 are due")
def still_wide(comm, g, k):
    g[k:-k] = halo_backward(comm, g, k)
    return g


@wrong(5, "one process has")
def the_sides_mixed_up(comm, g, k):
    above, below = neighbours(comm)
    x, came = g[k:-k].copy(), np.zeros((2, k, g.shape[1]))
    comm.Sendrecv(g[-k:].copy(), above, recvbuf=came[1], source=below)
    comm.Sendrecv(g[:k].copy(), below, recvbuf=came[0], source=above)
    x[:k] += came[0]
    x[-k:] += came[1]
    return x


# Task 6 -----------------------------------------------------------------------------------------------------------------


@right(6)
def with_the_exchange(comm, x, w):
    k = len(w) // 2
    y = halo(comm, x, k)

    def back(g):
        of_y, of_w = convolve_back(y, w, g)
        return halo_backward(comm, of_y, k), comm.allreduce(of_w)

    return convolve(y, w), back


@right(6)
def autograd_within(comm, x, w):
    k = len(w) // 2
    wide, kernel = (
        torch.from_numpy(halo(comm, x, k)).requires_grad_(),
        torch.from_numpy(w).requires_grad_(),
    )
    y = F.conv2d(wide[None, None], kernel[None, None], padding=(0, k))[0, 0]

    def back(g):
        y.backward(torch.from_numpy(g))
        total = np.empty_like(w)
        comm.Allreduce(kernel.grad.numpy(), total)
        return halo_backward(comm, wide.grad.numpy(), k), total

    return y.detach().numpy(), back


@right(6)
def the_whole_image_everywhere(comm, x, w):
    k, wide = len(w) // 2, np.pad(np.vstack(comm.allgather(x)), ((len(w) // 2,) * 2, (0, 0)))
    begin = comm.scan(len(x)) - len(x)

    def back(g):
        whole, of_w = convolve_back(wide, w, np.vstack(comm.allgather(g)))
        return whole[k + begin : k + begin + len(x)], of_w

    return convolve(wide[begin : begin + len(x) + 2 * k], w), back


@right(6)
def gradient_as_a_convolution(comm, x, w):
    k = len(w) // 2
    wide = halo(comm, x, k)

    def back(g):
        turned = w[::-1, ::-1].copy()
        return convolve(halo(comm, g, k), turned), comm.allreduce(convolve_back(wide, w, g)[1])

    return convolve(wide, w), back


@wrong(6, "lines at the seams")
def each_strip_alone(comm, x, w):
    wide = np.pad(x, ((len(w) // 2,) * 2, (0, 0)))
    return convolve(wide, w), lambda g: (convolve_back(wide, w, g)[0][1:-1], comm.allreduce(w))


@wrong(6, "the exchange has a backward")
def no_way_home(comm, x, w):
    k, wide = len(w) // 2, halo(comm, x, len(w) // 2)

    def back(g):
        of_wide, of_w = convolve_back(wide, w, g)
        return of_wide[k:-k], comm.allreduce(of_w)

    return convolve(wide, w), back


@wrong(6, "every position of the image is in the kernel's gradient")
def the_kernel_of_a_strip(comm, x, w):
    k, wide = len(w) // 2, halo(comm, x, len(w) // 2)

    def back(g):
        of_wide, of_w = convolve_back(wide, w, g)
        return halo_backward(comm, of_wide, k), of_w

    return convolve(wide, w), back


@wrong(6, "That is the mean over the ranks")
def the_mean_of_the_kernels(comm, x, w):
    k, wide = len(w) // 2, halo(comm, x, len(w) // 2)

    def back(g):
        of_wide, of_w = convolve_back(wide, w, g)
        return halo_backward(comm, of_wide, k), comm.allreduce(of_w) / comm.size

    return convolve(wide, w), back


# Task 7 -----------------------------------------------------------------------------------------------------------------


@right(7)
def rows_set_to_zero(comm, x, v, w):
    k, j = len(v) // 2, len(w) // 2
    between = convolve(halo(comm, x, k + j), v)
    between[: j if comm.rank == 0 else 0] = 0
    between[len(between) - j if comm.rank == comm.size - 1 else len(between) :] = 0
    return convolve(between, w)


@right(7)
def by_a_mask(comm, x, v, w):
    j, above, below = len(w) // 2, *neighbours(comm)
    there = np.ones((len(x) + 2 * j, 1))
    there[:j] *= above != MPI.PROC_NULL
    there[-j:] *= below != MPI.PROC_NULL
    return convolve(there * convolve(halo(comm, x, len(v) // 2 + j), v), w)


@right(7)
def the_mask_travels_as_a_column(comm, x, v, w):
    k, j = len(v) // 2, len(w) // 2
    rank, last = comm.rank, comm.size - 1
    wide = halo(comm, x, k + j)
    parts = [convolve(wide[i : i + 2 * k + 1], v) for i in range(len(x) + 2 * j)]
    rows = [
        0 * p if (rank == 0 and i < j) or (rank == last and i >= len(x) + j) else p
        for i, p in enumerate(parts)
    ]
    return convolve(np.vstack(rows), w)


@right(7)
def cut_and_padded(comm, x, v, w):
    k, j = len(v) // 2, len(w) // 2
    between = convolve(halo(comm, x, k + j), v)
    above, below = (j if comm.rank == 0 else 0), (j if comm.rank + 1 == comm.size else 0)
    return convolve(np.pad(between[above : len(between) - below], ((above, below), (0, 0))), w)


@wrong(7, "Yours hold what v made")
def what_v_made_outside(comm, x, v, w):
    return convolve(convolve(halo(comm, x, len(v) // 2 + len(w) // 2), v), w)


@wrong(7, "rank 0: y")
def a_second_kernel_of_three_only(comm, x, v, w):
    k, j = len(v) // 2, len(w) // 3
    between = convolve(halo(comm, x, k + j), v)
    above, below = (j if comm.rank == 0 else 0), (j if comm.rank + 1 == comm.size else 0)
    return convolve(np.pad(between[above : len(between) - below], ((above, below), (0, 0))), w)


@wrong(7, "4 messages; two are the target")
def two_exchanges(comm, x, v, w):
    return convolve(halo(comm, convolve(halo(comm, x, len(v) // 2), v), len(w) // 2), w)


@wrong(7, "lines at the seams")
def no_exchange_at_all(comm, x, v, w):
    k, j = len(v) // 2, len(w) // 2
    return convolve(np.pad(convolve(np.pad(x, ((k, k), (0, 0))), v), ((j, j), (0, 0))), w)
