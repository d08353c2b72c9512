"""Is this machine well? `python -m pi2zero doctor`, or `doctor.show()` in a notebook."""

from pi2zero.doctor.table import beside, quick, run, show, status

__all__ = ["beside", "quick", "run", "show", "status"]
