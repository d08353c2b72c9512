"""The actions of a pipeline's stage, recorded by the stage itself, not by the schedule."""

import time

import torch
from torch import nn

__all__ = ["RecordedStage"]


class RecordedStage(nn.Sequential):
    """Layers that record each forward and each backward pass through them.

    trace: [(kind, micro-batch, start, stop)], kind "F" or "B"; micro-batches are numbered in the
    order of their forward passes. seconds: the least time of a forward pass (a backward pass takes
    twice that), for a picture on shared cores.
    """

    def __init__(self, *layers, seconds=0.0):
        super().__init__(*layers)
        self.seconds, self.trace, self._forwards = seconds, [], 0

    def forward(self, x):
        number, start = self._forwards, time.monotonic()
        self._forwards += 1
        y = super().forward(x)
        time.sleep(self.seconds)
        self.trace.append(("F", number, start, time.monotonic()))
        return _Backward.apply(y, self, number)

    def row(self, rank):
        """The finished actions, as `costs.pipeline_spans` takes them."""
        return [(rank, kind, number) for kind, number, _, _ in self.trace]

    def spans(self, rank):
        """The same with their times, as `plots.pipeline` takes them: [(action, start, stop)]."""
        return [((rank, kind, number), start, stop) for kind, number, start, stop in self.trace]


class _Backward(torch.autograd.Function):
    """Passes y on; its backward is the first one of the stage."""

    @staticmethod
    def forward(ctx, y, stage, number):
        ctx.stage, ctx.number = stage, number
        return y.view_as(y)

    @staticmethod
    def backward(ctx, gradient):
        start = time.monotonic()
        time.sleep(2 * ctx.stage.seconds)
        ctx.stage.trace.append(("B", ctx.number, start, time.monotonic()))
        return gradient, None, None
