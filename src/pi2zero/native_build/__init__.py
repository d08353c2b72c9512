"""Horovod and DeepSpeed's operators for CPUs, compiled in the background.

parts.py says what is compiled, builder.py how.
"""

from pi2zero.native_build.builder import NotBuiltError, Status, can_build, statuses, wait_for

__all__ = ["NotBuiltError", "Status", "can_build", "statuses", "wait_for"]
