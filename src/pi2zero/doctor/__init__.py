"""Is this machine well? `python -m pi2zero doctor`, or `doctor.show()` in a notebook."""

from pi2zero.doctor.run import run, show, status

__all__ = ["run", "show", "status"]
