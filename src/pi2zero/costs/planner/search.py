"""All layouts of a model on a machine, the best of them, and why the others lose."""

from dataclasses import dataclass, field

from pi2zero.costs.planner.held import held
from pi2zero.costs.planner.layouts import SCHEDULES, Layout, Machine, layouts
from pi2zero.costs.planner.models import Model
from pi2zero.costs.planner.seconds import seconds

__all__ = ["Plan", "Row", "plan"]

WAYS = ("data", "tensor", "pipeline", "sequence", "space")


@dataclass(frozen=True)
class Row:
    """A layout, the bytes that its fullest rank holds by component, and, if it fits, its step's seconds by part.

    hidden: s of each communication that are behind computing, and cost no time.
    """

    layout: Layout
    bytes: dict[str, float]
    parts: dict[str, float] | None = None
    hidden: dict[str, float] = field(default_factory=dict)

    @property
    def held(self):
        """Bytes that the fullest rank holds, all components together."""
        return sum(self.bytes.values())

    @property
    def seconds(self):
        """Of a whole step; infinite if the layout does not fit."""
        return sum(self.parts.values()) if self.parts else float("inf")


@dataclass(frozen=True)
class Plan:
    """rows: all layouts, the fastest first, then those that do not fit, the smallest first."""

    model: Model
    machine: Machine
    batch: int
    rows: tuple[Row, ...]

    @property
    def fitting(self):
        """The layouts that fit, the fastest first."""
        return [row for row in self.rows if row.parts]

    @property
    def room(self):
        """Bytes of a device that may be used."""
        return self.machine.memory * (1 - self.machine.reserve)

    def best(self, number=10):
        """The fastest layouts that fit; of those that differ in micro-batch and schedule only, the fastest."""
        found = {}
        for row in self.fitting:
            its = row.layout
            alike = (*(getattr(its, way) for way in WAYS), its.zero, its.recompute, its.offload)
            found.setdefault(alike, row)
        return list(found.values())[:number]

    def others(self):
        """{choice: why the best layout with it loses}, for each way alone, ZeRO stage, schedule, recomputing, offload."""
        return {
            name: self._why([row for row in self.rows if has(row.layout)])
            for name, has in _choices(self.model)
        }

    def _why(self, rows):
        if not rows:
            return "not possible: the batch, the heads, the layers or the node do not allow it"
        row, best = rows[0], self.rows[0]
        if not row.parts:
            part, size = max(row.bytes.items(), key=lambda item: item[1])
            held, size, room = (f"{value / 1e9:,.1f}" for value in (row.held, size, self.room))
            return f"does not fit: at least {held} GB, {size} of them {part}; there are {room}"
        if row is best:
            return "the best has it"
        more = {name: row.parts[name] - best.parts[name] for name in row.parts}
        part = max(more, key=more.get)
        slower = row.seconds / best.seconds
        if more[part] <= 0 or slower < 1.0005:
            return "as fast as the best"
        return f"{slower:,.2f} times the best's time ({row.layout.name}): {part} takes {_time(more[part])} more"


def plan(model, machine, batch):
    """Every layout of a step of `batch` samples: does it fit, and how long does the step take? Returns a Plan."""
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        raise ValueError(
            f"batch: samples in a step over all ranks, a whole number of 1 or more; got {batch!r}."
        )
    room, rows = machine.memory * (1 - machine.reserve), []
    for layout in layouts(model, machine, batch):
        parts = held(model, layout, batch)
        times = (
            seconds(model, layout, machine, batch) if sum(parts.values()) <= room else (None, {})
        )
        rows.append(Row(layout, parts, *times))
    if not rows:
        raise ValueError(
            f"batch: no layout of {batch} samples uses all {machine.ranks} ranks; "
            "take a batch that they divide, or ranks that heads and layers allow to split."
        )
    return Plan(
        model,
        machine,
        batch,
        tuple(sorted(rows, key=lambda row: (row.seconds, row.held if not row.parts else 0))),
    )


def _choices(model):
    """(name, whether a layout has it)"""
    ways = [way for way in WAYS if way != ("space" if model.kind == "text" else "sequence")]
    if model.widest == 1:
        ways.remove("tensor")
    for way in ways:
        yield (
            f"{way} alone",
            lambda its, way=way: (
                getattr(its, way) == its.ranks and its.zero == 0 and not its.offload
            ),
        )
        yield f"no {way}", lambda its, way=way: getattr(its, way) == 1
    for stage in range(4):
        yield f"ZeRO-{stage}", lambda its, stage=stage: its.zero == stage
    for name in SCHEDULES:
        yield f"schedule {name}", lambda its, name=name: its.schedule == name and its.pipeline > 1
    for name in ("none", "full"):
        yield f"recompute {name}", lambda its, name=name: its.recompute == name
    yield "offload", lambda its: its.offload
    yield "no offload", lambda its: not its.offload


def _time(seconds):
    return f"{seconds:,.2f} s" if seconds >= 1 else f"{1e3 * seconds:,.1f} ms"
