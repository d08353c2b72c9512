"""What lab 5's cells and checks share and what would distract there: the checkpoint that ships,
stories as numbers, summaries."""

from functools import cache
from pathlib import Path

import torch
from torch.nn.utils.rnn import pad_sequence

from pi2zero_course.summarization.data import news
from pi2zero_course.summarization.scores import scores, sentences

CHECKPOINT = Path(__file__).resolve().parents[5] / "data" / "summarizer"
IGNORED = -100  # a label that the loss leaves out


@cache
def tokenizer():
    """The tokenizer of the checkpoint that ships."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(CHECKPOINT)


def model(device="cpu"):
    """A fresh copy of the model that ships."""
    from transformers import T5ForConditionalGeneration
    from transformers.utils import logging

    logging.disable_progress_bar()
    return T5ForConditionalGeneration.from_pretrained(
        CHECKPOINT, use_safetensors=True, dtype=torch.float32
    ).to(device)


@cache
def stories(split, count):
    """The first `count` generated stories of a split."""
    return news.stories(split, count)


@cache
def rows(split, count):
    """(article, highlights) of those stories, as numbers."""
    articles = tokenizer()([one["article"] for one in stories(split, count)])["input_ids"]
    highlights = tokenizer()(
        [" ".join(one["highlights"].split("\n")) for one in stories(split, count)]
    )["input_ids"]
    return list(zip(articles, highlights, strict=True))


def padded(some, device="cpu"):
    """The model's arguments for some rows: short articles end in zeros, which attention_mask
    leaves out; labels in -100."""
    inputs = pad_sequence([torch.tensor(article) for article, _ in some], batch_first=True)
    labels = pad_sequence(
        [torch.tensor(text) for _, text in some], batch_first=True, padding_value=IGNORED
    )
    return {
        "input_ids": inputs.to(device),
        "attention_mask": (inputs != 0).to(device),
        "labels": labels.to(device),
    }


@torch.no_grad()
def summaries(net, articles, **settings):
    """What net.generate(..., **settings) writes for some articles: (texts, a sentence a line; how
    many have no end)."""
    if not articles:
        return [], 0
    net.eval()
    given = tokenizer()(articles, padding=True, return_tensors="pt").to(net.device)
    made = net.generate(
        input_ids=given["input_ids"], attention_mask=given["attention_mask"], **settings
    )
    without_end = int((~(made[:, 1:] == tokenizer().eos_token_id).any(1)).sum())
    return [
        "\n".join(sentences(text))
        for text in tokenizer().batch_decode(made, skip_special_tokens=True)
    ], without_end


def scored(net, count, me, word="", **settings):
    """Means of pi2zero_course.summarization.scores on the first `count` validation stories, and
    "cut off": how many summaries have no end.

    word: only stories in whose article it stands (of the first 40 * count).

    All ranks call it: each writes the summaries of its shard.
    """
    import torch.distributed as dist

    given = [
        one
        for one in stories("validation", 40 * count if word else count)
        if word in one["article"]
    ][:count]
    mine = summaries(net, [one["article"] for one in given[me.rank :: me.world_size]], **settings)
    dist.all_gather_object(every := [None] * me.world_size, mine)
    texts = [every[index % me.world_size][0][index // me.world_size] for index in range(len(given))]
    return means(texts, given) | {"cut off": sum(cut for _, cut in every)}


def lead_3(count):
    """The same means of the first three sentences of the article."""
    given = stories("validation", count)
    return means(["\n".join(sentences(one["article"])[:3]) for one in given], given)


def means(texts, given):
    """pi2zero_course.summarization.scores without the intervals."""
    return {
        name: mean
        for name, (_, mean, _) in scores(texts, [one["highlights"] for one in given]).items()
    }
