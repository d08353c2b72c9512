"""The decks, built once for the whole run: pytest-xdist's workers share them by a file lock."""

import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

SLIDES = Path(__file__).resolve().parents[2] / "slides"


@pytest.fixture(scope="session")
def decks(tmp_path_factory, worker_id):
    """The folder with all decks' HTML, without PDFs."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "decks"
    with FileLock(f"{folder}.lock"):
        if not (folder / "done").exists():
            command = [sys.executable, SLIDES / "build.py", "--no-pdf", "--out", folder]
            done = subprocess.run(command, capture_output=True, text=True, timeout=550)
            assert done.returncode == 0, done.stderr
            (folder / "done").touch()
    return folder
