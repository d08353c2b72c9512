#!/usr/bin/env python
"""Train a small TensorFlow network to read scikit-learn's handwritten digits, on several ranks with Horovod.

make tensorflow                                                                    (once: makes .venv-tensorflow)
.venv-tensorflow/bin/mpirun -n 2 .venv-tensorflow/bin/python scripts/train_tensorflow.py --epochs 5
.venv-tensorflow/bin/python scripts/train_tensorflow.py --epochs 5                  (one rank: the serial program)
"""

import argparse
import hashlib
import json
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow's notes about the processor

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

try:
    import horovod.tensorflow as hvd
    import tensorflow as tf
except ImportError as error:
    raise SystemExit(f"TensorFlow with Horovod is not there ({error}). Run: make tensorflow") from None


def main():
    args = parse()
    hvd.init()
    rank, ranks = hvd.rank(), hvd.size()
    alone = ranks == 1 and int(os.environ.get("SLURM_STEP_NUM_TASKS", 1)) > 1  # srun without the MPI's own way to meet
    check(not alone, "Each task is a world of its own here: start the ranks with mpirun (scripts/slurm/mpirun.sh), not with srun")
    check(args.batch_size % ranks == 0, f"--batch-size {args.batch_size} is not a multiple of the {ranks} ranks")
    tf.keras.utils.set_random_seed(args.seed)

    (images, labels), test = digits()
    steps = len(images) // args.batch_size
    check(steps > 0, f"--batch-size {args.batch_size} is too large: there are {len(images)} training images")
    layers = [tf.keras.layers.Dense(128, activation="relu"), tf.keras.layers.Dense(10)]
    model = tf.keras.Sequential([tf.keras.Input((64,)), *layers])
    optimizer = tf.keras.optimizers.SGD(args.lr, momentum=args.momentum)
    optimizer.build(model.trainable_variables)
    hvd.broadcast_variables(model.variables + optimizer.variables, root_rank=0)

    for epoch in range(args.epochs):
        order = np.random.default_rng([args.seed, epoch]).permutation(len(images))  # the same on all ranks
        total = 0.0
        for step in range(steps):
            mine = order[step * args.batch_size : (step + 1) * args.batch_size][rank::ranks]
            total += train_step(model, optimizer, images[mine], labels[mine])
        mean = hvd.allreduce(total).numpy().item() / steps
        if rank == 0:
            tell(args, epoch=epoch + 1, loss=mean, accuracy=accuracy(model, *test))
    prints = hvd.allgather_object(fingerprint(model))
    check(len(set(prints)) == 1, f"The parameters of rank {rank} differ from another rank's")
    if rank == 0:
        tell(args, parameters=prints[0])
    hvd.shutdown()


@tf.function(reduce_retracing=True)
def train_step(model, optimizer, images, labels):
    """One step on this rank's images, shape (n, 64); returns this rank's loss. The gradients are averaged over the ranks."""
    with tf.GradientTape() as tape:
        losses = tf.keras.losses.sparse_categorical_crossentropy(labels, model(images, training=True), from_logits=True)
        loss = tf.reduce_mean(losses)
    tape = hvd.DistributedGradientTape(tape)  # its gradient() is the mean over the ranks
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True))
    return loss


def digits():
    """1,437 training and 360 test images: float32 in 0..1, shape (n, 64), and their labels 0..9."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split((images / 16).astype("float32"), labels, test_size=360, random_state=0)
    train_x, test_x, train_y, test_y = parts
    return (train_x, train_y), (test_x, test_y)


def accuracy(model, images, labels):
    """The share of images that the model reads correctly."""
    return float((model(images).numpy().argmax(axis=1) == labels).mean())


def fingerprint(model):
    """16 hex digits that differ if one bit of one parameter differs."""
    digest = hashlib.sha256()
    for weight in model.get_weights():
        digest.update(weight.tobytes())
    return digest.hexdigest()[:16]


def tell(args, **what):
    """Print one line: JSON with --json, else words."""
    words = ", ".join(f"{name} {value:.4f}" if isinstance(value, float) else f"{name} {value}" for name, value in what.items())
    print(json.dumps(what) if args.json else words, flush=True)


def check(true, message):
    """End the program with the message unless it is true."""
    if not true:
        raise SystemExit(message)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5, help="times through the training images (default: 5)")
    parser.add_argument("--batch-size", type=int, default=64, help="images in a step, over all ranks (default: 64)")
    parser.add_argument("--lr", type=float, default=0.1, help="learning rate (default: 0.1)")
    parser.add_argument("--momentum", type=float, default=0.9, help="of SGD, 0 for none (default: 0.9)")
    parser.add_argument("--seed", type=int, default=0, help="of the first weights and of the order of the images (default: 0)")
    parser.add_argument("--json", action="store_true", help="print JSON, one object a line")
    args = parser.parse_args()
    check(args.epochs >= 0 and args.batch_size >= 1, "--epochs must be at least 0 and --batch-size at least 1")
    check(args.lr > 0 and 0 <= args.momentum < 1, "--lr must be above 0 and --momentum in 0..1, without 1")
    return args


if __name__ == "__main__":
    main()
