"""Answers to the notebooks' blanks: the kit's own, with one of its pieces replaced.

RIGHT: {blank: [(piece, other piece)]}, still right. WRONG: {blank: [(piece, other piece, words of
the check's message)]}. A blank whose check compares values has its mistakes in the check itself.
"""

RIGHT = {
    "pi_array": [
        ("x, y = rng.random((2, samples))", "x, y = (rng.random(samples) for _ in range(2))"),
        ("rng.random((2, samples))", "rng.random((samples, 2)).T"),
        ("< 1)", "<= 1)"),
    ],
    "partial_pi": [("np.arange(rank, n, size)", "np.array_split(np.arange(n), size)[rank]")],
    "deal_out": [
        (
            "comm.Scatter(everything, mine, root=0)",
            "mine = comm.scatter(np.split(everything, comm.size) if comm.rank == 0 else None)",
        )
    ],
    "naive_allreduce": [("comm.Gather(x, everything, root=0)", "everything = comm.gather(x)")],
    "ring_allreduce": [
        (
            "for step in range(p - 1):  # all-gather",
            "for step in reversed(range(1 - p, 0)):\n        step = -1 - step",
        )
    ],
    "momentum_step": [
        ("w = w - lr * v", "w = w - v * lr"),
        ("return w, v", "return [w, v]"),
        (
            "return w, v",
            'return w, v\n    raise NotImplementedError("your three lines")',
        ),  # dead: it is not left
    ],
    "parallel_gradient": [
        (
            "np.array_split(np.arange(len(x)), comm.size)[comm.rank]",
            "np.arange(len(x))[comm.rank :: comm.size]",
        )
    ],
    "ranks_differ_by": [("comm.Bcast(of_rank_0, root=0)", "of_rank_0 = comm.bcast(weights)")],
    "train_step": [
        (
            "hvd.allreduce(loss.detach()).item()",
            "hvd.allreduce(loss.detach(), op=hvd.Sum).item() / hvd.size()",
        )
    ],
    "my_images": [
        ("seed + epoch", "1000 * seed + epoch"),
        ("order[rank::size]", "order[rank * images // size : (rank + 1) * images // size]"),
    ],
    "accumulate": [("i < parts - 1", "i + 1 < parts")],
    "read_own_part": [("if size < end", "if end > size")],
    "efficiency_range": [
        ("return lowest, highest", "return np.array([lowest, highest])"),
        ("return lowest, highest", "return [lowest, highest]"),
    ],
    "adam_step": [("gradient**2", "gradient * gradient"), ("np.sqrt(v_hat)", "v_hat**0.5")],
    "first_fit": [
        ("(memory[start : start + size] == FREE).all()", "not memory[start : start + size].any()")
    ],
    "zero1_step": [
        ("adam.step()", "adam.step()\n    adam.zero_grad()"),
        ("adam.step()", "adam.step()\n    mine.grad.zero_()"),
        ("reduce_scatter(gradient) / me.world_size", "reduce_scatter(gradient / me.world_size)"),
    ],
    "compress": [("v + error", "error + v")],
    "oracle": [
        ("len(chosen) < 3", "len(chosen) != 3"),
        ("max(parts,", "max(parts[::-1],"),  # where two sentences are equally good, the later one
        ('return "\\n".join(chosen)', 'return "\\n".join(sorted(chosen, key=article.index))'),
    ],
    "loss_of": [
        (
            "dist.all_reduce(total := mine.float())",
            "total = torch.tensor([float(mine)], device=mine.device)\n    dist.all_reduce(total)",
        ),
        ("* mine * me.world_size / total", "* (mine / total) * dist.get_world_size()"),
    ],
    "backward_once": [("dist.send(x.grad, dst=before)", "dist.send(x.grad.clone(), before)")],
    "parallel_attention": [
        ("y = attention(Enter.apply(x),", "x = Enter.apply(x)\n    y = attention(x,")
    ],
    "balance": [
        ("probabilities.mean(0)", "probabilities.sum(0) / len(probabilities)"),
        ("return n *", "return f.numel() *"),
    ],
    "two_level_allreduce": [
        ("host.Allgatherv(mine, [x, sizes])", "np.concatenate(host.allgather(mine), out=x)")
    ],
    "margin": [
        ("end - mine[1]", "end + 0 - mine[1]"),
        ("out[0] * stride - padding", "-padding + stride * out[0]"),
    ],
    "halo_backward": [
        ("part.add_(came)", "part += came"),
        ("-above, -below", "-lacks[line.place][0], -below"),
    ],
}

WRONG = {
    "pi_array": [
        ("x * x + y * y < 1", "x + y < 1", "a triangle"),
        ("float(4 * ", "float(1 * ", "is the factor 4 missing"),
        ("default_rng(seed)", "default_rng()", "The same seed gives two different estimates"),
        (
            "np.count_nonzero(x * x + y * y < 1)",
            "sum([1 for i in range(samples) if x[i] ** 2 + y[i] ** 2 < 1])",
            "a loop of Python's",
        ),
        ("return float", "float", "Is the `return` missing?"),
    ],
    "partial_pi": [
        (
            "slices = np.arange(rank, n, size)\n    x = (slices + 0.5) / n\n    return np.sum(4 / "
            "(1 + x * x)) / n",
            "x = (np.arange(n) + 0.5) / n\n    return np.sum(4 / (1 + x * x)) / n / size",
            "Every rank computes all slices",
        ),
        (
            "np.sum(4 / (1 + x * x)) / n",
            "np.mean(4 / (1 + x * x))",
            "Is the sum divided by this rank's number of slices?",
        ),
        ("np.arange(rank, n, size)", "np.arange(n)", "Every rank computes all slices"),
        (
            " / n\n    return np.sum(4 / (1 + x * x)) / n",
            " / n\n    return np.sum(4 / (1 + x * x))",
            "divide by n",
        ),
        (
            "np.arange(rank, n, size)",
            "np.arange(rank * (n // size), (rank + 1) * (n // size))",
            "the last ones are lost",
        ),
        ("return ", "", "Is the `return` missing?"),
    ],
    "deal_out": [
        (
            "np.empty((each, 2))",
            "np.empty(each)",
            "rank 0 sends 6 numbers to each rank, all ranks have room for 3 numbers.",
        ),
        ("np.empty((each, 2))", "np.empty(each)", "`mine` has to be (each, 2)"),
        ("(each, 2))", "(each, 2), 'float32')", "room for 6 numbers of float32"),
        ("np.empty((each, 2))", "np.empty((each, 2), int)", "and of one dtype"),
        ("np.empty((each, 2))", "np.empty((comm.size * each, 2))", "have room for 24 numbers"),
        ("comm.Scatter(everything, mine, root=0)", "mine = comm.scatter(everything)", "12 items"),
        ("comm.Scatter", "comm.scatter", "Scatter, with a capital letter"),
        ("root=0", "root=1", "rank 1 sends nothing"),
        ("comm.Scatter", "if comm.rank == 0:\n        comm.Scatter", "Rank 0 calls Scatter, ranks"),
        ("mine = np.empty((each, 2))", "mine = None", "have room for nothing"),
        ("mine = np.empty((each, 2))", "mine = [0.0] * 6", "takes arrays"),
        (
            "return mine",
            "return comm.Scatter(everything, mine)[0]",
            "Scatter returns None: it fills",
        ),
        (
            "comm.Scatter(everything, mine, root=0)",
            "mine[:] = everything[:each]",
            "'NoneType' object is not subscriptable\nin the line: mine[:] = everything[:each]\n",
        ),
        ("return mine", "", "Is the `return` missing?"),
        (
            "comm.Scatter(everything, mine, root=0)",
            "mine = comm.bcast(everything)",
            "has the whole array",
        ),
        (
            "np.empty((each, 2))\n    comm.Scatter(everything, mine, root=0)",
            "np.zeros((each, 2))\n    comm.Scatter(everything, np.empty((each, 2)), root=0)",
            "Has Scatter written to this array?",
        ),
    ],
    "naive_allreduce": [
        (
            "comm.Gather(x, everything",
            "comm.Gather(x, x",
            "yours has 5 numbers, which 4 does not divide",
        ),
        (
            "comm.Gather(x, everything, root=0)",
            "everything = np.empty(x.size) if comm.rank == 0 else None\n    "
            "comm.Gather(x, everything)",
            "which 4 does not divide",
        ),
        ("comm.Gather", "comm.gather", "Gather, with a capital letter"),
        (
            "comm.Gather(x, everything, root=0)",
            "if comm.rank == 0:\n        comm.Gather(x, everything, root=0)",
            "Rank 0 calls Gather, ranks 1, 2 and 3 call Bcast",
        ),
        (
            "    comm.Bcast(x, root=0)",
            "        comm.Bcast(x, root=0)",
            "rank 0 calls Bcast, ranks 1, 2 and 3 have returned",
        ),
        ("comm.Bcast(x, root=0)", "comm.Bcast(x[comm.rank > 0 :], root=0)", "have room for 4"),
        ("everything, root=0", "everything, root=comm.rank", "rank 1 calls Gather with root 1"),
        (
            "np.sum(everything, axis=0, out=x)",
            "x = everything.sum(axis=0)",
            "`x = ...` names another array",
        ),
        ("comm.Bcast(x, root=0)", "", "does it reach the others"),
        (
            "comm.Gather(x, everything, root=0)",
            "comm.Allreduce(x.copy(), x)",
            "Allreduce is what you are to replace",
        ),
        ("out=x)", ")", "No rank has the sum"),
    ],
    "ring_allreduce": [
        ("(rank - step + 1)", "(rank - step)", "rank r has finished chunk r + 1"),
        ("range(p - 1):  # all", "range(p - 2):  # all", "chunks are finished"),
        (
            "recvbuf=take, source=left)",
            "recvbuf=(got := take.copy()), source=left)\n        take += got",
            "it is not added",
        ),
    ],
    "parallel_gradient": [
        (
            "comm.Allreduce(MPI.IN_PLACE, gradient, op=MPI.SUM)",
            "comm.Allreduce(MPI.IN_PLACE, gradient[comm.rank :], op=MPI.SUM)",
            "rank 3 has room for 647 numbers",
        ),
        (
            "comm.Allreduce(MPI.IN_PLACE, gradient, op=MPI.SUM)",
            "total = np.empty(10)\n    comm.Allreduce(gradient, total)",
            "all ranks send 650 numbers of float32, all ranks have room for 10 numbers of float64",
        ),
        (
            "comm.Allreduce(MPI.IN_PLACE, gradient, op=MPI.SUM)",
            "comm.allreduce(gradient, np.empty_like(gradient))",
            "Allreduce, with a capital letter, fills",
        ),
        (
            "comm.Allreduce(MPI.IN_PLACE, gradient, op=MPI.SUM)",
            "gradient = comm.Allreduce(MPI.IN_PLACE, gradient) / 1",
            "Allreduce returns None",
        ),
        ("return gradient / len(x)", "return gradient", "divide once"),
        ('reduction="sum"', 'reduction="mean"', "off by up to"),
        (
            "comm.Allreduce(MPI.IN_PLACE, gradient, op=MPI.SUM)",
            "comm.Barrier()",
            "Allreduce is missing",
        ),
        (
            "comm.Allreduce(MPI.IN_PLACE, gradient, op=MPI.SUM)",
            "comm.rank or comm.Barrier()",
            "On 4 ranks",
        ),
    ],
    "ranks_differ_by": [
        (
            "comm.Bcast(of_rank_0, root=0)",
            "of_rank_0 = of_rank_0[: 3 - comm.rank]\n    comm.Bcast(of_rank_0, root=0)",
            "rank 0 sends 3 numbers, rank 1 has room for 2 numbers",
        ),
        (
            "weights.copy()",
            "weights.copy() if comm.rank == 0 else np.empty(3)",
            "room for 3 numbers of float64",
        ),
        ("comm.allreduce(abs", "comm.Allreduce(abs", "Allreduce takes two arrays"),
        (
            "comm.allreduce(abs(weights - of_rank_0).max(), op=MPI.MAX)",
            "comm.reduce(abs(weights - of_rank_0).max(), op=MPI.MAX)",
            "allreduce",
        ),
        ("weights.copy()", "weights", "Give it a copy"),
        (
            "comm.allreduce(abs(weights - of_rank_0).max(), op=MPI.MAX)",
            "abs(weights - of_rank_0).max()",
            "say the largest",
        ),
        ("op=MPI.MAX", "op=MPI.SUM", "the sum over the ranks"),
        ("abs(weights - of_rank_0)", "(weights - of_rank_0)", "take abs(...)"),
        (
            "comm.Bcast(of_rank_0, root=0)",
            "comm.rank or comm.Bcast(of_rank_0, root=0)",
            "On 4 ranks",
        ),
    ],
    "train_step": [
        (
            "    optimizer.step()",
            "    if hvd.rank() == 0:\n        optimizer.step()",
            "Rank 0 calls optimizer.step, in which Horovod averages the gradients, ranks",
        ),
        (
            "return hvd.allreduce(loss.detach()).item()",
            "return hvd.allreduce(loss.detach()).item() if hvd.rank() == 0 else loss.item()",
            "rank 0 calls hvd.allreduce, ranks 1, 2 and 3 call optimizer.step",
        ),
        ("optimizer.zero_grad()\n    loss", "loss", "set to zero in each step"),
        (
            "hvd.allreduce(loss.detach()).item()",
            "hvd.allreduce(loss.detach(), op=hvd.Sum).item()",
            "hvd.allreduce takes a mean",
        ),
        ("optimizer.step()", "optimizer.synchronize()", "is optimizer.step() called"),
    ],
    "my_images": [
        ("seed + epoch", "seed", "has to change with the epoch"),
        ("seed + epoch", "seed + epoch + rank", "shuffle with the same seed"),
        ("seed + epoch", "epoch", "the seeds 0 and 7 give the same order"),
        ("order[rank::size]", "order[rank::4]", "as they are given"),
        ("order[rank::size]", "order", "10 each are due"),
    ],
    "accumulate": [
        (
            "    for i,",
            "    if ddp.module.weight.grad is None and torch.distributed.get_rank() == 0:\n"
            "        return\n    for i,",
            "ank 0 has returned",
        ),
        (
            "i < parts - 1",
            "i < parts - 1 or torch.distributed.get_rank() == 0",
            "averages the gradients",
        ),
        ("(F.cross_entropy(ddp(x), y) / parts).backward()", "ddp(x)", "there is no gradient"),
        (
            "zip(images.chunk(parts), labels.chunk(parts))",
            "[(images, labels)]",
            "the network saw [32] images at a time",
        ),
        ("i < parts - 1", "False", "4 all-reduces were made"),
        ("i < parts - 1", "True", "no all-reduce was made"),
        (" / parts)", ")", "divide each loss by their number"),
    ],
    "read_own_part": [
        (
            "size, end = file.Get_size(), (comm.rank + 1) * mine.nbytes",
            "size, end = file.Get_size(), (comm.rank + 1) * mine.nbytes\n    if size < end:\n"
            '        raise ValueError("cut short")',
            "this would hang. Ranks 0, 1 and 2 call Read_at_all, rank 3 raised ValueError before",
        ),
        (
            "file.Read_at_all",
            "if comm.rank:\n        file.Read_at_all",
            "Rank 0 has returned, ranks 1, 2 and 3 call Read_at_all",
        ),
        (
            "Read_at_all(comm.rank * mine.nbytes",
            "Read_at_all(comm.rank * mine.size",
            "The offset counts bytes",
        ),
        ("if size < end", "if False", "raises no ValueError"),
        (
            "Read_at_all(comm.rank * mine.nbytes",
            "Read_at_all(0 * mine.nbytes",
            "it read from at number 0",
        ),
    ],
    "adam_step": [
        ("(np.sqrt(v_hat) + eps)", "(np.sqrt(v) + eps) * np.sqrt(1 - beta2**t)", "not to sqrt(v)"),
        ("(np.sqrt(v_hat) + eps)", "np.sqrt(v_hat + eps)", "not under the root"),
        ("m[:] =", "m =", "has to be"),
        ("m / (1 - beta1**t), v / (1 - beta2**t)", "m, v", "bias correction is missing"),
        ("np.sqrt(v_hat)", "v_hat", "square root of v"),
        ("w -=", "w +=", "uphill"),
        ("lr * m_hat", "0.1 * m_hat", "lr is an argument"),
        ("1 - beta1**t", "1 - 0.9**t", "beta1 is an argument"),
        ("1 - beta2**t", "1 - 0.999**t", "beta2 is an argument"),
        (" + eps", " + 1e-8", "eps is an argument"),
    ],
    "first_fit": [
        (
            "range(len(memory) - size + 1)",
            "range(len(memory) - size)",
            "also the last place in memory",
        ),
        ("return slice(start, start + size)", "return start", "for freeing them later"),
        ("    raise MemoryError", "    return MemoryError", "it has to raise MemoryError"),
    ],
    "zero1_step": [
        (
            "    all_gather(mine.detach(), flat)",
            "    if me.rank == 0:\n        all_gather(mine.detach(), flat)",
            "ank 0 waits in dist.irecv from rank 3",
        ),
        (
            "reduce_scatter(gradient)",
            "reduce_scatter(gradient[me.rank :])",
            "Meanwhile rank 0 waits in dist.irecv from rank 3",
        ),
        (" / me.world_size", "", "that is the sum over the ranks"),
        (
            "all_gather(mine.detach(), flat)",
            "flat.chunk(me.world_size)[me.rank].copy_(mine.detach())",
            "the new parts have to reach all ranks",
        ),
        (
            "reduce_scatter(gradient)",
            "gradient.chunk(me.world_size)[me.rank]",
            "that is its own gradient",
        ),
        ("adam.step()", "pass", "as they were before"),
    ],
    "compress": [
        ("u = v + error", "u = v", "is added first"),
        ("u - unpack", "unpack", "it has to be"),
        (
            "feedback * (u - unpack(message, len(u)))",
            "u - unpack(message, len(u))",
            "Without feedback",
        ),
    ],
    "loss_of": [
        (
            "    dist.all_reduce(total := mine.float())",
            "    total = mine.float()\n    if me.rank == 0:\n        dist.all_reduce(total)",
            "Rank 0 calls dist.all_reduce, ranks 1, 2 and 3 have returned",
        ),
        (
            "total := mine.float()",
            'total := (inputs["labels"] != -100).float()[0, me.rank :]',
            "rank 0 sends 17 numbers",
        ),
        ("total := mine.float()", "total := float(mine)", "dist.all_reduce takes tensors"),
        (
            "dist.all_reduce(total := mine.float())",
            "total = mine\n    dist.all_reduce(total)",
            "has overwritten `mine`",
        ),
        (" * mine * me.world_size / total", "", "weight it by its share"),
        (" * me.world_size", "", "once more, so times me.world_size"),
        ("loss, int(mine + inputs", "loss.item(), int(mine + inputs", "no .item()"),
    ],
    "backward_once": [
        ("y.backward(gradient)", "y.sum().backward()", "It began with ones"),
        ("dist.recv(gradient, src=after)", "pass", "receives nothing"),
        (
            "dist.send(x.grad",
            "dist.send(gradient",
            "the rank before needs the one of this stage's input",
        ),
        ("dst=before", "dst=after", "goes to the rank before"),
        ("if before is not None", "if True", "it has no previous rank"),
    ],
    "parallel_attention": [
        ("Enter.apply(x)", "x", "this rank's part of the gradient only"),
        ("Leave.apply(y)", "y", "its heads' part of the sum only"),
        ("return ", "", "Is the `return` missing?"),
    ],
    "balance": [
        ("return n *", "return", "1 is even"),
        (
            "(f * probabilities.mean(0))",
            "probabilities.mean(0).square()",
            "f is what the router does",
        ),
        ("probabilities.mean(0)", "probabilities.detach().mean(0)", "has no gradient"),
    ],
    "two_level_allreduce": [
        ("np.empty_like(parts[host.rank])", "np.empty(2)", "host.Reduce_scatter"),
        (
            "    ring_allreduce(between, mine)",
            "    if comm.rank == 0:\n        ring_allreduce(between, mine)",
            "call host.Allgatherv",
        ),
        ("host.Allgatherv(mine, [x, sizes])", "host.Allgatherv(x, [x, sizes])", "host.Allgatherv"),
        (
            "host.Reduce_scatter(x, mine, sizes)\n    ring_allreduce(between, mine)\n    "
            "host.Allgatherv(mine, [x, sizes])",
            "comm.Allreduce(MPI.IN_PLACE, x)",
            "not by way of `between`",
        ),
        (
            "    host.Reduce_scatter(x, mine, sizes)\n    ring_allreduce(between, mine)",
            "    host.Allreduce(MPI.IN_PLACE, x)\n    ring_allreduce(between, x)\n    return",
            "over the network; 4 are its part",
        ),
        ("ring_allreduce(between, mine)", "pass", "between the hosts, is missing"),
        ("host.Allgatherv(mine, [x, sizes])", "host.Barrier()", "does Allgatherv"),
    ],
    "margin": [
        ("(out[1] - 1) * stride", "out[1] * stride", "out[1] is one behind it"),
        ("mine[0] - first, end - mine[1]", "end - mine[1], mine[0] - first", "Above comes first"),
        ("mine[0] - first, end - mine[1]", "padding, padding", "not the padding on both sides"),
        ("out[0] * stride - padding", "out[0] * stride", "Padding: output row 0 begins"),
    ],
    "halo_backward": [
        (
            "asked = ends(mine, line.dim, *wanted(line, lacks))",
            "asked = ends(mine, line.dim, 2, 2)",
            "message",
        ),
        (
            "    for part, came in zip(asked, swap(halo, asked, line)):",
            "    if line.place == 0:\n        return mine\n"
            "    for part, came in zip(asked, swap(halo, asked, line)):",
            "waits in dist.irecv from rank 0",
        ),
        ("part.add_(came)", "part.copy_(came)", "not put in its place"),
        ("part.add_(came)", "pass", "has to come, and be added"),
        ("return mine", "return gradient", "the strip of rank"),
        ("return mine", "", "Is the `return` missing?"),
    ],
}
