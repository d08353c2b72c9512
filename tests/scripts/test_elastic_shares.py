"""elastic_horovod.py's step with any number of workers, by a pretended Horovod: shares that differ,
or are empty.
"""

import runpy
import sys
from types import ModuleType, SimpleNamespace

import pytest
from many_runs import SCRIPTS


def step(monkeypatch, rank, size):
    """(weights after one step of this worker alone, its part of the loss): the mean over the
    workers is what Horovod makes.
    """
    import torch

    told, states = [], []
    elastic = SimpleNamespace(
        run=lambda function: function,
        TorchState=lambda **parts: (
            states.append(SimpleNamespace(commit=lambda: None, **parts)) or states[-1]
        ),
    )
    hvd = ModuleType("horovod.torch")
    vars(hvd).update(init=lambda: None, rank=lambda: rank, size=lambda: size, elastic=elastic)
    vars(hvd).update(
        allreduce=lambda loss: told.append(loss) or loss,
        DistributedOptimizer=lambda optimizer, **_: optimizer,
    )
    monkeypatch.setitem(sys.modules, "horovod", package := ModuleType("horovod"))
    monkeypatch.setitem(sys.modules, "horovod.torch", hvd)
    package.torch = hvd
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.setattr(sys, "argv", ["elastic_horovod.py", "--steps", "1", "--pause", "0"])
    runpy.run_path(str(SCRIPTS / "elastic_horovod.py"), run_name="__main__")
    return torch.cat(
        [parameter.detach().flatten() for parameter in states[0].model.parameters()]
    ), told[0]


@pytest.mark.parametrize("size", [3, 66])
def test_the_workers_mean_is_the_batch_s(monkeypatch, capsys, size):
    import torch

    weights, losses = zip(*(step(monkeypatch, rank, size) for rank in range(size)), strict=True)
    alone, loss = step(monkeypatch, 0, 1)
    assert torch.stack(losses).mean().item() == pytest.approx(loss.item(), abs=1e-5)
    assert torch.allclose(torch.stack(weights).mean(dim=0), alone, atol=1e-6)
    assert size < 65 or losses[-1].item() == 0, "of 64 images nothing is left for the last"
