#!/usr/bin/env python
"""Train, judge and use a summarizer: a T5 on CNN/DailyMail or the like, with DeepSpeed's ZeRO.

mpirun -n 2 python scripts/summarize.py train news --minutes 3      from scratch, on generated news
mpirun -n 2 python scripts/summarize.py evaluate news               ROUGE compared with lead-3
python scripts/summarize.py generate news article.txt               a summary of your own text

torchrun and deepspeed start it as well. Killed? The same train command with --resume goes on, on
any number of ranks.
"""

import contextlib
import json
import math
import os
import sys
import time
from pathlib import Path

from common import check, number, option, parser_of

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one thread per rank
# A resumed run must have these options of the first one.
KEPT = ["data", "stories", "start", "batch_size", "lr", "steps", "minutes", "seed"]
KEPT += ["article_tokens", "summary_tokens", "prefix"]
SILENCE_S = 5  # s of tokenizing without a line
IGNORED = -100  # a label that cross_entropy leaves out


def parse():
    parser = parser_of(__doc__)
    parser.add_argument("--local_rank", help="passed by the deepspeed launcher")
    commands = parser.add_subparsers(dest="command", required=True)
    count = number(int, 1)
    train = commands.add_parser("train", help="train and write checkpoints")
    evaluate = commands.add_parser("evaluate", help="summarize a split, score it and lead-3")
    generate = commands.add_parser("generate", help="print a summary of each file")
    for command in (train, evaluate, generate):
        command.add_argument("folder", help="of the checkpoint")
        command.add_argument("--json", action="store_true", help="print JSON, one object per line")
        option(command, "--article-tokens", count, 512, "an article is cut there")
        option(command, "--prefix", str, "", "before each article; t5-small wants 'summarize: '")
    for command in (train, evaluate):
        option(command, "--data", str, "auto", "auto, embedded, real, or a path")
    for command in (evaluate, generate):
        option(command, "--length", count, 60, "tokens of a summary at most")
        option(command, "--beams", count, 1, "of beam search, 1: greedy")
    option(evaluate, "--split", str, "test", "of the stories", choices=["validation", "test"])
    option(evaluate, "--limit", count, 500, "stories at most")
    generate.add_argument("files", nargs="+", help="texts in UTF-8; - is the standard input")
    above_0 = number(float, 1e-300)
    option(train, "--start", str, "scratch", "scratch, a checkpoint, or a model like t5-small")
    option(train, "--minutes", above_0, math.inf, "of training at most")
    option(train, "--steps", count, 2000, "at most")
    option(train, "--stories", count, None, "training stories at most")
    option(train, "--batch-size", count, 64, "stories per step, over all ranks")
    option(train, "--stage", int, 1, "of ZeRO", choices=range(4))
    train.add_argument("--bf16", action="store_true", help="compute in bfloat16")
    option(train, "--lr", above_0, 3e-3, "highest learning rate; for t5-small 3e-4")
    option(train, "--summary-tokens", count, 128, "highlights are cut there")
    option(train, "--save-every", count, 200, "steps between checkpoints")
    option(train, "--every", count, 20, "steps between lines")
    option(train, "--seed", int, 0, "of the first weights and the order of the stories")
    train.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    return parser.parse_args()


if __name__ == "__main__":
    args = parse()  # before torch is imported, which takes seconds

import psutil
import torch
import torch.distributed as dist
import transformers
from torch.nn.utils.rnn import pad_sequence

from pi2zero import ranks
from pi2zero.deepspeed_support import checkpoints
from pi2zero_course.summarization import data
from pi2zero_course.summarization.data import dailymail, on_ranks
from pi2zero_course.summarization.scores import scores, sentences


def main(args):
    if args.command != "train":
        model = Path(args.folder) / "model.safetensors"
        found = checkpoints.find(args.folder) or model.exists()
        check(found, f"{args.folder} holds no checkpoint: run `summarize.py train` first")
    try:
        {"train": train, "evaluate": evaluate, "generate": generate}[args.command](args)
    except (
        SystemExit,
        checkpoints.UnreadableError,
    ) as error:  # all ranks see the same options, files
        ranks.leave()
        raise SystemExit(str(error)) from None


def train(args):
    """Train on several ranks; writes a checkpoint every --save-every steps and at the end."""
    me = join()
    possible = args.stage or not args.bf16  # at stage 0 DeepSpeed cannot save the fp32 state
    check(possible, "--bf16 needs --stage 1, 2 or 3")
    same({**vars(args), "local_rank": None}, "options")
    check(
        args.batch_size % me.world_size == 0,
        f"--batch-size {args.batch_size} is not a multiple of the {me.world_size} ranks",
    )
    latest = checkpoints.find(args.folder)
    same(
        latest and latest.name, f"checkpoint in {args.folder}: share it"
    )  # to read it and to begin anew are other collectives
    problem = f"{args.folder} has a checkpoint: add --resume, or choose another folder"
    check(args.resume or not latest, problem)
    stories = load(args, me, {"train": args.stories} if args.stories else None).splits["train"]
    problem = f"--batch-size {args.batch_size} is too large: there are {len(stories)} stories"
    check(len(stories) >= args.batch_size, problem)
    torch.manual_seed(args.seed)
    tokenizer, model = opened(latest or args.start, stories)
    rows = tokenized(stories, tokenizer, args, me)
    engine = start_engine(model, args)
    done, spent = resumed(engine, latest, rows, args, me) if latest else (0, 0.0)
    engine.train()  # from_pretrained gives a model without dropout
    start = time.monotonic() - spent
    last, tokens = time.monotonic(), 0

    def clock():
        """Rank 0's, so that all ranks end after the same step."""
        return from_first(me, lambda: time.monotonic() - start)

    while (left := 1 - max(done / args.steps, clock() / (60 * args.minutes))) > 0:
        # Other dropout per rank and step; a resumed run has that of an unbroken one.
        torch.manual_seed((args.seed * 1_000_003 + done) * me.world_size + me.rank)
        loss, count = loss_of(engine, pick(rows, done, args, me), me)
        warmup = (1 - left) / 0.05 + 0.01  # up for 5 % of the run, then down
        checkpoints.set_rate(engine, args.lr * min(left / 0.95, warmup))
        engine.backward(loss)
        engine.step()
        done, tokens = done + 1, tokens + count
        if done % args.every == 0:
            mean, speed = averaged(loss, tokens / (time.monotonic() - last))
            report(args, me, step=done, loss=mean, tokens_per_s=speed, **memory(me))
            last, tokens = time.monotonic(), 0
        if done % args.save_every == 0:
            save(engine, tokenizer, args, done, time.monotonic() - start)
    save(engine, tokenizer, args, done, time.monotonic() - start)
    report(args, me, steps=done, seconds=time.monotonic() - start, folder=args.folder)
    ranks.leave()


def join():
    """Enter the world of torchrun or deepspeed, else of MPI, and start DeepSpeed."""
    transformers.utils.logging.disable_progress_bar()  # no bar for a model that loads in a blink
    return ranks.join(deepspeed=True)


def memory(me):
    """The memory of this process on the host, and on a GPU the maximum that torch has allocated."""
    used = {"gib_resident": psutil.Process().memory_info().rss / 2**30}
    if me.device != "cpu":
        used["gib_gpu"] = torch.cuda.max_memory_allocated() / 2**30
    return used


def load(args, me, limits):
    """The stories, one copy per host. Rank 0 chooses the source, and fetches it the first time."""

    def say(text):
        report(args, me, data=text)

    return or_end(lambda: on_ranks.load(me, args.data, counts=limits, say=say))


def opened(start, stories=None):
    """Tokenizer and model: from scratch, of a checkpoint or a run's folder, or of the hub."""
    if start == "scratch":
        return checkpoints.fresh(stories)
    start = checkpoints.find(start) or start
    from_hub = not Path(start).is_dir() and not isinstance(start, Path)
    cached = from_hub and dailymail.unreachable()
    with dailymail.offline() if cached else contextlib.nullcontext():
        return checkpoints.load(start)


def tokenized(stories, tokenizer, args, me):
    """(article, highlights) of every story as numbers, in files of the host, made by its ranks."""

    def encode(some):
        flat = [" ".join(text.split("\n")) for text in some["highlights"]]
        articles = tokenizer(
            [args.prefix + text for text in some["article"]],
            max_length=args.article_tokens,
            truncation=True,
        )
        highlights = tokenizer(flat, max_length=args.summary_tokens, truncation=True)
        return zip(articles["input_ids"], highlights["input_ids"], strict=True)

    begin, last = time.monotonic(), [time.monotonic()]

    def progress(share):
        if time.monotonic() - last[0] > SILENCE_S:
            last[0] = time.monotonic()
            report(args, me, tokenized=share, seconds_left=(last[0] - begin) * (1 / share - 1))

    return or_end(lambda: on_ranks.tokenized(stories, encode, report=progress))


def pick(rows, step, args, me):
    """This rank's part of a step's batch: the same batch on any number of ranks, or resumed."""
    epoch, number = divmod(step, len(rows) // args.batch_size)
    shuffle = torch.Generator().manual_seed(1000 * args.seed + epoch)
    batch = torch.randperm(len(rows), generator=shuffle)[number * args.batch_size :]
    own = [rows[row] for row in batch[: args.batch_size][me.rank :: me.world_size]]
    articles, highlights = ([torch.from_numpy(row[i]).long() for row in own] for i in (0, 1))
    inputs = pad_sequence(articles, batch_first=True)
    labels = pad_sequence(highlights, batch_first=True, padding_value=IGNORED)
    tensors = {"input_ids": inputs, "attention_mask": inputs != 0, "labels": labels}
    return {name: tensor.to(me.device) for name, tensor in tensors.items()}


def loss_of(engine, batch, me):
    """The loss whose mean over the ranks is the mean over all tokens, and this rank's tokens.

    The model's own loss is the mean over this rank's tokens, and ranks have more or fewer.
    """
    own = (batch["labels"] != IGNORED).sum()
    dist.all_reduce(total := own.float())
    loss = engine(**batch).loss.float() * own * me.world_size / total
    return loss, int(own + batch["attention_mask"].sum())


def start_engine(model, args):
    import deepspeed

    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0)
    config = {
        "train_batch_size": args.batch_size,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": args.bf16},
    }
    zero = {"stage": args.stage, "reduce_bucket_size": 2**22, "allgather_bucket_size": 2**22}
    config |= {"zero_optimization": zero, "zero_allow_untested_optimizer": True}
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    return engine


def averaged(loss, speed):
    """The mean of the ranks' losses, which is that over tokens, and the sum of their tokens/s."""
    dist.all_gather_object(pairs := [None] * dist.get_world_size(), (loss.item(), speed))
    losses, speeds = zip(*pairs, strict=True)
    return sum(losses) / len(losses), sum(speeds)


def save(engine, tokenizer, args, step, seconds):
    options = {name: getattr(args, name) for name in KEPT}
    progress = {"step": step, "seconds": seconds, "options": options}
    problem = checkpoints.save(engine, tokenizer, args.folder, progress)
    check(problem is None, f"{problem} Make room and go on with --resume.")


def resumed(engine, latest, rows, args, me):
    """Steps and seconds that are done."""
    progress = checkpoints.restore(engine, latest, pick(rows, 0, args, me))
    now = {name: getattr(args, name) for name in KEPT}
    former = progress["options"]
    check(former == now, f"{latest} was made with the options {former}, not with {now}")
    return progress["step"], progress["seconds"]


def evaluate(args):
    """Summarize a split, each rank its shard, and score it and lead-3."""
    me = join()
    limits = dict.fromkeys(data.SPLITS, 1) | {args.split: args.limit}
    stories = load(args, me, limits).splits[args.split]
    shard = stories.select(range(me.rank, len(stories), me.world_size))
    texts = summaries(shard["article"], args, me)
    dist.all_gather_object(shards := [None] * me.world_size, texts)
    if me.rank == 0:
        ours = [shards[i % me.world_size][i // me.world_size] for i in range(len(stories))]
        lead = ["\n".join(sentences(article)[:3]) for article in stories["article"]]
        for name, texts in (("lead-3", lead), ("model", ours)):
            found = scores(texts, stories["highlights"])
            report(args, me, summaries=name, stories=len(stories), **found)
    ranks.leave()


def generate(args):
    """Print a summary of each file."""
    me = join()
    articles = from_first(me, lambda: [article(name) for name in args.files])
    for text in summaries(articles, args, me):
        report(args, me, summary=text)
    ranks.leave()


def article(name):
    """The text of a file, or of the standard input ("-")."""
    try:
        text = (sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()).decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not text in UTF-8 ({error})") from None
    if not text.strip():
        raise ValueError(f"There is no text to summarize: {name} is empty")
    return text


@torch.no_grad()
def summaries(articles, args, me, batch=50):
    """A summary for each article, one sentence a line."""
    tokenizer, model = opened(Path(args.folder))
    model, texts = model.to(me.device).eval(), []
    for at in range(0, len(articles), batch):
        form = {"max_length": args.article_tokens, "truncation": True, "padding": True}
        prefixed = [args.prefix + text for text in articles[at : at + batch]]
        tokens = tokenizer(prefixed, return_tensors="pt", **form)
        inputs = {name: tokens[name].to(me.device) for name in ("input_ids", "attention_mask")}
        search = {"max_new_tokens": args.length, "num_beams": args.beams, "do_sample": False}
        output = model.generate(**inputs, **search)
        decoded = tokenizer.batch_decode(output, skip_special_tokens=True)
        texts += ["\n".join(sentences(text)) for text in decoded]
    return texts


def from_first(me, make):
    """What make() gives on rank 0, on all ranks. Its error with a file ends all of them."""
    box = [None, None]
    if me.rank == 0:
        try:
            box[0] = make()
        except (OSError, ValueError) as error:
            box[1] = str(error)
    dist.broadcast_object_list(box)
    check(box[1] is None, box[1])
    return box[0]


def or_end(make):
    """What make() gives. Its error with a file, on all ranks, ends the program."""
    try:
        return make()
    except (OSError, ValueError) as error:
        raise SystemExit(str(error)) from None


def same(value, what):
    """End all ranks if one has another value."""
    dist.all_gather_object(values := [None] * dist.get_world_size(), value)
    check(all(other == value for other in values), f"The ranks do not have the same {what}")


def report(args, me, **values):
    """Print one line on rank 0: JSON with --json, else words."""
    if me.rank == 0:
        words = (
            f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}"
            for key, value in values.items()
        )
        print(json.dumps(values) if args.json else ", ".join(words), flush=True)


if __name__ == "__main__":
    main(args)
