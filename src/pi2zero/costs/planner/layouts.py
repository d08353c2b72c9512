"""Where a model may lie: the machine, one layout of a training step on it, and all layouts that are possible.

Ranks are numbered so that those of one tensor group are neighbours, then those of one sequence or space, then of one pipeline's
neighbours in data, and stages are farthest apart: who talks most is nearest (Megatron-LM's order, arXiv:2104.04473).
"""

import itertools
from dataclasses import dataclass, fields

__all__ = ["SCHEDULES", "Layout", "Machine", "layouts"]

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb-h1", "gems")
RECOMPUTE = ("none", "full")

MOST_RANKS = 1_000_000  # all their divisors are looked for


@dataclass(frozen=True)
class Machine:
    """ranks: in all, `per_node` on a node. memory: bytes of a device. speed: operations a second that a device reaches on large
    products of matrices (not the data sheet's). inside, between: bytes a second and rank in a node and between nodes.
    latency: s a message. host: bytes a second between device and host, for offload. update: bytes a second at which the
    optimizer reads and writes. overlap: share 0..1 of computing during which messages may travel.
    reserve: share of the memory kept free. devices: how many compute at the same time, where ranks share them; None: all.
    """

    ranks: int
    per_node: int
    memory: float
    speed: float
    inside: float
    between: float
    latency: float = 5e-6
    host: float = 25e9
    update: float = 1e12
    overlap: float = 0.5
    reserve: float = 0.1
    devices: float | None = None

    def __post_init__(self):
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "devices" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(f"{field.name}: a number; got {value!r}.")
            if field.name in ("overlap", "reserve"):
                if not 0 <= value <= 1:
                    raise ValueError(f"{field.name}: a share between 0 and 1; got {value!r}.")
            elif value < 0 or (value == 0 and field.name != "latency"):
                raise ValueError(f"{field.name}: above 0; got {value!r}.")
        for name in ("ranks", "per_node"):
            if getattr(self, name) % 1:
                raise ValueError(f"{name}: a whole number; got {getattr(self, name)!r}.")
        if self.ranks > MOST_RANKS:
            raise ValueError(f"ranks: at most {MOST_RANKS:,}; got {self.ranks:,}.")
        if self.ranks > self.per_node and self.ranks % self.per_node:
            raise ValueError(
                f"ranks: nodes are full, so {self.per_node} a node have to divide them; got {self.ranks}."
            )

    def within(self, size, stride):
        """Whether all rings over `size` ranks that are `stride` apart lie on one node each: of 8 ranks a node, threes do not."""
        return self.ranks <= self.per_node or self.per_node % (size * stride) == 0

    def link(self, size, stride):
        """(latency, s per byte) of a ring over `size` ranks that are `stride` apart: the slowest link in it."""
        return self.latency, 1 / (self.inside if self.within(size, stride) else self.between)


@dataclass(frozen=True)
class Layout:
    """data, tensor, pipeline, sequence, space: ranks along each; their product is all ranks. micro: samples in a micro-batch.

    schedule: of SCHEDULES, where there is a pipeline. chunks: stages on each rank if it is interleaved. zero: stage 0..3 over the
    ranks that hold the same parameters (data, sequence, space). recompute: none or full (each layer keeps its input only).
    offload: ZeRO-Offload. sharded_norms: Megatron's sequence parallelism, between the tensor-parallel parts.
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    sequence: int = 1
    space: int = 1
    micro: int = 1
    schedule: str = "1f1b"
    chunks: int = 1
    zero: int = 0
    recompute: str = "none"
    offload: bool = False
    sharded_norms: bool = True

    @property
    def ranks(self):
        """All ranks: the product of those along each way."""
        return self.data * self.tensor * self.pipeline * self.sequence * self.space

    @property
    def alike(self):
        """Ranks that hold the same parameters."""
        return self.data * self.sequence * self.space

    @property
    def name(self):
        """The layout in words: "data 4, pipeline 2 (1f1b), ZeRO-1, recompute"."""
        ways = ("data", "tensor", "pipeline", "sequence", "space")
        parts = [f"{way} {getattr(self, way)}" for way in ways if getattr(self, way) > 1] or [
            "1 rank"
        ]
        if self.pipeline > 1:
            parts[-1 if self.sequence * self.space == 1 else -2] += (
                f" ({self.schedule}{f' x {self.chunks}' * (self.chunks > 1)})"
            )
        parts += (
            [f"ZeRO-{self.zero}"] * (self.zero > 0)
            + ["offload"] * self.offload
            + ["recompute"] * (self.recompute == "full")
        )
        return ", ".join(parts)

    def stride(self, way):
        """How far apart neighbours along a way are."""
        order = ("tensor", "sequence", "space", "data", "pipeline")
        apart = 1
        for before in order[: order.index(way)]:
            apart *= getattr(self, before)
        return apart


def layouts(model, machine, batch):
    """All layouts of `batch` samples a step (over all ranks) on all ranks of the machine, one after another.

    Left out, because nobody would: tensor groups that lie on two nodes; ZeRO-2 and 3 with a pipeline (each micro-batch would send
    all gradients or parameters again: DeepSpeed's engine refuses it); offload without ZeRO; several samples a micro-batch unless
    a power of two.
    """
    blocks = len(model.layers) - sum(model.ends)
    second = "sequence" if model.kind == "text" else "space"
    for data, tensor, pipeline, other in _factors(machine.ranks):
        if (
            batch % data
            or not machine.within(tensor, 1)
            or model.widest % tensor
            or pipeline > blocks
        ):
            continue
        if other > 1 and (model.length % other or model.length < 2 * other):
            continue
        ways = {"data": data, "tensor": tensor, "pipeline": pipeline, second: other}
        for micro, (schedule, chunks) in itertools.product(
            _micro(batch // data), _schedules(pipeline, blocks)
        ):
            count = batch // data // micro
            if pipeline > 1 and not _runs(schedule, pipeline, count):
                continue
            for zero, recompute in itertools.product(
                (0, 1) if pipeline > 1 else (0, 1, 2, 3), RECOMPUTE
            ):
                if zero and data * other == 1:
                    continue
                for offload in (False, True) if zero else (False,):
                    yield Layout(
                        **ways,
                        micro=micro,
                        schedule=schedule,
                        chunks=chunks,
                        zero=zero,
                        recompute=recompute,
                        offload=offload,
                    )


def _schedules(pipeline, layers):
    if pipeline == 1:
        return [("1f1b", 1)]
    chunks = [v for v in (2, 4) if layers >= v * pipeline]
    return [(name, 1) for name in SCHEDULES if name != "interleaved"] + [
        ("interleaved", v) for v in chunks
    ]


def _runs(schedule, stages, count):
    """Whether a schedule runs: interleaving wants whole rounds, two directions a partner for each rank and each batch."""
    return {"interleaved": count % stages == 0, "gems": stages % 2 == 0 and count % 2 == 0}.get(
        schedule, True
    )


def _micro(samples):
    return [2**k for k in range(samples.bit_length()) if samples % 2**k == 0 and 2**k <= 16]


def _factors(number):
    """All (a, b, c, d) with a b c d = number."""
    divisors = [k for k in range(1, number + 1) if number % k == 0]
    for a, b in itertools.product(divisors, repeat=2):
        if number % (a * b) == 0:
            for c in divisors:
                if number // a // b % c == 0:
                    yield a, b, c, number // a // b // c
