"""Data-parallel training at scale: step time from computing, latency and bandwidth; published points.

A step computes for c seconds on every rank and sums g bytes of gradients over p ranks in a ring (costs.collectives). A part
of the ring's time hides behind computing: backward makes the last layers' gradients first, and they can travel while it goes on.
The slowest rank decides: if the computing times of p ranks scatter normally with standard deviation s, the slowest of them
takes about c + s sqrt(2 ln p) (an upper bound on the expected largest of p normal values; e.g. Boucheron, Lugosi, Massart,
"Concentration Inequalities", 2013, section 2.5).
"""

from dataclasses import dataclass

import numpy as np

from pi2zero.costs import valid
from pi2zero.costs.collectives import ring_allreduce_seconds

__all__ = [
    "IMAGENET_RECORDS",
    "PUBLISHED",
    "Published",
    "Record",
    "allowed_beta",
    "rate_efficiency",
    "scaling_efficiency",
    "step_seconds",
    "throughput",
]


def step_seconds(ranks, compute, nbytes, alpha, beta, overlap=0.0, scatter=0.0):
    """Time of one data-parallel step in s: compute + scatter sqrt(2 ln p) + the part of the ring that is not hidden.

    compute: s of forward, backward and update on one rank. nbytes: gradients, bytes. alpha: s a message; beta: s per byte.
    overlap: share 0..1 of the *computing* time during which the ring may run (0: it starts after backward; 2/3 is about the
    share of backward). scatter: standard deviation of a rank's computing time, s. All but ranks may be 0 except compute.
    """
    p, c = valid.ranks(ranks), valid.positive("compute", compute)
    share, s = valid.fraction("overlap", overlap), valid.not_negative("scatter", scatter)
    ring = ring_allreduce_seconds(nbytes, p, alpha, beta)
    return c + s * np.sqrt(2 * np.log(p)) + np.maximum(0, ring - share * c)


def throughput(ranks, batch_size, compute, nbytes, alpha, beta, overlap=0.0, scatter=0.0):
    """Samples per s over all ranks. batch_size: samples in a step on each rank (weak scaling). See step_seconds."""
    step = step_seconds(ranks, compute, nbytes, alpha, beta, overlap, scatter)
    return valid.ranks(ranks) * valid.positive("batch_size", batch_size) / step


def scaling_efficiency(ranks, compute, nbytes, alpha, beta, overlap=0.0, scatter=0.0):
    """Weak scaling by the model: computing time / step time, 0..1. See step_seconds."""
    return valid.positive("compute", compute) / step_seconds(ranks, compute, nbytes, alpha, beta, overlap, scatter)


def rate_efficiency(ranks, rate, base_rate, base_ranks=1):
    """Measured: (rate / base_rate) / (ranks / base_ranks). Rates in samples per s; 1 is perfect, above 1 wants an explanation."""
    grew = valid.positive("rate", rate) / valid.positive("base_rate", base_rate)
    return grew * valid.ranks(base_ranks) / valid.ranks(ranks)


def allowed_beta(ranks, compute, nbytes, alpha, wanted, overlap=0.0):
    """The largest beta (s per byte) at which the model still gives the wanted efficiency; 1/beta is the bandwidth to ask for.

    wanted: above 0, at most 1. Raises ValueError where latency alone already costs more.
    """
    share = valid.fraction("overlap", overlap)
    if not 0 < wanted <= 1:
        raise ValueError(f"wanted: an efficiency above 0 and at most 1; got {wanted!r}.")
    p, c, n = valid.ranks(ranks), valid.positive("compute", compute), valid.positive("nbytes", nbytes)
    if np.any(p < 2):
        raise ValueError("ranks: 2 or more; one rank sends nothing, any bandwidth will do.")
    room = c * (1 / wanted - 1 + share) - 2 * (p - 1) * valid.not_negative("alpha", alpha)
    if np.any(room <= 0):
        raise ValueError(f"wanted: {wanted:.0%} cannot be had: latency alone takes longer. Give smaller alpha, or fewer ranks.")
    return room / (2 * (p - 1) / p * n)


@dataclass(frozen=True)
class Published:
    """What others measured: ranks, efficiency (0..1), rate in images/s (None: not stated), and where it stands."""

    name: str
    ranks: int
    efficiency: float | None
    rate: float | None
    source: str


OSU = "D. K. Panda et al., Ohio State University, talks on high-performance deep learning"
HOROVOD = "Horovod documentation, Benchmarks: 128 servers with 4 Pascal GPUs, RoCE 25 Gbit/s"
PUHTI = "M. Sjöberg (CSC), github.com/mvsjober/ml-benchmarks, results.md: Puhti, DDP, synthetic, PyTorch 1.11"
DAINT = "E. Bugliarello, github.com/e-bug/distributed-tensorflow-benchmarks: Piz Daint, P100, synthetic"
PUBLISHED = (
    Published("ResNet-50, V100 pair", 2, 632.8 / 334.0 / 2, 632.8, OSU),
    Published("ResNet-50, Puhti V100", 4, 1217.10 / 325.95 / 4, 1217.10, PUHTI),
    Published("ResNet-50, Puhti V100", 8, 2420.71 / 325.95 / 8, 2420.71, PUHTI),
    Published("Piz Daint P100", 2, 264.57 / 138.23 / 2, 264.57, DAINT),
    Published("Piz Daint P100", 4, 523.38 / 138.23 / 4, 523.38, DAINT),
    Published("Piz Daint P100", 8, 1018.18 / 138.23 / 8, 1018.18, DAINT),
    Published("ResNet-101, Horovod", 512, 0.90, None, HOROVOD),
    Published("VGG-16, Horovod", 512, 0.68, None, HOROVOD),
    Published("ResNet-50, Summit", 1536, 1.28e6 / 3 / 1536 / 334.0, 1.28e6 / 3, OSU + "; efficiency against 334.0 images/s"),
    Published("ResNet-50, Frontera (CPU)", 2048, None, 260_000.0, OSU + "; one-node rate not stated"),
    Published("Hy-Fi (hybrid parallel)", 2048, 0.945, None, OSU),
)


@dataclass(frozen=True)
class Record:
    """One record of training ResNet-50 on ImageNet: who, year, processors, global batch, minutes, where it stands."""

    who: str
    year: int
    processors: int
    kind: str
    batch_size: int
    minutes: float
    source: str


IMAGENET_RECORDS = (
    Record("He", 2016, 8, "P100", 256, 29 * 60, "arXiv:1512.03385; 29 h by NVIDIA's developer blog on arXiv:1706.02677"),
    Record("Goyal", 2017, 256, "P100", 8_192, 60, "arXiv:1706.02677"),
    Record("You", 2017, 2_048, "KNL", 32_768, 20, "arXiv:1709.05011"),
    Record("Akiba", 2017, 1_024, "P100", 32_768, 15, "arXiv:1711.04325"),
    Record("Jia", 2018, 2_048, "P40", 65_536, 6.6, "arXiv:1807.11205"),
    Record("Yamazaki", 2019, 2_048, "V100", 81_920, 74.7 / 60, "arXiv:1903.12650"),
)
