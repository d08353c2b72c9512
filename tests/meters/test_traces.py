"""A profiled step: what computes, what communicates, and when a rank only waits."""

import json
from pathlib import Path

import pytest

from pi2zero import meters
from pi2zero.meters.traces import common, gaps, union


def test_spans_that_touch_become_one():
    assert union([(5, 6), (1, 3), (2, 4), (1, 2), (6, 7)]) == [(1, 4), (5, 7)]
    assert union([]) == []


def test_gaps_and_spans_together_are_the_whole():
    spans = [(1, 2), (4, 9)]
    assert gaps(spans, (0, 10)) == [(0, 1), (2, 4), (9, 10)]
    assert union(spans + gaps(spans, (0, 10))) == [(0, 10)]
    assert gaps([], (0, 1)) == [(0, 1)]


def test_common_is_what_both_have():
    assert common([(0, 4), (6, 8)], [(3, 7)]) == [(3, 4), (6, 7)]
    assert common([(0, 1)], [(1, 2)]) == []


class Profiler:
    """Writes what torch.profiler would: (name, category, thread, ts, dur), in µs after a base."""

    def __init__(self, *events):
        keys = ("name", "cat", "tid", "ts", "dur")
        self.trace = {
            "baseTimeNanoseconds": 5_000_000_000,
            "traceEvents": [dict(zip(keys, e, strict=True), ph="X") for e in events],
        }
        self.trace["traceEvents"].append({"name": "thread_name", "ph": "M"})

    def export_chrome_trace(self, path):
        Path(path).write_text(json.dumps(self.trace))


def test_a_step_is_sorted_into_computing_communicating_and_waiting():
    step = ("step", "user_annotation", 1, 0, 100)
    forward, inner, late = (
        ("aten::linear", "cpu_op", 1, 10, 20),
        ("aten::mm", "cpu_op", 1, 12, 5),
        ("aten::mm", "cpu_op", 1, 60, 10),
    )
    sums, elsewhere = (
        ("gloo:all_reduce", "user_annotation", 7, 20, 30),
        ("aten::mm", "cpu_op", 7, 35, 5),
    )
    after = ("gloo:barrier", "user_annotation", 7, 90, 20)  # half of it beyond the step
    around = (
        "autograd::engine::evaluate_function: AccumulateGrad",
        "cpu_op",
        1,
        5,
        90,
    )  # a hook waits in it
    found = meters.activities(Profiler(around, step, forward, inner, late, sums, elsewhere, after))
    due = [
        ("compute", 10, 30),
        ("compute", 60, 70),
        ("communicate", 20, 30),
        ("wait", 30, 50),
        ("wait", 90, 100),
    ]
    assert [name for name, _, _ in found] == [name for name, _, _ in due]
    assert [t for _, *times in found for t in times] == pytest.approx(
        [5 + t / 1e6 for _, *times in due for t in times], abs=1e-9
    )


def test_what_a_gpu_says_of_the_same_blocks_is_not_counted_again():
    """With a GPU, torch writes each block of the host again, in the GPU's time (as on an H200)."""
    step, sums = (
        ("step", "user_annotation", 1, 0, 100),
        ("gloo:all_reduce", "user_annotation", 7, 20, 30),
    )
    on_gpu = (
        ("step", "gpu_user_annotation", 0, 50, 90),
        ("gloo:all_reduce", "gpu_user_annotation", 0, 60, 35),
    )
    assert meters.activities(Profiler(step, sums, *on_gpu)) == meters.activities(
        Profiler(step, sums)
    )


def test_the_block_has_to_be_there():
    with pytest.raises(ValueError, match="no block"):
        meters.activities(Profiler(("forward", "user_annotation", 1, 0, 1)))


@pytest.mark.long
def test_torch_records_what_is_read():
    torch = pytest.importorskip("torch")
    from torch.profiler import profile, record_function

    a = torch.ones(200, 200)
    with profile() as profiler, record_function("step"):
        a @ a
    found = meters.activities(profiler)
    assert {name for name, _, _ in found} == {"compute"}
    assert all(start < stop for _, start, stop in found)
