#!/usr/bin/env python
"""Train a small Keras network to read scikit-learn's handwritten digits, on several ranks with Horovod.

mpirun -n 2 python scripts/train_keras.py --epochs 5
python scripts/train_keras.py --epochs 5              (one rank: the serial program)

Keras 3 runs on torch here. Its optimizer is not a torch optimizer, so hvd.DistributedOptimizer does not fit; the train_step
averages the gradients itself, all of them in one call.
"""

import argparse
import hashlib
import json
import os

os.environ["KERAS_BACKEND"] = "torch"  # before keras is imported

import keras
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

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
        gradients = hvd.grouped_allreduce([weight.value.grad for weight in weights])  # the mean, in one message
        with torch.no_grad():
            self.optimizer.apply(gradients, weights)
            self._loss_tracker.update_state(hvd.allreduce(loss.detach()))
        return {"loss": self._loss_tracker.result()}


def main():
    args = parse()
    hvd.init()
    with keras.device(gpus.for_horovod(hvd)):  # of itself Keras takes the first GPU that it sees, on every rank
        train(args, hvd.rank(), hvd.size())
    hvd.shutdown()


def train(args, rank, ranks):
    check(args.batch_size % ranks == 0, f"--batch-size {args.batch_size} is not a multiple of the {ranks} ranks")
    keras.utils.set_random_seed(args.seed)

    known, test = digits()
    check(args.batch_size <= len(known), f"--batch-size {args.batch_size} is too large: there are {len(known)} training images")
    sampler = DistributedSampler(known, num_replicas=ranks, rank=rank, seed=args.seed, drop_last=True)
    loader = DataLoader(known, batch_size=args.batch_size // ranks, sampler=sampler, drop_last=True)

    layers = [keras.Input((64,)), keras.layers.Dense(128, activation="relu"), keras.layers.Dense(10)]
    model = DataParallel(layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.SGD(args.lr, momentum=args.momentum), loss=loss)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        seen = model.fit(loader, shuffle=False, verbose=0)
        if rank == 0:
            tell(args, epoch=epoch + 1, loss=float(seen.history["loss"][0]), accuracy=accuracy(model, test))
    prints = hvd.allgather_object(fingerprint(model))
    check(len(set(prints)) == 1, f"The parameters of rank {rank} differ from another rank's")
    if rank == 0:
        tell(args, parameters=prints[0])


def digits():
    """1,437 training and 360 test images: float32 in 0..1, shape (n, 64), and their labels 0..9."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split((images / 16).astype("float32"), labels, test_size=360, random_state=0)
    train_x, test_x, train_y, test_y = map(torch.from_numpy, parts)
    return TensorDataset(train_x, train_y), TensorDataset(test_x, test_y)


@torch.no_grad()
def accuracy(model, data):
    """The share of images that the model reads correctly."""
    images, labels = data.tensors
    return (model(images).argmax(dim=1).cpu() == labels).float().mean().item()


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
