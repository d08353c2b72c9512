#!/usr/bin/env python
"""Make data/summarizer again: the small checkpoint that notebook 10 and lab 5 begin from.

A T5 of a quarter of a million parameters, trained from scratch on 20,000 generated stories of seven of the eight topics, so that
the notebook has something left to teach it. About five minutes on two cores.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from pi2zero import mpi_env
from pi2zero.summaries.data import SPLITS, news
from pi2zero.zero import checkpoints

ROOT = Path(__file__).resolve().parents[1]
TOPICS = ("fire", "flood", "gift", "match", "opening", "robbery", "strike")
FILES = ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json")


def main():
    with tempfile.TemporaryDirectory() as folder:
        for split in SPLITS:
            stories = news.stories(split, 20_000 if split == "train" else 500, topics=TOPICS)
            (Path(folder) / f"{split}.jsonl").write_text("\n".join(map(json.dumps, stories)))
        mpi_env()
        train = [sys.executable, ROOT / "scripts/summarize.py", "train", f"{folder}/run", "--data", folder, "--steps", "1500"]
        subprocess.run(["mpirun", "-n", "2", *train], check=True)
        (ROOT / "data/summarizer").mkdir(exist_ok=True)
        for name in FILES:
            shutil.copyfile(checkpoints.find(f"{folder}/run") / name, ROOT / "data/summarizer" / name)


if __name__ == "__main__":
    main()
