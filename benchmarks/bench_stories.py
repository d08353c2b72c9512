"""300,000 stories of CNN/DailyMail's length on two ranks: what reading and tokenizing them takes.

Writes benchmarks/stories.md.

The stories are the kit's own, joined until they have about 780 words, and repeated with a number in
front: as many different files of text as it takes, none of them anybody's. One folder of JSON
lines, as a user would name by PI2ZERO_DAILYMAIL.
"""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from pi2zero.hosts import limits
from pi2zero.mpi import mpi_env
from pi2zero_course.summarization.data import news

HERE = Path(__file__).parent
RANKS, JOINED, DIFFERENT = 2, 14, 1000  # stories in an article; articles that are then repeated


def write(folder, count):
    """train.jsonl with `count` stories, and small validation and test sets.

    Returns the words of an article on average.
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=300_000, help="stories (default: 300000)")
    parser.add_argument(
        "--output", type=Path, default=HERE / "stories.md", help="(default: benchmarks/stories.md)"
    )
    args = parser.parse_args()
    load = os.getloadavg()[0]
    mpi_env()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        words = write(Path(folder), args.count)
        size = (Path(folder) / "train.jsonl").stat().st_size
        command = [
            "mpirun",
            "-n",
            str(RANKS),
            sys.executable,
            "-m",
            "mpi4py",
            str(HERE / "stories_worker.py"),
            folder,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    ranks = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    lines = [
        f"# {args.count:,} stories on two ranks",
        "",
        f"{datetime.date.today()}, {platform.system()}, {limits.cores():.0f} cores. Load of the "
        f"machine before the start: "
        f"{load:.1f} (0 is idle). Articles of {words:.0f} words, {size / 2**30:.2f} GiB of JSON "
        f"lines; cut at 512 tokens.",
        "",
        "| | s | rank 0 holds, GiB | rank 1 holds, GiB |",
        "|---|---|---|---|",
    ]
    for number, (moment, seconds, _) in enumerate(ranks[0]["moments"]):
        held = " | ".join(f"{rank['moments'][number][2] / 2**30:.2f}" for rank in ranks)
        lines.append(f"| {moment} | {seconds:.0f} | {held} |")
    most = max(held for rank in ranks for _, _, held in rank["moments"]) / 2**30
    lines += [
        "",
        f"**{most:.2f} GiB** at most on a rank. On disk, once for both: "
        f"{ranks[0]['stories'] / 2**30:.2f} GiB of stories and "
        f"{sum(rank['numbers'] for rank in ranks) / 2**30:.2f} GiB of numbers.",
        "",
        (HERE / "stories_explained.md").read_text(),
    ]
    args.output.write_text("\n".join(lines))
    print(args.output.read_text())


if __name__ == "__main__":
    main()
