#!/usr/bin/env python
"""Train a small TensorFlow network to read handwritten digits, on several ranks with Horovod.

make tensorflow                               (once: makes .venv-tensorflow)
.venv-tensorflow/bin/mpirun -n 2 .venv-tensorflow/bin/python scripts/train_tensorflow.py --epochs 5
.venv-tensorflow/bin/python scripts/train_tensorflow.py --epochs 5    (one rank)
"""

import os

import common

parser = common.options(__doc__, checkpoint=False)
args = common.parse(parser)  # before TensorFlow is imported, which takes seconds
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow's notes about the processor

import numpy as np

try:
    import horovod.tensorflow as hvd
    import tensorflow as tf
except ImportError as error:
    missing = f"TensorFlow with Horovod is not there ({error}). Run: make tensorflow"
    raise SystemExit(missing) from None

ALONE = (
    "Each task is a world of its own here: start the ranks with mpirun (scripts/slurm/mpirun.sh), "
    "not with srun"
)


def main():
    hvd.init()
    rank, ranks = hvd.rank(), hvd.size()
    common.check(ranks > 1 or int(os.environ.get("SLURM_STEP_NUM_TASKS", 1)) == 1, ALONE)
    common.batch_share(args, ranks)
    tf.keras.utils.set_random_seed(args.seed)

    images, labels, test_images, test_labels = common.digit_arrays()
    steps = len(images) // args.batch_size
    layers = [tf.keras.layers.Dense(128, activation="relu"), tf.keras.layers.Dense(10)]
    model = tf.keras.Sequential([tf.keras.Input((64,)), *layers])
    optimizer = tf.keras.optimizers.SGD(args.lr, momentum=args.momentum)
    optimizer.build(model.trainable_variables)
    hvd.broadcast_variables(model.variables + optimizer.variables, root_rank=0)

    for epoch in range(args.epochs):
        order = np.random.default_rng([args.seed, epoch]).permutation(len(images))  # on all ranks
        total = 0.0
        for step in range(steps):
            batch = order[step * args.batch_size : (step + 1) * args.batch_size][rank::ranks]
            total += train_step(model, optimizer, images[batch], labels[batch])
        loss = hvd.allreduce(total).numpy().item() / steps
        if rank == 0:
            guesses = model(test_images).numpy().argmax(axis=1)
            correct = float((guesses == test_labels).mean())
            common.report(args, epoch=epoch + 1, loss=loss, accuracy=correct)
    prints = hvd.allgather_object(common.fingerprint(model))
    common.check(len(set(prints)) == 1, f"The parameters of rank {rank} differ from another rank's")
    if rank == 0:
        common.report(args, parameters=prints[0])
    hvd.shutdown()


@tf.function(reduce_retracing=True)
def train_step(model, optimizer, images, labels):
    """One step on this rank's images, shape (n, 64). Returns this rank's loss."""
    with tf.GradientTape() as tape:
        scores = model(images, training=True)
        losses = tf.keras.losses.sparse_categorical_crossentropy(labels, scores, from_logits=True)
        loss = tf.reduce_mean(losses)
    tape = hvd.DistributedGradientTape(tape)  # its gradient() is the mean over the ranks
    weights = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
    return loss


if __name__ == "__main__":
    main()
