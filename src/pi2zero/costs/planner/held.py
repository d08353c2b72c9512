"""Bytes that the fullest rank of a layout holds, by component.

Sources: ZeRO (costs.zero_bytes); activations: V. Korthikanti et al., arXiv:2205.05198, sections 4 and 5; micro-batches that a
schedule holds: D. Narayanan et al., arXiv:2104.04473, section 2.2 (GPipe, 1F1B, interleaved), P. Qi et al., arXiv:2401.10241
(ZB-H1 holds what 1F1B does), A. Jain et al., "GEMS", SC20, doi:10.1109/SC41405.2020.00049 (one batch a direction).
"""

import functools
from itertools import pairwise

from pi2zero.costs.zero import PRECISIONS, zero_bytes

__all__ = ["held", "held_by_stages"]


class Stage:
    """Some neighbouring layers, and sums over them."""

    def __init__(self, layers, is_last):
        self.layers, self.is_last = layers, is_last
        self.parameters = sum(layer.split for layer in layers), sum(layer.whole for layer in layers)
        self.operations = sum(layer.operations for layer in layers)
        self.kept = sum(layer.kept for layer in layers), sum(layer.kept_whole for layer in layers)
        self.summed, self.sums = (
            sum(layer.summed for layer in layers),
            sum(layer.sums for layer in layers),
        )
        self.turned, self.rings = (
            sum(layer.turned for layer in layers),
            sum(layer.turned > 0 for layer in layers),
        )
        self.halo, self.halos = (
            sum(layer.halo for layer in layers),
            sum(layer.halo > 0 for layer in layers),
        )
        self.output = 0 if is_last else layers[-1].output
        self.result = (
            (layers[-1].output, bool(layers[-1].kept)) if is_last else (0, False)
        )  # to the loss; whether dealt out

    def waiting(self, tensor):
        """Bytes of a sample's output that wait for their gradient."""
        result, dealt = self.result
        return self.output + result / (tensor if dealt else 1)

    def on(self, tensor):
        """Parameters on a rank of a tensor group."""
        return self.parameters[0] / tensor + self.parameters[1]


@functools.lru_cache(maxsize=256)
def stages_of(model, stages):
    """The model's stages: as many blocks each as can be; the first has the embedding, the last the head. Equal ones are one."""
    first, last = model.ends
    count = len(model.layers) - first - last
    edges, made = (
        [0, *(first + count * s // stages for s in range(1, stages)), len(model.layers)],
        {},
    )
    return [
        made.setdefault(_key(model, a, b), Stage(model.layers[a:b], b == edges[-1]))
        for a, b in pairwise(edges)
    ]


def _key(model, a, b):
    return b == len(model.layers), *map(id, model.layers[a:b])


@functools.lru_cache(maxsize=4096)
def states(parameters, alike, zero, precision, offload=False):
    """costs.zero_bytes, remembered."""
    return zero_bytes(parameters, alike, zero, precision=precision, offload=offload)


def stages_on(layout, rank):
    """Numbers of the stages on a rank of the pipeline."""
    if layout.schedule == "gems" and layout.pipeline > 1:
        return rank, layout.pipeline - 1 - rank
    return tuple(rank + layout.pipeline * chunk for chunk in range(layout.chunks))


def micro_held(layout, rank, count):
    """How many micro-batches' activations of each of its stages a rank holds at most, as a mean over its stages."""
    p, v = layout.pipeline, layout.chunks
    if p == 1:
        return 1
    if layout.schedule == "gpipe":
        return count
    if layout.schedule == "gems":
        return min(count, 2) / 2
    if layout.schedule == "interleaved":
        return min(count * v, (p - rank - 1) * 2 + (v - 1) * p + 1) / v
    return min(count, p - rank)


def held(model, layout, batch):
    """{component: bytes} on the fullest rank: parameters, gradients, master, moments, activations, buffers.

    buffers: what is in flight: outputs of stages that wait for their gradient (the last stage's are the logits), a layer's
    gradients (ZeRO-2) or parameters and gradients of two layers (ZeRO-3) on their way. Fragmentation and libraries are not in
    it: keep a reserve.
    """
    return max(held_by_stages(model, layout, batch), key=lambda parts: sum(parts.values()))


def held_by_stages(model, layout, batch):
    """The same for each rank of a pipeline that may be the fullest: of those with equal stages the first holds most."""
    cut = stages_of(model, layout.pipeline * layout.chunks)
    count = batch // (layout.data * layout.micro)
    first = {}
    for rank in range(layout.pipeline):
        first.setdefault(tuple(cut[s] for s in stages_on(layout, rank)), rank)
    return [_rank(model, layout, stages, rank, count) for stages, rank in first.items()]


def _rank(model, layout, stages, rank, count):
    parameters = sum(stage.on(layout.tensor) for stage in stages)
    parts = dict(states(parameters, layout.alike, layout.zero, model.precision, layout.offload))
    share = layout.micro / (layout.sequence * layout.space)
    many = micro_held(layout, rank, count)
    parts["activations"] = sum(_kept(stage, layout, many) for stage in stages) * share
    waiting = sum(stage.waiting(layout.tensor) for stage in stages) if layout.pipeline > 1 else 0
    compute, gradient, _ = PRECISIONS[model.precision]
    moving = {2: gradient, 3: 2 * compute + gradient}.get(layout.zero, 0) if layout.alike > 1 else 0
    largest = max(_largest(stage, layout.tensor) for stage in stages) if moving else 0
    parts["buffers"] = waiting * many * share + largest * moving
    return parts


def _kept(stage, layout, many):
    """Bytes of activations of one sample that a stage keeps, over all micro-batches that it holds."""
    norms = layout.tensor if layout.sharded_norms else 1
    if layout.recompute == "none":
        return many * (stage.kept[0] / layout.tensor + stage.kept[1] / norms)
    inputs, largest = _recomputed(stage, layout.tensor, norms)
    return many * inputs + largest


@functools.lru_cache(maxsize=4096)
def _largest(stage, tensor):
    return max(layer.split / tensor + layer.whole for layer in stage.layers)


@functools.lru_cache(maxsize=4096)
def _recomputed(stage, tensor, norms):
    """Bytes kept of a micro-batch where each layer but the ends keeps its input only; and by how much one that is made again
    is more than the head, which has been backward by then."""
    inputs, largest, head = 0.0, 0.0, 0.0
    for layer in stage.layers:
        full = layer.kept / tensor + layer.kept_whole / norms
        again = layer.input and layer.output
        inputs, largest = (
            inputs + (layer.input / norms if again else full),
            max(largest, full if again else 0.0),
        )
        head = full if not layer.input and layer.operations else head
    return inputs, max(0.0, largest - head)
