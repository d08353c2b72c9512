"""The checks of lab 3, data-parallel training. Each is called on all ranks:
`check.by_hand(by_hand)`."""

from pi2zero_course.checks.data_parallel.assertions import (
    assert_alike,
    assert_mean,
    assert_shared,
    mended,
)
from pi2zero_course.checks.data_parallel.training import by_hand, with_ddp, with_horovod

__all__ = [
    "assert_alike",
    "assert_mean",
    "assert_shared",
    "by_hand",
    "mended",
    "with_ddp",
    "with_horovod",
]
