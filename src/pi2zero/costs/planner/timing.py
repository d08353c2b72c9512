"""The time of one training step of a layout, by part.

A stage's time for a micro-batch is its operations / flops_per_s and its exposed communication of
tensor, context and spatial parallelism. The schedule adds the bubble. Then come the messages
between stages, the gradients (or ZeRO's parameters) and the update. A part is what the step gets
longer by; communication that is hidden behind computing is reported on its own.

Sources: bubbles: arXiv:2104.04473, section 2.2; arXiv:2401.10241, table 2 (ZB-H1); GEMS: what
costs.pipeline_spans gives for it. Rings: costs.collectives. ZeRO's bytes: costs.zero_bytes_sent.
"""

import functools

from pi2zero.costs.planner.memory import stages_by_rank, state_bytes
from pi2zero.costs.zero import PRECISIONS, zero_bytes_sent

__all__ = ["HIDEABLE", "PARTS", "step_time", "utilisation"]

IN_STAGE = ("compute", "recompute", "tensor", "context", "spatial")
PARTS = (*IN_STAGE[:2], "bubble", *IN_STAGE[2:], "pipeline", "gradients", "update", "offload")
HIDEABLE = ("context", "spatial", "pipeline", "gradients")  # can be hidden, wholly or in part


def step_time(model, layout, machine, batch):
    """Return ({part: s}, {part: s}): the PARTS add up to the step's time; the second dict has the
    seconds of each HIDEABLE part that are hidden behind computing."""
    count = batch // (layout.data * layout.micro_batch)
    rows = stages_by_rank(model, layout)
    known = {stages: _micro_batch_time(layout, machine, stages) for stages in set(rows)}
    ranks = [known[stages] for stages in rows]
    parameters = max(rank["parameters"] for rank in ranks)
    message = max(rank["message"] for rank in ranks)
    slowest = max(ranks, key=_busy_time)
    if machine.devices:  # ranks that wait leave their device to others, so the mean counts
        slowest = {name: sum(rank[name] for rank in ranks) / len(ranks) for name in ranks[0]}
    crowding = _crowding(layout.ranks, machine)
    parts = {
        name: count * slowest[name] * (crowding if "compute" in name else 1) for name in IN_STAGE
    }
    computing = parts["compute"] + parts["recompute"]
    parts["bubble"] = 0.0
    if layout.pipeline > 1:
        parts["bubble"] = _pipeline_time(layout, machine, ranks, count) - sum(parts.values())
    # What hides one kind of communication is not available to hide the next.
    room = free = machine.overlap * computing
    hidden = {name: min(room, count * slowest[f"{name}, hidden"]) for name in HIDEABLE[:2]}
    free -= sum(hidden.values())
    parts["pipeline"], hidden["pipeline"] = _stage_messages(layout, machine, message, count, free)
    free -= hidden["pipeline"]
    parts["gradients"], hidden["gradients"] = _gradient_time(
        model, layout, machine, parameters, count, room, free
    )
    parts["update"], parts["offload"] = _update_time(model, layout, machine, parameters)
    return (
        {name: float(parts[name]) for name in PARTS},
        {name: float(hidden[name]) for name in HIDEABLE},
    )


def utilisation(model, layout, machine, batch, peak):
    """Model FLOPs utilisation: the model's operations, without recomputation, divided by those that
    `peak` (operations per second per rank) allows during the step."""
    parts, _ = step_time(model, layout, machine, batch)
    return batch * model.flops / (sum(parts.values()) * layout.ranks * peak)


def _busy_time(rank):
    return sum(rank[name] for name in IN_STAGE)


def _crowding(busy_ranks, machine):
    """How many times slower ranks compute that share devices."""
    return max(1.0, busy_ranks / machine.devices) if machine.devices else 1.0


def _micro_batch_time(layout, machine, stages):
    """Of one micro-batch on a pipeline rank, forward and backward over all its stages: s by part,
    the rank's parameters, and the largest message to another stage in bytes."""
    t, c, x, again = layout.tensor, layout.context, layout.spatial, layout.recompute == "full"
    # In a bidirectional pipeline, a micro-batch uses one of the rank's two stages.
    b = layout.micro_batch / (2 if layout.is_bidirectional else 1)

    def total(name):
        return sum(getattr(stage, name) for stage in stages)

    forward = total("flops") * b / (t * c * x) / machine.flops_per_s
    times = {"compute": 3 * forward, "recompute": again * forward}
    alpha, beta = machine.link(t, layout.stride("tensor"))
    ring = total("tp_allreduce_bytes") * b / (c * x) / t * beta + total("tp_allreduces") * alpha
    times["tensor"] = (2 + again) * 2 * (t - 1) * ring
    # Keys and values make c - 1 hops; backward, with their gradients, c hops each.
    alpha, beta = machine.link(c, layout.stride("context"))
    hops = (1 + again) * (c - 1) + 2 * c * (c > 1)
    hop = total("ring_kv_bytes") * b / (t * c) * beta + 2 * total("ring_layers") * alpha
    communication = {"context": hops * hop, "spatial": 0.0}
    if x > 1:
        alpha, beta = machine.link(x, layout.stride("spatial"))
        halos = total("halo_bytes") * b * beta + total("halo_layers") * alpha
        communication["spatial"] = (2 + again) * 2 * halos
    room = machine.overlap * times["compute"]
    for name, seconds in communication.items():
        times[name] = max(0.0, seconds - room)
        times[f"{name}, hidden"] = seconds - times[name]
    times["parameters"] = sum(stage.parameters_on(t) for stage in stages)
    times["message"] = max(stage.output_bytes for stage in stages) * layout.micro_batch / (c * x)
    return times


def _pipeline_time(layout, machine, ranks, count):
    """Seconds until all micro-batches have been through all stages and back."""
    p, times = layout.pipeline, [_busy_time(rank) for rank in ranks]
    longest, mean = max(times), sum(times) / p
    if layout.is_bidirectional:
        forward = longest / (3 + (layout.recompute == "full"))
        return p * longest + (count - 1) * (p * (longest - forward) + forward)
    fill = {"interleaved": 1 / layout.chunks, "zb-h1": 1 / 3}.get(layout.schedule, 1)
    span = count * longest + fill * (p - 1) * mean
    if not machine.devices:
        return span
    busy_stages = [min(k, count + p - k, p, count) for k in range(1, count + p)]
    computing = sum(rank["compute"] + rank["recompute"] for rank in ranks) / p
    crowding = sum(_crowding(busy * layout.ranks / p, machine) for busy in busy_stages)
    return max(span, crowding * computing + len(busy_stages) * (mean - computing))


def _stage_messages(layout, machine, nbytes, count, room):
    """(exposed, hidden) s of activations and gradients between stages.

    They are exposed while the pipeline fills and drains, then partly hidden behind computing.
    """
    if layout.pipeline == 1:
        return 0.0, 0.0
    alpha, beta = machine.link(layout.pipeline, layout.stride("pipeline"))
    hop = alpha + nbytes * beta
    first, rest = 2 * (layout.pipeline - 1) * hop, 2 * (count * layout.chunks - 1) * hop
    exposed = max(0.0, rest - room)
    return first + exposed, rest - exposed


def _gradient_time(model, layout, machine, parameters, count, room, free):
    """(exposed, hidden) s of gradients, and ZeRO's parameters, over ranks with the same parameters.

    room: s of computing that can hide communication; free: what of it is not used yet.
    """
    n = layout.replicas * (2 if layout.is_bidirectional else 1)
    if n == 1:
        return 0.0, 0.0
    if layout.is_bidirectional:  # ranks r and p - 1 - r are partners, so the first and the last too
        alpha, beta = machine.link(layout.pipeline, layout.stride("pipeline"))
    else:
        alpha, beta = machine.link(n, layout.tensor)
    stage, layered = layout.zero_stage, layout.zero_stage > 1
    gradient_bytes = parameters * PRECISIONS[model.precision][1]
    calls = {0: 2, 1: 2, 2: count + 1, 3: 3 * count}[stage] * (len(model.layers) if layered else 1)
    seconds = gradient_bytes * _traffic(n, stage, count) * beta + calls * (n - 1) * alpha
    # Stages 0 and 1 send during the backward pass of the last micro-batch, 2 and 3 during each.
    exposed = max(0.0, seconds - min(free, room * (1 if layered else 2 / 3 / count)))
    return exposed, seconds - exposed


@functools.lru_cache(maxsize=4096)
def _traffic(ranks, stage, count):
    """Bytes sent in a step per byte of gradients."""
    return zero_bytes_sent(1, ranks, stage, bytes_per_value=1, accumulation=count)


def _update_time(model, layout, machine, parameters):
    """(on the device, offloaded) s: the optimizer reads and writes its states and parameters, and
    reads gradients.

    Offloaded, it has a tenth of the device's bandwidth, and gradients and parameters go over the
    host's link.
    """
    compute, gradient, _ = PRECISIONS[model.precision]
    states = state_bytes(parameters, layout.replicas, layout.zero_stage, model.precision)
    shard = parameters / (layout.replicas if layout.zero_stage else 1)
    touched = 2 * (states["master"] + states["moments"]) + shard * (2 * compute + gradient)
    seconds = touched / machine.optimizer_bandwidth
    if not layout.offload:
        return seconds, 0.0
    return 0.0, 10 * seconds + shard * (compute + gradient) / machine.host_bandwidth
