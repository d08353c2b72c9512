"""What each rank gives to a collective call, and whether it fits what the other ranks give.

MPI and gloo compare nothing before they communicate: where counts differ, one rank raises, and the
others wait for it forever.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from pi2zero.mpi import name_ranks
from pi2zero_course.checks.framework.answers import CheckError
from pi2zero_course.checks.framework.values import plural


class Buffer(NamedTuple):
    """One rank's part in a call. counts: elements to or from each rank; size: bytes of one."""

    counts: tuple[int, ...]
    dtype: str = ""  # empty: unknown, such as MPI.BYTE
    size: int = 1
    split: bool = False  # does each rank get another part of it?

    def nbytes(self, partner: int) -> int:
        """What is sent to a rank, or received from it."""
        return self.counts[partner] * self.size


class Offer(NamedTuple):
    """What a rank sends in a call, and its room for what comes; None: MPI does not look at it."""

    sends: Buffer | None = None
    room: Buffer | None = None


# How a call uses its two buffers, if not whole for every partner: split into one equal part for
# each, or into parts of any lengths.
_SENDS = {"Scatter": "split", "Alltoall": "split", "Reduce_scatter_block": "split"}
_SENDS |= {"Scatterv": "parts"}
_ROOM = {"Gather": "split", "Allgather": "split", "Alltoall": "split"}
_ROOM |= {"Gatherv": "parts", "Allgatherv": "parts"}
# Calls in which the root alone sends, or alone has room.
FROM_ROOT = {"Bcast", "Scatter", "Scatterv"}
TO_ROOT = {"Reduce", "Gather", "Gatherv"}
# The calls that are known here.
BUFFERED = FROM_ROOT | TO_ROOT | {"Allgather", "Allgatherv", "Alltoall", "Allreduce", "Scan"}
BUFFERED |= {"Exscan", "Reduce_scatter", "Reduce_scatter_block"}


def mpi_offer(name: str, args: Sequence, options: dict, root: int, comm: MPI.Intracomm) -> Offer:
    """What this rank gives to comm.NAME(*args, **options). Raises what mpi4py would raise, before
    the other ranks wait."""
    kind, is_root = _kind(name), comm.rank == root
    if kind == "Bcast":
        buffer = _read("whole", *_given("buf", 0, args, options), comm.size, name, not is_root)
        return Offer(buffer if is_root else None, None if is_root else buffer)
    sendbuf, recvbuf = _given("sendbuf", 0, args, options), _given("recvbuf", 1, args, options)
    if not sendbuf or not recvbuf:
        raise CheckError(f"{name} takes two arrays: what is sent, and room for what comes.")
    sends = room = None
    if kind == "Reduce_scatter":
        counts = _given("recvcounts", 2, args, options)
        if sendbuf[0] is not MPI.IN_PLACE:
            sends = _read("whole", *sendbuf, comm.size, name)
            room = _read("whole", *recvbuf, comm.size, name, writes=True)
        if sends and counts and counts[0] is not None:
            sends = _cut(sends, counts[0], name)
        return Offer(sends if counts and counts[0] is not None else None, room)
    in_place = sendbuf[0] is MPI.IN_PLACE
    if (is_root or kind not in FROM_ROOT) and not in_place:
        sends = _read(_SENDS.get(kind, "whole"), *sendbuf, comm.size, name)
    if (is_root or kind not in TO_ROOT) and recvbuf[0] is not MPI.IN_PLACE:
        room = _read(_ROOM.get(kind, "whole"), *recvbuf, comm.size, name, writes=True)
    if in_place and kind in ("Allreduce", "Reduce", "Scan", "Exscan", "Alltoall"):
        sends = room
    return Offer(sends, room)


def whole(array, size: int) -> Buffer:
    """An array or a tensor that goes to, or comes from, each of `size` ranks as it is."""
    return _buffer_of(array, (math.prod(array.shape),) * size)


def split(array, size: int, name: str) -> Buffer:
    """An array or a tensor of which each of `size` ranks gets, or gives, an equal part."""
    count = math.prod(array.shape)
    if count % size:
        raise CheckError(
            f"{name} splits an array into equal parts, one for each of {size} ranks; yours has "
            f"{plural(count, 'number')}, which {size} does not divide."
        )
    return _buffer_of(array, (count // size,) * size)._replace(split=size > 1)


def misfit(call: str, kind: str, root: int, offers: Sequence, ranks: Sequence[int]) -> str:
    """How what the ranks give to a call does not fit, as a sentence; empty if it fits.

    call: its name in the sentence. kind: the call of MPI that it is like; for one in lower case,
    which adds up objects, offers are the shapes of arrays. offers: of each rank, None where it is
    not known. ranks: their numbers.
    """
    if any(offer is None for offer in offers):
        return ""
    if kind.islower():
        return _shapes_misfit(call, offers, ranks)
    kind, places = _kind(kind), range(len(offers))
    senders = [root] if kind in FROM_ROOT else places
    receivers = [root] if kind in TO_ROOT else places
    if all(
        _fits(offers[source].sends, offers[target].room, source, target)
        for source in senders
        for target in receivers
    ):
        return ""
    sends = {ranks[at]: offers[at].sends for at in senders if offers[at].sends}
    rooms = {ranks[at]: offers[at].room for at in receivers if offers[at].room}
    dtypes = {each.dtype for each in (*sends.values(), *rooms.values()) if each.dtype}
    texts = _grouped(sends, "sends", "send", "to", dtypes)
    texts += _grouped(rooms, "has room for", "have room for", "from", dtypes)
    advice = "What is sent and the room for it have to be equally long"
    advice += ", and of one dtype." if len(dtypes) > 1 else "."
    return f"{call}: {', '.join(texts)}.\n{advice}"


def _shapes_misfit(call, shapes, ranks) -> str:
    """NumPy adds up arrays of different shapes if it can stretch one of them."""
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        groups = {}
        for rank, shape in zip(ranks, shapes, strict=True):
            groups.setdefault(tuple(shape), []).append(rank)
        texts = [
            f"{name_ranks(same)} call{'s' * (len(same) == 1)} {call} of shape {shape}"
            for shape, same in groups.items()
        ]
        return f"{', '.join(texts)}. All ranks have to give arrays of one shape."
    return ""


def _fits(sends, room, source, target) -> bool:
    if sends is None or room is None:
        return True
    same = not sends.dtype or not room.dtype or sends.dtype == room.dtype
    return same and sends.nbytes(target) == room.nbytes(source)


def _grouped(buffers, verb, verbs, way, dtypes) -> list[str]:
    groups = {}
    for rank, buffer in buffers.items():
        groups.setdefault(_in_words(buffer, way, dtypes), []).append(rank)
    if len(groups) == 1 and len(buffers) > 1:
        return [f"all ranks {verbs} {text}" for text in groups]
    return [
        f"{name_ranks(ranks)} {verb if len(ranks) == 1 else verbs} {text}"
        for text, ranks in groups.items()
    ]


def _in_words(buffer, way, dtypes) -> str:
    if not any(buffer.counts):
        return "nothing"
    of = f" of {buffer.dtype}" if len(dtypes) > 1 and buffer.dtype else ""
    if len(set(buffer.counts)) > 1:
        return f"{', '.join(map(str, buffer.counts))} numbers{of} {way} the ranks"
    each = f" {way} each rank" if buffer.split else ""
    return f"{plural(buffer.counts[0], 'number')}{of}{each}"


def _kind(name: str) -> str:
    """Iallreduce gives what Allreduce gives."""
    return name[1:].capitalize() if name[0] == "I" else name


def _given(name, at, args, options):
    """(the argument,), or () if it is not given."""
    return (options[name],) if name in options else tuple(args[at : at + 1])


def _read(use, spec, size, name, writes=False) -> Buffer:
    """A buffer as mpi4py reads it: an array, or [array, count or counts, datatype]."""
    if spec is None:
        return Buffer((0,) * size)
    parts = list(spec) if isinstance(spec, list | tuple) else [spec]
    array, datatype = parts[0], next((p for p in parts if isinstance(p, MPI.Datatype)), None)
    _refuse_as_mpi4py(array, datatype, name, writes)
    array = np.asarray(array)
    counts = next((p for p in parts[1:] if not isinstance(p, MPI.Datatype | str | None)), None)
    if isinstance(counts, tuple) and len(counts) == 2 and np.ndim(counts[0]):
        counts = counts[0]  # and displacements
    if counts is None:
        buffer = whole(array, size) if use == "whole" else split(array, size, name)
    elif np.ndim(counts):
        buffer = _cut(whole(array, size), counts, name)
    else:
        buffer = _buffer_of(array, (int(counts),) * size)._replace(split=use != "whole")
    if datatype is not None:
        size_of_one = buffer.size if counts is None else datatype.Get_size()
        buffer = buffer._replace(dtype="", size=size_of_one)
    return buffer


def _cut(buffer, counts, name) -> Buffer:
    counts = tuple(map(int, counts))
    if len(counts) != len(buffer.counts):
        raise CheckError(
            f"{name} takes one count for each of {plural(len(buffer.counts), 'rank')}; you give "
            f"{len(counts)}."
        )
    return buffer._replace(counts=counts, split=True)


def _refuse_as_mpi4py(array, datatype, name, writes) -> None:
    """Let mpi4py look at the array, in a request that is never started."""
    message = array if datatype is None else [array, datatype]
    try:
        request = (MPI.COMM_SELF.Recv_init if writes else MPI.COMM_SELF.Send_init)(message, 0)
    except TypeError:
        raise CheckError(
            f"{name} takes arrays, and you give it {type(array).__name__!r}. {name.lower()}, in "
            "lower case, takes any object."
        ) from None
    except (KeyError, ValueError, BufferError) as error:
        raise CheckError(f"{name} cannot take this array: {error.args[0]}.") from None
    request.Free()


def _buffer_of(array, counts) -> Buffer:
    dtype = str(array.dtype).removeprefix("torch.")
    return Buffer(counts, dtype, array.dtype.itemsize)
