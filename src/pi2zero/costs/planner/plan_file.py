"""A plan from a file, model.toml."""

import inspect
import tomllib

from pi2zero.costs.planner.layouts import Machine
from pi2zero.costs.planner.models import convolutions, transformer
from pi2zero.costs.planner.search import plan

__all__ = ["EXAMPLE", "plan_from"]

EXAMPLE = """\
# python -m pi2zero plan model.toml: which layouts fit, and which is the fastest?
global_batch = 512            # samples per step, over all ranks

[model]                       # or [images]: image, layers, classes
layers = 48
hidden_size = 6144
heads = 64
vocab_size = 51_200
sequence_length = 2048
# precision = "mixed"         # or "fp32"
# attention = "flash"         # or "standard": sequence x sequence scores are kept
# dropout = false
# tied_embeddings = false

# [images]                    # a network of convolutions instead
# image = [3, 1024, 1024]     # channels, rows, columns
# layers = [[64, 7, 2], [128, 3, 2], [256, 3, 2]]  # channels, kernel, stride of each
# classes = 10

[machine]
ranks = 64
ranks_per_node = 8
memory = 80e9                 # bytes of a device
flops_per_s = 190e12          # operations per second that large matrix products reach
intra_node_bandwidth = 200e9  # bytes per second per rank within a node
inter_node_bandwidth = 22e9   # bytes per second per rank between nodes
# latency = 5e-6              # s per message
# host_bandwidth = 25e9       # bytes per second to the host's memory, for offload
# optimizer_bandwidth = 1e12  # bytes per second at which the optimizer reads and writes
# overlap = 0.5               # share of computing that can hide communication
# reserve = 0.1               # share of the memory kept free
"""

# Words of earlier versions of this file, and today's.
RENAMED = {
    "batch": "global_batch",
    "width": "hidden_size",
    "vocabulary": "vocab_size",
    "sequence": "sequence_length",
    "tied": "tied_embeddings",
    "split_vocabulary": "shard_vocab",
    "per_node": "ranks_per_node",
    "speed": "flops_per_s",
    "inside": "intra_node_bandwidth",
    "between": "inter_node_bandwidth",
    "host": "host_bandwidth",
    "update": "optimizer_bandwidth",
}
KINDS = {"model": transformer, "images": convolutions}
MAX_MESSAGE = 800  # characters; an error may quote a key or a value that is a page long


def plan_from(text):
    """Return the Plan of a file's text.

    Raises ValueError with one sentence that says what is wrong and what is expected.
    """
    try:
        return _plan_from(text)
    except ValueError as error:
        if len(message := str(error)) > MAX_MESSAGE:
            raise ValueError(f"{message[: MAX_MESSAGE - 200]} ... {message[-150:]}") from None
        raise


def _plan_from(text):
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also numbers and nests that are too long
        raise ValueError(
            f"this is no TOML: {error}. `python -m pi2zero plan --example` prints a file to "
            "begin with."
        ) from None
    given = [name for name in KINDS if name in tables]
    if len(given) != 1:
        present = " and ".join(given) or "none"
        raise ValueError(
            f"one of [model] (a transformer) and [images] (convolutions) is expected; "
            f"there is {present}."
        )
    required = ["global_batch", given[0], "machine"]
    _check_keys("the file", tables, required, required)
    model, machine = _build(KINDS[given[0]], given[0], tables), _build(Machine, "machine", tables)
    return plan(model, machine, tables["global_batch"])


def _build(make, name, tables):
    """Return make(**the table's values)."""
    table = tables[name]
    if not isinstance(table, dict):
        raise ValueError(f"{name}: a table, [{name}], with a line for each value; got {table!r}.")
    known = inspect.signature(make).parameters
    required = [key for key, parameter in known.items() if parameter.default is parameter.empty]
    _check_keys(f"[{name}]", table, known, required)
    try:
        return make(**table)
    except TypeError as error:
        raise ValueError(f"[{name}]: {error}.") from None


def _check_keys(where, table, known, required):
    for key in table:
        if key not in known:
            if RENAMED.get(key) in known:
                raise ValueError(f"{where}: {key!r} is now called {RENAMED[key]!r}.")
            raise ValueError(f"{where}: {key!r} is unknown; there are {', '.join(known)}.")
    for key in required:
        if key not in table:
            raise ValueError(f"{where}: {key!r} is missing.")
