"""Answers to the notebooks' blanks: the kit's own, with one of its pieces replaced.

RIGHT: {blank: [(piece, other piece)]}, still right. WRONG: {blank: [(piece, other piece, words of
the check's message)]}.
"""

RIGHT = {
    "pi_array": [
        ("x, y = rng.random((2, samples))", "x, y = (rng.random(samples) for _ in range(2))"),
        ("rng.random((2, samples))", "rng.random((samples, 2)).T"),
        ("< 1)", "<= 1)"),
    ],
    "error_bar": [
        ("4 * np.sqrt(share * (1 - share) / n)", "float(np.sqrt(16 * share * (1 - share) / n))")
    ],
    "pi_midpoint": [
        ("(np.arange(slices) + 0.5) / slices", "np.linspace(0.5, slices - 0.5, slices) / slices")
    ],
    "break_even": [("start_up / saved", "start_up * ranks / ((ranks - 1) * per_slice)")],
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
    "bus_bandwidth": [("algorithm * 2 * (ranks - 1) / ranks", "algorithm * (2 - 2 / ranks)")],
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
    "bytes_a_step": [("4 * S * (n - 1) / n", "4 * S - 4 * S / n")],
    "ranks_differ_by": [("comm.Bcast(of_rank_0, root=0)", "of_rank_0 = comm.bcast(weights)")],
    "computing_share": [
        ("sum(work) / (len(work) * step)", "np.mean([mine / step for mine in work])")
    ],
    "staleness": [("dict.fromkeys(order, 0)", "{worker: 0 for worker in order}")],
    "warmed_up": [("lr * min(1, reached)", "lr if step + 1 >= steps else lr * reached")],
    "count_messages": [("1 + gaps", "gaps + min(1, len(sent))")],
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
    "step_seconds": [
        (
            "compute + max(0, ring - overlap * compute)",
            "max(compute, compute + ring - overlap * compute)",
        )
    ],
    "lars_gradient": [("gradient * trust * long / short", "trust * long * gradient / short")],
    "efficiency_range": [
        ("return lowest, highest", "return np.array([lowest, highest])"),
        ("return lowest, highest", "return [lowest, highest]"),
    ],
    "three_numbers": [
        ("total // (passes * ranks)", "int(total / passes / ranks)"),
        ("return total, micro, passes", "return [total, micro, passes]"),
    ],
    "clip": [
        ("gradient * limit / norm", "gradient * (limit / norm)"),
        ("limit == 0 or", "not limit or"),
    ],
    "through_fp16": [("(gradient * scale).half()", "gradient.mul(scale).to(torch.float16)")],
    "adam_step": [("gradient**2", "gradient * gradient"), ("np.sqrt(v_hat)", "v_hat**0.5")],
    "bytes_on_a_rank": [("2 * psi / (n if stage >= 3 else 1)", "2 * psi / n ** (stage == 3)")],
    "one_way_seconds": [("lanes * 8e9 * 128 / 130 / 8", "lanes * 1e9 * (1 - 2 / 130)")],
    "activation_bytes": [("layers * 16 * h + words", "words + 16 * h * layers")],
    "mfu": [("needed / seconds / peak", "needed / (peak * seconds)")],
    "held": [("hsdp = 16 * psi / g", "hsdp = stage3 * hosts")],
    "first_fit": [
        ("(memory[start : start + size] == FREE).all()", "not memory[start : start + size].any()")
    ],
    "zero1_step": [
        ("adam.step()", "adam.step()\n    adam.zero_grad()"),
        ("adam.step()", "adam.step()\n    mine.grad.zero_()"),
        ("reduce_scatter(gradient) / me.world_size", "reduce_scatter(gradient / me.world_size)"),
    ],
    "compress": [("v + error", "error + v")],
    "rouge1": [("(a & b).total()", "sum(min(a[word], b[word]) for word in a)")],
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
    "bubble": [("(p - 1) / whole", "1 - m / whole")],
    "one_f_one_b": [
        ("min(stages - 1 - stage, micro)", "sorted([0, stages - 1 - stage, micro])[1]")
    ],
    "parallel_attention": [
        ("y = attention(Enter.apply(x),", "x = Enter.apply(x)\n    y = attention(x,")
    ],
    "by_blocks": [("return o / total", "return float(o) / float(total)")],
    "balance": [
        ("probabilities.mean(0)", "probabilities.sum(0) / len(probabilities)"),
        ("return n *", "return f.numel() *"),
    ],
    "payload_rate": [("frames * payload", "bits * payload / frame / 8")],
    "on_the_wire": [
        (
            "max((leaves.count(host) for host in hosts), default=0)",
            "max(leaves.count(host) for host in set(hosts))",
        )
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
    "largest_side": [
        ("(limit - fixed) * ranks / per_pixel", "(limit / per_pixel - fixed / per_pixel) * ranks")
    ],
    "tiles": [
        ("reshape(-1, 3, size, size)", "flatten(0, 1)"),
        (
            ".unfold(1, size, size).unfold(2, size, size)",
            ".unfold(1, size, size).unfold(2, size, size).clone()",
        ),
    ],
    "images_held": [("min(stages, images)", "sorted([images, stages])[0]")],
    "side_within": [("side * area**0.5", "(side**2 * area) ** 0.5")],
}

WRONG = {
    "pi_array": [
        ("x * x + y * y < 1", "x + y < 1", "a triangle"),
        ("float(4 * ", "float(1 * ", "the share that is inside"),
        ("default_rng(seed)", "default_rng()", "The same seed gives two different estimates"),
        (
            "np.count_nonzero(x * x + y * y < 1)",
            "sum([1 for i in range(samples) if x[i] ** 2 + y[i] ** 2 < 1])",
            "a loop of Python's",
        ),
        ("return float", "float", "Is the `return` missing?"),
    ],
    "error_bar": [
        ("4 * np.sqrt", "np.sqrt", "the error of the share"),
        ("np.sqrt(share", "(share", "Is the square root missing?"),
        (" * (1 - share)", "", "outside with 1 - p"),
    ],
    "pi_midpoint": [
        (" + 0.5", "", "left edges"),
        (" / slices\n    return", " / slices\n    return slices *", "1 / slices wide"),
        ("4 / (1", "1 / (1", "a quarter of it"),
    ],
    "break_even": [
        (
            "start_up / saved",
            "start_up / (per_slice * (ranks - 1))",
            "With p ranks, the time saved is 1 - 1/p",
        ),
        (" * (1 - 1 / ranks)", "", "the ranks need time for theirs"),
        ("per_slice * (1 - 1 / ranks)", "per_slice / ranks", "Compare with one rank"),
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
    "bus_bandwidth": [
        (" * 2 * (ranks - 1) / ranks", "", "the algorithm's bandwidth"),
        (" * 2 * (", " * (", "twice: in the reduce-scatter and in the all-gather"),
    ],
    "momentum_step": [
        ("beta * v + g", "beta * v + (1 - beta) * g", "here g is added whole"),
        ("lr * v", "lr * g", "it moves by the velocity"),
        ("w - lr", "w + lr", "uphill"),
        ("beta * v + g", "0.9 * v + g", "beta is an argument"),
        ("lr * v", "0.1 * v", "lr is an argument"),
        (
            "v = beta * v + g\n    w = w - lr * v",
            "v = 0.9 * v + g\n    w = w - 0.1 * v",
            "lr and beta are arguments",
        ),
    ],
    "parallel_gradient": [
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
    "bytes_a_step": [
        ("2 * S * (n - 1)", "2 * S * n", "The server sends itself nothing"),
        ("4 * S", "2 * S", "and receives as much"),
        ("return server, ring", "return ring, server", "The server comes first"),
    ],
    "ranks_differ_by": [
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
    "computing_share": [
        ("sum(work) / (len", "1 - sum(work) / (len", "the share that is waiting"),
        ("(len(work) * step)", "step", "divide by the number of ranks"),
        ("max(work)", "min(work)", "the slowest rank, not"),
    ],
    "staleness": [
        ("version + 1", "version", "its own gradient"),
        ("has[worker] = version + 1", "pass", "new weights with each answer"),
        ("return stale", "return stale[-1]", "all of them"),
    ],
    "warmed_up": [
        ("min(1, reached)", "reached", "It goes on rising"),
        ("(step + 1)", "step", "count from 1"),
    ],
    "count_messages": [
        ("1 + gaps", "gaps", "one message more than gaps"),
        ("1 + gaps", "len(sent)", "the number of tensors"),
        ("1 + gaps", "len(set(sent))", "need not begin in the same microsecond"),
    ],
    "train_step": [
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
    "step_seconds": [
        (
            "max(0, ring - overlap * compute)",
            "(1 - overlap) * ring",
            "overlap is a share of the computing",
        ),
        ("max(0, ring - overlap * compute)", "ring - overlap * compute", "max(0, ...)"),
        ("2 * (p - 1) * alpha + 2 *", "(p - 1) * alpha +", "A ring goes round twice"),
        ("nbytes * beta", "nbytes * beta * p", "one chunk"),
    ],
    "lars_gradient": [
        (" / short", "", "divide by gradient.norm()"),
        (" * trust", "", "`trust` is missing"),
        (" * trust", " * 0.02", "`trust` is an argument"),
        ("if long == 0 or short == 0", "if False", "0 / 0"),
    ],
    "efficiency_range": [
        ("(base + 0.5)", "(base - 0.5)", "has to be"),
        ("return lowest, highest", "return highest, lowest", "The lowest comes first"),
    ],
    "three_numbers": [
        (" * ranks", "", "The ranks are a factor, too"),
        ("passes = total // (micro * ranks)", "passes = 1", "passes is not always 1"),
        ("return total, micro, passes", "return passes, micro, total", "The order is"),
    ],
    "clip": [
        ("if limit == 0 or norm <= limit", "if False", "Short gradients are not made longer"),
        (
            "[gradient * limit / norm",
            "[gradient * limit / gradient.norm()",
            "one norm, of all of them together",
        ),
        ("[gradient * limit / norm", "[gradient.clamp(-limit, limit)", "cuts each value"),
    ],
    "through_fp16": [
        ("stored.float() / scale", "(stored / scale).float()", "scale, .half(), .float(), divide"),
        (" / scale", "", "Divide by the scale"),
        (
            "(gradient * scale).half()",
            "gradient.half() * scale",
            "scale, .half(), .float(), divide",
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
    "bytes_on_a_rank": [
        (
            "    parameters = 2 * psi / (n if stage >= 3 else 1)",
            "    stage -= 1\n    parameters = 2 * psi / (n if stage >= 3 else 1)",
            "That is one stage less",
        ),
        (" / (n if stage >= 1 else 1)", "", "has to be"),
        ("12 * psi", "8 * psi", "12 bytes"),
        ("stage >= 1", "stage >= 2", "has to be"),
        ("return parameters", "return 0 * parameters", "has to be"),
    ],
    "one_way_seconds": [
        (" / 8  #", "  #", "8 bits per byte"),
        (" * 128 / 130", "", "only 128 are data"),
        ("2 * parameters", "parameters", "has 2 bytes"),
    ],
    "mfu": [
        ("6 * parameters", "2 * parameters", "forward alone"),
        (" / peak", "", "divide by `peak`"),
        ("needed / seconds", "needed", "divide by the seconds"),
        ("6 * parameters", "8 * parameters", "do not count"),
    ],
    "held": [
        ("2 * psi / g", "2 * psi / (hosts * g)", "inside each host"),
        ("2 * psi / g", "16 * psi / g", "of the parameters alone"),
        ("hsdp = 16 * psi / g", "hsdp = stage3", "inside a host only"),
        ("stage3, hpz, hsdp", "hsdp, hpz, stage3", "Stage 3 first"),
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
        (" / me.world_size", "", "That is the sum over the ranks"),
        (
            "all_gather(mine.detach(), flat)",
            "flat.chunk(me.world_size)[me.rank].copy_(mine.detach())",
            "brings them to all",
        ),
        (
            "reduce_scatter(gradient)",
            "gradient.chunk(me.world_size)[me.rank]",
            "reduce_scatter adds up the ranks'",
        ),
        ("adam.step()", "pass", "as before"),
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
    "rouge1": [
        (
            "2 * common / max(1, a.total() + b.total())",
            "2 * len(a & b) / (len(a) + len(b))",
            "A word that comes twice in both counts twice",
        ),
        ("2 * common / max(1, a.total() + b.total())", "common / a.total()", "That is the recall"),
        (
            "2 * common / max(1, a.total() + b.total())",
            "common / b.total()",
            "That is the precision",
        ),
        ("(a & b).total()", "len(a & b)", "has to be"),
    ],
    "oracle": [
        ("if rouge1(", "if False and rouge1(", "it may be fewer than three"),
        ("[*chosen, part]", "[part]", "has to be"),
        ("< 3", "< 1", "Up to three sentences"),
        ("< 3", "< 9", "Three sentences at most"),
    ],
    "loss_of": [
        (
            "dist.all_reduce(total := mine.float())",
            "total = mine\n    dist.all_reduce(total)",
            "has overwritten `mine`",
        ),
        (" * mine * me.world_size / total", "", "weight it by its share"),
        (" * me.world_size", "", "once more, so times me.world_size"),
        ("loss, int(mine + inputs", "loss.item(), int(mine + inputs", "no .item()"),
    ],
    "activation_bytes": [
        (" + words", "", "The logits are missing"),
        ("layers * 16", "16", "Each layer saves its 16 h"),
        ("return each * tokens", "return tokens", "the bytes of one"),
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
        ("if before is not None", "if True", "there is nobody before it"),
    ],
    "bubble": [
        ("(p - 1) / whole", "m / whole", "a rank is busy"),
        ("m + p - 1", "m + p", "the first rank begins at once"),
        ("m + p - 1", "m", "Divide by the whole time"),
    ],
    "one_f_one_b": [
        ("stages - 1 - stage", "stages - stage", "4 are enough"),
        ("stages - 1 - stage", "0 * stage", "meanwhile it waits"),
        ("micro - ahead, micro", "ahead, micro", "8 backwards are due"),
        ("return row", "row", "Is the `return` missing?"),
    ],
    "parallel_attention": [
        ("Enter.apply(x)", "x", "this rank's part of the gradient only"),
        ("Leave.apply(y)", "y", "its heads' part of the sum only"),
        ("return ", "", "Is the `return` missing?"),
    ],
    "by_blocks": [
        (
            "total * scale + weights.sum(), o * scale +",
            "total + weights.sum(), o +",
            "scale the sum and o",
        ),
        ("total * scale + weights.sum(), o * scale +", "weights.sum(), 0 +", "Only the last block"),
        ("return o / total", "return o", "Divide by the sum"),
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
    "payload_rate": [
        ("bits / 8", "bits", "A byte has 8 bits"),
        ("frames * payload", "frames * frame", "Not all of a frame is payload"),
    ],
    "on_the_wire": [
        (
            "most = max((leaves.count(host) for host in hosts), default=0)",
            "most = sum(leaves.count(host) for host in set(hosts)) / len(set(hosts))",
            "That is the mean over the hosts",
        ),
        ("hosts[:1]", "hosts[-1:]", "The ring closes"),
        ("2 * (len(order) - 1)", "(len(order) - 1)", "two halves"),
        (
            "max((leaves.count(host) for host in hosts), default=0)",
            "len(leaves)",
            "a wire of its own",
        ),
    ],
    "two_level_allreduce": [
        (
            "host.Reduce_scatter(x, mine, sizes)\n    ring_allreduce(between, mine)\n    "
            "host.Allgatherv(mine, [x, sizes])",
            "comm.Allreduce(MPI.IN_PLACE, x)",
            "not by way of `between`",
        ),
        (
            "    host.Reduce_scatter(x, mine, sizes)\n    ring_allreduce(between, mine)",
            "    host.Allreduce(MPI.IN_PLACE, x)\n    ring_allreduce(between, x)\n    return",
            "over the wire; 4 are its part",
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
        ("part.add_(came)", "part.copy_(came)", "not put in its place"),
        ("part.add_(came)", "pass", "has to come, and be added"),
        ("return mine", "return gradient", "the strip of rank"),
        ("return mine", "", "Is the `return` missing?"),
    ],
    "largest_side": [
        ("(limit - fixed)", "limit", "comes off the limit"),
        ("int(pixels**0.5)", "int(pixels)", "its square root"),
        (" * ranks", "", "That is for one rank"),
    ],
    "tiles": [
        ("permute(1, 2, 0, 3, 4)", "permute(2, 1, 0, 3, 4)", "go down first"),
        ("permute(1, 2, 0, 3, 4)", "clone()", "before you reshape"),
        ("permute(1, 2, 0, 3, 4)", "permute(1, 2, 0, 4, 3)", "is mirrored"),
    ],
    "images_held": [
        ("min(stages, images)", "stages", "fewer images than stages"),
        ("min(stages, images)", "1", "the first runs ahead"),
        ("return images", "return stages", "all images have been forward"),
        (
            "return 1",
            "return min(images, 2) if schedule == 'gems' else 1",
            "the first one's activations are gone",
        ),
    ],
    "side_within": [
        ("area**0.5", "area", "a square root"),
        ("(limit - fixed) / (held - fixed)", "limit / held", "does not grow"),
        ("(held - fixed)", "held", "comes off what is held, too"),
        ("side * ", "", "times the side"),
    ],
}
