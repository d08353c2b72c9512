#!/usr/bin/env python
r"""Train while workers come and go: Horovod's elastic mode, with the network of train_single.py.

echo "localhost:1" > hosts.txt
printf '#!/bin/sh\ncat hosts.txt\n' > discover.sh; chmod +x discover.sh
horovodrun --gloo --network-interface lo -np 1 --min-np 1 --max-np 2 \
    --host-discovery-script ./discover.sh python scripts/elastic_horovod.py --steps 60
echo "localhost:2" > hosts.txt          (in another terminal, while it runs: a second worker joins)
"""

from common import digits, number, option, parser_of

parser = parser_of(__doc__)
option(parser, "--steps", number(int, 1), 60, "of training")
option(parser, "--pause", number(float, 0), 0.2, "s to wait after a step")
args = parser.parse_args()  # before torch is imported, which takes seconds

import time

import torch
import torch.nn.functional as F
from torch import nn

try:
    import horovod.torch as hvd
except ImportError as error:
    raise SystemExit(f"Horovod is not there ({error}). Run: make horovod") from None


def main():
    hvd.init()
    torch.manual_seed(0)
    images, labels = digits()[0].tensors
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    @hvd.elastic.run  # after a change of the world: init and state.sync(), then this function again
    def train(state):
        print(f"rank {hvd.rank()} of {hvd.size()} starts at step {state.step}", flush=True)
        while state.step < args.steps:
            batch = torch.arange(64 * state.step, 64 * (state.step + 1)) % len(images)
            share = batch[hvd.rank() :: hvd.size()]  # the global batch stays 64
            # The mean over the workers is the batch's mean, also where their shares differ.
            loss = F.cross_entropy(model(images[share]), labels[share], reduction="sum")
            loss *= hvd.size() / len(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            mean = hvd.allreduce(loss.detach()).item()
            if hvd.rank() == 0:
                print(f"step {state.step} workers {hvd.size()} loss {mean:.4f}", flush=True)
            time.sleep(args.pause)
            state.step += 1
            state.commit()  # a new worker gets this state; the world changes only here

    train(hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0))


if __name__ == "__main__":
    main()
