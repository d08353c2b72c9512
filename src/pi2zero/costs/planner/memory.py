"""Bytes on the fullest rank of a layout, by component.

Sources: ZeRO (costs.zero_bytes); activations: V. Korthikanti et al., arXiv:2205.05198, sections 4
and 5; micro-batches whose activations a schedule keeps: D. Narayanan et al., arXiv:2104.04473,
section 2.2 (GPipe, 1F1B, interleaved), P. Qi et al., arXiv:2401.10241 (ZB-H1 keeps what 1F1B does),
A. Jain et al., "GEMS", SC20, doi:10.1109/SC41405.2020.00049 (one micro-batch per direction).
"""

import functools
from dataclasses import fields
from itertools import pairwise

from pi2zero.costs.planner.models import Layer
from pi2zero.costs.zero import PRECISIONS, zero_bytes

__all__ = ["bytes_by_pipeline_rank", "bytes_per_rank"]


class Stage:
    """Consecutive layers. Each field of Layer is the sum over them, but for output_bytes."""

    def __init__(self, layers, is_last):
        self.layers, last = layers, layers[-1]
        for field in fields(Layer):
            setattr(self, field.name, sum(getattr(layer, field.name) for layer in layers))
        self.ring_layers = sum(layer.ring_kv_bytes > 0 for layer in layers)
        self.halo_layers = sum(layer.halo_bytes > 0 for layer in layers)
        self.output_bytes = 0 if is_last else last.output_bytes  # sent to the next stage
        self.loss_bytes = last.output_bytes if is_last else 0
        self.loss_is_sharded = last.act_bytes_tp > 0

    def pending_output_bytes(self, tensor):
        """Bytes of one sample's output that wait for their gradient."""
        return self.output_bytes + self.loss_bytes / (tensor if self.loss_is_sharded else 1)

    def parameters_on(self, tensor):
        """Parameters on one rank of a tensor-parallel group."""
        return self.params_tp / tensor + self.params_replicated


@functools.lru_cache(maxsize=256)
def stages_of(model, count):
    """`count` stages with as many blocks each as possible; equal ones are the same object.

    The first stage has the embedding, the last one the head.
    """
    first, last = model.ends
    total, blocks = len(model.layers), len(model.layers) - first - last
    edges = [0, *(first + blocks * stage // count for stage in range(1, count)), total]
    known = {}
    return [
        known.setdefault(
            (stop == total, *map(id, model.layers[start:stop])),
            Stage(model.layers[start:stop], stop == total),
        )
        for start, stop in pairwise(edges)
    ]


@functools.lru_cache(maxsize=4096)
def state_bytes(parameters, replicas, zero_stage, precision, offload=False):
    """costs.zero_bytes, cached."""
    return zero_bytes(parameters, replicas, zero_stage, precision=precision, offload=offload)


def stages_by_rank(model, layout):
    """For each rank of the pipeline the tuple of its stages."""
    p, stages = layout.pipeline, stages_of(model, layout.pipeline * layout.chunks)
    if layout.is_bidirectional:
        return [(stages[rank], stages[p - 1 - rank]) for rank in range(p)]
    return [tuple(stages[rank::p]) for rank in range(p)]


def bytes_per_rank(model, layout, batch):
    """{component: bytes} on the fullest rank: parameters, gradients, master, moments, activations,
    buffers.

    buffers: outputs of stages that wait for their gradient (of the last stage, the logits), and one
    layer's gradients (ZeRO-2) or parameters and gradients of two layers (ZeRO-3) while they are
    communicated. Fragmentation and libraries come on top: keep a reserve.
    """
    return max(bytes_by_pipeline_rank(model, layout, batch), key=lambda parts: sum(parts.values()))


def bytes_by_pipeline_rank(model, layout, batch):
    """As bytes_per_rank, of each rank of a pipeline that may be the fullest.

    Of ranks with equal stages, the first one keeps the most activations.
    """
    first = {}
    for rank, stages in enumerate(stages_by_rank(model, layout)):
        first.setdefault(stages, rank)
    micro_batches = batch // (layout.data * layout.micro_batch)
    return [
        _bytes_on(model, layout, stages, _micro_batches_kept(layout, rank, micro_batches))
        for stages, rank in first.items()
    ]


def _micro_batches_kept(layout, rank, count):
    """The most micro-batches whose activations a rank keeps at once, per stage on that rank."""
    p, v = layout.pipeline, layout.chunks
    if p == 1:
        return 1
    return {
        "gpipe": count,
        "gems": min(count, 2) / 2,
        "interleaved": min(count * v, (p - rank - 1) * 2 + (v - 1) * p + 1) / v,
    }.get(layout.schedule, min(count, p - rank))


def _bytes_on(model, layout, stages, kept):
    """{component: bytes} on a rank that keeps the activations of `kept` micro-batches."""
    tensor, zero_stage = layout.tensor, layout.zero_stage
    parameters = sum(stage.parameters_on(tensor) for stage in stages)
    states = state_bytes(parameters, layout.replicas, zero_stage, model.precision, layout.offload)
    samples = layout.micro_batch / (layout.context * layout.spatial)
    activations = sum(_activation_bytes(stage, layout, kept) for stage in stages) * samples
    buffers = 0.0
    if layout.pipeline > 1:
        buffers += sum(stage.pending_output_bytes(tensor) for stage in stages) * kept * samples
    if layout.replicas > 1 and zero_stage > 1:
        compute, gradient, _ = PRECISIONS[model.precision]
        communicated = gradient if zero_stage == 2 else 2 * compute + gradient
        buffers += max(_largest_layer(stage, tensor) for stage in stages) * communicated
    return {**states, "activations": activations, "buffers": buffers}


def _activation_bytes(stage, layout, kept):
    """Bytes of one sample's activations on a stage, over all micro-batches that it keeps."""
    norms = layout.tensor if layout.sequence_parallel else 1
    if layout.recompute == "none":
        return kept * (stage.act_bytes_tp / layout.tensor + stage.act_bytes_replicated / norms)
    inputs, peak = _recomputed_bytes(stage, layout.tensor, norms)
    return kept * inputs + peak


@functools.lru_cache(maxsize=4096)
def _largest_layer(stage, tensor):
    """Parameters of a stage's largest layer on one rank of a tensor-parallel group."""
    return max(layer.params_tp / tensor + layer.params_replicated for layer in stage.layers)


@functools.lru_cache(maxsize=4096)
def _recomputed_bytes(stage, tensor, norms):
    """(inputs, peak): bytes kept of a micro-batch if each block keeps its input only, and by how
    much a recomputed block exceeds the head, whose backward pass is over by then."""
    inputs = peak = head = 0.0
    for layer in stage.layers:
        full = layer.act_bytes_tp / tensor + layer.act_bytes_replicated / norms
        if layer.input_bytes and layer.output_bytes:
            inputs, peak = inputs + layer.input_bytes / norms, max(peak, full)
        else:
            inputs += full
        if not layer.input_bytes and layer.flops:
            head = full
    return inputs, max(0.0, peak - head)
