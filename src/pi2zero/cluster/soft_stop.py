"""The first press of the stop button: a loop that asks `ranks.stopping()` ends by itself."""

import contextlib
import time

from pi2zero import ownership
from pi2zero.cluster.display import TransientText
from pi2zero.cluster.engines import Engines
from pi2zero.hosts.host import HostError

PATIENCE = 10.0  # s until a loop that has asked before asks again


class SoftStop:
    """Asks ranks to leave their loop. As a context: until its end."""

    def __init__(self, engines: Engines, ranks: list[int]):
        self.hosts, self.start = engines.hosts, time.monotonic()
        self._request = ownership.stop_request(engines.folder)
        self._paths = {rank: ownership.stop_answer(engines.folder, rank) for rank in ranks}
        self._hint = TransientText()

    def is_possible(self) -> bool:
        """Whether all of these ranks are in a loop that asks."""
        return bool(self._paths) and all(self.hosts.read(self._paths).values())

    def step(self) -> str:
        """After which step the ranks have left their loop; "" if they have not."""
        steps = set(self.hosts.read(self._paths).values()) - {"", "asks"}
        return max(steps, key=int, default="")

    def is_overdue(self) -> bool:
        """Whether the ranks have gone on for too long without asking."""
        return time.monotonic() - self.start > PATIENCE and not self.step()

    def __enter__(self):
        self.hosts.publish(self._request, "stop")
        self._hint.show("Stopping after this step. Press stop again to end the ranks at once.")
        return self

    def __exit__(self, *_):
        self._hint.clear()
        with contextlib.suppress(HostError):  # a host is lost, and its ranks with it
            self.hosts.publish(self._request, "")
