"""One thing done for several hosts at once: each answers over a network, in its own time."""

import threading


def side_by_side(function, items) -> None:
    """Call function(item) for all at once, and wait for the last."""
    threads = [threading.Thread(target=function, args=(item,)) for item in items]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
