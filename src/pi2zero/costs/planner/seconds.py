"""The time of one training step of a layout, in parts.

A stage's time for a micro-batch is its operations / speed and what it waits for in tensor, sequence and space; a schedule adds
the bubble; then come messages between stages, gradients (or ZeRO's parameters), the update. Each part is what the step gets
longer by; what travels behind computing is told apart (`hidden`, by communication).

Sources: bubbles: arXiv:2104.04473, section 2.2; arXiv:2401.10241, table 2 (ZB-H1); GEMS: what costs.pipeline_spans gives for it.
Rings: costs.collectives. Bytes of ZeRO: costs.zero_sent, arXiv:1910.02054, section 7.
"""

import functools

from pi2zero.costs.planner.held import stages_of, stages_on, states
from pi2zero.costs.zero import PRECISIONS, zero_sent

__all__ = ["HIDES", "PARTS", "seconds", "utilisation"]

PARTS = (
    "compute",
    "recompute",
    "bubble",
    "tensor",
    "sequence",
    "space",
    "pipeline",
    "gradients",
    "update",
    "offload",
)
HIDES = (
    "sequence",
    "space",
    "pipeline",
    "gradients",
)  # what may travel behind computing, wholly or in part
IN_STAGE = ("compute", "recompute", "tensor", "sequence", "space")


def seconds(model, layout, machine, batch):
    """({part: s}, {part: s}): the parts of PARTS add up to the step's time; of those of HIDES, what is behind computing."""
    count = batch // (layout.data * layout.micro)
    cut = stages_of(model, layout.pipeline * layout.chunks)
    rows = [tuple(cut[s] for s in stages_on(layout, rank)) for rank in range(layout.pipeline)]
    known = {stages: _rank(layout, machine, stages) for stages in set(rows)}
    ranks = [known[stages] for stages in rows]
    most = {name: max(rank[name] for rank in ranks) for name in ("parameters", "message")}
    own = max(ranks, key=_busy)
    if (
        machine.devices
    ):  # where ranks take turns, one that waits leaves its device to others: the mean counts
        own = {name: sum(rank[name] for rank in ranks) / len(ranks) for name in ranks[0]}
    crowd = _crowd(layout.ranks, machine)
    parts = {name: count * own[name] * (crowd if "compute" in name else 1) for name in IN_STAGE}
    computing = parts["compute"] + parts["recompute"]
    parts["bubble"] = (
        _pipeline(layout, machine, ranks, count) - sum(parts.values())
        if layout.pipeline > 1
        else 0.0
    )
    room = machine.overlap * computing  # one computing hides one message: what is taken is taken
    hidden = {
        name: min(room, count * own[f"{name}, hidden"]) for name in ("sequence", "space")
    }  # a model has one of them
    left = room - sum(hidden.values())
    parts["pipeline"], hidden["pipeline"] = _messages(layout, machine, most["message"], count, left)
    left = room, left - hidden["pipeline"]
    parts["gradients"], hidden["gradients"] = _gradients(
        model, layout, machine, most["parameters"], count, left
    )
    parts["update"], parts["offload"] = _update(model, layout, machine, most["parameters"])
    return {name: float(parts[name]) for name in PARTS}, {
        name: float(hidden[name]) for name in HIDES
    }


def utilisation(model, layout, machine, batch, peak):
    """Model FLOPs utilisation: the operations that the model needs, without recomputing, of those that `peak` (1/s) allows."""
    parts, _ = seconds(model, layout, machine, batch)
    return batch * model.operations / (sum(parts.values()) * layout.ranks * peak)


def _busy(rank):
    return sum(rank[name] for name in IN_STAGE)


def _crowd(busy, machine):
    """By how much ranks are slower that compute at the same time."""
    return max(1.0, busy / machine.devices) if machine.devices else 1.0


def _rank(layout, machine, stages):
    """Seconds of one micro-batch on a rank of the pipeline, forward and backward, over all of its stages; its parameters."""
    t, c, x, again = layout.tensor, layout.sequence, layout.space, layout.recompute == "full"
    b = layout.micro / (
        2 if _two_ways(layout) else 1
    )  # there each batch uses one of the rank's two stages

    def total(name):
        return sum(getattr(stage, name) for stage in stages)

    forward = total("operations") * b / (t * c * x) / machine.speed
    found = {
        "compute": 3 * forward,
        "recompute": again * forward,
        "parameters": sum(stage.on(t) for stage in stages),
    }
    alpha, beta = machine.link(t, layout.stride("tensor"))
    found["tensor"] = (
        (2 + again)
        * 2
        * (t - 1)
        * (total("summed") * b / (c * x) / t * beta + total("sums") * alpha)
    )  # rings
    alpha, beta = machine.link(c, layout.stride("sequence"))
    turns = (1 + again) * (c - 1) + 2 * c * (
        c > 1
    )  # keys and values; backward their gradients, too, and home again
    ring = turns * (total("turned") * b / (t * c) * beta + 2 * total("rings") * alpha)
    alpha, beta = machine.link(x, layout.stride("space"))
    edge = (2 + again) * 2 * (total("halo") * b * beta + total("halos") * alpha) if x > 1 else 0.0
    room = machine.overlap * found["compute"]
    found["sequence"], found["space"] = max(0.0, ring - room), max(0.0, edge - room)
    found["sequence, hidden"], found["space, hidden"] = (
        ring - found["sequence"],
        edge - found["space"],
    )
    found["message"] = max(stage.output for stage in stages) * layout.micro / (c * x)
    return found


def _two_ways(layout):
    return layout.schedule == "gems" and layout.pipeline > 1


def _pipeline(layout, machine, ranks, count):
    """Seconds until all micro-batches have been through all stages and back."""
    p, times = layout.pipeline, [_busy(rank) for rank in ranks]
    longest, mean = max(times), sum(times) / p
    if _two_ways(layout):
        forward = longest / (3 + (layout.recompute == "full"))
        return p * longest + (count - 1) * (p * (longest - forward) + forward)
    fill = {"interleaved": 1 / layout.chunks, "zb-h1": 1 / 3}.get(layout.schedule, 1)
    span = count * longest + fill * (p - 1) * mean
    if not machine.devices:
        return span
    slots = [min(k, count + p - k, p, count) for k in range(1, count + p)]  # busy stages
    computing = sum(rank["compute"] + rank["recompute"] for rank in ranks) / p
    crowds = sum(_crowd(busy * layout.ranks / p, machine) for busy in slots)
    return max(span, crowds * computing + len(slots) * (mean - computing))


def _messages(layout, machine, size, count, room):
    """Activations and gradients between stages: exposed while the pipeline fills and empties, then partly behind computing."""
    if layout.pipeline == 1:
        return 0.0, 0.0
    alpha, beta = machine.link(layout.pipeline, layout.stride("pipeline"))
    hop = alpha + size * beta
    first, rest = 2 * (layout.pipeline - 1) * hop, 2 * (count * layout.chunks - 1) * hop
    late = max(0.0, rest - room)
    return first + late, rest - late


def _gradients(model, layout, machine, parameters, count, room):
    """Sums of gradients, and ZeRO's parameters, over the ranks that hold the same. room: s to hide in, in all and still free."""
    n = layout.alike * (2 if _two_ways(layout) else 1)
    if n == 1:
        return 0.0, 0.0
    # Two ways, the ranks r and p - 1 - r of a pipeline are partners: the first and the last one, too.
    far = layout.pipeline, layout.stride("pipeline")
    alpha, beta = machine.link(*far) if _two_ways(layout) else machine.link(n, layout.tensor)
    sent = parameters * PRECISIONS[model.precision][1] * _passes(n, layout.zero, count) * beta
    passes, layers = (
        {0: 2, 1: 2, 2: count + 1, 3: 3 * count}[layout.zero],
        len(model.layers) if layout.zero > 1 else 1,
    )
    sent += passes * layers * (n - 1) * alpha
    # Stages 0 and 1 send while the last micro-batch goes backward, 2 and 3 during each.
    whole, free = room
    late = max(0.0, sent - min(free, whole * (1 if layout.zero > 1 else 2 / 3 / count)))
    return late, sent - late


@functools.lru_cache(maxsize=4096)
def _passes(ranks, stage, count):
    """Bytes sent in a step for each byte of gradients."""
    return zero_sent(1, ranks, stage, bytes_each=1, accumulation=count)


def _update(model, layout, machine, parameters):
    """(on the device, offloaded): the optimizer reads and writes its states and parameters, and reads gradients.

    Offloaded, it does so at a tenth of the device's bandwidth, and gradients and parameters go over the host's link.
    """
    compute, gradient, _ = PRECISIONS[model.precision]
    held = states(parameters, layout.alike, layout.zero, model.precision)
    mine = parameters / (layout.alike if layout.zero else 1)
    touched = 2 * (held["master"] + held["moments"]) + mine * (2 * compute + gradient)
    if not layout.offload:
        return touched / machine.update, 0.0
    return 0.0, 10 * touched / machine.update + mine * (compute + gradient) / machine.host
