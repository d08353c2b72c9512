"""What the set-up says: progress that a person can follow, and one sentence when it stops.

Standard library only, as tools/setup.py.
"""

import contextlib
import shutil
import sys
import threading
import time


def stop(problem, remedy):
    """End with one clear sentence, and what to do."""
    sys.stdout.flush()
    sys.stderr.write("\nset-up stopped: %s\nWhat to do: %s\n" % (problem, remedy))
    sys.exit(1)


def stop_full(log=None):
    """End, because nothing more can be written."""
    stop(
        "the disk is full (or your quota is).",
        "free some space, then run make again.%s" % (" Details: %s" % log if log else ""),
    )


def is_full(folder):
    """Whether a failure there may be for want of space: who fails so cannot always write that down."""
    return shutil.disk_usage(folder).free < 1e6


def say(text):
    print(text)
    sys.stdout.flush()


class Follow:
    """Says every second (in a log: every 20 s) what `doing()` answers, in a line that replaces itself. Use it as a context."""

    def __init__(self, doing):
        self.doing = doing

    def __enter__(self):
        self.start = time.time()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.tick)
        self.thread.daemon = True
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.over.set()
        self.thread.join()
        self.show("")

    def tick(self):
        every = 1 if sys.stdout.isatty() else 20
        while not self.over.wait(every):
            self.show("      %s, %.0f s" % (self.doing(), time.time() - self.start))

    def show(self, text):
        with contextlib.suppress(OSError):
            if sys.stdout.isatty():
                sys.stdout.write("\r%-70s%s" % (text, "" if text else "\r"))
                sys.stdout.flush()
            elif text:
                say(text)
