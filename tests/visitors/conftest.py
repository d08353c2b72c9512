"""A visitor's kernel: without any of the kit's settings in its environment, in their own folder."""

import os
import shutil
from pathlib import Path

import pytest
from faults.kernel import Notebook

PROGRAMS = Path(__file__).parent / "programs"
SETTINGS = (
    "OMPI_",
    "PRTE_",
    "PMIX_",
    "PI2ZERO_MARK",
    "TORCH_EXTENSIONS_DIR",
    "DS_ACCELERATOR",
    "LOCAL_RANK",
    "OPAL_PREFIX",
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE",
    "MASTER_",
)


def plain_environment():
    return {name: value for name, value in os.environ.items() if not name.startswith(SETTINGS)} | {
        "OMP_NUM_THREADS": "1"
    }


@pytest.fixture(scope="module")
def visitor(tmp_path_factory):
    """The programs of this folder lie beside the notebook."""
    folder = tmp_path_factory.mktemp("visitor")
    shutil.copytree(PROGRAMS, folder, dirs_exist_ok=True)
    book = Notebook(env=plain_environment(), cwd=str(folder))
    yield book
    book.close(now=False)


def ran(book, cell, **options):
    """The text of a cell that has to succeed."""
    reply = book.run(cell, **options)
    assert reply.ok, reply.text
    return reply.text
