"""When a rank computed and when it waited, and which bytes it sent."""

import sys
import time
from contextlib import contextmanager

__all__ = ["Timeline", "Traffic", "now"]


def now() -> float:
    """Seconds of `time.monotonic`, after this rank's GPU, if it uses one, has finished its work."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.monotonic()


class Timeline:
    """What this rank did, and when.

        timeline = Timeline()
        with timeline("compute"):
            loss.backward()

    `spans` is a list of (name, start, stop) in seconds of `time.monotonic`, which on Linux is one
    clock for all processes of a host (clock_gettime(2), CLOCK_MONOTONIC), so ranks on one host have
    one axis (`plots.timeline`). On a GPU a block ends when its work is done (see `now`).
    The pictures know "compute", "communicate" and "wait"; other names get colours of their own.
    """

    def __init__(self):
        self.spans: list[tuple[str, float, float]] = []

    @contextmanager
    def __call__(self, name: str):
        """Record the block as one span, also if it raises."""
        start = now()
        try:
            yield
        finally:
            self.add(name, start, now())

    def add(self, name: str, start: float, stop: float) -> None:
        """Record a span whose times (s, `time.monotonic`) were measured in a hook."""
        if stop < start:
            raise ValueError(
                f"span {name!r} stops {start - stop:g} s before it starts; give start, then stop"
            )
        self.spans.append((name, start, stop))

    def seconds(self) -> dict[str, float]:
        """Seconds in all by name. Spans that overlap count twice."""
        total: dict[str, float] = {}
        for name, start, stop in self.spans:
            total[name] = total.get(name, 0.0) + stop - start
        return total

    def clear(self) -> None:
        """Forget all spans."""
        self.spans.clear()


class Traffic:
    """Bytes that this rank sent and received, counted where the program passes a buffer to MPI.

        traffic = Traffic()
        comm.Send(traffic.out(gradient), dest=0)
        comm.Recv(traffic.into(weights), source=0)

    `sent` and `received` are bytes of payload, without headers. Of a collective such as Allreduce
    this is what was passed to it, not what the library sent: write the algorithm with Send and Recv
    to count that.
    """

    def __init__(self):
        self.sent = self.received = 0

    def out(self, buffer):
        """Count the bytes of a buffer that is about to be sent, and return the buffer."""
        self.sent += nbytes(buffer)
        return buffer

    def into(self, buffer):
        """Count the bytes of a buffer that is about to be filled, and return the buffer."""
        self.received += nbytes(buffer)
        return buffer

    @property
    def total(self) -> int:
        """Bytes over this rank's link in both directions."""
        return self.sent + self.received


def nbytes(buffer) -> int:
    """Bytes of a NumPy array, a torch tensor or another buffer. Raises TypeError."""
    try:
        return buffer.nbytes if hasattr(buffer, "nbytes") else memoryview(buffer).nbytes
    except TypeError:
        raise TypeError(
            f"a {type(buffer).__name__} has no memory to send; pass an array, e.g. "
            "np.array([value]): 8 bytes"
        ) from None
