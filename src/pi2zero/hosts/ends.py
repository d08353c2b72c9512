"""In which order ranks of a host ended: when one dies, mpirun ends the others, and does not always say which was first."""

import os
import re
import select
import threading
import time

CLOSE = 0.02  # s: a rank that mpirun ends can be gone before the first one is, which its system still clears away


class Ends:
    """Watches ranks of this host. Only Linux tells the end of a process that is no child (pidfd_open): else nothing is known."""

    def __init__(self):
        self.times: dict[
            int, float
        ] = {}  # of the ranks that have ended: when, by this host's clock
        self._watched: dict[int, str] = {}

    def watch(self, marks_of: dict[int, str]) -> None:
        """From now on these ranks, each by its process's mark, and no others. Again with the same: nothing changes."""
        if marks_of == self._watched:
            return
        self._watched, self.times = dict(marks_of), {}
        handles = {}
        for rank, mark in marks_of.items():
            try:
                handles[os.pidfd_open(int(re.search(r"/(\d+):", mark)[1]))] = rank
            except ProcessLookupError:
                self.times[rank] = time.time()  # at the latest
            except (AttributeError, OSError):  # no Linux, an old one
                return
        if handles:
            threading.Thread(target=self._wait, args=(handles, self.times), daemon=True).start()

    def _wait(self, handles: dict[int, int], times: dict[int, float]) -> None:
        poll = select.poll()
        for handle in handles:
            poll.register(handle, select.POLLIN)
        while handles and times is self.times:
            for handle, _ in poll.poll(1000):
                times[handles.pop(handle)] = time.time()
                poll.unregister(handle)
                os.close(handle)
        for handle in handles:
            os.close(handle)


def first_of(ended: list[dict[int, float]], cut_off: set[int]) -> list[int]:
    """The rank that ended first; several, if they ended too close to each other to say which of them it was.

    ended: of each host, when its ranks ended; cut_off: ranks that themselves ended because they had lost their connection to
    another. On the host where it began, the first is none of these; no rank, if that is nowhere so.
    """
    began = [times for times in ended if times and min(times, key=times.get) not in cut_off]
    if not began:
        return []
    times = min(began, key=lambda times: min(times.values()))
    return sorted(
        rank
        for rank, when in times.items()
        if when - min(times.values()) < CLOSE and rank not in cut_off
    )
