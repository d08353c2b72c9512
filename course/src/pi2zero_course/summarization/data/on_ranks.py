"""Stories on ranks: each host has one copy, in files that its ranks map into memory."""

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pi2zero import ownership
from pi2zero.ownership import host_id
from pi2zero.ranks import gather_or_raise
from pi2zero_course.summarization import data

__all__ = ["Rows", "load", "tokenized"]

ERRORS = (OSError, ValueError)  # what is wrong with a file on one rank is raised on all


def load(me, source: str | Path = "auto", **options) -> data.Stories:
    """`data.load(source, **options)` with one copy on a host. All ranks call it.

    me: what `ranks.join` returned. Rank 0 chooses the source; the first rank of each other host
    reads the same one, and its neighbours get the names of its files. (The kit's own stories are
    small: each rank generates them.) Raises ValueError or OSError, on all ranks.
    """
    stories = None
    quiet = options | {"say": lambda words: None}

    def read_on_rank_0():
        nonlocal stories
        if me.rank == 0:
            stories = data.load(source, **options)
        return stories and stories.name

    def read_on_first_rank_of_host():
        nonlocal stories
        if me.local_rank > 0:
            return {}
        stories = stories or data.load(source, **quiet)
        return {host_id(): pickle.dumps(stories)}

    def open_files():  # unpickled stories open their files, which only their own host has
        nonlocal stories
        stories = pickle.loads(packed[host_id()])  # noqa: S301 (from a rank of this run)

    name = gather_or_raise(read_on_rank_0, ERRORS)[0]
    source = {"cnn_dailymail": "real"}.get(name, name)
    if name == "embedded":
        return stories or data.load(source, **quiet)
    packed = {}
    for host in gather_or_raise(read_on_first_rank_of_host, ERRORS):
        packed |= host
    gather_or_raise(open_files, ERRORS)
    return stories


def tokenized(
    stories, encode: Callable, *, at_once: int = 500, report: Callable = lambda share: None
) -> "Rows":
    """All stories as numbers. All ranks call it; those of a host share the work and the files.

    encode(some): pairs (article, highlights), two lists of numbers, of `at_once` stories at most;
    `some` has their columns. report(share) is called after each part with the share of its stories
    that this rank has encoded. Takes 4 bytes per number in the temporary folder while the rows are
    in use.
    """
    import torch.distributed as dist

    hosts = gather_or_raise(host_id, ERRORS)
    neighbours = [rank for rank, host in enumerate(hosts) if host == host_id()]
    number, count = neighbours.index(dist.get_rank()), len(neighbours)
    start, stop = (len(stories) * k // count for k in (number, number + 1))
    folder, part = ownership.temporary_dir("stories"), stories.select(range(start, stop))
    gather_or_raise(lambda: _write(Path(folder.name), part, encode, at_once, report), ERRORS)
    folders = gather_or_raise(lambda: folder.name, ERRORS)
    rows = Rows([Path(folders[rank]) for rank in neighbours], folder)
    dist.barrier()  # no rank goes on and removes its files before all have opened them
    return rows


class Rows:
    """(article, highlights) of story i as `rows[i]`, two arrays, read from the host's files."""

    def __init__(self, folders: list[Path], own):
        self._own = own  # this rank's files are removed with the rows
        self._ends = [np.load(folder / "ends.npy") for folder in folders]
        self._numbers = [_mapped(folder / "numbers") for folder in folders]
        self._firsts = np.cumsum([0, *(len(ends) // 2 for ends in self._ends)])

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"there are {len(self)} rows, and none has the number {index}")
        index %= len(self)
        part = int(np.searchsorted(self._firsts, index, side="right")) - 1
        at, ends = 2 * (index - int(self._firsts[part])), self._ends[part]
        start, middle, stop = int(ends[at - 1]) if at else 0, int(ends[at]), int(ends[at + 1])
        numbers = self._numbers[part]
        return numbers[start:middle].astype(np.int64), numbers[middle:stop].astype(np.int64)

    def lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """Tokens of each article, and of each story's highlights."""
        lengths = np.concatenate([np.diff(ends, prepend=0) for ends in self._ends])
        return lengths[0::2], lengths[1::2]

    def __reduce__(self):
        raise TypeError(
            "Rows stay on their ranks: they are in files of the host. "
            "Ask for a few, rows[0], or for rows.lengths()."
        )


def _write(folder, stories, encode, at_once, report):
    """A file with all numbers of these stories, one with the ends of articles and highlights."""
    ends, size = [], 0
    with (folder / "numbers").open("wb") as file:
        for first in range(0, len(stories), at_once):
            for pair in encode(stories[first : first + at_once]):
                for numbers in pair:
                    file.write(np.asarray(numbers, np.int32).tobytes())
                    size += len(numbers)
                    ends.append(size)
            report(min(1.0, (first + at_once) / len(stories)))
    np.save(folder / "ends.npy", np.array(ends, np.int64))


def _mapped(file):
    is_empty = file.stat().st_size == 0  # an empty file cannot be mapped
    return np.empty(0, np.int32) if is_empty else np.memmap(file, np.int32, "r")
