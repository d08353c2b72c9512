"""Slow calls over a network: to several hosts at once, or without interruption."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor


def run_in_threads(function: Callable, items: Iterable) -> list:
    """Call function(item) for all items at once. Returns the results, or raises the first error.

    An error or the stop button ends the waiting at once; calls that have begun go on.
    """
    items = list(items)
    pool = ThreadPoolExecutor(max_workers=len(items) or 1)
    try:
        return list(pool.map(function, items))
    finally:
        pool.shutdown(wait=False)


@contextlib.contextmanager
def defer_sigint() -> Iterator[list]:
    """Let the stop button take effect after the block. Gives a list, empty until it is pressed."""
    pressed: list[bool] = []
    if threading.current_thread() is not threading.main_thread():
        yield pressed
        return
    before = signal.signal(signal.SIGINT, lambda *_: pressed.append(True))
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt
