"""In which order ranks ended: mpirun ends all when one dies, and may not name the first."""

import os
import select
import threading
import time

# A rank that mpirun ends can be gone before the system has cleared away the one that died first.
SIMULTANEOUS_S = 0.02


class ExitWatcher:
    """Notes when ranks of this host end. exit_times: {rank: seconds by this host's clock}.

    Needs Linux (pidfd_open); elsewhere nothing is known of a process that is no child.
    """

    def __init__(self):
        self.exit_times: dict[int, float] = {}
        self._marks: dict[int, str] = {}

    def watch(self, marks_of: dict[int, str]) -> None:
        """Watch these ranks, given by their processes' marks, and no others."""
        if marks_of == self._marks:
            return
        self._marks, self.exit_times = dict(marks_of), {}
        handles: dict[int, int] = {}
        try:
            for rank, mark in marks_of.items():
                pid = int(mark.split("/")[2].partition(":")[0])
                try:
                    handles[os.pidfd_open(pid)] = rank
                except ProcessLookupError:
                    self.exit_times[rank] = time.time()
        except (AttributeError, OSError):  # not Linux, or too many open files
            for handle in handles:
                os.close(handle)
            return
        threading.Thread(target=self._wait, args=(handles, self.exit_times), daemon=True).start()

    def _wait(self, handles: dict[int, int], exit_times: dict[int, float]) -> None:
        poll = select.poll()
        for handle in handles:
            poll.register(handle, select.POLLIN)
        while handles and exit_times is self.exit_times:
            for handle, _ in poll.poll(1000):
                exit_times[handles.pop(handle)] = time.time()
                poll.unregister(handle)
                os.close(handle)
        for handle in handles:
            os.close(handle)


def first_to_exit(exit_times: list[dict[int, float]], cut_off: set[int]) -> list[int]:
    """The rank that ended first; several if they ended too close to each other to tell.

    exit_times: those of each host. cut_off: ranks that ended because they lost their connection to
    another rank. On the host where it began, the first is not cut off. [] if there is no such host.
    """
    began = [
        times for times in exit_times if times and min(times, key=times.__getitem__) not in cut_off
    ]
    if not began:
        return []
    times = min(began, key=lambda times: min(times.values()))
    latest = min(times.values()) + SIMULTANEOUS_S
    return sorted(rank for rank, when in times.items() if when < latest and rank not in cut_off)
