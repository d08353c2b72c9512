"""Stories to summarize, from one of three sources, with the columns id, article and highlights.

embedded: written by the kit's generator (summarization.data.news); needs no network, no download.
real: CNN/DailyMail 3.0.0, from the cache of the `datasets` library or from the Hugging Face hub.
a path: your own copy, or your own stories in the same form (see summarization.data.files).
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pi2zero.requirements import require_package

if TYPE_CHECKING:
    import datasets

__all__ = ["SPLITS", "Stories", "load"]

SPLITS = ("train", "validation", "test")
VARIABLE = "PI2ZERO_DAILYMAIL"  # environment variable with the path of a local copy
# Stories of the embedded source, unless `counts` says otherwise.
EMBEDDED = {"train": 20000, "validation": 500, "test": 500}
SHOWN = 5  # how many skipped stories are printed; the list has all of them


@dataclass(frozen=True)
class Stories:
    """name: "embedded", "cnn_dailymail" or the path. why: why this source is in use, in a sentence.

    splits: {"train", "validation", "test": a Dataset with the columns id, article and highlights,
    which has one sentence per line}. skipped: the stories left out, and what is wrong with each.
    """

    name: str
    why: str
    splits: "dict[str, datasets.Dataset]"
    skipped: list[str]


def load(
    source: str | Path = "auto",
    *,
    download: bool = True,
    counts: dict[str, int] | None = None,
    seed: int = 0,
    say: Callable[[str], object] = print,
) -> Stories:
    """Stories from `source`: "embedded", "real", "auto" or a path.

    "auto" is the path in $PI2ZERO_DAILYMAIL if that is set; else, unless download=False, the real
    set if it is in the cache or if the hub answers within 3 s; else the embedded stories. `say`
    gets which one, and why.

    counts: {split: how many stories at most}; other splits are whole (embedded: 20,000, 500, 500).
    seed: of the embedded generator, and of the draw where `counts` takes a part of the real set; of
        a local copy the first stories are taken.
    download=False: the real set only from the cache.

    Raises ValueError for wrong arguments and for a local copy that is damaged or has no story left
    in a split, FileNotFoundError for a path that does not exist, OSError if the real set was asked
    for and is not available.
    """
    require_package("datasets", "summaries", "pi2zero-course")
    counts = _checked(counts)
    if source == "auto" and os.environ.get(VARIABLE):
        stories = _named_by_variable(os.environ[VARIABLE], counts)
    elif source == "auto":
        stories = _real_or_embedded(download, counts, seed, say)
    elif source == "embedded":
        stories = _embedded(
            "The kit's own generated stories are in use, as you asked.", counts, seed
        )
    elif source == "real":
        stories = _real(download, counts, seed, say)
    else:
        stories = _local(source, counts, "as you asked")
    say(stories.why)
    for line in stories.skipped[:SHOWN]:
        say(f"  skipped {line}")
    if len(stories.skipped) > SHOWN:
        say(f"  ... and {len(stories.skipped) - SHOWN} more")
    return stories


def _checked(counts):
    """`counts` as a dictionary of its own."""
    counts = dict(counts or {})
    if unknown := [split for split in counts if split not in SPLITS]:
        raise ValueError(
            f"There is no split {unknown[0]!r}. `counts` takes numbers for {', '.join(SPLITS)}."
        )
    for split, count in counts.items():
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise ValueError(
                f"counts[{split!r}] is {count!r}, not a whole number of stories, 1 or more."
            )
    return counts


def _embedded(why, counts, seed):
    from datasets import Dataset

    from pi2zero_course.summarization.data import news

    splits = {
        split: Dataset.from_list(news.stories(split, count, seed))
        for split, count in (EMBEDDED | counts).items()
    }
    return Stories("embedded", why, splits, [])


def _local(path, counts, reason):
    from pi2zero_course.summarization.data import files

    form, splits, skipped = files.read(path, counts)
    were = "1 story was" if len(skipped) == 1 else f"{len(skipped):,} stories were"
    left_out = f" {were} left out." if skipped else ""
    return Stories(str(path), f"{path} is in use, {reason}: {form}.{left_out}", splits, skipped)


def _named_by_variable(path, counts):
    try:
        return _local(path, counts, f"because ${VARIABLE} names it")
    except (ValueError, OSError) as error:
        advice = f"Correct ${VARIABLE}, or unset it and start again."
        raise type(error)(
            f"${VARIABLE} names a copy that cannot be used. {error} {advice}"
        ) from error


def _real_or_embedded(download, counts, seed, say):
    from pi2zero_course.summarization.data import dailymail

    if not download:
        return _embedded(
            "The kit's own generated stories are in use: downloads are switched off.", counts, seed
        )
    try:
        return _real(download, counts, seed, say)
    except dailymail.UnavailableError as error:
        return _embedded(
            f"The kit's own generated stories are in use, not CNN/DailyMail: {error.reason}.",
            counts,
            seed,
        )


def _real(download, counts, seed, say):
    from pi2zero_course.summarization.data import dailymail

    origin, whole = dailymail.get(download, say)
    splits = {split: dailymail.draw(whole[split], counts.get(split), seed) for split in SPLITS}
    return Stories(
        "cnn_dailymail", f"CNN/DailyMail {dailymail.CONFIG} is in use, {origin}.", splits, []
    )
