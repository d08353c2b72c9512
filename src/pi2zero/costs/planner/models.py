"""What a model costs layer by layer: parameters, operations, activations, bytes communicated.

Sources: D. Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM", SC21, arXiv:2104.04473 (operations, the appendix); V. Korthikanti et al., "Reducing
Activation Recomputation in Large Transformer Models", MLSys 2023, arXiv:2205.05198, section 4
(activations); N. Dryden et al., IPDPS 2019, arXiv:1903.06681 (halos).
"""

from dataclasses import dataclass

from pi2zero.costs.zero import PRECISIONS

__all__ = ["Layer", "Model", "convolutions", "transformer"]

MAX_LAYERS = 10_000


@dataclass(frozen=True)
class Layer:
    """One layer's costs. All but the parameters are for one sample (a sequence or an image).

    params_tp: parameters that tensor parallelism (TP) shards. params_replicated: those that every
        rank of a tensor-parallel group has.
    flops: operations of the forward pass; a multiplication and an addition are two.
    act_bytes_tp: activations kept for the backward pass that TP shards.
    act_bytes_replicated: those that TP does not shard, but sequence parallelism does.
    input_bytes, output_bytes: from the previous layer, to the next layer or, of the head, to the
        loss. input_bytes is 0 for a layer that is not recomputed.
    tp_allreduce_bytes, tp_allreduces: what TP all-reduces in the forward pass, and in how many
        calls. The backward pass does as much.
    ring_kv_bytes: keys and values that ring attention sends around.
    halo_bytes: what one neighbour in space needs in the forward pass; as much comes back.
    """

    params_tp: float = 0
    params_replicated: float = 0
    flops: float = 0
    act_bytes_tp: float = 0
    act_bytes_replicated: float = 0
    input_bytes: float = 0
    output_bytes: float = 0
    tp_allreduce_bytes: float = 0
    tp_allreduces: int = 0
    ring_kv_bytes: float = 0
    halo_bytes: float = 0


@dataclass(frozen=True, eq=False)
class Model:
    """layers: in order. kind: "text" or "image". precision: see costs.zero_bytes.

    max_tensor: the most ranks of a tensor-parallel group (heads; 1: TP is not possible).
    length: tokens of a sequence, or rows of an image.
    """

    layers: tuple[Layer, ...]
    kind: str
    max_tensor: int
    length: int
    precision: str = "mixed"

    @property
    def parameters(self):
        """Parameters of all layers."""
        return sum(layer.params_tp + layer.params_replicated for layer in self.layers)

    @property
    def ends(self):
        """How many first and last layers (embedding, head) are not blocks.

        They stay on the first and the last stage and are not recomputed.
        """
        return (1, 1) if self.kind == "text" else (0, 1)

    @property
    def flops(self):
        """Operations of one sample, forward and backward, without recomputation: 3 x forward."""
        return 3 * sum(layer.flops for layer in self.layers)


def transformer(
    layers,
    hidden_size,
    heads,
    vocab_size,
    sequence_length,
    precision="mixed",
    attention="flash",
    dropout=False,
    tied_embeddings=False,
    shard_vocab=True,
):
    """Return the Model of a GPT of `layers` blocks between an embedding and a head.

    A block is layer norm, attention, layer norm, and an MLP of 4 x hidden_size.
    attention: "flash" (keeps no matrix of sequence x sequence) or "standard".
    dropout: keeps its masks. shard_vocab: tensor parallelism shards the embedding and the head.
    tied_embeddings: the head uses the embedding's matrix; on another stage it has a copy.
    Raises ValueError.
    """
    sizes = {"layers": layers, "hidden_size": hidden_size, "heads": heads}
    sizes |= {"vocab_size": vocab_size, "sequence_length": sequence_length}
    for name, value in sizes.items():
        _check_count(name, value)
    if layers > MAX_LAYERS:
        raise ValueError(f"layers: at most {MAX_LAYERS:,}; got {layers:,}.")
    if hidden_size % heads:
        raise ValueError(f"heads: {heads} do not divide hidden_size, {hidden_size}.")
    if attention not in ("flash", "standard"):
        raise ValueError(f"attention: flash or standard; got {attention!r}.")
    h, s, e, mask = hidden_size, sequence_length, _bytes_per_value(precision), 1 if dropout else 0
    # Per token: standard attention keeps its scores, flash attention the logarithm of their sum.
    scores = heads * s * (e + dropout * (1 + e)) if attention == "standard" else 4 * heads
    block = Layer(
        params_tp=12 * h * h + 7 * h,
        params_replicated=6 * h,
        flops=s * (24 * h * h + 4 * s * h),
        act_bytes_tp=s * (12 * h * e + scores),
        act_bytes_replicated=s * (h * (4 * e + 2 * mask) + 16),
        input_bytes=s * h * e,
        output_bytes=s * h * e,
        tp_allreduce_bytes=2 * s * h * e,
        tp_allreduces=2,
        ring_kv_bytes=2 * s * h * e,
    )
    matrix, logits = vocab_size * h, 4 * s * vocab_size
    embedding = Layer(
        params_tp=matrix * shard_vocab,
        params_replicated=matrix * (not shard_vocab) + s * h,
        act_bytes_replicated=s * (8 + h * mask),
        output_bytes=s * h * e,
        tp_allreduce_bytes=s * h * e * shard_vocab,
        tp_allreduces=int(shard_vocab),
    )
    head = Layer(
        params_tp=matrix * shard_vocab * (not tied_embeddings),
        params_replicated=matrix * (not shard_vocab) * (not tied_embeddings) + 2 * h,
        flops=2 * s * matrix,
        act_bytes_tp=logits * shard_vocab,
        act_bytes_replicated=logits * (not shard_vocab) + s * (2 * h * e + 8),
        output_bytes=s * vocab_size * e,
    )
    return Model((embedding, *[block] * layers, head), "text", heads, s, precision)


def convolutions(image, layers, classes, precision="mixed", norm=True):
    """Return the Model of a network of convolutions, a mean over the image and a linear layer.

    image: [channels, rows, columns]. layers: a list of [channels, kernel, stride], padded by half
    the kernel. norm: batch normalization after each convolution, which keeps its input. Without it
    only the rectified output is kept, which is the next layer's input. Raises ValueError.
    """
    channels, rows, columns = (_check_count("image", value) for value in image)
    length, e, network = rows, _bytes_per_value(precision), []
    for number, row in enumerate(layers, 1):
        out, kernel, stride = (_check_count(f"layers: row {number}", value) for value in row)
        if kernel > min(rows, columns):
            raise ValueError(
                f"layers: the kernel of row {number}, {kernel}, is larger than the image there."
            )
        halo = (kernel // 2) * columns * channels * e
        weights, taken = kernel**2 * channels * out, channels * rows * columns * e
        rows, columns, channels = -(-rows // stride), -(-columns // stride), out
        pixels = rows * columns
        network.append(
            Layer(
                params_replicated=weights + out * (2 if norm else 1),
                flops=2 * weights * pixels,
                act_bytes_replicated=(number == 1) * taken + pixels * out * e * (1 + norm),
                input_bytes=taken,
                output_bytes=pixels * out * e,
                halo_bytes=halo,
            )
        )
    _check_count("classes", classes)
    head = Layer(
        params_replicated=(channels + 1) * classes,
        flops=2 * channels * classes,
        act_bytes_replicated=e * (channels + classes),
    )
    return Model((*network, head), "image", 1, length, precision)


def _check_count(name, value):
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name}: whole numbers of 1 or more; got {value!r}.")
    return value


def _bytes_per_value(precision):
    if precision not in PRECISIONS:
        raise ValueError(f"precision: one of {', '.join(PRECISIONS)}; got {precision!r}.")
    return PRECISIONS[precision][0]
