"""What bench_stories.py runs on MPI ranks: it reads a folder's stories, tokenizes them, draws
batches; what that held.
"""

import json
import re
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from transformers import AutoTokenizer

from pi2zero import ranks
from pi2zero_course.summarization.data import on_ranks

SUMMARIZER = Path(__file__).resolve().parents[1] / "data" / "summarizer"
BATCHES = 2000  # of 64 stories, read by this rank in a random order


def private():
    """Bytes of memory that are this process's own: without the files that it maps, whose pages the
    system may take back.
    """
    return 1024 * int(re.search(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text())[1])


class Moments:
    """(name, s, most bytes held) of each part of the program."""

    def __init__(self):
        self.found, self._most = [], 0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self):
        while True:
            self._most = max(self._most, private())
            time.sleep(0.02)

    def measure(self, name, work):
        start, self._most = time.monotonic(), private()
        made = work()
        self.found.append((name, time.monotonic() - start, max(self._most, private())))
        return made


def main():
    moments = Moments()
    me = moments.measure("start: torch, transformers, MPI", ranks.join)
    tokenizer = AutoTokenizer.from_pretrained(SUMMARIZER)
    stories = moments.measure(
        "read the stories", lambda: on_ranks.load(me, sys.argv[1], say=lambda words: None)
    ).splits["train"]

    def encode(some):
        pair = [
            tokenizer(some[name], max_length=512, truncation=True)["input_ids"]
            for name in ("article", "highlights")
        ]
        return zip(*pair, strict=True)

    rows = moments.measure("tokenize them", lambda: on_ranks.tokenized(stories, encode))

    def read():
        order = torch.randint(
            len(rows),
            (BATCHES, 64 // me.world_size),
            generator=torch.Generator().manual_seed(me.rank),
        )
        return sum(
            torch.from_numpy(rows[int(index)][0]).sum() for batch in order for index in batch
        )

    moments.measure(f"{BATCHES:,} batches of 64, in a random order", read)
    size = (
        sum(Path(part["filename"]).stat().st_size for part in stories.cache_files)
        if me.rank == 0
        else 0
    )
    numbers = 4 * int(sum(each.sum() for each in rows.lengths())) // me.world_size
    dist.all_gather_object(
        every := [None] * me.world_size,
        {"moments": moments.found, "stories": size, "numbers": numbers},
    )
    if me.rank == 0:
        print(*map(json.dumps, every), sep="\n", flush=True)
    ranks.leave()


if __name__ == "__main__":
    main()
