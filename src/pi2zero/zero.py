"""The former name of deepspeed_support, which an IPython configuration installed earlier imports."""

from pi2zero.deepspeed_support import operators

__all__ = ["operators"]
