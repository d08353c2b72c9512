"""300,000 stories of CNN/DailyMail's length on two ranks: the time to read and tokenize them.

Writes benchmarks/stories.md. The stories are the kit's own: they are joined until they have about
780 words, and repeated with a number in front. They lie in one folder of JSON lines, as a user
would name by PI2ZERO_DAILYMAIL.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path

from figures import HERE, conditions, on_ranks, table, write_page

from pi2zero.mpi import mpi_env
from pi2zero_course.summarization.data import news

RANKS, JOINED, DIFFERENT = 2, 14, 1000  # stories per article; articles that are then repeated


def write(folder, count):
    """Write train.jsonl with `count` stories, and small validation and test sets.

    Returns the mean number of words of an article.
    """
    short = news.stories("train", JOINED * DIFFERENT)
    groups = [short[at : at + JOINED] for at in range(0, len(short), JOINED)]
    articles = [" ".join(story["article"] for story in group) for group in groups]
    for split, many in {"train": count, "validation": 100, "test": 100}.items():
        with (folder / f"{split}.jsonl").open("w") as file:
            for index in range(many):
                at = index % DIFFERENT
                highlights = groups[at][0]["highlights"]
                story = {
                    "id": f"{split}{index}",
                    "article": f"{split} {index}. {articles[at]}",
                    "highlights": highlights,
                }
                file.write(json.dumps(story) + "\n")
    return sum(len(article.split()) for article in articles) / len(articles)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=300_000, help="stories (default: 300000)")
    count, load = parser.parse_args().count, os.getloadavg()[0]
    mpi_env()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        words = write(Path(folder), count)
        size = (Path(folder) / "train.jsonl").stat().st_size
        lines = on_ranks(RANKS, "-m", "mpi4py", HERE / "stories_worker.py", folder).splitlines()
    ranks = [json.loads(line) for line in lines if line.startswith("{")]
    rows = [
        [name, f"{seconds:.0f}", *(f"{rank['phases'][k][2] / 2**30:.2f}" for rank in ranks)]
        for k, (name, seconds, _) in enumerate(ranks[0]["phases"])
    ]
    peak = max(memory for rank in ranks for _, _, memory in rank["phases"]) / 2**30
    tokens = sum(rank["tokens"] for rank in ranks)
    write_page(
        "stories",
        f"# {count:,} stories on two ranks",
        f"{conditions(load)} Articles of {words:.0f} words, {size / 2**30:.2f} GiB of JSON lines; "
        "cut at 512 tokens.",
        table(("", "s", "memory of rank 0, GiB", "memory of rank 1, GiB"), rows),
        f"**{peak:.2f} GiB** at most on a rank. On disk, once for both: "
        f"{ranks[0]['stories'] / 2**30:.2f} GiB of stories and {tokens / 2**30:.2f} GiB of tokens.",
    )


if __name__ == "__main__":
    main()
