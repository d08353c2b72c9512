"""Do something on every rank: all ranks get all results, or all raise the same exception."""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def raise_on_all(
    make: Callable[[], T],
    errors: tuple[type[BaseException], ...],
    allgather: Callable[[BaseException | None], list],
    choose: Callable[[list], BaseException | None] | None = None,
) -> T:
    """Call make() on every rank. Returns its result here, or raises one exception on all ranks.

    errors: the exceptions that are shared. allgather: gives what each rank passes to all, in the
    order of ranks. choose: the exception to raise, from each rank's own or None; by default the
    first rank's.
    """
    result = error = None
    try:
        result = make()
    except errors as raised:
        error = raised
    gathered = allgather(error)
    if chosen := choose(gathered) if choose else next(filter(None, gathered), None):
        raise chosen
    return result  # type: ignore[return-value]


def gather_or_raise(
    make: Callable[[], T], errors: tuple[type[BaseException], ...] = (SystemExit,)
) -> list[T]:
    """The results of make() on all ranks of torch's world, on all ranks.

    If it raises one of `errors` on a rank, all ranks raise it, with the same text: a rank that ends
    alone would leave the others waiting for it.
    """

    def make_plain() -> T:
        try:
            return make()
        except errors as raised:  # a subclass may not be picklable
            kind = next(kind for kind in errors if isinstance(raised, kind))
            raise kind(str(raised)) from raised

    return _allgather(raise_on_all(make_plain, errors, _allgather))


def _allgather(value) -> list:
    import torch.distributed as dist

    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values
