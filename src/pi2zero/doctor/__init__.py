"""Is this machine well? `python -m pi2zero doctor`, or `doctor.show()` in a notebook."""

from pi2zero.doctor.table import quick, run, run_in_background, show, status

__all__ = ["quick", "run", "run_in_background", "show", "status"]
