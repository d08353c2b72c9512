#!/usr/bin/env python
"""Train, judge and use a summarizer: a T5 on CNN/DailyMail or on what has its form, with DeepSpeed's ZeRO on several ranks.

mpirun -n 2 python scripts/summarize.py train news --minutes 3      from scratch on the stories that the kit writes itself
mpirun -n 2 python scripts/summarize.py evaluate news               ROUGE beside lead-3, and the names and numbers
python scripts/summarize.py generate news article.txt               a summary of your own text

torchrun and deepspeed start it as well. Killed? The same train command with --resume goes on, on any number of ranks.
"""

import argparse
import contextlib
import json
import math
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one rank, one thread: ranks do not fight for cores

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

KEPT = "data stories start batch_size lr steps minutes seed article_tokens summary_tokens prefix".split()  # noqa: SIM905 (as it began)
ABOVE_0 = "article_tokens summary_tokens length beams limit steps minutes stories batch_size lr save_every every".split()  # noqa: SIM905
SILENCE_S = 5  # s of tokenizing without a line
IGNORED = -100  # a label that cross_entropy leaves out


def main():
    args = parse()
    try:
        args.run(args)
    except (SystemExit, checkpoints.Unreadable) as error:  # on every rank: all see the same options and files
        ranks.leave()
        raise SystemExit(str(error)) from None


def train(args):
    """Train on several ranks; writes a checkpoint every --save-every steps and at the end."""
    me = join()
    check(args.stage or not args.bf16, "--bf16 needs --stage 1, 2 or 3: at stage 0 DeepSpeed has no way to save the fp32 state")
    same({**vars(args), "local_rank": None}, "options")
    check(args.batch_size % me.world_size == 0, f"--batch-size {args.batch_size} is not a multiple of the {me.world_size} ranks")
    latest = checkpoints.find(args.folder)
    same(latest and latest.name, f"checkpoint in {args.folder}: share it")  # to read it and to begin anew are other collectives
    check(args.resume or not latest, f"{args.folder} has a checkpoint: add --resume, or choose another folder")
    stories = load(args, me, {"train": args.stories} if args.stories else None).splits["train"]
    check(len(stories) >= args.batch_size, f"--batch-size {args.batch_size} is too large: there are {len(stories)} stories")
    torch.manual_seed(args.seed)
    tokenizer, model = opened(latest or args.start, stories)
    rows = tokenized(stories, tokenizer, args, me)
    engine = start_engine(model, args)
    done, spent = resumed(engine, latest, rows, args, me) if latest else (0, 0.0)
    engine.train()  # from_pretrained gives a model without dropout
    start = time.monotonic() - spent
    last, tokens = time.monotonic(), 0
    # Rank 0's clock: all ranks end after the same step.
    while (left := 1 - max(done / args.steps, from_first(me, lambda: time.monotonic() - start) / (60 * args.minutes))) > 0:
        # Another dropout on each rank and in each step, and in a resumed run the one that an unbroken run has there.
        torch.manual_seed((args.seed * 1_000_003 + done) * me.world_size + me.rank)
        loss, count = loss_of(engine, pick(rows, done, args, me), me)
        checkpoints.set_rate(engine, args.lr * min(left / 0.95, (1 - left) / 0.05 + 0.01))  # up for 5 % of the run, then down
        engine.backward(loss)
        engine.step()
        done, tokens = done + 1, tokens + count
        if done % args.every == 0:
            mean, speed = averaged(loss, tokens / (time.monotonic() - last))
            tell(args, me, step=done, loss=mean, tokens_per_s=speed, **memory(me))
            last, tokens = time.monotonic(), 0
        if done % args.save_every == 0:
            save(engine, tokenizer, args, done, time.monotonic() - start)
    save(engine, tokenizer, args, done, time.monotonic() - start)
    tell(args, me, steps=done, seconds=time.monotonic() - start, folder=args.folder)
    ranks.leave()


def join():
    """Enter the world of torchrun or deepspeed, else of MPI (alone: a world of one), and start DeepSpeed."""
    transformers.utils.logging.disable_progress_bar()  # no bar for a model that loads in a blink
    return ranks.join(deepspeed=True)


def memory(me):
    """What this process holds: of the host's memory, and on a GPU the most that torch has given out there so far."""
    held = {"gib_resident": psutil.Process().memory_info().rss / 2**30}
    return held if me.device == "cpu" else held | {"gib_gpu": torch.cuda.max_memory_allocated() / 2**30}


def load(args, me, limits):
    """The stories, one copy on a host. Rank 0 chooses the source (and fetches it, the first time); the others take the same."""
    return or_end(lambda: on_ranks.load(me, args.data, counts=limits, say=lambda text: tell(args, me, data=text)))


def opened(start, stories=None):
    """Tokenizer and model: from scratch, of a checkpoint or a run's folder, or of a name at the hub, which is asked for 3 s."""
    if start == "scratch":
        return checkpoints.fresh(stories)
    start = checkpoints.find(start) or start
    is_lost = not Path(start).is_dir() and not isinstance(start, Path) and dailymail.unreachable()  # then from the cache, at once
    with dailymail.offline() if is_lost else contextlib.nullcontext():
        return checkpoints.load(start)


def tokenized(stories, tokenizer, args, me):
    """(article, highlights) of every story as numbers, in files of the host. Each of its ranks tokenizes a part."""

    def encode(some):
        flat = [" ".join(text.split("\n")) for text in some["highlights"]]
        articles = tokenizer([args.prefix + text for text in some["article"]], max_length=args.article_tokens, truncation=True)
        highlights = tokenizer(flat, max_length=args.summary_tokens, truncation=True)
        return zip(articles["input_ids"], highlights["input_ids"], strict=True)

    begin, last = time.monotonic(), [time.monotonic()]

    def told(share):
        if time.monotonic() - last[0] > SILENCE_S:
            last[0] = time.monotonic()
            tell(args, me, tokenized=share, seconds_left=(last[0] - begin) * (1 / share - 1))

    return or_end(lambda: on_ranks.tokenized(stories, encode, tell=told))


def pick(rows, step, args, me):
    """This rank's part of a step's batch. The batch is the same for any number of ranks, and for a resumed run."""
    epoch, at = divmod(step, len(rows) // args.batch_size)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(1000 * args.seed + epoch))
    mine = order[at * args.batch_size :][: args.batch_size][me.rank :: me.world_size]
    articles, highlights = ([torch.from_numpy(rows[row][part]).long() for row in mine] for part in (0, 1))
    inputs = pad_sequence(articles, batch_first=True)
    labels = pad_sequence(highlights, batch_first=True, padding_value=IGNORED)
    return {"input_ids": inputs.to(me.device), "attention_mask": (inputs != 0).to(me.device), "labels": labels.to(me.device)}


def loss_of(engine, batch, me):
    """The loss whose mean over the ranks is the mean over all tokens of the batch, and this rank's tokens.

    The model's own loss is the mean over this rank's tokens; ranks have more or fewer, and the mean of means is another.
    """
    mine = (batch["labels"] != IGNORED).sum()
    dist.all_reduce(total := mine.float())
    loss = engine(**batch).loss.float() * mine * me.world_size / total
    return loss, int(mine + batch["attention_mask"].sum())


def start_engine(model, args):
    import deepspeed

    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0)
    config = {"train_batch_size": args.batch_size, "gradient_clipping": 1.0, "bf16": {"enabled": args.bf16}}
    zero = {"stage": args.stage, "reduce_bucket_size": 2**22, "allgather_bucket_size": 2**22}
    config |= {"zero_optimization": zero, "zero_allow_untested_optimizer": True}
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    return engine


def averaged(loss, speed):
    """The mean of the ranks' losses (loss_of scaled them: it is the mean over tokens), and the sum of their tokens/s."""
    dist.all_gather_object(every := [None] * dist.get_world_size(), (loss.item(), speed))
    return sum(one[0] for one in every) / len(every), sum(one[1] for one in every)


def save(engine, tokenizer, args, step, seconds):
    options = {name: getattr(args, name) for name in KEPT}
    problem = checkpoints.save(engine, tokenizer, args.folder, {"step": step, "seconds": seconds, "options": options})
    check(problem is None, f"{problem} Make room and go on with --resume.")


def resumed(engine, latest, rows, args, me):
    """Steps and seconds that are done."""
    progress = checkpoints.restore(engine, latest, pick(rows, 0, args, me))
    now = {name: getattr(args, name) for name in KEPT}
    check(progress["options"] == now, f"{latest} was made with the options {progress['options']}, not with {now}: give the same")
    return progress["step"], progress["seconds"]


def evaluate(args):
    """Summarize a split, each rank its shard, and score it beside lead-3."""
    me = join()
    stories = load(args, me, {split: args.limit if split == args.split else 1 for split in data.SPLITS}).splits[args.split]
    texts = summaries(stories.select(range(me.rank, len(stories), me.world_size))["article"], args, me)
    dist.all_gather_object(every := [None] * me.world_size, texts)
    if me.rank == 0:
        ours = [every[index % me.world_size][index // me.world_size] for index in range(len(stories))]
        lead = ["\n".join(sentences(article)[:3]) for article in stories["article"]]
        for name, texts in (("lead-3", lead), ("model", ours)):
            tell(args, me, summaries=name, stories=len(stories), **scores(texts, stories["highlights"]))
    ranks.leave()


def generate(args):
    """Print a summary of each file."""
    me = join()
    articles = from_first(me, lambda: [article(name) for name in args.files])
    for text in summaries(articles, args, me):
        tell(args, me, summary=text)
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
        form = {"max_length": args.article_tokens, "truncation": True, "padding": True, "return_tensors": "pt"}
        some = tokenizer([args.prefix + text for text in articles[at : at + batch]], **form)
        inputs = {name: some[name].to(me.device) for name in ("input_ids", "attention_mask")}
        made = model.generate(**inputs, max_new_tokens=args.length, num_beams=args.beams, do_sample=False)
        texts += ["\n".join(sentences(text)) for text in tokenizer.batch_decode(made, skip_special_tokens=True)]
    return texts


def from_first(me, make):
    """What make() gives on rank 0, on all ranks. What is wrong with a file there ends all of them, with its message."""
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
    """What make() gives; what is wrong with files there, on all ranks, ends the program with its message."""
    try:
        return make()
    except (OSError, ValueError) as error:
        raise SystemExit(str(error)) from None


def same(mine, what):
    dist.all_gather_object(every := [None] * dist.get_world_size(), mine)
    check(all(theirs == every[0] for theirs in every), f"The ranks do not have the same {what}")


def tell(args, me, **what):
    """Print one line on rank 0: JSON with --json, else words."""
    if me.rank == 0:
        words = ", ".join(f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}" for key, value in what.items())
        print(json.dumps(what) if args.json else words, flush=True)


def check(true, message):
    """End the program with the message unless it is true."""
    if not true:
        raise SystemExit(message)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--local_rank", help=argparse.SUPPRESS)  # deepspeed passes it; LOCAL_RANK says the same
    commands = parser.add_subparsers(dest="command", required=True)
    for run in (train, evaluate, generate):
        one = commands.add_parser(run.__name__, help=run.__doc__, description=run.__doc__)
        one.set_defaults(run=run)
        one.add_argument("folder", help="of the checkpoint: model, tokenizer, and what is needed to go on")
        one.add_argument("--json", action="store_true", help="print JSON, one object a line")
        one.add_argument("--article-tokens", type=int, default=512, help="an article is cut there (default: 512)")
        one.add_argument("--prefix", default="", help="before each article; t5-small wants 'summarize: ' (default: none)")
        if run is not generate:
            one.add_argument(
                "--data", default="auto", help="auto, embedded, real, or a path (default: auto; see pi2zero_course.summarization.data)"
            )
        if run is not train:
            one.add_argument("--length", type=int, default=60, help="tokens of a summary at most (default: 60)")
            one.add_argument("--beams", type=int, default=1, help="of beam search, 1: greedy (default: 1)")
    options(commands.choices["train"])
    one = commands.choices["evaluate"]
    one.add_argument("--split", choices=["validation", "test"], default="test", help="(default: test)")
    one.add_argument("--limit", type=int, default=500, help="stories at most (default: 500)")
    commands.choices["generate"].add_argument("files", nargs="+", help="texts in UTF-8; - is the standard input")
    args = parser.parse_args()
    for name, value in vars(args).items():
        check(name not in ABOVE_0 or value is None or value > 0, f"--{name.replace('_', '-')} must be above 0, not {value}")
    there = args.run is train or checkpoints.find(args.folder) or (Path(args.folder) / "model.safetensors").exists()
    check(there, f"{args.folder} holds no checkpoint: run `summarize.py train` first")
    return args


def options(one):
    one.add_argument("--start", default="scratch", help="scratch, a checkpoint's folder, or a model like google-t5/t5-small")
    one.add_argument("--minutes", type=float, default=math.inf, help="of training at most (default: no limit)")
    one.add_argument("--steps", type=int, default=2000, help="at most (default: 2000)")
    one.add_argument("--stories", type=int, help="training stories at most (default: 20000 embedded, else all)")
    one.add_argument("--batch-size", type=int, default=64, help="stories in a step, over all ranks (default: 64)")
    one.add_argument("--stage", type=int, choices=range(4), default=1, help="of ZeRO (default: 1)")
    one.add_argument("--bf16", action="store_true", help="compute in bfloat16")
    one.add_argument("--lr", type=float, default=3e-3, help="highest learning rate (default: 0.003; t5-small: 3e-4)")
    one.add_argument("--summary-tokens", type=int, default=128, help="highlights are cut there (default: 128)")
    one.add_argument("--save-every", type=int, default=200, help="steps between checkpoints (default: 200)")
    one.add_argument("--every", type=int, default=20, help="steps between lines (default: 20)")
    one.add_argument("--seed", type=int, default=0, help="of the first weights and of the order of the stories (default: 0)")
    one.add_argument("--resume", action="store_true", help="go on from the folder's checkpoint if there is one")


if __name__ == "__main__":
    main()
