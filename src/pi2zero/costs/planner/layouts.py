"""The machine, one layout of a training step on its ranks, and all layouts that are possible.

Neighbouring ranks form a tensor-parallel group, then a context-parallel or spatial one, then a
data-parallel one, and pipeline stages are farthest apart: the most communication takes the nearest
ranks (Megatron-LM's order, arXiv:2104.04473).
"""

import itertools
from dataclasses import dataclass, fields

__all__ = ["SCHEDULES", "Layout", "Machine", "layouts"]

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb-h1", "gems")
RECOMPUTE = ("none", "full")
DIMENSIONS = ("data", "tensor", "pipeline", "context", "spatial")
MAX_RANKS = 1_000_000  # the search tries every divisor


@dataclass(frozen=True)
class Machine:
    """ranks: all of them, `ranks_per_node` on each node. memory: bytes of a device.

    flops_per_s: operations per second that a device reaches on large matrix products.
    intra_node_bandwidth, inter_node_bandwidth, host_bandwidth: bytes per second per rank within a
        node, between nodes, and between device and host (for offload).
    latency: s per message. optimizer_bandwidth: bytes per second of the optimizer's memory traffic.
    overlap: share 0..1 of the computing time during which communication can be hidden.
    reserve: share 0..1 of the memory kept free.
    devices: how many compute at the same time where ranks share them; None: all.
    """

    ranks: int
    ranks_per_node: int
    memory: float
    flops_per_s: float
    intra_node_bandwidth: float
    inter_node_bandwidth: float
    latency: float = 5e-6
    host_bandwidth: float = 25e9
    optimizer_bandwidth: float = 1e12
    overlap: float = 0.5
    reserve: float = 0.1
    devices: float | None = None

    def __post_init__(self):
        for name in (field.name for field in fields(self)):
            value = getattr(self, name)
            if name == "devices" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(f"{name}: a number; got {value!r}.")
            if name in ("overlap", "reserve"):
                if not 0 <= value <= 1:
                    raise ValueError(f"{name}: a share between 0 and 1; got {value!r}.")
            elif value < 0 or (value == 0 and name != "latency"):
                raise ValueError(f"{name}: above 0; got {value!r}.")
            if name in ("ranks", "ranks_per_node") and value % 1:
                raise ValueError(f"{name}: a whole number; got {value!r}.")
        if self.ranks > MAX_RANKS:
            raise ValueError(f"ranks: at most {MAX_RANKS:,}; got {self.ranks:,}.")
        if self.ranks > self.ranks_per_node and self.ranks % self.ranks_per_node:
            raise ValueError(
                f"ranks: a multiple of ranks_per_node ({self.ranks_per_node}); got {self.ranks}."
            )

    def fits_in_node(self, size, stride):
        """Whether every group of `size` ranks that are `stride` apart is on one node."""
        return self.ranks <= self.ranks_per_node or self.ranks_per_node % (size * stride) == 0

    def link(self, size, stride):
        """(latency, s per byte) of the slowest link in a ring of `size` ranks `stride` apart."""
        inside = self.fits_in_node(size, stride)
        return self.latency, 1 / (
            self.intra_node_bandwidth if inside else self.inter_node_bandwidth
        )


@dataclass(frozen=True)
class Layout:
    """data, tensor, pipeline, context, spatial: ranks along each dimension; their product is all.

    micro_batch: samples in it. schedule: of SCHEDULES, for a pipeline. chunks: stages on each rank
        of an interleaved pipeline. zero_stage: 0 to 3, over the ranks with the same parameters.
    recompute: "none" or "full" (each layer keeps its input only). offload: ZeRO-Offload.
    sequence_parallel: Megatron's sharding of norms and dropout over the tensor-parallel group.
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    spatial: int = 1
    micro_batch: int = 1
    schedule: str = "1f1b"
    chunks: int = 1
    zero_stage: int = 0
    recompute: str = "none"
    offload: bool = False
    sequence_parallel: bool = True

    @property
    def ranks(self):
        """All ranks: the product of those along each dimension."""
        return self.data * self.tensor * self.pipeline * self.context * self.spatial

    @property
    def replicas(self):
        """Ranks that have the same parameters before ZeRO partitions anything."""
        return self.data * self.context * self.spatial

    @property
    def is_bidirectional(self):
        """Whether micro-batches enter the pipeline at both ends (GEMS)."""
        return self.schedule == "gems" and self.pipeline > 1

    @property
    def name(self):
        """The layout in words: "data 4, pipeline 2 (1f1b), ZeRO-1, recompute"."""
        chunks = f" x {self.chunks}" if self.chunks > 1 else ""
        parts = [
            f"{name} {getattr(self, name)}"
            + (f" ({self.schedule}{chunks})" if name == "pipeline" else "")
            for name in DIMENSIONS
            if getattr(self, name) > 1
        ]
        parts = parts or ["1 rank"]
        parts += [f"ZeRO-{self.zero_stage}"] * (self.zero_stage > 0) + ["offload"] * self.offload
        return ", ".join(parts + ["recompute"] * (self.recompute == "full"))

    def stride(self, dimension):
        """How far apart neighbouring ranks along a dimension are."""
        apart = 1
        for name in ("tensor", "context", "spatial", "data", "pipeline"):
            if name == dimension:
                return apart
            apart *= getattr(self, name)
        raise ValueError(f"dimension: one of {', '.join(DIMENSIONS)}; got {dimension!r}.")


def layouts(model, machine, batch):
    """Yield all layouts of a global batch of `batch` samples on all ranks of the machine.

    Left out because they are never the best: tensor-parallel groups on two nodes; ZeRO-2 and 3 with
    a pipeline (each micro-batch would send all gradients or parameters again; DeepSpeed refuses
    it); offload without ZeRO; micro-batches that are no power of two.
    """
    blocks = len(model.layers) - sum(model.ends)
    other = "context" if model.kind == "text" else "spatial"
    for data, tensor, pipeline, parts in _factorizations(machine.ranks):
        if batch % data or model.max_tensor % tensor or pipeline > blocks:
            continue
        if not machine.fits_in_node(tensor, 1):
            continue
        if parts > 1 and (model.length % parts or model.length < 2 * parts):
            continue
        sizes = {"data": data, "tensor": tensor, "pipeline": pipeline, other: parts}
        zero_stages = [0] if data * parts == 1 else [0, 1] if pipeline > 1 else [0, 1, 2, 3]
        for micro_batch, (schedule, chunks), zero, recompute, offload in itertools.product(
            _micro_batches(batch // data),
            _schedules(pipeline, blocks),
            zero_stages,
            RECOMPUTE,
            (False, True),
        ):
            if offload and not zero:
                continue
            if pipeline == 1 or _is_possible(schedule, pipeline, batch // data // micro_batch):
                yield Layout(
                    **sizes,
                    micro_batch=micro_batch,
                    schedule=schedule,
                    chunks=chunks,
                    zero_stage=zero,
                    recompute=recompute,
                    offload=offload,
                )


def _schedules(pipeline, blocks):
    """[(schedule, chunks)]"""
    if pipeline == 1:
        return [("1f1b", 1)]
    return [(name, 1) for name in SCHEDULES if name != "interleaved"] + [
        ("interleaved", chunks) for chunks in (2, 4) if blocks >= chunks * pipeline
    ]


def _is_possible(schedule, stages, micro_batches):
    """Interleaving needs whole rounds, GEMS a partner for each rank and each micro-batch."""
    if schedule == "interleaved":
        return micro_batches % stages == 0
    return schedule != "gems" or (stages % 2 == 0 and micro_batches % 2 == 0)


def _micro_batches(samples):
    return [size for size in (1, 2, 4, 8, 16) if samples % size == 0]


def _factorizations(number):
    """All (a, b, c, d) with a b c d = number."""
    divisors = [k for k in range(1, number + 1) if number % k == 0]
    for a, b in itertools.product(divisors, repeat=2):
        if number % (a * b) == 0:
            for c in divisors:
                if number // a // b % c == 0:
                    yield a, b, c, number // a // b // c
