"""What tools/budgets.toml says: seconds of the steps of `make test`, and the order of the notebooks."""

import tomllib
from pathlib import Path

_FILE = tomllib.loads(Path(__file__).with_name("budgets.toml").read_text())
STEPS, TOTAL, NOTEBOOKS, ALONE = (_FILE[name] for name in ("steps", "total", "notebooks", "alone"))

# For tests in several lanes: Open MPI knows of its own ranks only. One that waits sleeps, and another lane's has the core
# (two lanes of labs' checks: 185 s without this, 92 s with it).
SHARED_CORES = {
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_threads_pthreads_yield_strategy": "nanosleep",
}


def turn(notebook):
    """Sorts notebooks: those that run alone first, then the longest first. notebook: its path in the kit."""
    return notebook not in ALONE, -NOTEBOOKS.get(notebook, max(NOTEBOOKS.values()))
