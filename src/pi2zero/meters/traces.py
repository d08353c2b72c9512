"""What a rank did in a step, from torch.profiler: computing, collectives, waiting for them."""

import json
import tempfile
from pathlib import Path

__all__ = ["activities"]


def activities(profiler, mark: str = "step") -> list[tuple[str, float, float]]:
    """(name, start, stop) of what this rank did in record_function(mark), for plots.timeline.

        with profile() as profiler, record_function("step"):
            step()
        spans = activities(profiler)

    Names: "compute", torch's operations ("aten::") on the block's thread, without autograd's, which
    enclose hooks that wait; "communicate", the part of it during which gloo's threads run a
    collective; "wait", while they do and the block's thread has no operation. The rest is Python's
    time. Seconds since 1970 by the host's clock, so ranks of one host have one axis (notebook 06).
    Not for nccl, whose work is in the GPU's streams. Raises ValueError without such a block.
    """
    trace = _trace(profiler)
    # With a GPU, the trace has every block twice, the second one in the GPU's own time.
    spans = [
        event
        for event in trace["traceEvents"]
        if event["ph"] == "X" and event["cat"] != "gpu_user_annotation"
    ]
    is_block = {"cat": "user_annotation", "name": mark}
    blocks = [event for event in spans if is_block.items() <= event.items()]
    if len(blocks) != 1:
        many = f"{len(blocks)} blocks" if blocks else "no block"
        raise ValueError(
            f"the profile has {many} {mark!r}; use one: with record_function({mark!r}): ..."
        )
    (block,) = blocks
    base, inside = trace["baseTimeNanoseconds"] / 1e9, (block["ts"], block["ts"] + block["dur"])

    def times(chosen):
        these = [(event["ts"], event["ts"] + event["dur"]) for event in spans if chosen(event)]
        return common(union(these), [inside])

    thread = block["tid"]
    compute = times(lambda event: event["name"].startswith("aten::") and event["tid"] == thread)
    collectives = times(lambda event: event["name"].startswith("gloo:"))
    named = {"compute": compute, "communicate": common(collectives, compute)}
    named["wait"] = common(collectives, gaps(compute, inside))
    return [
        (name, base + start / 1e6, base + stop / 1e6)
        for name, parts in named.items()
        for start, stop in parts
    ]


def _trace(profiler) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(path))
        return json.loads(path.read_text())


def union(spans) -> list[tuple[float, float]]:
    """The same times as disjoint spans, in order."""
    joined: list[tuple[float, float]] = []
    for start, stop in sorted(spans):
        if joined and start <= joined[-1][1]:
            before = joined.pop()
            start, stop = before[0], max(before[1], stop)
        joined.append((start, stop))
    return joined


def gaps(spans, within) -> list[tuple[float, float]]:
    """What is left of `within`, (start, stop), between disjoint spans."""
    edges = [within[0], *(edge for span in spans for edge in span), within[1]]
    return list(zip(edges[::2], edges[1::2], strict=True))


def common(some, others) -> list[tuple[float, float]]:
    """The times that are in a span of both lists."""
    both = ((max(a, c), min(b, d)) for a, b in some for c, d in others)
    return [(start, stop) for start, stop in both if start < stop]
