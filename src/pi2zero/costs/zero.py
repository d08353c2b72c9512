"""ZeRO on paper: bytes that a rank holds and sends at each stage; what fits where.

Source: S. Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC20, arXiv:1910.02054:
sections 3.1 and 5 (memory), 7 (bytes sent). Offload: J. Ren et al., "ZeRO-Offload", USENIX ATC 2021, arXiv:2101.06840.
"""

import numpy as np

from pi2zero.costs import valid

__all__ = [
    "OPTIMIZERS",
    "PRECISIONS",
    "largest_model",
    "ranks_needed",
    "zero_bytes",
    "zero_sent",
    "zero_total",
]

# Bytes a parameter: of the copy that computes, of its gradient, of the fp32 master copy.
PRECISIONS = {"mixed": (2, 2, 4), "fp32": (4, 4, 0)}
# fp32 values that the optimizer keeps for each parameter.
OPTIMIZERS = {"adam": 2, "momentum": 1, "sgd": 0}
# From which stage on a component is divided by the ranks.
DIVIDED_FROM = {"parameters": 3, "gradients": 2, "master": 1, "moments": 1}


def zero_bytes(parameters, ranks, stage, precision="mixed", optimizer="adam", offload=False):
    """Bytes that each rank's device holds, by component: a dict of parameters, gradients, master and moments.

    parameters: Psi, how many, above 0. ranks: N, 1 or more. stage: 0 (plain data parallelism) to 3. offload: master copy and
    moments lie in the host's memory; from stage 2 on gradients leave for it, too. Activations, buffers and what the allocator
    wastes are not in it (section 3.2).
    """
    psi, n = valid.positive("parameters", parameters), valid.ranks(ranks)
    compute, gradient, master = _choice("precision", PRECISIONS, precision)
    each = {"parameters": compute, "gradients": gradient, "master": master}
    each["moments"] = 4 * _choice("optimizer", OPTIMIZERS, optimizer)
    if offload:
        if _stage(stage) == 0:
            raise ValueError(
                "offload: needs a stage of 1 or more; at stage 0 DeepSpeed leaves the optimizer to the device."
            )
        each["master"] = each["moments"] = 0
        each["gradients"] = gradient if stage == 1 else 0
    return {
        part: psi * b / (n if _stage(stage) >= DIVIDED_FROM[part] else 1)
        for part, b in each.items()
    }


def zero_total(parameters, ranks, stage, **options):
    """Bytes that each rank's device holds in all. See zero_bytes."""
    return sum(zero_bytes(parameters, ranks, stage, **options).values())


def zero_sent(parameters, ranks, stage, bytes_each=2, accumulation=1):
    """Bytes that each rank sends in one step, with ring collectives: 2 to 3k passes of Psi (N-1)/N values of `bytes_each` bytes.

    Stage 0 all-reduces the gradients, which is a reduce-scatter and an all-gather. Stages 1 and 2 reduce-scatter gradients
    and all-gather parameters: the same. Stage 3 gathers the parameters twice, for forward and for backward (section 7).
    accumulation: k, micro-batches in a step. Stages 0 and 1 send after the last one: 2 passes. Stage 2 keeps only its part of
    the gradients, so it reduces after each: k + 1. Stage 3 gathers and reduces for each: 3k.
    """
    n, k = valid.ranks(ranks), valid.positive("accumulation", accumulation)
    passes = {0: 2, 1: 2, 2: k + 1, 3: 3 * k}[_stage(stage)]
    return (
        passes
        * valid.positive("parameters", parameters)
        * (n - 1)
        / n
        * valid.positive("bytes_each", bytes_each)
    )


def largest_model(memory, ranks, stage, reserve=0.0, **options):
    """How many parameters fit: memory is the device's in bytes, reserve the bytes left free for activations and buffers."""
    room = valid.positive("memory", memory) - valid.not_negative("reserve", reserve)
    if np.any(room <= 0):
        raise ValueError(
            f"reserve: {reserve!r} bytes are all of the memory, {memory!r}, or more; nothing is left for a model."
        )
    return room / zero_total(1.0, ranks, stage, **options)


def ranks_needed(parameters, memory, stage, reserve=0.0, **options):
    """The fewest ranks on which the model fits, or None: what a stage does not divide has to fit into every device."""
    room = valid.positive("memory", memory) - valid.not_negative("reserve", reserve)
    held = zero_bytes(parameters, 1, stage, **options)
    whole = sum(size for part, size in held.items() if stage < DIVIDED_FROM[part])
    divided = sum(held.values()) - whole
    if whole + divided <= room:
        return 1
    return int(np.ceil(divided / (room - whole))) if divided and whole < room else None


def _stage(stage):
    if stage not in (0, 1, 2, 3):
        raise ValueError(f"stage: 0, 1, 2 or 3; got {stage!r}.")
    return int(stage)


def _choice(name, choices, value):
    if value not in choices:
        raise ValueError(f"{name}: one of {', '.join(choices)}; got {value!r}.")
    return choices[value]
