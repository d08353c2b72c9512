"""Waiting for other ranks without a chance to hang: all ranks find out together that none of them
can make progress.

While a rank waits, it takes part in rounds in which the ranks exchange how many waits they have
finished. A round ends only if all ranks wait: one that computes delays it. If several rounds in a
row gather the same numbers, all ranks have waited all the time, and what they wait for never comes.
"""

import time

import numpy as np

PAUSE = 0.2  # s from the end of a round to the next one
ROUNDS = 4  # in a row that gather the same numbers


class Stuck(BaseException):
    """This rank waits in vain. No learner's `except Exception` shall catch it."""


class Waiting:
    """Waits of the ranks of a communicator. All of them make it, and all free it."""

    def __init__(self, comm):
        self._comm = comm.Dup()  # apart from the answer's own traffic
        self._finished, self._all, self._last = np.zeros(1, int), np.zeros(comm.size, int), None
        self._round, self._posted, self._equal_rounds, self._next = None, 0, 0, 0.0
        self.deadlocked = False

    def until(self, done, what=""):
        """Poll done() until it is true, and return that. Raises Stuck(what) on all ranks that wait
        if none can make progress.

        what: a text, or a function that makes it.
        """
        self._next = time.monotonic() + PAUSE
        while not (value := done()):
            if self.deadlocked or self._detect_deadlock():
                self.deadlocked, self._equal_rounds = True, 0
                raise Stuck(what() if callable(what) else what)
            time.sleep(0.0002)  # not a loop of polls: ranks share the cores
        self._finished += 1
        return value

    def _detect_deadlock(self) -> bool:
        if self._round is None:
            if time.monotonic() < self._next:
                return False
            self._post()
        if not self._round.Test():
            return False
        self._round, self._next = None, time.monotonic() + PAUSE
        self._equal_rounds = self._equal_rounds + 1 if np.array_equal(self._all, self._last) else 1
        self._last = self._all.copy()
        return self._equal_rounds >= ROUNDS

    def _post(self):
        self._posted += 1
        self._sent = self._finished.copy()  # MPI may read it until the round ends
        self._round = self._comm.Iallgather(self._sent, self._all)

    def free(self) -> None:
        """Let the last round end, in which perhaps not all ranks have taken part. All ranks call
        it."""
        last = max(self._comm.allgather(self._posted))
        while True:
            if self._round is not None:
                self._round.Wait()
            if self._posted == last:
                break
            self._post()
        self._comm.Free()
