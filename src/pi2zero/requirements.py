"""What an environment must have: Linux to start ranks, and the optional packages of an extra."""

import sys
from importlib.util import find_spec

SYSTEMS = {"darwin": "a Mac", "win32": "Windows"}


class MissingPackageError(ImportError):
    """An optional package is not installed. The message names the extra that brings it."""

    def _render_traceback_(self):
        return [f"MissingPackageError: {self}"]


class UnsupportedSystemError(RuntimeError):
    """Ranks cannot be started on this system. The message says what to do."""

    def _render_traceback_(self):
        return [f"UnsupportedSystemError: {self}"]


def require_package(package: str, extra: str, distribution: str = "pi2zero") -> None:
    """Raises MissingPackageError if the package is not installed.

    extra: the distribution's extra that brings the package.
    """
    try:
        missing = find_spec(package) is None
    except ValueError:  # it is loaded already, and has no spec
        missing = False
    if missing:
        raise MissingPackageError(
            f"This needs {package}, which is not installed. "
            f"Install it with: pip install '{distribution}[{extra}]'",
            name=package,
        )


def require_linux() -> None:
    """Raises UnsupportedSystemError anywhere else: ranks are watched by what only Linux has (clocks
    of threads, /proc).
    """
    if sys.platform != "linux":
        system = SYSTEMS.get(sys.platform, sys.platform)
        raise UnsupportedSystemError(
            f"pi2zero starts ranks on Linux only, and this is {system}. "
            'Use a container, WSL 2 or a hub: docs/start.md, "On a Mac or on Windows". '
            "pi2zero.costs and pi2zero.plots work here."
        )
