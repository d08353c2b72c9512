#!/usr/bin/env python
"""Train a small Keras network to read handwritten digits, on several ranks with Horovod.

mpirun -n 2 python scripts/train_keras.py --epochs 5
python scripts/train_keras.py --epochs 5              (one rank: the serial program)

Keras 3 runs on torch here. Its optimizer is not a torch optimizer, so hvd.DistributedOptimizer
does not fit; train_step averages the gradients itself, all of them in one call.
"""

import os

import common

os.environ["KERAS_BACKEND"] = "torch"  # before keras is imported
parser = common.options(__doc__, checkpoint=False)
args = common.parse(parser)  # before torch is imported, which takes seconds

import keras
import torch
from torch.utils.data import DataLoader, DistributedSampler

from pi2zero.ranks import gpus

try:
    import horovod.torch as hvd
except ImportError as error:
    raise SystemExit(f"Horovod is not there ({error}). Run: make horovod") from None


class DataParallel(keras.Sequential):
    """A Sequential model whose `fit` averages the gradients over the ranks in every step."""

    def train_step(self, data):
        images, labels = data
        self.zero_grad()
        loss = self.compute_loss(y=labels, y_pred=self(images, training=True))
        loss.backward()
        weights = self.trainable_weights
        gradients = [weight.value.grad for weight in weights]
        gradients = hvd.grouped_allreduce(gradients)  # the mean, in one message
        with torch.no_grad():
            self.optimizer.apply(gradients, weights)
            self._loss_tracker.update_state(hvd.allreduce(loss.detach()))
        return {"loss": self._loss_tracker.result()}


def main():
    hvd.init()
    with keras.device(gpus.for_horovod(hvd)):  # by default Keras takes the first GPU on every rank
        train(hvd.rank(), hvd.size())
    hvd.shutdown()


def train(rank, ranks):
    share = common.batch_share(args, ranks)
    keras.utils.set_random_seed(args.seed)

    images, test = common.digits()
    sampler = DistributedSampler(images, ranks, rank, seed=args.seed, drop_last=True)
    loader = DataLoader(images, batch_size=share, sampler=sampler, drop_last=True)

    layers = keras.layers
    model = DataParallel(
        [keras.Input((64,)), layers.Dense(128, activation="relu"), layers.Dense(10)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.SGD(args.lr, momentum=args.momentum), loss=loss)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        history = model.fit(loader, shuffle=False, verbose=0).history
        if rank == 0:
            correct = common.accuracy(model, test)
            common.report(args, epoch=epoch + 1, loss=float(history["loss"][0]), accuracy=correct)
    prints = hvd.allgather_object(common.fingerprint(model))
    common.check(len(set(prints)) == 1, f"The parameters of rank {rank} differ from another rank's")
    if rank == 0:
        common.report(args, parameters=prints[0])


if __name__ == "__main__":
    main()
