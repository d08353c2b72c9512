"""A short soak; benchmarks/bench_soak.py has 200 rounds."""

from .soak import BREAKS, rounds


def test_ten_rounds_leave_nothing_more_than_the_first(notebook):
    found = list(rounds(notebook, len(BREAKS)))
    assert [one["broken"] for one in found] == list(BREAKS)
    assert all(one["processes"] == 0 for one in found)
    kept = found[1:-1]  # in one kernel, after the first start has imported what it needs
    for what, more in {"descriptors": 2, "threads": 1, "memory": 20e6}.items():
        assert kept[-1][what] <= kept[0][what] + more, (what, [one[what] for one in kept])
