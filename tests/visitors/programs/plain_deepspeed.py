"""DeepSpeed as its users write it, without the kit. Each rank prints what a test compares."""

import os

import deepspeed
import torch

CONFIG = {
    "train_batch_size": 16,
    "optimizer": {"type": "Adam", "params": {"lr": 0.01}},
    "zero_optimization": {"stage": 1},
}


def train():
    deepspeed.init_distributed()
    torch.manual_seed(0)
    model = torch.nn.Linear(16, 1)
    engine, _, _, _ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=CONFIG
    )
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    data = torch.rand(16, 16, generator=torch.Generator().manual_seed(1))[rank::ranks]
    losses = []
    for _ in range(5):
        loss = (engine(data) - data.sum(dim=1, keepdim=True)).square().mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    place = f"rank {rank} of {ranks}, local rank {os.environ['LOCAL_RANK']}"
    print(f"{place}, loss falls: {losses[-1] < losses[0]}", flush=True)


if __name__ == "__main__":
    train()
    torch.distributed.destroy_process_group()
