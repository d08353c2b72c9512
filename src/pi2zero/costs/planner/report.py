"""A plan as text."""

from pi2zero.costs.planner.timing import HIDEABLE, PARTS

__all__ = ["plan_text"]

NOTICEABLE = 0.0005  # share of the step time from which on a part has a column


def plan_text(plan, number=10):
    """Return the best layouts as a table, and why the others lose."""
    lines = [
        f"{plan.model.parameters / 1e9:,.3g} billion parameters, {plan.batch:,} samples per step, "
        f"{plan.machine.ranks:,} ranks.",
        f"{len(plan.candidates):,} layouts, {len(plan.fitting):,} of them fit into "
        f"{plan.usable_memory / 1e9:,.1f} GB.",
    ]
    if plan.fitting:
        lines += ["", *_table(plan.best(number))]
    reasons = (f"  {name:22} {why}" for name, why in plan.why_others_lose().items())
    return "\n".join([*lines, "", "Why the others lose", *reasons])


def _table(candidates):
    def noticeable(names, which):
        return [
            name
            for name in names
            if any(getattr(c, which)[name] > NOTICEABLE * c.step_time for c in candidates)
        ]

    parts, hidden = noticeable(PARTS, "parts"), noticeable(HIDEABLE, "hidden")
    names = [*parts, *(f"({name})" for name in hidden)]
    widths = [max(9, len(name)) for name in names]
    heads = (f"{name:>{width}}" for name, width in zip(names, widths, strict=True))
    yield "  ".join(["step, s", " GB", *heads, "micro", "layout"])
    for each in candidates:
        values = [each.parts[name] for name in parts] + [each.hidden[name] for name in hidden]
        times = (f"{value:{width}.3g}" for value, width in zip(values, widths, strict=True))
        begin = [f"{each.step_time:7.3g}", f"{each.total_bytes / 1e9:3.0f}"]
        yield "  ".join([*begin, *times, f"{each.layout.micro_batch:5}", each.layout.name])
    if hidden:
        yield "In brackets: communication that is hidden behind computing and costs no time."
    yield "GB on the fullest rank, by component:"
    for each in candidates[:3]:
        sizes = ", ".join(f"{part} {size / 1e9:,.1f}" for part, size in each.bytes.items() if size)
        yield f"  {sizes} GB ({each.layout.name})"
