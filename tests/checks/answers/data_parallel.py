"""Answers to lab 3, as learners write them: right ones, and wrong ones with words of the check's
message."""

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from lab_answers import LabAnswers
from mpi4py import MPI
from torch import nn

hvd = None  # horovod.torch, on the ranks
lab = LabAnswers("03_data_parallel", cells=["colleague"])


@lab.right("by_hand")
def one_message_for_all_gradients(comm, model, batches):
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
    for mine, first in zip(
        model.parameters(), comm.bcast([p.data for p in model.parameters()]), strict=True
    ):
        mine.data.copy_(first)
    for images, labels in batches:
        share = len(images) // comm.size
        rows = slice(comm.rank * share, (comm.rank + 1) * share)
        loss = F.cross_entropy(model(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        flat = np.concatenate(
            [p.grad.numpy().ravel() for p in model.parameters()] + [[loss.item()]]
        ).astype(np.float32)
        comm.Allreduce(MPI.IN_PLACE, flat)
        flat /= comm.size
        nn.utils.vector_to_parameters(
            torch.from_numpy(flat[:-1]), [p.grad for p in model.parameters()]
        )
        optimizer.step()
        losses.append(flat[-1])
    return losses


@lab.right("by_hand")
def parameters_averaged_after_each_step(comm, model, batches):
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
    for parameter in model.parameters():
        comm.Bcast(parameter.data.numpy())
    for images, labels in batches:
        loss = F.cross_entropy(
            model(images[comm.rank :: comm.size]), labels[comm.rank :: comm.size]
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for parameter in model.parameters():
            comm.Allreduce(MPI.IN_PLACE, parameter.data.numpy())
            parameter.data /= comm.size
        losses.append(comm.allreduce(loss.item()) / comm.size)
    return losses


lab.wrong_variants(
    "by_hand",
    ("comm.Bcast(", "comm.Reduce(MPI.IN_PLACE, ", "Reduce takes MPI.IN_PLACE on the root, 0, only"),
    ("comm.Bcast(parameter.data.numpy())", "pass", "Did all ranks start from rank 0's parameters?"),
    (
        "model(images[comm.rank :: comm.size]), labels[comm.rank :: comm.size]",
        "model(images), labels",
        "that is the serial program, 4 times",
    ),
    ("parameter.grad /= comm.size", "pass", "the sum of the ranks' gradients gives: the mean is"),
    ("return losses", "return [0.0 for _ in losses]", "returned the losses 0.0000, 0.0000, "),
    ("comm.allreduce(loss.item()) / comm.size", "loss.item()", "That is the loss of its own share"),
    (
        "comm.Allreduce(MPI.IN_PLACE, parameter.grad.numpy())\n            parameter.grad /= "
        "comm.size",
        "pass",
        "not one bit",
    ),
    (
        "images[comm.rank :: comm.size]), labels[comm.rank :: comm.size]",
        "images[rank::size]), labels[rank::size]",
        "Your function uses the notebook's rank and size: take rank and size from the comm",
    ),
    (
        "    optimizer, losses",
        "    model = comm.bcast(model)\n    optimizer, losses",
        "the model that you were given saw no image. Did you train a copy? comm.bcast(model) "
        "returns",
    ),
    (
        "    optimizer, losses",
        "    if comm.rank:\n        return [0.0] * len(batches)\n    optimizer, losses",
        "this would hang",
    ),
)


@lab.right("with_horovod")
def the_sum_of_what_is_divided(model, batches):
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    wrapped, losses = (
        hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), op=hvd.Sum),
        [],
    )
    for images, labels in batches:
        loss = (
            F.cross_entropy(
                model(images[hvd.rank() :: hvd.size()]), labels[hvd.rank() :: hvd.size()]
            )
            / hvd.size()
        )
        wrapped.zero_grad()
        loss.backward()
        wrapped.step()
        losses.append(hvd.allreduce(loss.detach(), op=hvd.Sum).item())
    return losses


lab.wrong_variants(
    "with_horovod",
    (
        "return losses",
        "return hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))",
        "variant returned 'SGD' objects",
    ),
    (
        "optimizer = hvd.DistributedOptimizer(optimizer, "
        "named_parameters=model.named_parameters())",
        "pass",
        "Did every rank step with the same gradient",
    ),
    ("named_parameters())", "named_parameters(), op=hvd.Sum)", "the sum of the ranks' gradients"),
)


@lab.right("with_ddp")
def no_wrapper_but_the_same_calls(model, batches):
    rank, size, losses = dist.get_rank(), dist.get_world_size(), []
    for parameter in model.parameters():
        dist.broadcast(parameter.data, 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for images, labels in batches:
        loss = F.cross_entropy(model(images[rank::size]), labels[rank::size])
        optimizer.zero_grad()
        loss.backward()
        for tensor in (
            *(parameter.grad for parameter in model.parameters()),
            mean := loss.detach(),
        ):
            dist.all_reduce(tensor)
            tensor /= size
        optimizer.step()
        losses.append(mean.item())
    return losses


lab.wrong_variants(
    "with_ddp",
    ("return losses", "return model", "the list of losses is due"),
    (
        "mean = loss.detach()\n        dist.all_reduce(mean)\n        losses.append(mean.item() / "
        "size)",
        "losses.append(loss.item() / rank)",
        "rank 0: variant raised ZeroDivisionError",
    ),
    ("ddp(images)", "model(images)", "Did every rank step with the same gradient"),
    (
        "        optimizer.step()",
        "        for parameter in model.parameters():\n            parameter.grad /= size\n        "
        "optimizer.step()",
        "divided by the number of ranks twice",
    ),
    ("mean.item() / size", "mean.item()", "That is the sum over the ranks: divide by them."),
    (
        "return losses",
        "return [torch.ones((), requires_grad=True) * mean for mean in losses]",
        "keep their graph, and its memory: loss.item()",
    ),
)


@lab.right("assert_alike")
def smallest_and_largest(comm, model):
    for parameter in model.parameters():
        least, most = np.empty(parameter.shape, np.float32), np.empty(parameter.shape, np.float32)
        comm.Allreduce(parameter.detach().numpy(), least, op=MPI.MIN)
        comm.Allreduce(parameter.detach().numpy(), most, op=MPI.MAX)
        assert np.array_equal(least, most)


@lab.wrong(
    "assert_alike", "ranks 1, 2 and 3 raised AssertionError, rank 0 did not. Those go on, and wait"
)
def each_rank_for_itself(comm, model):
    equal = [
        torch.equal(parameter.data, comm.bcast(parameter.data)) for parameter in model.parameters()
    ]
    assert all(equal)


@lab.wrong("assert_alike", "Not one bit may differ; biases count as well.")
def nearly_equal(comm, model):
    for parameter in model.parameters():
        first = comm.bcast(parameter.data)
        assert comm.allreduce(bool(torch.allclose(parameter.data, first)), op=MPI.LAND)


@lab.wrong("assert_alike", "Their sum is the same: compare each of them.")
def one_sum(comm, model):
    mine = sum(parameter.double().sum().item() for parameter in model.parameters())
    assert np.allclose(comm.allgather(mine), mine, rtol=0, atol=1e-5)


lab.wrong_variants(
    "assert_alike",
    (
        "        mine",
        "        parameter.data.mul_(1.5)\n        mine",
        "Look at it only; compute with copies.",
    ),
)


@lab.right("assert_shared")
def rank_0_judges_for_all(comm, rows, n):
    parts, verdict = comm.gather(np.asarray(rows)), None
    if comm.rank == 0:
        every = np.sort(np.concatenate(parts))
        verdict = bool((np.diff(every) > 0).all() and n - len(every) < comm.size)
    assert comm.bcast(verdict)


lab.wrong_variants(
    "assert_shared",
    (
        "    times =",
        "    assert comm.allreduce(len(rows)) > n - comm.size\n    return\n    times =",
        "All ranks read the same share, and your assertion passed.",
    ),
    (
        "    assert times.max()",
        "    if comm.rank:\n        return\n    assert times.max()",
        "Those go on, and wait",
    ),
    ("(times == 0).sum() < comm.size", "(times == 1).all()", "Of 25 images those are left out"),
    ("assert times.max() <= 1", "assert True", "(DistributedSampler's default), and your"),
    (", minlength=n", "", "No rank reads the second half, and your assertion passed.\nCount"),
    ("< comm.size", "<= comm.size", "No rank reads p of the images, and your assertion passed."),
)


@lab.right("assert_mean")
def rank_0_decides(comm, own, used):
    every_own, every_used = comm.gather(own), comm.gather(used)
    wrong = 0
    for given in every_used or ():
        for at, mine in enumerate(given):
            mean = sum(one[at] for one in every_own) / comm.size
            wrong += not torch.allclose(mean, mine, atol=1e-5)
    assert not comm.bcast(wrong), f"{wrong} tensors are not the mean"


@lab.wrong(
    "assert_mean",
    "The optimizer gets the sum, and your assertion passed.\nCompare with the mean of all ranks' "
    "`own`.",
)
def equal_on_all_ranks(comm, own, used):
    for given in used:
        assert len({one.numpy().tobytes() for one in comm.allgather(given)}) == 1


lab.wrong_variants(
    "assert_mean",
    ("comm.allreduce(all(close), op=MPI.LAND)", "all(close)", "The last rank alone uses its own"),
    (
        "[comm.allreduce(gradient) / comm.size for gradient in own]",
        "(comm.allreduce(gradient) / comm.size for gradient in own)",
        "[torch.allclose(mean, given, atol=1e-5) for mean, given in zip(means, used)]",
        "(torch.allclose(mean, given, atol=1e-5) for mean, given in zip(means, used))",
        "allreduce with LAND",
    ),
    (
        "torch.allclose(mean, given, atol=1e-5)",
        "torch.equal(mean, given)",
        "with float32's rounding, and your assertion raised: that is right, and has to pass.",
    ),
    ("in own]", "in own[:1]]", "Look at every tensor of the list, not at the first only."),
    (" / comm.size", "", "The optimizer gets the mean, with float32's rounding, and your"),
)


@lab.right("mended")
def each_batch_shared(comm, model, images, labels, epochs=2, batch=64):
    model.load_state_dict(comm.bcast(model.state_dict()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(epochs):
        order = np.random.default_rng([epoch, 1]).permutation(len(images))
        for start in range(0, len(order), batch):
            rows = order[start : start + batch][comm.rank :: comm.size]
            optimizer.zero_grad()
            F.cross_entropy(model(images[rows]), labels[rows]).backward()
            flat = torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).numpy()
            comm.Allreduce(MPI.IN_PLACE, flat)
            torch.nn.utils.vector_to_parameters(
                torch.from_numpy(flat / comm.size), [p.grad for p in model.parameters()]
            )
            optimizer.step()


lab.right_variants("mended", ("[comm.rank :: comm.size]", ".reshape(comm.size, -1)[comm.rank]"))

lab.wrong_cell("mended", "colleagues", "ranks 0 and 1 read the same images")

lab.wrong_variants(
    "mended",
    (
        "            for parameter in model.parameters():\n                comm.Allreduce",
        "            for parameter in (model[0].weight, model[2].weight):\n                "
        "comm.Allreduce",
        "Only biases differ: which gradients are reduced, and which are not?",
    ),
    (
        "default_rng(epoch).permutation(len(images))[comm.rank :: comm.size]",
        "default_rng([epoch, comm.rank]).permutation(len(images))[: len(images) // comm.size]",
        "All ranks have to shuffle alike (the same seed), then take different rows of it.",
    ),
    ("default_rng(epoch)", "default_rng(0)", "the second epoch has the order of the first"),
)


# Mistakes at the collectives ----------------------------------------------------------------------

lab.wrong_variants(
    "by_hand",
    (
        "comm.Bcast(parameter.data.numpy())",
        "comm.Bcast(parameter.data.numpy()[: 12 - comm.rank])",
        "rank 0 sends 768 numbers, rank 1 has room for 704 numbers",
    ),
    (
        "            comm.Allreduce(MPI",
        "            if comm.rank == 0:\n                comm.Allreduce(MPI",
        "ank 0 calls Allreduce",
    ),
    (
        "parameter.grad.numpy())",
        "parameter.grad.numpy().astype('float64' if comm.rank else 'float32'))",
        "and of one dtype",
    ),
)
lab.wrong_variants(
    "with_horovod",
    (
        "        optimizer.step()",
        "        if rank == 0:\n            optimizer.step()",
        "rank 0 calls optimizer.step, in which Horovod averages the gradients, ranks 1, 2 and 3",
    ),
    (
        "    hvd.broadcast_parameters",
        "    if rank == 0:\n        hvd.broadcast_parameters",
        "Rank 0 calls hvd.broadcast_parameters, ranks 1, 2 and 3 call optimizer.step",
    ),
)
lab.wrong_variants(
    "with_ddp",
    (
        "        loss.backward()",
        "        if rank == 0:\n            loss.backward()",
        "rank 0 calls backward, in which DistributedDataParallel averages the gradients, ranks",
    ),
    (
        "dist.all_reduce(mean)",
        "dist.all_reduce(mean.repeat(1 + rank))",
        "dist.all_reduce: rank 0 sends 1 number, rank 1 sends 2 numbers",
    ),
)
