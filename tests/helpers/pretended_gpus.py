"""GPUs that are not there: torch is told of them, and what join() asks of it is kept in a list."""

import types

import torch
import torch.distributed as dist

REAL = dist.init_process_group
asked = []


def pretend(uuids, broken=""):
    """This process sees these GPUs, cuda:0 first. gloo replaces nccl, which cannot be pretended."""

    def properties(index):
        if broken:
            raise RuntimeError(broken)
        return types.SimpleNamespace(uuid=uuids[index])

    def init(backend, device_id=None, **more):
        asked.append(["init_process_group", str(backend), device_id and str(device_id)])
        REAL("gloo", **more)

    asked.clear()
    torch.cuda.device_count = lambda: len(uuids)
    torch.cuda.get_device_properties = properties
    torch.cuda.set_device = lambda device: asked.append(["set_device", device])
    dist.init_process_group, dist.is_nccl_available = init, lambda: True
