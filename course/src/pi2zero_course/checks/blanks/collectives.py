"""The check of notebook 03's blank that stays in the notebook's kernel."""

from pi2zero_course.checks.framework.task import Blank

# bus_bandwidth(nbytes, seconds, ranks) -> bytes/s
bus_bandwidth = Blank(
    name="bus_bandwidth",
    reference=lambda n, t, p: n / t * 2 * (p - 1) / p,
    cases=[(1e6, 1e-3, 4), (1024.0, 2e-5, 2), (1e9, 0.1, 8)],
    mistakes={
        "That is the algorithm's bandwidth; times 2 (p - 1) / p.": lambda n, t, p: n / t,
        "Each rank sends (p - 1)/p of the array twice: in the reduce-scatter and in the "
        "all-gather.": 0.5,
    },
    verified="It agrees with nccl-tests' formula on 2, 4 and 8 ranks.",
)
