"""A rank's memory by purpose: parameters, gradients, master copy, moments, activations, in flight.

Works for torch, DistributedDataParallel, ZeroRedundancyOptimizer, FSDP2 and DeepSpeed at each ZeRO
stage. Bytes are those of tensors' storages, each counted once. The rest of the process's memory
(Python, libraries, what the allocator keeps for later) is in `resident`.
"""

import gc
import time
import weakref
from contextlib import contextmanager

import psutil
import torch

__all__ = ["COMPONENTS", "Memory"]

COMPONENTS = ("parameters", "gradients", "master", "moments", "activations", "in flight")
RELEASE_S = 0.005  # s that a thread gets to release a tensor
# DeepSpeed 0.19's names for the shards of the fp32 copy (stages 1 and 2; 3), and of reduced
# gradients (1 and 2; 1 and 2; 3).
MASTER = ("single_partition_of_fp32_groups", "fp32_partitioned_groups_flat")
REDUCED = ("averaged_gradients", "grads_in_partition", "grad_partitions_flat_buffer")


class Memory:
    """Bytes in this rank's memory, by component, at moments that the program names.

        memory = Memory()
        engine, *_ = deepspeed.initialize(...)
        memory.note("initialize", engine)
        with memory.activations():
            loss = engine(x)
        memory.note("forward", engine)

    `samples` maps each moment to a dict of the COMPONENTS in bytes, and "resident" (unique set size
    of the process). Of a model on a GPU, the components are the bytes there, and a sample also has
    "on the host" (tensors there, such as an offloaded optimizer's), "allocated" and "reserved" (of
    torch's allocator), and "peak" (the most allocated since the previous moment). A moment that is
    noted again keeps the sample with the larger sum.

    "in flight" is all that is in memory for a short time: communication buffers, layers gathered
    for computing, gradients before their reduction, inputs. Tensors from before `Memory()` do not
    count unless the model or the optimizer refers to them.
    """

    def __init__(self):
        self.samples: dict[str, dict[str, int]] = {}
        # Existing objects are frozen: they do not count, and the collector need not visit them at
        # each moment (0.4 s with torch and DeepSpeed loaded). The next Memory() unfreezes them.
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._saved = weakref.WeakSet()

    @contextmanager
    def activations(self):
        """In the block, what autograd saves for backward is counted for as long as it is kept.

        Source: torch.autograd.graph.saved_tensors_hooks.
        """

        def pack(tensor):
            # A parameter is kept itself: a second tensor would keep the storage that stage 3 frees.
            saved = _Saved(tensor if tensor.is_leaf else tensor.detach())
            self._saved.add(saved)
            return saved

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved.tensor):
            yield

    def note(self, moment: str, model, optimizer=None) -> None:
        """Measure now. model: a torch module, or a DeepSpeed engine, which knows its optimizer."""
        engine = model if hasattr(model, "zero_optimization_stage") else None
        sample = self._measure(
            engine.module if engine else model, engine.optimizer if engine else optimizer
        )
        former = self.samples.get(moment)
        if former is None or total(sample) >= total(former):
            self.samples[moment] = sample

    def _measure(self, model, optimizer):
        on_gpu = any(parameter.is_cuda for parameter in model.parameters())
        sample = dict.fromkeys((*COMPONENTS, *["on the host"] * on_gpu), 0)
        seen = set()

        def count(component, place, size, is_gpu):
            if place not in seen:
                seen.add(place)
                sample[component if is_gpu == on_gpu else "on the host"] += size

        if on_gpu:
            sample |= gpu_memory()  # first, because counting allocates
        for component, tensors in _owners(
            model, optimizer, [saved.tensor for saved in self._saved]
        ):
            for storage in filter(None, map(_storage, tensors)):
                count(component, *storage)
        for storage in _alive():
            count("in flight", *storage)
        sample["resident"] = psutil.Process().memory_full_info().uss
        return sample


def gpu_memory() -> dict[str, int]:
    """Bytes of torch's allocator on this rank's GPU: "allocated", "reserved", and "peak", the most
    allocated since the last call.

    CUDA's and nccl's own memory (some 0.5 GB per process) is in none of them; nvidia-smi shows it.
    """
    torch.cuda.synchronize()
    found = {"allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved()}
    found["peak"] = torch.cuda.max_memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    return found


class _Saved:
    """One tensor that autograd keeps for backward."""

    def __init__(self, tensor):
        self.tensor = tensor


def total(sample: dict[str, int]) -> int:
    """Bytes of all components of a sample."""
    return sum(sample[component] for component in COMPONENTS)


def _owners(model, optimizer, saved):
    """Yield (component, tensors), the surest owner first: a storage counts where it is first."""
    parameters = list(model.parameters())
    base = _unwrap(optimizer)
    groups = [p for group in base.param_groups for p in group["params"]] if base else []
    # ZeRO-3's shards (p.data is gathered), and FSDP2's (the module may have gathered ones instead).
    partitioned = [p.ds_tensor for p in parameters if hasattr(p, "ds_tensor")]
    shards = [p for p in groups if hasattr(p, "_local_tensor")]
    yield "parameters", partitioned or shards or parameters
    yield "moments", [t for state in (base.state.values() if base else ()) for t in state.values()]
    master = [*groups, *_tensors([getattr(optimizer, name, None) for name in MASTER])]
    yield "master", master
    yield "gradients", [p.grad for p in master] if shards or not _same(groups, parameters) else []
    buckets = getattr(optimizer, "ipg_buckets", {}).values()
    yield "in flight", [t for bucket in buckets for t in _tensors(bucket.buffer)]
    yield "gradients", _tensors([getattr(optimizer, name, None) for name in REDUCED])
    whole = _tensors([[p.grad, getattr(p, "grad_accum", None)] for p in parameters])
    # From stage 2 on, a whole gradient is sent to the rank that keeps it.
    is_sent = partitioned or shards or getattr(optimizer, "partition_gradients", False)
    yield "in flight" if is_sent else "gradients", whole
    yield "in flight", [p.data for p in parameters]
    yield "activations", saved


def _unwrap(optimizer):
    """The torch optimizer inside DeepSpeed's or ZeroRedundancyOptimizer's."""
    for inner in ("optimizer", "optim"):
        if isinstance(getattr(optimizer, inner, None), torch.optim.Optimizer):
            return _unwrap(getattr(optimizer, inner))
    return optimizer


def _same(some, others):
    return {id(p) for p in some} <= {id(p) for p in others}


def _tensors(tree):
    """All tensors in lists and dicts of any depth."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    if isinstance(tree, dict):
        tree = list(tree.values())
    is_branch = isinstance(tree, list | tuple)
    return [t for branch in tree for t in _tensors(branch)] if is_branch else []


def _storage(tensor):
    """(address, bytes, whether on a GPU) of a tensor's storage; None if empty or no tensor."""
    tensor = getattr(tensor, "_local_tensor", tensor)  # of a DTensor, this rank's shard
    if not isinstance(tensor, torch.Tensor) or tensor.device.type == "meta":
        return None
    storage = tensor.untyped_storage()
    return (storage.data_ptr(), storage.nbytes(), tensor.is_cuda) if storage.nbytes() else None


def _alive():
    """The storages of all Python tensors, but for the frozen ones.

    A collective's thread releases its tensor a moment after the call has returned.
    """
    previous, storages = None, _storages_now()
    while previous is None or len(storages) < len(previous):
        time.sleep(RELEASE_S)
        previous, storages = storages, _storages_now()
    return storages


def _storages_now():
    gc.collect()
    tensors = [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor)]
    return list(filter(None, map(_storage, tensors)))
