"""Calls that take their time, because they go over a network: for several hosts at once, or not to be cut short."""

import contextlib
import signal
import threading


def side_by_side(function, items) -> None:
    """Call function(item) for all at once, and wait for the last."""
    threads = [threading.Thread(target=function, args=(item,)) for item in items]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextlib.contextmanager
def uninterrupted():
    """A stop button pressed meanwhile counts afterwards. Gives a list that is empty until it is pressed."""
    pressed = []
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
