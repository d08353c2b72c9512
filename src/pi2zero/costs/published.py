"""Figures that others published, each with what has to be known before it may be compared with another one.

Read again at their sources in 2026. What a source does not say is None here, and whoever needs it is told so. The talks
of Ohio State University could not be read again: their rows are as the talks' readers quote them.
"""

from dataclasses import dataclass

__all__ = [
    "IMAGENET_RECORDS",
    "PARAMETERS",
    "PUBLISHED",
    "Published",
    "Record",
    "compare_rates",
    "published_efficiency",
    "ring_inputs",
]

# Trainable parameters of the networks below, by the papers and the model pages of torchvision.
PARAMETERS = {"ResNet-50": 25.6e6, "ResNet-101": 44.5e6, "Inception V3": 27.2e6, "VGG-16": 138.4e6}

RING = "all-reduce"  # of all gradients, over all ranks
SERVERS = "parameter servers"
REPLICATED = (
    "distributed_replicated"  # TensorFlow's: variables on each worker, gradients through servers
)
HYBRID = "hybrid parallel"
IMAGES = "images/s, synthetic data"
REAL = "images/s, ImageNet"


@dataclass(frozen=True)
class Published:
    """One published figure. None: the source does not say it.

    name: in pictures. batch_size: images on each rank and step. exchange: how gradients are summed. measured: what the
    value is, with its unit. ranks: processes that compute. stated: an efficiency (0..1) that the source itself gives.
    """

    name: str
    network: str | None
    batch_size: int | None
    hardware: str
    exchange: str
    measured: str
    ranks: int
    value: float | None
    source: str
    stated: float | None = None


def _series(name, network, batch_size, hardware, exchange, measured, source, values):
    same = name, network, batch_size, hardware, exchange, measured
    return tuple(Published(*same, ranks, value, source) for ranks, value in values.items())


OSU = "D. K. Panda et al., Ohio State University, talks on high-performance deep learning"
HOROVOD = "Horovod, docs/benchmarks.rst: 128 servers with 4 GPUs each; the text gives efficiencies, no rates"
PUHTI = "M. Sjöberg (CSC), github.com/mvsjober/ml-benchmarks, results.md of 2022-05-18; batch: pytorch_visionmodel_ddp.py"
DAINT = "E. Bugliarello, Distributed TensorFlow: a performance evaluation (2017): each row has its best number of servers"
GOOGLE = "TensorFlow, performance/benchmarks (2017); efficiencies on 8 GPUs again in Google's developer blog of 2017-05-10"
FRONTERA = "A. Jain et al., DLS workshop at SC19: 2,048 nodes, four processes a node; a one-node rate is not in the abstract"

PUBLISHED = (
    *_series(
        "ResNet-50, V100 pair", "ResNet-50", None, "V100", RING, IMAGES, OSU, {1: 334.0, 2: 632.8}
    ),
    *_series(
        "ResNet-50, Puhti, DDP",
        "ResNet-50",
        32,
        "V100, Puhti",
        RING,
        IMAGES,
        PUHTI,
        {1: 325.95, 4: 1217.10, 8: 2420.71},
    ),
    *_series(
        "Inception V3, Piz Daint, servers",
        "Inception V3",
        64,
        "P100, Piz Daint",
        SERVERS,
        IMAGES,
        DAINT,
        {1: 138.23, 2: 264.57, 8: 1018.18, 16: 2001.00, 32: 3840.35, 64: 7118.31, 128: 9219.70},
    ),
    Published(
        "Inception V3, Piz Daint, replicated",
        "Inception V3",
        64,
        "P100, Piz Daint",
        REPLICATED,
        IMAGES,
        4,
        523.38,
        DAINT,
    ),
    *_series(
        "Inception V3, DGX-1",
        "Inception V3",
        64,
        "P100, DGX-1",
        SERVERS,
        IMAGES,
        GOOGLE,
        {1: 142.0, 2: 284.0, 4: 569.0, 8: 1131.0},
    ),
    *_series(
        "ResNet-50, DGX-1",
        "ResNet-50",
        64,
        "P100, DGX-1",
        SERVERS,
        IMAGES,
        GOOGLE,
        {1: 219.0, 2: 422.0, 4: 852.0, 8: 1734.0},
    ),
    *(
        Published(
            f"{network}, Horovod",
            network,
            None,
            "Pascal GPUs, 25 Gbit/s",
            RING,
            IMAGES,
            512,
            None,
            HOROVOD,
            stated,
        )
        for network, stated in (("ResNet-101", 0.90), ("Inception V3", 0.90), ("VGG-16", 0.68))
    ),
    Published(
        "ResNet-50, Summit",
        "ResNet-50",
        None,
        "V100, Summit",
        RING,
        REAL,
        1536,
        1.28e6 / 3,
        OSU + ": 3 s an epoch, to a second",
    ),
    Published(
        "ResNet-50, Frontera",
        "ResNet-50",
        None,
        "Xeon, Frontera",
        RING,
        "images/s",
        8192,
        250_000.0,
        FRONTERA,
    ),
    Published("Hy-Fi", None, None, "V100", HYBRID, IMAGES, 2048, None, OSU, 0.945),
)

_FIELDS = {
    "network": "network",
    "batch_size": "batch",
    "hardware": "hardware",
    "exchange": "exchange",
    "measured": "measured",
}


def compare_rates(point, base):
    """Efficiency of one published figure against another one of the same study: (value / value) / (ranks / ranks).

    Raises ValueError where they are not alike in network, batch, hardware, exchange of gradients and what was measured.
    """
    unlike = [
        f"{word} ({getattr(point, field)} and {getattr(base, field)})"
        for field, word in _FIELDS.items()
        if getattr(point, field) != getattr(base, field)
    ]
    if unlike:
        raise ValueError(
            f"{point.name} and {base.name} differ in {', '.join(unlike)}: compare like with like."
        )
    if point.value is None or base.value is None:
        raise ValueError(f"{point.name}: the source gives no rate.")
    return point.value / base.value * base.ranks / point.ranks


def published_efficiency(point):
    """What the source states, else the rate against the same study's own rate on one rank; None where there is no such base."""
    if point.stated is not None:
        return point.stated
    alike = [
        other
        for other in PUBLISHED
        if all(getattr(other, field) == getattr(point, field) for field in _FIELDS)
    ]
    base = min(alike, key=lambda other: other.ranks)
    return compare_rates(point, base) if base.ranks == 1 and point.ranks > 1 else None


def ring_inputs(point):
    """compute (s) and nbytes for `step_seconds`, of the study's own network, batch and one-rank rate, or ValueError.

    The model is for a ring all-reduce of 4-byte gradients. It says nothing about parameter servers, nor about what is not stated.
    """
    if point.exchange != RING:
        raise ValueError(
            f"{point.name}: {point.exchange}, not a ring; the formula is not made for it."
        )
    if point.batch_size is None:
        raise ValueError(
            f"{point.name}: the source does not state the batch, so nobody knows how long a step computes."
        )
    alone = next((p for p in PUBLISHED if p.name == point.name and p.ranks == 1), None)
    if alone is None:
        raise ValueError(
            f"{point.name}: the source gives no rate on one rank, so nobody knows how long a step computes."
        )
    return {"compute": point.batch_size / alone.value, "nbytes": 4 * PARAMETERS[point.network]}


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
    Record(
        "He",
        2016,
        8,
        "P100",
        256,
        29 * 60,
        "arXiv:1512.03385; 29 h by NVIDIA's developer blog on arXiv:1706.02677",
    ),
    Record("Goyal", 2017, 256, "P100", 8_192, 60, "arXiv:1706.02677"),
    Record("You", 2017, 2_048, "KNL", 32_768, 20, "arXiv:1709.05011"),
    Record("Akiba", 2017, 1_024, "P100", 32_768, 15, "arXiv:1711.04325"),
    Record("Jia", 2018, 2_048, "P40", 65_536, 6.6, "arXiv:1807.11205"),
    Record("Yamazaki", 2019, 2_048, "V100", 81_920, 74.7 / 60, "arXiv:1903.12650"),
)
