"""What tools/budgets.toml says: seconds of the steps of `make test`, and the order of the notebooks."""

import tomllib
from pathlib import Path

_FILE = tomllib.loads(Path(__file__).with_name("budgets.toml").read_text())
STEPS, TOTAL, NOTEBOOKS, ALONE = (_FILE[name] for name in ("steps", "total", "notebooks", "alone"))


def turn(notebook):
    """Sorts notebooks: those that run alone first, then the longest first. notebook: its path in the kit."""
    return notebook not in ALONE, -NOTEBOOKS.get(notebook, max(NOTEBOOKS.values()))
