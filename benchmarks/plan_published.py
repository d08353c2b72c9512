"""The planner's figures beside published ones: inputs, assumptions, what comes out, and why it
differs. Pure; for bench_plan.py.

Sources: Megatron: D. Narayanan et al., SC21, arXiv:2104.04473, table 1. Korthikanti:
arXiv:2205.05198, tables 3 and 5. MT-NLG: S. Smith et al., arXiv:2201.11990, section 2.4. GEMS,
Hy-Fi, Summit, Frontera: costs.PUBLISHED, and talks of Ohio State University (their hours). What a
source does not say is assumed here, in the open; what could not be read again, too.
"""

from typing import NamedTuple

from pi2zero import costs

PEAK = 312e12  # A100, bf16 with fp32 sums
# Share of the peak that large products reach, with what stands between them. Chosen once, for
# Korthikanti's 175 B.
REACHED = 0.63
SEQUENCE, WORDS = 2048, 51_200


def dgx(ranks, memory=80e9):
    """DGX A100s: 8 GPUs, NVLink of 300 GB/s a direction, one HDR InfiniBand of 25 GB/s a GPU; 80 %
    of both reached.
    """
    return costs.Machine(
        ranks,
        8,
        memory,
        REACHED * PEAK,
        intra_node_bandwidth=240e9,
        inter_node_bandwidth=20e9,
        latency=5e-6,
        optimizer_bandwidth=1.6e12,
    )


# layers, width, heads, tensor, pipeline, chunks, GPUs, batch, published share of the peak (model
# and recomputed operations).
# Chunks: the table says "interleaved", not how often. Assumed: the fewest, at least two, that cut a
# rank's layers evenly.
MEGATRON = {
    "1.7 B": (24, 2304, 24, 1, 1, 1, 32, 512, 0.44),
    "3.6 B": (30, 3072, 32, 2, 1, 1, 64, 512, 0.44),
    "7.5 B": (36, 4096, 32, 4, 1, 1, 128, 512, 0.46),
    "18.4 B": (40, 6144, 48, 8, 1, 1, 256, 1024, 0.43),
    "39.1 B": (48, 8192, 64, 8, 2, 2, 512, 1536, 0.44),
    "76.1 B": (60, 10_240, 80, 8, 4, 3, 1024, 1792, 0.45),
    "145.6 B": (80, 12_288, 96, 8, 8, 2, 1536, 2304, 0.47),
    "310.1 B": (96, 16_384, 128, 8, 16, 2, 1920, 2160, 0.50),
    "529.6 B": (105, 20_480, 128, 8, 35, 3, 2520, 2520, 0.52),
    "1008 B": (128, 25_600, 160, 8, 64, 2, 3072, 3072, 0.52),
}
# layers, width, heads, pipeline, chunks, GPUs, batch, micro, published seconds: all recomputed
KORTHIKANTI = {
    "22 B": (48, 6144, 64, 1, 1, 8, 4, 4, 1.42),
    "175 B": (96, 12_288, 96, 8, 3, 64, 64, 1, 18.13),
    "530 B": (105, 20_480, 128, 35, 3, 280, 280, 1, 49.05),
    "1 T": (128, 25_600, 160, 64, 1, 512, 512, 1, 94.42),
}
# The same four models in the same table without full recomputing (sequence parallelism, attention
# alone made again): seconds
PRESENT_WORK = {"22 B": 1.10, "175 B": 13.75, "530 B": 37.83, "1 T": 71.49}
# and the share of the peak that the table gives for it: the model's operations only
PRESENT_SHARE = {"22 B": 0.415, "175 B": 0.514, "530 B": 0.560, "1 T": 0.563}
# GPUs, published seconds of 1,920 samples, published operations/s of a GPU: 105 layers, tensor 8,
# pipeline 35
MT_NLG = {
    "280 servers": (2240, 60.1, 126e12),
    "350 servers": (2800, 50.2, 121e12),
    "420 servers": (3360, 44.4, 113e12),
}


def gpt(layers, width, heads):
    return costs.transformer(
        layers,
        width,
        heads,
        WORDS,
        SEQUENCE,
        attention="standard",
        dropout=True,
        tied_embeddings=True,
    )


def hardware_share(model, layout, machine, batch):
    """As Megatron counts: the operations that are done, recomputed ones among them, of the peak."""
    again = sum(layer.flops for layer in model.layers[1:-1]) / model.flops
    return (1 + again) * costs.utilisation(model, layout, machine, batch, PEAK)


class Run(NamedTuple):
    """A published run beside the planner. published, predicted: s of a step, or a share of the
    peak. held: GB of the fullest rank.

    inputs: a cell for each of INPUTS. share: of the peak, the model's operations only (model FLOPs
    utilisation), published (by arithmetic from `published`) and predicted (costs.utilisation).
    """

    name: str
    published: float
    predicted: float
    held: float
    inputs: tuple
    share: tuple


INPUTS = (
    "layers",
    "width",
    "heads",
    "GPUs",
    "data x tensor x pipeline",
    "schedule",
    "batch",
    "micro",
)


def run(name, shape, layout, batch, published, seconds=True):
    """The Run of a model of that shape (layers, width, heads); published: seconds, or the share of
    the peak with recomputing.
    """
    model, machine = gpt(*shape), dgx(layout.ranks)
    predicted = (
        total(model, layout, machine, batch)
        if seconds
        else hardware_share(model, layout, machine, batch)
    )
    ours = costs.utilisation(model, layout, machine, batch, PEAK)
    theirs = (
        batch * model.flops / (layout.ranks * PEAK * published)
        if seconds
        else published * ours / predicted
    )
    schedule = (
        ""
        if layout.pipeline == 1
        else f"{layout.schedule}{f' x {layout.chunks}' if layout.chunks > 1 else ''}"
    )
    split = f"{layout.data} x {layout.tensor} x {layout.pipeline}"
    inputs = *shape, layout.ranks, split, schedule, batch, layout.micro_batch
    return Run(name, published, predicted, held_gb(model, layout, batch), inputs, (theirs, ours))


def megatron_rows():
    """Table 1, interleaved.

    Assumed: one sample a micro-batch (4 without a pipeline), how often stages are cut.
    """
    for name, (layers, width, heads, t, p, chunks, gpus, batch, published) in MEGATRON.items():
        schedule = "interleaved" if chunks > 1 else "1f1b"
        ways = {"micro_batch": 4 if p == 1 else 1, "schedule": schedule, "chunks": chunks}
        layout = costs.Layout(
            gpus // t // p, t, p, **ways, recompute="full", sequence_parallel=False
        )
        yield run(name, (layers, width, heads), layout, batch, published, seconds=False)


def korthikanti_rows():
    for name, (
        layers,
        width,
        heads,
        p,
        chunks,
        gpus,
        batch,
        micro,
        published,
    ) in KORTHIKANTI.items():
        schedule = "interleaved" if chunks > 1 else "1f1b"
        layout = costs.Layout(
            gpus // 8 // p,
            8,
            p,
            micro_batch=micro,
            schedule=schedule,
            chunks=chunks,
            recompute="full",
        )
        yield run(name, (layers, width, heads), layout, batch, published)


def mt_nlg_rows():
    for name, (gpus, published, _) in MT_NLG.items():
        layout = costs.Layout(gpus // 280, 8, 35, recompute="full", sequence_parallel=False)
        yield run(name, (105, 20_480, 128), layout, 1920, published)


def agreement_rows():
    """(what, by its source, by arithmetic from other published figures): do the figures agree among
    themselves?

    No planner: operations of a step over GPUs, peak and seconds.
    """
    share = {}
    for name, (layers, width, heads, _, _, gpus, batch, _, recomputed) in KORTHIKANTI.items():
        step = batch * gpt(layers, width, heads).flops / gpus / PEAK
        share[name] = step / PRESENT_WORK[name], step / recomputed
    with_none, with_all = share["530 B"]
    yield (
        "530 B, 2,240 GPUs, share of the peak (280 GPUs by the table)",
        "54.2%",
        f"{with_none:.1%}",
    )
    yield "the same, all recomputed", "42.1%", f"{with_all:.1%}"
    yield (
        "530 B, times as fast as with all recomputed",
        f"{0.542 / 0.421:.2f}",
        f"{with_none / with_all:.2f}",
    )
    yield (
        "1 T of table 1, share of the peak: 502 petaFLOP/s on 3,072 GPUs",
        "52%",
        f"{502e15 / 3072 / PEAK:.0%}",
    )
    layers = gpt(105, 20_480, 128).layers
    blocks = sum(layer.flops for layer in layers[1:-1])
    done = 1920 * (4 * blocks + 3 * layers[-1].flops)  # recomputed: all but the head
    for name, (gpus, seconds, rate) in MT_NLG.items():
        yield (
            f"MT-NLG, {name}, T operations/s of a GPU",
            f"{rate / 1e12:.0f}",
            f"{done / gpus / seconds / 1e12:.0f}",
        )


def gems_rows():
    """(name, published speed-up over Basic, predicted).

    Equal stages on 4 GPUs, backward twice forward; Hybrid: 32 replicas.
    """

    def seconds(schedule, count):
        block = costs.Layer(params_replicated=1, flops=1e9, output_bytes=1)
        model = costs.Model((*[block] * 8, costs.Layer(params_replicated=1)), "image", 1, 1024)
        machine = costs.Machine(4, 4, 16e9, 1e9, 1e30, 1e30, latency=0, optimizer_bandwidth=1e30)
        return total(model, costs.Layout(pipeline=4, schedule=schedule), machine, count) / count

    basic = seconds("1f1b", 1)
    yield "MAST", 7.25 / 6.28, basic / seconds("gems", 2)
    yield "MASTER", 7.25 / 4.21, basic / seconds("gems", 64)
    yield "Hybrid on 128 GPUs", 7.25 * 60 / 27, 32 * basic / seconds("gems", 64)


def data_rows():
    """(name, published efficiency, predicted, what was assumed): data parallelism of images, on
    V100 or CPUs.
    """
    gradients = 4 * costs.PARAMETERS["ResNet-50"]
    # Summit: 3 s an epoch of 1.28 million images, against 334 images/s on one V100 (the same
    # talks); 2 x 12.5 GB/s a node of 6.
    summit = {
        "compute": 32 / 334,
        "nbytes": gradients,
        "alpha": 3e-6,
        "beta": 1 / (2 * 12.5e9 / 6),
        "overlap": 0.5,
    }
    yield (
        "Summit, 1,536 V100",
        1.28e6 / 3 / 1536 / 334,
        float(costs.scaling_efficiency(1536, **summit)),
        "batch 32 a GPU",
    )
    # Frontera: the talks give 260,000 images/s, the abstract 250,000; no rate of one node. Assumed:
    # 130 images/s a node.
    frontera = {
        "compute": 32 * 4 / 130,
        "nbytes": gradients,
        "alpha": 3e-6,
        "beta": 1 / (12.5e9 / 4),
        "overlap": 0.5,
    }
    predicted = float(costs.scaling_efficiency(8192, **frontera))
    yield (
        "Frontera, 2,048 nodes",
        260_000 / 2048 / 130,
        predicted,
        "130 images/s a node, 4 ranks on it, batch 32 each",
    )
    # Hy-Fi: neither network nor batch of the 94.5 % are in the talk. Assumed: AmoebaNet-D (18,
    # 416), 81 M parameters on 8 GPUs a
    # replica, so 256 replicas; a step of 0.5 s, and nothing that hides.
    hyfi = {"compute": 0.5, "nbytes": 4 * 81e6 / 8, "alpha": 5e-6, "beta": 1 / (12.5e9 / 4)}
    yield (
        "Hy-Fi, 2,048 V100",
        0.945,
        float(costs.scaling_efficiency(256, **hyfi)),
        "81 M parameters on 8 GPUs, a step of 0.5 s",
    )


def total(model, layout, machine, batch):
    return sum(costs.step_time(model, layout, machine, batch)[0].values())


def held_gb(model, layout, batch):
    return sum(costs.bytes_per_rank(model, layout, batch).values()) / 1e9
