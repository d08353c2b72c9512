"""Stories on ranks: a host keeps one copy, in files that its ranks map into memory; nothing goes through a notebook's kernel."""

import pickle
import platform
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pi2zero import ownership
from pi2zero.ranks import gather_or_raise
from pi2zero_course.summarization import data

__all__ = ["Rows", "load", "tokenized"]


def load(me, source: str | Path = "auto", **options) -> data.Stories:
    """`data.load(source, **options)` for ranks, with one copy on a host. All ranks call it. me: what `ranks.join` gave.

    Rank 0 chooses the source; on other hosts their first rank reads the same one. The ranks beside it get the names of its
    files. (The kit's own stories are small: each rank writes them itself.) Raises ValueError or OSError, on all ranks.
    """
    kept, quiet = {}, options | {"say": lambda words: None}

    def first():
        kept["stories"] = data.load(source, **options)
        return kept["stories"].name

    name = _told(lambda: first() if me.rank == 0 else None)[0]
    source = {"cnn_dailymail": "real"}.get(name, name)
    if name == "embedded":
        return kept.get("stories") or data.load(source, **quiet)

    def pickled():
        return {platform.node(): pickle.dumps(kept.get("stories") or data.load(source, **quiet))}

    hosts = _told(lambda: pickled() if me.local_rank == 0 else {})
    packed = {name: stories for host in hosts for name, stories in host.items()}[platform.node()]
    # Unpickled, stories open their files: another host's would not be there.
    _told(lambda: kept.update(stories=pickle.loads(packed)))  # noqa: S301  (a rank of this run has sent them)
    return kept["stories"]


def tokenized(
    stories, encode: Callable, *, at_once: int = 500, tell: Callable = lambda share: None
) -> "Rows":
    """All stories as numbers. All ranks call it; those of a host share the work, and write one copy into files.

    encode(some): pairs (article, highlights), two lists of numbers, of `at_once` stories at most; `some` has their columns.
    tell(share): is told, after each part, which share of its stories this rank has encoded.
    Takes 4 bytes a number in the temporary folder, as long as the rows are in use.
    """
    hosts = _told(platform.node)
    beside = [rank for rank, host in enumerate(hosts) if host == platform.node()]
    number, ends = (
        beside.index(_rank()),
        [len(stories) * k // len(beside) for k in range(len(beside) + 1)],
    )
    folder = ownership.temporary_dir("stories")
    mine = stories.select(range(ends[number], ends[number + 1]))
    _told(lambda: _write(Path(folder.name), mine, encode, at_once, tell))
    folders = _told(lambda: folder.name)
    rows = Rows([Path(folders[rank]) for rank in beside], folder)
    _told(lambda: None)  # nobody goes on, and removes files, before all have opened them
    return rows


class Rows:
    """(article, highlights) of story i as `rows[i]`, two arrays, read from the host's files when they are asked for."""

    def __init__(self, folders: list[Path], own):
        self._own = own  # this rank's files: they go with the rows
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
        at = 2 * (index - int(self._firsts[part]))
        start, middle, end = (
            int(self._ends[part][place]) if place >= 0 else 0 for place in (at - 1, at, at + 1)
        )
        numbers = self._numbers[part]
        return numbers[start:middle].astype(np.int64), numbers[middle:end].astype(np.int64)

    def lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """Tokens of each article, and of each story's highlights."""
        each = np.concatenate([np.diff(ends, prepend=0) for ends in self._ends])
        return each[0::2], each[1::2]

    def __reduce__(self):
        raise TypeError(
            "Rows stay on their ranks: they lie in files of the host. Ask for a few, rows[0], or for rows.lengths()."
        )


def _write(folder, stories, encode, at_once, tell):
    """One file with all numbers of these stories, one with the places where articles and highlights end."""
    ends, size = [], 0
    with (folder / "numbers").open("wb") as file:
        for first in range(0, len(stories), at_once):
            for pair in encode(stories[first : first + at_once]):
                for numbers in pair:
                    file.write(np.asarray(numbers, np.int32).tobytes())
                    size += len(numbers)
                    ends.append(size)
            tell(min(1.0, (first + at_once) / len(stories)))
    np.save(folder / "ends.npy", np.array(ends, np.int64))


def _mapped(file):
    return (
        np.memmap(file, np.int32, "r") if file.stat().st_size else np.empty(0, np.int32)
    )  # an empty file cannot be mapped


def _rank():
    import torch.distributed as dist

    return dist.get_rank()


def _told(make: Callable) -> list:
    """What make() gives on each rank, on all ranks. A file that is wrong on one is raised on all."""
    return gather_or_raise(make, (OSError, ValueError))
