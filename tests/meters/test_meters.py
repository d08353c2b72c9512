"""Meters: spans on the clock that ranks share, bytes as they are handed to MPI."""

import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from pi2zero import meters
from pi2zero.meters import memory, traffic
from pi2zero.mpi import mpi_env


def test_a_span_is_as_long_as_its_block_and_on_the_monotonic_clock():
    timeline = meters.Timeline()
    before = time.monotonic()
    with timeline("compute"):
        time.sleep(0.02)
    after = time.monotonic()
    [(name, start, stop)] = timeline.spans
    assert name == "compute"
    assert before <= start < stop <= after
    assert stop - start >= 0.02


def test_spans_come_in_the_order_in_which_they_end_and_add_up_by_name():
    timeline = meters.Timeline()
    for start in (1.0, 5.0):
        timeline.add("wait", start, start + 2)
    timeline.add("compute", 3.0, 3.5)
    assert [name for name, _, _ in timeline.spans] == ["wait", "wait", "compute"]
    assert timeline.seconds() == {"wait": 4.0, "compute": 0.5}
    timeline.clear()
    assert timeline.spans == [] and timeline.seconds() == {}


def test_a_block_that_raises_is_recorded_and_still_raises():
    timeline = meters.Timeline()
    with pytest.raises(ZeroDivisionError), timeline("compute"):
        1 / 0  # noqa: B018
    assert [name for name, _, _ in timeline.spans] == ["compute"]


def test_a_span_cannot_stop_before_it_starts():
    with pytest.raises(ValueError, match="stops 1 s before it starts"):
        meters.Timeline().add("wait", 3.0, 2.0)


def test_traffic_counts_bytes_and_hands_the_buffer_through():
    traffic, array = meters.Traffic(), np.zeros(10, "float32")
    assert traffic.out(array) is array and traffic.into(array[:3]).base is array
    traffic.out(bytearray(7))
    assert (traffic.sent, traffic.received, traffic.total) == (47, 12, 59)


def test_traffic_counts_torch_tensors():
    torch = pytest.importorskip("torch")
    traffic = meters.Traffic()
    traffic.out(torch.zeros(5, dtype=torch.bfloat16))
    assert traffic.sent == 10


def test_traffic_says_what_it_wants():
    with pytest.raises(TypeError, match=r"a float has no memory to send; pass an array"):
        meters.Traffic().out(1.5)


ONE_CLOCK = """
from mpi4py import MPI
import time
from pi2zero.meters import Timeline
comm = MPI.COMM_WORLD
timeline = Timeline()
with timeline("wait"):
    comm.Barrier()
if comm.rank == 1:
    with timeline("compute"):
        time.sleep(0.05)
    comm.send(None, dest=0)
else:
    with timeline("wait"):
        comm.recv(source=1)
spans = comm.gather(timeline.spans)
if comm.rank == 0:
    (_, _, met_0), (_, _, got) = spans[0]
    (_, _, met_1), (_, began, slept) = spans[1]
    # nobody leaves a barrier before the other has entered it; a message arrives after it was sent
    assert spans[0][0][1] <= met_1 and spans[1][0][1] <= met_0
    assert began + 0.05 <= slept <= got
    print("one clock")
"""


def test_ranks_of_a_host_share_the_clock():
    mpi_env()
    command = ["mpirun", "-n", "2", sys.executable, "-c", ONE_CLOCK]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "one clock", done.stderr


def test_a_gpu_is_waited_for_before_the_clock_is_read(monkeypatch):
    """Pretended: kernels run after the call that started them, so `now` waits for them first."""
    order = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: order.append("synchronize"))
    monkeypatch.setattr(traffic.time, "monotonic", lambda: order.append("clock") or 1.5)
    assert meters.now() == 1.5 and order == ["synchronize", "clock"]


def test_the_bytes_of_a_gpu_are_torchs_allocated_reserved_and_peak(monkeypatch):
    asked = []
    numbers = {"memory_allocated": 30, "memory_reserved": 50, "max_memory_allocated": 40}
    for name in ("synchronize", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda name=name: asked.append(name))
    for name, number in numbers.items():
        monkeypatch.setattr(torch.cuda, name, lambda number=number: number)
    assert memory.gpu_memory() == {"allocated": 30, "reserved": 50, "peak": 40}
    assert asked == ["synchronize", "reset_peak_memory_stats"]  # the next peak is counted from here
