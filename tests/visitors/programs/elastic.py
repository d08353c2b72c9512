"""One rank dies before the second barrier, once."""

import os

import torch.distributed as dist

dist.init_process_group("gloo")
rank, restarts = dist.get_rank(), os.environ["TORCHELASTIC_RESTART_COUNT"]
dist.barrier()
if rank == 1 and restarts == "0":
    os._exit(3)
dist.barrier()
os.write(1, f"rank {rank} ends after {restarts} restart\n".encode())  # in one piece
dist.destroy_process_group()
