"""What bench_stories.py runs on MPI ranks: reads a folder's stories, tokenizes them, draws batches,
and reports the time and memory of each phase.
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


def private_memory():
    """Bytes of this process alone, without mapped files, whose pages the system may take back."""
    return 1024 * int(re.search(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text())[1])


class Phases:
    """(name, s, peak bytes) of each phase of the program."""

    def __init__(self):
        self.results, self._peak = [], 0
        threading.Thread(target=self._sample, daemon=True).start()

    def _sample(self):
        while True:
            self._peak = max(self._peak, private_memory())
            time.sleep(0.02)

    def measure(self, name, work):
        start, self._peak = time.monotonic(), private_memory()
        result = work()
        peak = max(self._peak, private_memory())
        self.results.append((name, time.monotonic() - start, peak))
        return result


def main():
    phases = Phases()
    me = phases.measure("start: torch, transformers, MPI", ranks.join)
    tokenizer = AutoTokenizer.from_pretrained(SUMMARIZER)
    stories = phases.measure(
        "read the stories", lambda: on_ranks.load(me, sys.argv[1], say=lambda words: None)
    ).splits["train"]

    def encode(some):
        pair = [
            tokenizer(some[name], max_length=512, truncation=True)["input_ids"]
            for name in ("article", "highlights")
        ]
        return zip(*pair, strict=True)

    rows = phases.measure("tokenize them", lambda: on_ranks.tokenized(stories, encode))

    def read():
        generator = torch.Generator().manual_seed(me.rank)
        order = torch.randint(len(rows), (BATCHES * 64 // me.world_size,), generator=generator)
        return sum(torch.from_numpy(rows[int(index)][0]).sum() for index in order)

    phases.measure(f"{BATCHES:,} batches of 64, in a random order", read)
    size = sum(Path(part["filename"]).stat().st_size for part in stories.cache_files)
    tokens = 4 * int(sum(lengths.sum() for lengths in rows.lengths())) // me.world_size
    report = {"phases": phases.results, "stories": size, "tokens": tokens}
    dist.all_gather_object(reports := [None] * me.world_size, report)
    if me.rank == 0:
        print(*map(json.dumps, reports), sep="\n", flush=True)
    ranks.leave()


if __name__ == "__main__":
    main()
