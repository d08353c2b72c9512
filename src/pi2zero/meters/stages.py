"""What a stage of a pipeline does, in order: recorded by the stage itself, so that no schedule can say otherwise."""

import time

import torch
from torch import nn

__all__ = ["RecordedStage"]


class RecordedStage(nn.Sequential):
    """Layers that note each forward and each backward through them.

    trace: [(kind, micro-batch, start, stop)], kind "F" or "B"; micro-batches are numbered in the order of their forwards.
    seconds: what a forward takes at least (a backward twice that), for a picture on cores that others use, too.
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
        """The actions that have been done, as `costs.pipeline_spans` and `plots.pipeline` take them."""
        return [(rank, kind, number) for kind, number, _, _ in self.trace]

    def spans(self, rank):
        """The same with their times: [(action, start, stop)]."""
        return [((rank, kind, number), start, stop) for kind, number, start, stop in self.trace]


class _Backward(torch.autograd.Function):
    """Hands y on; its backward is the first of the stage's."""

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
