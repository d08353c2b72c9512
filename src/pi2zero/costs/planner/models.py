"""What a model asks for, layer by layer: parameters, operations, bytes kept for backward, bytes that have to travel.

Sources: D. Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC21,
arXiv:2104.04473 (operations, the appendix); V. Korthikanti et al., "Reducing Activation Recomputation in Large Transformer
Models", MLSys 2023, arXiv:2205.05198, section 4 (bytes kept); N. Dryden et al., IPDPS 2019, arXiv:1903.06681 (halos).
"""

from dataclasses import dataclass

from pi2zero.costs.zero import PRECISIONS

__all__ = ["Layer", "Model", "convolutions", "transformer"]


@dataclass(frozen=True)
class Layer:
    """What one layer asks for; all but the parameters for one sample (a sequence, an image).

    split, whole: parameters that tensor parallelism divides, and those that each of its ranks has. operations: of the forward,
    a multiplication and an addition are two. kept, kept_whole: bytes kept for backward that it divides, and those that it
    does not (sequence parallelism does). input, output: bytes from the layer before and to the next (the head's output: to the
    loss); input is 0 where a layer is not made again. summed: bytes that tensor parallelism adds up in forward, by `sums`
    all-reduces; as many in backward. turned: bytes of keys and values, which ring attention sends round. halo: bytes that one
    neighbour in space needs, forward; as many come back.
    """

    split: float = 0
    whole: float = 0
    operations: float = 0
    kept: float = 0
    kept_whole: float = 0
    input: float = 0
    output: float = 0
    summed: float = 0
    sums: int = 0
    turned: float = 0
    halo: float = 0


@dataclass(frozen=True, eq=False)
class Model:
    """layers: in order. widest: by how much tensor parallelism can divide (heads; 1: not at all). kind: text or image.

    length: tokens of a sequence, or rows of an image. precision: of costs.zero_bytes.
    """

    layers: tuple[Layer, ...]
    kind: str
    widest: int
    length: int
    precision: str = "mixed"

    @property
    def parameters(self):
        """Of all layers, on all ranks together."""
        return sum(layer.split + layer.whole for layer in self.layers)

    @property
    def ends(self):
        """How many first and last layers stay on the first and last stage, and are not recomputed: embedding, head."""
        return (1, 1) if self.kind == "text" else (0, 1)

    @property
    def operations(self):
        """Of one sample, forward and backward, without recomputing: three times forward."""
        return 3 * sum(layer.operations for layer in self.layers)


MOST_LAYERS = 10_000


def transformer(
    layers,
    width,
    heads,
    vocabulary,
    sequence,
    precision="mixed",
    attention="blocks",
    dropout=False,
    tied=False,
    split_vocabulary=True,
):
    """A GPT of `layers` blocks: layer norm, attention, layer norm, an MLP of four times the width; embedding and head.

    attention: "blocks" (FlashAttention's way: no matrix of sequence x sequence is kept) or "matrix". dropout: its masks are kept.
    tied: the head uses the embedding's matrix (on another stage of a pipeline it has a copy). split_vocabulary: tensor
    parallelism divides both.
    """
    for name, value in {
        "layers": layers,
        "width": width,
        "heads": heads,
        "vocabulary": vocabulary,
        "sequence": sequence,
    }.items():
        _count(name, value)
    if layers > MOST_LAYERS:
        raise ValueError(f"layers: at most {MOST_LAYERS:,}, each is looked at; got {layers:,}.")
    if width % heads:
        raise ValueError(f"heads: they share the width equally; {heads} do not divide {width}.")
    if attention not in ("blocks", "matrix"):
        raise ValueError(f"attention: blocks or matrix; got {attention!r}.")
    h, s, e, mask = width, sequence, _bytes_each(precision), 1 if dropout else 0
    scores = (
        heads * s * (e + dropout * (1 + e)) if attention == "matrix" else 4 * heads
    )  # a token's; in blocks: log of its sum
    block = Layer(
        split=12 * h * h + 7 * h,
        whole=6 * h,
        operations=s * (24 * h * h + 4 * s * h),
        kept=s * (12 * h * e + scores),
        kept_whole=s * (h * (4 * e + 2 * mask) + 16),
        input=s * h * e,
        output=s * h * e,
        summed=2 * s * h * e,
        sums=2,
        turned=2 * s * h * e,
    )
    words = vocabulary * h
    embedding = Layer(
        split=words * split_vocabulary,
        whole=words * (not split_vocabulary) + s * h,
        kept_whole=s * (8 + h * mask),
        output=s * h * e,
        summed=s * h * e * split_vocabulary,
        sums=int(split_vocabulary),
    )
    logits = 4 * s * vocabulary
    head = Layer(
        split=words * split_vocabulary * (not tied),
        whole=words * (not split_vocabulary) * (not tied) + 2 * h,
        operations=2 * s * words,
        kept=logits * split_vocabulary,
        kept_whole=logits * (not split_vocabulary) + s * (2 * h * e + 8),
        output=s * vocabulary * e,
    )
    return Model((embedding, *[block] * layers, head), "text", heads, s, precision)


def convolutions(image, layers, classes, precision="mixed", norm=True):
    """A network of convolutions with a mean over the image and one linear layer at the end.

    image: [channels, rows, columns]. layers: a list of [channels, kernel, stride], padded by half the kernel. norm: batch
    normalization after each, which keeps its input; else only the rectified output is kept, which is the next one's input.
    """
    channels, rows, columns = (_count("image", value) for value in image)
    length, e, made = rows, _bytes_each(precision), []
    for place, row in enumerate(layers):
        out, kernel, stride = (_count(f"convolutions: row {place + 1}", value) for value in row)
        if kernel > min(rows, columns):
            raise ValueError(
                f"convolutions: the kernel of row {place + 1}, {kernel}, is larger than what is left of the image."
            )
        halo = (kernel // 2) * columns * channels * e
        weights, taken = kernel**2 * channels * out, channels * rows * columns * e
        rows, columns, channels = -(-rows // stride), -(-columns // stride), out
        pixels = rows * columns
        made.append(
            Layer(
                whole=weights + out * (2 if norm else 1),
                operations=2 * weights * pixels,
                kept_whole=(place == 0) * taken + pixels * out * e * (1 + norm),
                input=taken,
                output=pixels * out * e,
                halo=halo,
            )
        )
    _count("classes", classes)
    head = Layer(
        whole=(channels + 1) * classes,
        operations=2 * channels * classes,
        kept_whole=e * (channels + classes),
    )
    return Model((*made, head), "image", 1, length, precision)


def _count(name, value):
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name}: whole numbers of 1 or more; got {value!r}.")
    return value


def _bytes_each(precision):
    if precision not in PRECISIONS:
        raise ValueError(f"precision: one of {', '.join(PRECISIONS)}; got {precision!r}.")
    return PRECISIONS[precision][0]
