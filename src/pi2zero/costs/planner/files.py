"""A plan from a file, model.toml, and as text."""

import inspect
import tomllib

from pi2zero.costs.planner.layouts import Machine
from pi2zero.costs.planner.models import convolutions, transformer
from pi2zero.costs.planner.search import plan
from pi2zero.costs.planner.seconds import HIDES, PARTS

__all__ = ["EXAMPLE", "plan_from", "plan_text"]

EXAMPLE = """\
# python -m pi2zero plan model.toml: which layouts fit, and which is the fastest?
batch = 512                 # samples in a step, over all ranks

[model]                     # or [images]: image, layers, classes
layers = 48
width = 6144
heads = 64
vocabulary = 51_200
sequence = 2048
# precision = "mixed"       # or "fp32"
# attention = "blocks"      # or "matrix": sequence x sequence is kept
# dropout = false
# tied = false

# [images]                  # a network of convolutions instead
# image = [3, 1024, 1024]   # channels, rows, columns
# layers = [[64, 7, 2], [128, 3, 2], [256, 3, 2]]  # channels, kernel, stride of each
# classes = 10

[machine]
ranks = 64
per_node = 8
memory = 80e9               # bytes of a device
speed = 190e12              # operations/s that large products of matrices reach
inside = 200e9              # bytes/s and rank within a node
between = 22e9              # bytes/s and rank between nodes
# latency = 5e-6            # s a message
# host = 25e9               # bytes/s to the host's memory, for offload
# update = 1e12             # bytes/s at which the optimizer reads and writes
# overlap = 0.5             # share of computing behind which messages can travel
# reserve = 0.1             # share of the memory kept free
"""


LONGEST = 800  # characters of a sentence on an error


def plan_from(text):
    """The Plan of a file's text. Raises ValueError with one sentence that says what is wrong and what is expected."""
    try:
        return _plan_from(text)
    except ValueError as error:
        if len(words := str(error)) > LONGEST:  # it quotes a key or a value that is a page long
            raise ValueError(f"{words[: LONGEST - 200]} ... {words[-150:]}") from None
        raise


def _plan_from(text):
    try:
        told = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also numbers and nests that are too long
        raise ValueError(
            f"this is no TOML: {error}. `python -m pi2zero plan --example` prints a file to begin with."
        ) from None
    kinds = {"model": transformer, "images": convolutions}
    given = [name for name in kinds if name in told]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        raise ValueError(
            f"one of [model] (a transformer) and [images] (convolutions) is wanted; there is {found}."
        )
    _keys("the file", told, ["batch", given[0], "machine"], ["batch", given[0], "machine"])
    return plan(
        _made(kinds[given[0]], given[0], told), _made(Machine, "machine", told), told["batch"]
    )


def plan_text(plan, number=10):
    """The best layouts as a table, and why the others lose."""
    billions = plan.model.parameters / 1e9
    lines = [
        f"{billions:,.3g} billion parameters, {plan.batch:,} samples a step, {plan.machine.ranks:,} ranks.",
        f"{len(plan.rows):,} layouts, {len(plan.fitting):,} of them fit into {plan.room / 1e9:,.1f} GB.",
    ]
    if plan.fitting:
        lines += ["", *_table(plan.best(number))]
    return "\n".join(
        [
            *lines,
            "",
            "Why the others lose",
            *(f"  {name:22} {why}" for name, why in plan.others().items()),
        ]
    )


def _table(rows):
    shown = [part for part in PARTS if any(row.parts[part] > 0.0005 * row.seconds for row in rows)]
    behind = [
        part for part in HIDES if any(row.hidden[part] > 0.0005 * row.seconds for row in rows)
    ]
    names = [*shown, *(f"({part})" for part in behind)]
    yield "  ".join(
        ["step, s", " GB", *(f"{name:>{max(9, len(name))}}" for name in names), "micro", "layout"]
    )
    for row in rows:
        values = [*(row.parts[part] for part in shown), *(row.hidden[part] for part in behind)]
        times = [
            f"{value:{max(9, len(name))}.3g}" for name, value in zip(names, values, strict=True)
        ]
        yield "  ".join(
            [
                f"{row.seconds:7.3g}",
                f"{row.held / 1e9:3.0f}",
                *times,
                f"{row.layout.micro:5}",
                row.layout.name,
            ]
        )
    if behind:
        yield "In brackets: what of a communication is behind computing, and costs no time."
    yield "GB: of the fullest rank, which holds"
    for row in rows[:3]:
        parts = ", ".join(f"{part} {size / 1e9:,.1f}" for part, size in row.bytes.items() if size)
        yield f"  {parts} GB ({row.layout.name})"


def _made(make, name, told):
    """A model or the machine of a table of the file."""
    if not isinstance(told[name], dict):
        raise ValueError(
            f"{name}: a table, [{name}], with a line for each value; got {told[name]!r}."
        )
    wanted = inspect.signature(make).parameters
    _keys(
        f"[{name}]",
        told[name],
        wanted,
        [key for key, one in wanted.items() if one.default is one.empty],
    )
    try:
        return make(**told[name])
    except TypeError as error:
        raise ValueError(f"[{name}]: {error}.") from None


def _keys(where, told, known, needed):
    for key in told:
        if key not in known:
            raise ValueError(f"{where}: {key!r} is unknown; there are {', '.join(known)}.")
    for key in needed:
        if key not in told:
            raise ValueError(f"{where}: {key!r} is missing.")
