"""Figures that others published, each with what has to be known before it may be compared.

Read again at their sources in 2026. What a source does not say is None here.
"""

from dataclasses import dataclass

__all__ = [
    "IMAGENET_RECORDS",
    "PARAMETERS",
    "PUBLISHED",
    "ImageNetRecord",
    "PublishedRate",
    "compare_rates",
    "published_efficiency",
    "ring_inputs",
]

# Trainable parameters of the networks below, by the papers and the model pages of torchvision.
PARAMETERS = {"ResNet-50": 25.6e6, "ResNet-101": 44.5e6, "Inception V3": 27.2e6, "VGG-16": 138.4e6}

RING = "all-reduce"  # of all gradients, over all ranks
SERVERS = "parameter servers"
# TensorFlow's distributed_replicated: variables on each worker, gradients through servers.
REPLICATED = "distributed_replicated"
HYBRID = "hybrid parallel"
IMAGES = "images/s, synthetic data"
UNSAID = "images/s"  # the source does not say whether the images were real or synthetic

TORCH, TENSORFLOW = "PyTorch", "TensorFlow"

OSU = (
    "A. Jain (Ohio State University), Distributed Deep Neural Network Training using MVAPICH2, "
    "talk at SC22"
)
HOROVOD = "Horovod, docs/benchmarks.rst: 128 servers with 4 GPUs each; the text gives efficiencies"
PUHTI = (
    "M. Sjöberg (CSC), github.com/mvsjober/ml-benchmarks, results.md of 2022-05-18; "
    "batch: pytorch_visionmodel_ddp.py"
)
DAINT = (
    "E. Bugliarello, Distributed TensorFlow: a performance evaluation (2017): "
    "each row has its best number of servers"
)
GOOGLE = (
    "TensorFlow, performance/benchmarks (2017); efficiencies on 8 GPUs again in Google's "
    "developer blog of 2017-05-10"
)
FRONTERA = (
    "A. Jain et al., DLS workshop at SC19: 2,048 nodes, four processes per node; "
    "the abstract says 250,000 images/s, the talk of 2022 says 260,000; no one-node rate"
)


@dataclass(frozen=True)
class PublishedRate:
    """One published figure. None: the source does not say it.

    name: in pictures. framework: the library that trained. batch_size: images per rank and step.
    exchange: how gradients are summed. measured: what `value` is, with its unit. ranks: processes
    that compute.
    stated: an efficiency (0..1) that the source itself gives.
    """

    name: str
    framework: str | None
    network: str | None
    batch_size: int | None
    hardware: str
    exchange: str
    measured: str
    source: str
    ranks: int
    value: float | None
    stated: float | None = None


# The first eight fields of PublishedRate, and {ranks: value}.
_STUDIES = [
    (
        *("ResNet-50, V100 pair", TORCH, "ResNet-50", 64, "V100", RING, IMAGES, OSU),
        {1: 334.0, 2: 632.8},
    ),
    (
        *("ResNet-50, Puhti, DDP", TORCH, "ResNet-50", 32, "V100, Puhti", RING, IMAGES, PUHTI),
        {1: 325.95, 4: 1217.10, 8: 2420.71},
    ),
    (
        *("Inception V3, Piz Daint, servers", TENSORFLOW),
        *("Inception V3", 64, "P100, Piz Daint", SERVERS, IMAGES, DAINT),
        {1: 138.23, 2: 264.57, 8: 1018.18, 16: 2001.00, 32: 3840.35, 64: 7118.31, 128: 9219.70},
    ),
    (
        *("Inception V3, Piz Daint, replicated", TENSORFLOW),
        *("Inception V3", 64, "P100, Piz Daint", REPLICATED, IMAGES, DAINT),
        {4: 523.38},
    ),
    (
        *("Inception V3, DGX-1", TENSORFLOW, "Inception V3", 64),
        *("P100, DGX-1", SERVERS, IMAGES, GOOGLE),
        {1: 142.0, 2: 284.0, 4: 569.0, 8: 1131.0},
    ),
    (
        *("ResNet-50, DGX-1", TENSORFLOW, "ResNet-50", 64),
        *("P100, DGX-1", SERVERS, IMAGES, GOOGLE),
        {1: 219.0, 2: 422.0, 4: 852.0, 8: 1734.0},
    ),
]
_STATED = {"ResNet-101": 0.90, "Inception V3": 0.90, "VGG-16": 0.68}  # efficiencies on 512 GPUs
_PASCAL = ("Pascal GPUs, 25 Gbit/s", RING, IMAGES, HOROVOD, 512, None)
_SUMMIT = OSU + ": 3 s per epoch, to a second"

PUBLISHED = (
    *(
        PublishedRate(*study, ranks, value)
        for *study, values in _STUDIES
        for ranks, value in values.items()
    ),
    *(
        PublishedRate(f"{net}, Horovod", TENSORFLOW, net, None, *_PASCAL, efficiency)
        for net, efficiency in _STATED.items()
    ),
    PublishedRate(
        *("ResNet-50, Summit", TENSORFLOW, "ResNet-50", None, "V100, Summit", RING, UNSAID),
        *(_SUMMIT, 1536, 1_281_167 / 3),
    ),
    PublishedRate(
        *("ResNet-50, Frontera", TENSORFLOW, "ResNet-50", None, "Xeon, Frontera", RING, UNSAID),
        *(FRONTERA, 8192, 250_000.0),
    ),
    PublishedRate("Hy-Fi", None, None, None, "V100", HYBRID, IMAGES, OSU, 2048, None, 0.945),
)

# Two rates can be compared if these are equal: field -> word in a sentence.
_COMPARED = {
    "framework": "framework",
    "network": "network",
    "batch_size": "batch",
    "hardware": "hardware",
    "exchange": "exchange",
    "measured": "measured",
}


def compare_rates(point, base):
    """Efficiency of a figure relative to another of its study: (value / value) / (ranks / ranks).

    Raises ValueError unless both have the same framework, network, batch, hardware, exchange of
    gradients and measured quantity.
    """
    different = [
        f"{word} ({getattr(point, field)} and {getattr(base, field)})"
        for field, word in _COMPARED.items()
        if getattr(point, field) != getattr(base, field)
    ]
    if different:
        raise ValueError(
            f"{point.name} and {base.name} differ in {', '.join(different)}: "
            "compare like with like."
        )
    if point.value is None or base.value is None:
        raise ValueError(f"{point.name}: the source gives no rate.")
    return point.value / base.value * base.ranks / point.ranks


def published_efficiency(point):
    """The efficiency that the source states, else the rate relative to the same study's rate on one
    rank; None where there is no such base."""
    if point.stated is not None:
        return point.stated
    alike = [
        other
        for other in PUBLISHED
        if all(getattr(other, field) == getattr(point, field) for field in _COMPARED)
    ]
    base = min(alike, key=lambda other: other.ranks)
    return compare_rates(point, base) if base.ranks == 1 and point.ranks > 1 else None


def ring_inputs(point):
    """Return compute (s) and nbytes for `step_seconds`, from the study's network, batch and rate.

    The model is for a ring all-reduce of 4-byte gradients. Raises ValueError for parameter servers,
    and where the source does not state what is needed.
    """
    if point.exchange != RING:
        raise ValueError(f"{point.name}: {point.exchange}, not a ring; the formula does not apply.")
    if point.batch_size is None:
        raise ValueError(
            f"{point.name}: the source does not state the batch, "
            "so the computing time of a step is unknown."
        )
    alone = next((p for p in PUBLISHED if p.name == point.name and p.ranks == 1), None)
    if alone is None:
        raise ValueError(
            f"{point.name}: the source gives no rate on one rank, "
            "so the computing time of a step is unknown."
        )
    return {"compute": point.batch_size / alone.value, "nbytes": 4 * PARAMETERS[point.network]}


@dataclass(frozen=True)
class ImageNetRecord:
    """One record of training ResNet-50 on ImageNet.

    batch_size: global. accuracy: top-1 on the validation images, in percent. source: of the time;
    the accuracies are those of Argonne's table of records (You: of arXiv:1807.11205).
    """

    who: str
    year: int
    processors: int
    kind: str
    batch_size: int
    minutes: float
    accuracy: float
    source: str


_HE = "arXiv:1512.03385; 29 h by NVIDIA's developer blog on arXiv:1706.02677"

IMAGENET_RECORDS = (
    ImageNetRecord("He", 2016, 8, "P100", 256, 29 * 60, 75.3, _HE),
    ImageNetRecord("Goyal", 2017, 256, "P100", 8_192, 60, 76.3, "arXiv:1706.02677"),
    ImageNetRecord("You", 2017, 2_048, "KNL", 32_768, 20, 75.4, "arXiv:1709.05011"),
    ImageNetRecord("Akiba", 2017, 1_024, "P100", 32_768, 15, 74.9, "arXiv:1711.04325"),
    ImageNetRecord("Jia", 2018, 2_048, "P40", 65_536, 6.6, 75.8, "arXiv:1807.11205"),
    ImageNetRecord("Yamazaki", 2019, 2_048, "V100", 81_920, 74.7 / 60, 75.08, "arXiv:1903.12650"),
)
