"""ZeRO on paper: bytes of a rank's memory and of its traffic at each stage; which model fits.

Source: S. Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models", SC20, arXiv:1910.02054: sections 3.1 and 5 (memory), 7 (traffic). Offload: J. Ren et al.,
"ZeRO-Offload", USENIX ATC 2021, arXiv:2101.06840.
"""

import numpy as np

from pi2zero.costs import valid

__all__ = [
    "OPTIMIZERS",
    "PRECISIONS",
    "largest_model",
    "ranks_needed",
    "zero_bytes",
    "zero_bytes_sent",
    "zero_total",
]

# Bytes per parameter: of the copy that computes, of its gradient, of the fp32 master copy.
PRECISIONS = {"mixed": (2, 2, 4), "fp32": (4, 4, 0)}
# fp32 values that the optimizer keeps for each parameter.
OPTIMIZERS = {"adam": 2, "momentum": 1, "sgd": 0}
# The first stage that partitions each component over the ranks.
PARTITIONED_FROM = {"parameters": 3, "gradients": 2, "master": 1, "moments": 1}


def zero_bytes(parameters, ranks, stage, precision="mixed", optimizer="adam", offload=False):
    """Return {component: bytes} on each rank's device: parameters, gradients, master, moments.

    parameters: Ψ, above 0. ranks: N, 1 or more. stage: 0 (plain data parallelism) to 3.
    offload: the master copy and the moments are in the host's memory; from stage 2 on, gradients
    leave for it too. Activations, buffers and fragmentation are not included (section 3.2).
    """
    psi, n = valid.positive("parameters", parameters), valid.ranks(ranks)
    compute, gradient, master = _choice("precision", PRECISIONS, precision)
    sizes = {"parameters": compute, "gradients": gradient, "master": master}
    sizes["moments"] = 4 * _choice("optimizer", OPTIMIZERS, optimizer)
    if offload:
        if _valid_stage(stage) == 0:
            raise ValueError(
                "offload: needs a stage of 1 or more. "
                "At stage 0, DeepSpeed leaves the optimizer on the device."
            )
        sizes["master"] = sizes["moments"] = 0
        sizes["gradients"] = gradient if stage == 1 else 0
    return {
        name: psi * size / (n if _valid_stage(stage) >= PARTITIONED_FROM[name] else 1)
        for name, size in sizes.items()
    }


def zero_total(parameters, ranks, stage, **options):
    """Return the bytes on each rank's device, all components together. See zero_bytes."""
    return sum(zero_bytes(parameters, ranks, stage, **options).values())


def zero_bytes_sent(parameters, ranks, stage, bytes_per_value=2, accumulation=1):
    """Return the bytes that each rank sends per step with ring collectives.

    The traffic is 2 to 3k times Ψ (N-1)/N values. Stage 0 all-reduces the gradients, which is a
    reduce-scatter and an all-gather. Stages 1 and 2 reduce-scatter gradients and all-gather
    parameters: the same. Stage 3 gathers the parameters twice, for forward and for backward
    (section 7). accumulation: k, micro-batches per step. Stages 0 and 1 send after the last one: 2.
    Stage 2 keeps only its shard of the gradients, so it reduces after each: k + 1. Stage 3 gathers
    and reduces for each: 3k.
    """
    n, k = valid.ranks(ranks), valid.positive("accumulation", accumulation)
    values = valid.positive("parameters", parameters) * (n - 1) / n
    factor = {0: 2, 1: 2, 2: k + 1, 3: 3 * k}[_valid_stage(stage)]
    return factor * values * valid.positive("bytes_per_value", bytes_per_value)


def largest_model(memory, ranks, stage, reserve=0.0, **options):
    """Return how many parameters fit.

    memory: of a device, bytes. reserve: bytes kept free for activations and buffers.
    options: of zero_bytes.
    """
    usable = valid.positive("memory", memory) - valid.not_negative("reserve", reserve)
    if np.any(usable <= 0):
        raise ValueError(
            f"reserve: {reserve!r} bytes take all of the memory, {memory!r}; "
            "nothing is left for a model."
        )
    return usable / zero_total(1.0, ranks, stage, **options)


def ranks_needed(parameters, memory, stage, reserve=0.0, **options):
    """Return the fewest ranks on which the model fits, or None.

    None: what the stage does not partition is too large for a device.
    """
    usable = valid.positive("memory", memory) - valid.not_negative("reserve", reserve)
    sizes = zero_bytes(parameters, 1, stage, **options)
    replicated = sum(size for name, size in sizes.items() if stage < PARTITIONED_FROM[name])
    sharded = sum(sizes.values()) - replicated
    if replicated + sharded <= usable:
        return 1
    if not sharded or replicated >= usable:
        return None
    return int(np.ceil(sharded / (usable - replicated)))


def _valid_stage(stage):
    if stage not in (0, 1, 2, 3):
        raise ValueError(f"stage: 0, 1, 2 or 3; got {stage!r}.")
    return int(stage)


def _choice(name, choices, value):
    if value not in choices:
        raise ValueError(f"{name}: one of {', '.join(choices)}; got {value!r}.")
    return choices[value]
