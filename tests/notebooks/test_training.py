"""Cells of notebooks 04 and 04b on 1 to 4 ranks: data-parallel training equals the serial one.

Every byte and message arrives. The cells are taken from the notebooks by their ids, so what is
tested is what a learner reads.
"""

import pytest
from worlds import mpi_checks, source

pytestmark = pytest.mark.long

BY_HAND, WAITS = "04_training_by_hand", "04b_who_waits"
CELLS = """
    px-imports data network gradient-of loss-of px-bcast px-bcast-done px-plain-mean
    parallel-gradient ranks-differ-by train-with
"""
CELLS_B = "server-step ring patiently async-server async-worker asynchronous staleness"
HEAD = """
import sys
from pi2zero import meters


def start(seed=0):
    return parameters_to_vector(new_model(seed).parameters()).detach().numpy().copy()


def close(a, b, atol):
    return np.allclose(a, b, rtol=0, atol=atol)
"""
CHECKS = """
tell("weights are those of rank 0", (weights == start(0)).all())
off = {}
for n in (1, 2, 3, 29, 61, 62, 64, 1437):
    serial = gradient_of(new_model(), train_x[:n], train_y[:n])
    parallel = parallel_gradient(new_model(), train_x[:n], train_y[:n])
    off[n] = abs(parallel - serial).max()
    plain = plain_mean(new_model(), train_x[:n], train_y[:n])
    if n % comm.size == 0:
        tell(f"a plain mean is right when {n} divides", close(plain, serial, 1e-6))
    elif n < 100:  # of 1,437 images, one more or less weighs little
        tell(f"a plain mean is wrong when {n} does not divide", \
np.linalg.norm(plain - serial) > 1e-3 * np.linalg.norm(serial))
tell("gradient equals the serial one to 1e-6", \
all(difference <= 1e-6 for difference in off.values()))
serial, parallel = train_with(gradient_of, epochs=2), train_with(parallel_gradient, epochs=2)
tell("training equals the serial one to 1e-4", \
close(parallel, serial, 1e-4) and abs(serial - start()).max() > 0.05)
tell("ranks are equal to the last bit", \
(comm.bcast(parallel) == parallel).all() and ranks_differ_by(parallel) == 0)
if comm.size == 1:
    sys.exit()

mine = np.random.default_rng(comm.rank).normal(size=9610).astype("float32")
everybody = comm.allgather(mine)
updated, traffic = start(), meters.Traffic()
server_step(comm, mine.copy(), updated, traffic, lr=0.1)
tell("server_step: one update by the workers' mean", \
close(updated, start() - 0.1 * np.mean(everybody[1:], axis=0), 1e-6))
S = 4 * 9610
tell("server_step: bytes", traffic.total == (2 * S * (comm.size - 1) if comm.rank == 0 else 2 * S))
for length in (1, 2, 7, 9610):
    x, traffic = mine[:length].copy(), meters.Traffic()
    ring_allreduce(comm, x, traffic)
    tell(f"ring: sum of {length}", close(x, sum(part[:length] for part in everybody), 1e-5))
    sent = comm.allreduce(traffic.sent)
    tell(f"ring: bytes of {length}", \
sent == comm.allreduce(traffic.received) == 2 * (comm.size - 1) * 4 * length)

history, order, spans = asynchronous(lr=0.1, updates=30)
stale = staleness(order)
workers = comm.size - 1
if comm.rank == 0:
    moved = all(np.isfinite(w).all() and abs(w).max() < 10 for w in history)
    tell("asynchronous: 30 updates", len(history) == len(stale) == 30 and moved)
    bound = workers - 1 if workers == 1 else workers - 0.5
    tell("asynchronous: staleness", min(stale) >= 0 and np.mean(stale) <= bound and stale[0] == 0)
else:
    tell(None, True), tell(None, True)
tell("asynchronous: spans", {name for name, _, _ in spans} == {"compute", "communicate", "wait"})
if comm.size == 2:  # one worker is never stale: plain SGD
    expected, rng = [start()], np.random.default_rng(1)
    for _ in range(30):
        rows, twin = rng.integers(len(train_x), size=64), new_model()
        vector_to_parameters(torch.from_numpy(expected[-1]), twin.parameters())
        expected.append(expected[-1] - np.float32(0.1) * \
gradient_of(twin, train_x[rows], train_y[rows]))
    tell("asynchronous: one worker is serial", \
comm.rank == 1 or close(history[-1], expected[-1], 1e-5))
"""


WRONG = {
    "the sum instead of the mean": ("return gradient / len(x)", "return gradient"),
    "divided by the own share": ("return gradient / len(x)", "return gradient / len(mine)"),
    "the same data on all ranks": ('x[mine], y[mine], reduction="sum")', 'x, y, reduction="sum")'),
    "means of shares of unequal size": (', reduction="sum")', ") * len(x) / comm.size"),
}
FOR_EACH = """
if comm.size == 2:
    serial = gradient_of(new_model(), train_x[:61], train_y[:61])
    for name, step in STEPS.items():
        exec(step)
        ours = parallel_gradient(new_model(), train_x[:61], train_y[:61])
        tell(f"step: {name}", close(ours, serial, 1e-6))
"""


@pytest.fixture(scope="module")
def by_size():
    cells = [source(BY_HAND, cell) for cell in CELLS.split()]
    cells += [source(WAITS, cell) for cell in CELLS_B.split()]
    cells = [cell.replace("MPI.COMM_WORLD", "group") for cell in cells]
    assert any("comm = group" in cell for cell in cells)
    right = source(BY_HAND, "parallel-gradient")
    assert all(was in right for was, _ in WRONG.values())
    steps = {name: right.replace(was, becomes) for name, (was, becomes) in WRONG.items()}
    steps |= {"right": right}
    text = [*cells, HEAD, f"STEPS = {steps!r}", FOR_EACH, right, CHECKS]
    return mpi_checks([1, 2, 3, 4], "\n\n".join(text))


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_by_hand_equals_serial(by_size, n):
    found = {name: ok for name, ok in by_size[n].items() if not name.startswith("step: ")}
    assert found["gradient equals the serial one to 1e-6"]
    assert found["training equals the serial one to 1e-4"]
    assert [name for name, is_true in found.items() if not is_true] == []
    assert len(found) > (20 if n > 1 else 10)


def test_a_wrong_step_is_told_from_the_right_one(by_size):
    found = {name: ok for name, ok in by_size[2].items() if name.startswith("step: ")}
    assert found == {"step: right": True} | {f"step: {name}": False for name in WRONG}
