"""The same three faults from every notebook and lab that starts ranks, with what its own first cells have loaded on them."""

import re
from pathlib import Path

import nbformat
import pytest

from .kernel import Notebook, wait_until_gone

IN_CI = (
    "02_mpi_pi",
    "05_horovod",
    "08_deepspeed",
)  # MPI, Horovod, torch and DeepSpeed; the others are nightly
ROOT = Path(__file__).parents[2]
PATHS = {
    path.stem: path
    for folder in ("notebooks", "labs")
    for path in sorted((ROOT / folder).glob("*.ipynb"))
}


def first_cells(path):
    """A notebook's code up to its second %%px cell; none if it starts no ranks."""
    cells = [
        cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"
    ]
    started = [number for number, cell in enumerate(cells) if "pi2zero.start(" in cell]
    on_ranks = [
        number
        for number, cell in enumerate(cells)
        if cell.startswith("%%px") and started and number > started[0]
    ]
    return cells[: on_ranks[1] + 1] if on_ranks else []


BOOKS = {name: cells for name, path in PATHS.items() if (cells := first_cells(path))}
BEFORE = "%%px --timeout 2\nimport os, signal\nfrom mpi4py import MPI\nrank = MPI.COMM_WORLD.rank\n"
FAULTS = {  # in the collective that the notebook has on its ranks: torch's, where they have joined it
    "Rank 1 raised ValueError": "if rank == 1:\n    raise ValueError('on one rank')\n{collective}",
    "waited forever": "if rank != 1:\n    {collective}",
    "Rank 1 died: signal SIGKILL": "if rank == 1:\n    os.kill(os.getpid(), signal.SIGKILL)\n{collective}",
}
COLLECTIVE = {
    "True": "import torch.distributed as dist; dist.all_reduce(__import__('torch').ones(1))",
    "False": "MPI.COMM_WORLD.Barrier()",
}
JOINED = "%%px\nimport sys\nmodule = sys.modules.get('torch.distributed')\nprint(bool(module and module.is_initialized()))"


@pytest.mark.parametrize(
    "name",
    [name if name in IN_CI else pytest.param(name, marks=pytest.mark.nightly) for name in BOOKS],
)
def test_faults_from_a_notebook(name):
    book = Notebook(cwd=str(PATHS[name].parent))
    try:
        for cell in BOOKS[name]:
            assert (reply := book.run(cell)).ok, reply.text
        ranks = int(book.run("print(cluster.n)").text)
        for words, cell in FAULTS.items():
            assert (reply := book.run("cluster.replay()")).ok, (
                reply.text
            )  # what the fault before has cost
            joined = re.findall(r"True|False", (reply := book.run(JOINED)).text)
            assert len(joined) == ranks, reply.text + reply.error
            broken = book.run(BEFORE + cell.format(collective=COLLECTIVE[joined[0]]))
            assert broken.error.startswith("RankError") and words in broken.error + broken.text, (
                broken.text
            )
            after = book.run("%%px\nfrom mpi4py import MPI\nprint(MPI.COMM_WORLD.allreduce(1))")
            assert after.text == "".join(f"[stdout:{rank}] {ranks}\n" for rank in range(ranks)), (
                after.text
            )
    finally:
        owner = book.owner
        book.close(now=False)
    assert not wait_until_gone(book, owner, 30)[1]
