"""All layouts of a model on a machine, the best of them, and why the others lose."""

from dataclasses import dataclass, field

from pi2zero.costs.planner.layouts import DIMENSIONS, RECOMPUTE, SCHEDULES, Layout, Machine, layouts
from pi2zero.costs.planner.memory import bytes_per_rank
from pi2zero.costs.planner.models import Model
from pi2zero.costs.planner.timing import step_time

__all__ = ["Candidate", "Plan", "plan"]


@dataclass(frozen=True)
class Candidate:
    """A layout. bytes: on its fullest rank, by component.

    parts: s of its step by part, None if it does not fit. hidden: s of each communication that are
    hidden behind computing and cost no time.
    """

    layout: Layout
    bytes: dict[str, float]
    parts: dict[str, float] | None = None
    hidden: dict[str, float] = field(default_factory=dict)

    @property
    def total_bytes(self):
        """Bytes on the fullest rank, all components together."""
        return sum(self.bytes.values())

    @property
    def step_time(self):
        """Seconds of a whole step; infinite if the layout does not fit."""
        return sum(self.parts.values()) if self.parts else float("inf")


@dataclass(frozen=True)
class Plan:
    """candidates: all layouts, the fastest first, then those that do not fit, smallest first."""

    model: Model
    machine: Machine
    batch: int
    candidates: tuple[Candidate, ...]

    @property
    def fitting(self):
        """The candidates that fit, the fastest first."""
        return [candidate for candidate in self.candidates if candidate.parts]

    @property
    def usable_memory(self):
        """Bytes of a device without its reserve."""
        return self.machine.memory * (1 - self.machine.reserve)

    def best(self, number=10):
        """The fastest candidates that fit, one for each set of those that differ in micro-batch and
        schedule only."""
        distinct = {}
        for candidate in self.fitting:
            layout = candidate.layout
            sizes = [getattr(layout, name) for name in DIMENSIONS]
            key = (*sizes, layout.zero_stage, layout.recompute, layout.offload)
            distinct.setdefault(key, candidate)
        return list(distinct.values())[:number]

    def why_others_lose(self):
        """{choice: why the best layout with it loses}, for each dimension, stage, schedule ..."""
        return {
            name: self._why([each for each in self.candidates if has_choice(each.layout)])
            for name, has_choice in _choices(self.model)
        }

    def _why(self, candidates):
        if not candidates:
            return "not possible: the batch, the heads, the layers or the node do not allow it"
        candidate, best = candidates[0], self.candidates[0]
        if not candidate.parts:
            part, size = max(candidate.bytes.items(), key=lambda item: item[1])
            total, size, usable = (
                f"{value / 1e9:,.1f}" for value in (candidate.total_bytes, size, self.usable_memory)
            )
            return f"does not fit: at least {total} GB, {size} of them {part}; there are {usable}"
        if candidate is best:
            return "the best has it"
        more = {name: seconds - best.parts[name] for name, seconds in candidate.parts.items()}
        part = max(more, key=more.get)
        slower = candidate.step_time / best.step_time
        if more[part] <= 0 or slower < 1.0005:
            return "as fast as the best"
        return (
            f"{slower:,.2f} times the best's time ({candidate.layout.name}): "
            f"{part} takes {_duration(more[part])} more"
        )


def plan(model, machine, batch):
    """Return the Plan of a global batch of `batch` samples: which layouts fit, and their step time.

    Raises ValueError if the batch is no whole number, or if no layout uses all ranks.
    """
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        raise ValueError(
            f"global_batch: samples in a step over all ranks, a whole number of 1 or more; "
            f"got {batch!r}."
        )
    usable, candidates = machine.memory * (1 - machine.reserve), []
    for layout in layouts(model, machine, batch):
        sizes = bytes_per_rank(model, layout, batch)
        fits = sum(sizes.values()) <= usable
        times = step_time(model, layout, machine, batch) if fits else (None, {})
        candidates.append(Candidate(layout, sizes, *times))
    if not candidates:
        raise ValueError(
            f"global_batch: no layout of {batch} samples uses all {machine.ranks} ranks. "
            "Take a batch that they divide, or ranks that heads and layers allow to split."
        )
    candidates.sort(key=lambda each: (each.step_time, 0 if each.parts else each.total_bytes))
    return Plan(model, machine, batch, tuple(candidates))


def _choices(model):
    """Yield (name, function that says whether a layout has it)."""
    for name in DIMENSIONS:
        if name == ("spatial" if model.kind == "text" else "context"):
            continue
        if name == "tensor" and model.max_tensor == 1:
            continue
        yield f"{name} alone", lambda layout, name=name: _is_alone(layout, name)
        yield f"no {name}", lambda layout, name=name: getattr(layout, name) == 1
    for stage in range(4):
        yield f"ZeRO-{stage}", lambda layout, stage=stage: layout.zero_stage == stage
    for name in SCHEDULES:
        yield (
            f"schedule {name}",
            lambda layout, name=name: layout.pipeline > 1 and layout.schedule == name,
        )
    for name in RECOMPUTE:
        yield f"recompute {name}", lambda layout, name=name: layout.recompute == name
    yield "offload", lambda layout: layout.offload
    yield "no offload", lambda layout: not layout.offload


def _is_alone(layout, name):
    return getattr(layout, name) == layout.ranks and layout.zero_stage == 0 and not layout.offload


def _duration(seconds):
    return f"{seconds:,.2f} s" if seconds >= 1 else f"{1e3 * seconds:,.1f} ms"
