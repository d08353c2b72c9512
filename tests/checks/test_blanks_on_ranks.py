"""The checks of the notebooks' blanks on ranks: each knows right from wrong, and a blank that is
left lets the notebook go on."""

import pytest
from blank_mistakes import RIGHT, WRONG
from notebook_blanks import BLANKS, BOOKS, code
from test_blanks import answers, replaced

from pi2zero import RankError

ON_RANKS = [blank for blank in BLANKS if blank.on_ranks]
IMPORTS = """
import torch, torch.distributed as dist, torch.nn.functional as F
import numpy as np
from contextlib import nullcontext
from dataclasses import dataclass, replace
from mpi4py import MPI
from torch import nn
from pi2zero import ranks
from pi2zero_course.checks.blanks import solution
torch.set_num_threads(1)
comm = MPI.COMM_WORLD
me = ranks.join(deepspeed=True)


def gradient_of(model, x, y, reduction="mean"):
    model.zero_grad()
    F.cross_entropy(model(x), y, reduction=reduction).backward()
    return nn.utils.parameters_to_vector([p.grad for p in model.parameters()]).numpy()


flat = torch.zeros(4, device=me.device)
"""
NEEDED = {  # cells whose functions blanks call
    "09_zero": ["px-ring", "px-gather"],
    "09b_zero_further": ["px-pack", "px-unpack"],
    "11b_space_and_hybrids": ["px-line", "px-swap", "px-ends"],
}


@pytest.fixture(scope="module")
def joined(cluster):
    cells = [
        code(cell) for book, ids in NEEDED.items() for cell in BOOKS[book].cells if cell.id in ids
    ]
    cluster.run("\n".join([IMPORTS, *cells]), timeout=240)
    return cluster


@pytest.fixture
def run(joined, capsys):
    """Define an answer from its text on all ranks, and check it; what they print."""

    def run(blank, source, more=""):
        needs = "import horovod.torch as hvd\nhvd.init()\n" if "hvd" in blank.kits else ""
        joined.run(
            f"{needs}from pi2zero_course.checks.blanks import {blank.module} as "
            f"check\n{source}\n{code(blank.cells[1])}\n{more}",
            timeout=60,
        )
        return capsys.readouterr().out

    return run


@pytest.fixture(autouse=True)
def compiled(request):
    blank = request.node.callspec.params.get("blank") if hasattr(request.node, "callspec") else None
    if blank and "hvd" in blank.kits:
        pytest.importorskip(
            "horovod.torch", reason="Horovod is not built here: make horovod", exc_type=ImportError
        )


@pytest.mark.parametrize("blank", ON_RANKS, ids=repr)
def test_left_it_is_the_kits(run, blank):
    printed = run(blank, code(blank.cells[0]), code(blank.cells[2]))
    assert printed.splitlines() == [
        f"[stdout:0] {blank.name} is still to be written. The next cell brings the kit's, so that "
        "the notebook goes on.",
        f"[stdout:0] The kit's {blank.name} is used from here on.",
    ]


@pytest.mark.parametrize("blank", ON_RANKS, ids=repr)
def test_the_kits_answer_is_right_and_stays(run, blank):
    first, second = run(blank, blank.kits, code(blank.cells[2])).splitlines()
    assert first == f"[stdout:0] Your {blank.name} is used from here on."
    assert f"{blank.name} is right. " in second


@pytest.mark.parametrize(("blank", "piece", "other"), answers(ON_RANKS, RIGHT))
def test_another_right_answer_is_right(run, blank, piece, other):
    assert f"{blank.name} is right. " in run(blank, replaced(blank, piece, other))


@pytest.mark.parametrize(("blank", "piece", "other", "words"), answers(ON_RANKS, WRONG))
def test_a_wrong_answer_is_told_its_mistake(joined, run, blank, piece, other, words):
    with pytest.raises(RankError) as refused:
        run(blank, replaced(blank, piece, other))
    report = refused.value.report
    assert f"{blank.name} is not right yet." in report and words in report
    assert "Traceback" not in report and "The ranks kept their variables" in report
    joined.run("assert comm.allreduce(1) == 4")
