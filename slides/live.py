"""Figures by the notebooks' own code, which runs while the slides are built."""

import threading
from queue import Queue

import matplotlib.pyplot as plt
import numpy as np
from extract import SlideError, cell_code

from pi2zero import costs, plots


def _silent(*words):
    """Replaces what prints."""


def run_cells(path, ids, **names):
    """Run code cells of a notebook that need no ranks, and return the names they define.

    ids: cell ids or tags, separated by commas. names: what earlier cells would have defined; np,
    plt, costs and plots are there. Raises SlideError.
    """
    space = {"np": np, "plt": plt, "costs": costs, "plots": plots}
    space |= {"print": _silent, "guessed": _silent} | names
    for cell in ids.split(","):
        lines = cell_code(path, cell).splitlines()
        code = "\n".join(lines[1:] if lines[0].startswith("%%") else lines)
        try:
            exec(compile(code, f"{path}, cell {cell}", "exec"), space)  # noqa: S102  (a notebook's own cell)
        except Exception as error:
            raise SlideError(f"{path}, cell {cell!r}: {type(error).__name__}: {error}") from error
    return space


DRAWN = {}  # tests draw a deck several times


def drawn_by_cells(path, ids, figsize, **names):
    """The figure that the last of these cells draws, `figsize` inches large; cached."""
    if (path, ids) in DRAWN:
        return DRAWN[path, ids]
    plt.close("all")
    run_cells(path, ids, **names)
    if not plt.get_fignums():
        raise SlideError(f"{path}: the cells {ids} draw no figure.")
    figure = plt.gcf()
    figure.set_size_inches(figsize)
    DRAWN[path, ids] = figure
    return figure


class ThreadRank:
    """One of `size` ranks that are threads: enough of a communicator for a ring."""

    def __init__(self, rank, mail):
        self.rank, self.size, self.mail = rank, len(mail), mail

    def Sendrecv(self, send, dest, recvbuf, source):
        self.mail[self.rank][dest].put(np.array(send))
        recvbuf[...] = self.mail[source][self.rank].get(timeout=20)


def on_threads(path, ids, size):
    """Run cells on `size` threads, each with its `comm` as a rank; returns the names of each."""
    mail = [[Queue() for _ in range(size)] for _ in range(size)]
    done, failed = [None] * size, []

    def work(rank):
        try:
            done[rank] = run_cells(path, ids, comm=ThreadRank(rank, mail))
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise SlideError(str(failed[0]))
    return done
