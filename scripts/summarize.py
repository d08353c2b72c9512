#!/usr/bin/env python
"""Train, judge and use a summarizer: a T5 on CNN/DailyMail or on what has its form, with DeepSpeed's ZeRO on several ranks.

mpirun -n 2 python scripts/summarize.py train news --minutes 3      from scratch on the stories that the kit writes itself
mpirun -n 2 python scripts/summarize.py evaluate news               ROUGE beside lead-3, and the names and numbers
python scripts/summarize.py generate news article.txt               a summary of your own text

torchrun and deepspeed start it as well. Killed? The same train command with --resume goes on, on any number of ranks.
"""

import argparse
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

from pi2zero import checkpoints, data, ranks
from pi2zero.scores import scores, sentences

SPECIAL = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}  # numbers 0, 1, 2, as T5 has them
KEPT = "data stories start batch_size lr steps minutes seed article_tokens summary_tokens".split()  # noqa: SIM905 (as it began)
IGNORED = -100  # a label that cross_entropy leaves out


def train(args):
    """Train on several ranks; writes a checkpoint every --save-every steps and at the end."""
    me = join()
    check(args.stage or not args.bf16, "--bf16 needs --stage 1, 2 or 3: at stage 0 DeepSpeed has no way to save the fp32 state")
    same({**vars(args), "local_rank": None}, "options")
    check(args.batch_size % me.world_size == 0, f"--batch-size {args.batch_size} is not a multiple of the {me.world_size} ranks")
    latest = checkpoints.find(args.folder) if args.resume else None
    check(latest or not checkpoints.find(args.folder), f"{args.folder} has a checkpoint: add --resume, or choose another folder")
    stories = load(args, me, {"train": args.stories} if args.stories else None).splits["train"]
    check(len(stories) >= args.batch_size, f"--batch-size {args.batch_size} is too large: there are {len(stories)} stories")
    torch.manual_seed(args.seed)
    tokenizer = reader(latest or args.start, stories)
    model = network(latest or args.start, tokenizer)
    rows = tokenized(stories, tokenizer, args, me)
    engine = start_engine(model, args)
    done, spent = resumed(engine, latest, rows, args, me) if latest else (0, 0.0)
    start = time.monotonic() - spent
    last, tokens = time.monotonic(), 0
    while (left := 1 - max(done / args.steps, agreed(time.monotonic() - start) / (60 * args.minutes))) > 0:
        loss, count = loss_of(engine, pick(rows, done, args, me), me)
        checkpoints.set_rate(engine, args.lr * min(left / 0.95, (1 - left) / 0.05 + 0.01))  # up for 5 % of the run, then down
        engine.backward(loss)
        engine.step()
        done, tokens = done + 1, tokens + count
        if done % args.every == 0:
            mean, speed = averaged(loss, tokens / (time.monotonic() - last))
            tell(args, me, step=done, loss=mean, tokens_per_s=speed, gib_resident=psutil.Process().memory_info().rss / 2**30)
            last, tokens = time.monotonic(), 0
        if done % args.save_every == 0:
            save(engine, tokenizer, args, done, time.monotonic() - start)
    save(engine, tokenizer, args, done, time.monotonic() - start)
    tell(args, me, steps=done, seconds=time.monotonic() - start, folder=args.folder)
    ranks.leave()


def join():
    """Enter the world of torchrun or deepspeed, else of MPI (alone: a world of one), and start DeepSpeed."""
    if "RANK" in os.environ:
        gpu = torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", os.environ.get("LOCAL_SIZE", 1)))
        os.environ.setdefault("DS_ACCELERATOR", "cuda" if gpu else "cpu")
        dist.init_process_group("nccl" if gpu else "gloo")
    transformers.utils.logging.disable_progress_bar()  # no bar for a model that loads in a blink
    return ranks.join(deepspeed=True)


def load(args, me, limits):
    """The stories. Rank 0 chooses the source (and fetches it, the first time); the others take the same."""
    chosen = data.load(args.data, counts=limits, say=lambda text: tell(args, me, data=text)) if me.rank == 0 else None
    names = [chosen and chosen.name]
    dist.broadcast_object_list(names)
    return chosen or data.load({"cnn_dailymail": "real"}.get(names[0], names[0]), counts=limits, say=lambda text: None)


def reader(start, stories, words=1000):
    """The tokenizer of a checkpoint, or from scratch: byte pairs of the first training stories, the same on every rank."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if str(start) != "scratch":
        return AutoTokenizer.from_pretrained(start)
    made = Tokenizer(models.BPE(unk_token="<unk>"))
    cuts = [pre_tokenizers.Metaspace(), pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Punctuation()]
    made.pre_tokenizer, made.decoder = pre_tokenizers.Sequence(cuts), decoders.Metaspace()
    texts = (f"{story['article']} {story['highlights']}" for story in stories.select(range(min(2000, len(stories)))))
    made.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=words, special_tokens=list(SPECIAL.values()), show_progress=False)
    )
    made.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    box = [made.to_str()]
    dist.broadcast_object_list(box)
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(box[0]), **SPECIAL)


def network(start, tokenizer):
    """The model of a checkpoint, or from scratch a T5 of a quarter of a million parameters."""
    from transformers import T5Config, T5ForConditionalGeneration

    if str(start) != "scratch":
        return T5ForConditionalGeneration.from_pretrained(start, use_safetensors=True, dtype=torch.float32)
    shape = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_heads": 4, "num_layers": 2, "num_decoder_layers": 2}
    tokens = {"vocab_size": len(tokenizer), "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    return T5ForConditionalGeneration(T5Config(**shape, **tokens, dropout_rate=0.0, feed_forward_proj="gated-gelu"))


def tokenized(stories, tokenizer, args, me):
    """(article, highlights) of every story as numbers. Each rank tokenizes its shard, then all have all."""
    shard = stories.select(range(me.rank, len(stories), me.world_size))
    articles = tokenizer(list(shard["article"]), max_length=args.article_tokens, truncation=True)["input_ids"]
    flat = [" ".join(text.split("\n")) for text in shard["highlights"]]
    highlights = tokenizer(flat, max_length=args.summary_tokens, truncation=True)["input_ids"]
    dist.all_gather_object(every := [None] * me.world_size, list(zip(articles, highlights, strict=True)))
    return [every[index % me.world_size][index // me.world_size] for index in range(len(stories))]


def pick(rows, step, args, me):
    """This rank's part of a step's batch. The batch is the same for any number of ranks, and for a resumed run."""
    epoch, at = divmod(step, len(rows) // args.batch_size)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(1000 * args.seed + epoch))
    mine = order[at * args.batch_size :][: args.batch_size][me.rank :: me.world_size]
    articles, highlights = ([torch.tensor(rows[row][part]) for row in mine] for part in (0, 1))
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


def agreed(seconds):
    """Rank 0's clock: all ranks end after the same step."""
    box = [seconds]
    dist.broadcast_object_list(box)
    return box[0]


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
    """Print a summary of each file, or of the standard input."""
    me = join()
    articles = [Path(name).read_text(encoding="utf-8") for name in args.files] or [sys.stdin.read()]
    check(all(text.strip() for text in articles), "There is no text to summarize: a file is empty")
    for text in summaries(articles, args, me):
        tell(args, me, summary=text)
    ranks.leave()


@torch.no_grad()
def summaries(articles, args, me, batch=50):
    """A summary for each article, one sentence a line."""
    start = checkpoints.find(args.folder) or args.folder
    check((Path(start) / "model.safetensors").exists(), f"{args.folder} holds no checkpoint: run `summarize.py train` first")
    tokenizer = reader(start, None)
    model = network(start, tokenizer).to(me.device).eval()
    texts = []
    for at in range(0, len(articles), batch):
        some = tokenizer(
            articles[at : at + batch], max_length=args.article_tokens, truncation=True, padding=True, return_tensors="pt"
        )
        inputs = {name: some[name].to(me.device) for name in ("input_ids", "attention_mask")}
        made = model.generate(**inputs, max_new_tokens=args.length, num_beams=args.beams, do_sample=False)
        texts += ["\n".join(sentences(text)) for text in tokenizer.batch_decode(made, skip_special_tokens=True)]
    return texts


def resident():
    """GiB of memory that this process has in RAM."""
    return psutil.Process().memory_info().rss / 2**30


def same(mine, what):
    dist.all_gather_object(every := [None] * dist.get_world_size(), mine)
    check(all(theirs == every[0] for theirs in every), f"The ranks do not have the same {what}")


def tell(args, me, **what):
    """Print one line on rank 0: JSON with --json, else words."""
    if me.rank == 0:
        words = ", ".join(
            f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}" for name, value in what.items()
        )
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
        if run is not generate:
            one.add_argument("--data", default="auto", help="auto, embedded, real, or a path (default: auto; see pi2zero.data)")
        if run is not train:
            one.add_argument("--length", type=int, default=60, help="tokens of a summary at most (default: 60)")
            one.add_argument("--beams", type=int, default=1, help="of beam search, 1: greedy (default: 1)")
    options(commands.choices["train"])
    one = commands.choices["evaluate"]
    one.add_argument("--split", choices=["validation", "test"], default="test", help="(default: test)")
    one.add_argument("--limit", type=int, default=500, help="stories at most (default: 500)")
    commands.choices["generate"].add_argument("files", nargs="*", help="texts in UTF-8 (default: the standard input)")
    return parser.parse_args()


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
    arguments = parse()
    arguments.run(arguments)
