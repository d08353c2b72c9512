"""Limits on seconds that hold where the machine is idle."""

import os


def assert_within(seconds: float, limit: float) -> None:
    """Fail if it took longer. PI2ZERO_TIMING=0 says that other work runs here: then print it."""
    if os.environ.get("PI2ZERO_TIMING") == "0" and seconds > limit:
        print(f"took {seconds:.1f} s, more than {limit:g} s, next to other work")
    else:
        assert seconds <= limit
