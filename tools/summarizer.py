#!/usr/bin/env python
"""Train the two small checkpoints in data/: `python tools/summarizer.py [NAME ...]`.

summarizer: a T5 of a quarter of a million parameters, trained from scratch on 20,000 generated
stories of seven of the eight topics; lab 5 begins with it. Five minutes on two cores.
summarizer_early: the same after one minute. It writes the highlights' phrases and does not copy a
name yet; notebook 10 begins with it, and teaches it that and the eighth topic in three minutes.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from pi2zero import mpi_env
from pi2zero.deepspeed_support import checkpoints
from pi2zero_course.summarization.data import SPLITS, news

ROOT = Path(__file__).resolve().parents[1]
TOPICS = ("fire", "flood", "gift", "match", "opening", "robbery", "strike")
STEPS = {"summarizer": 1500, "summarizer_early": 350}  # each with a learning rate that ends at 0
FILES = ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json")


def main():
    mpi_env()
    for name in sys.argv[1:] or STEPS:
        with tempfile.TemporaryDirectory() as folder:
            for split in SPLITS:
                stories = news.stories(split, 20_000 if split == "train" else 500, topics=TOPICS)
                (Path(folder) / f"{split}.jsonl").write_text("\n".join(map(json.dumps, stories)))
            train = [
                ROOT / "scripts/summarize.py",
                "train",
                f"{folder}/run",
                "--data",
                folder,
                "--steps",
                str(STEPS[name]),
            ]
            subprocess.run(["mpirun", "-n", "2", sys.executable, *train], check=True)
            (ROOT / "data" / name).mkdir(exist_ok=True)
            for file in FILES:
                shutil.copyfile(
                    checkpoints.find(f"{folder}/run") / file, ROOT / "data" / name / file
                )


if __name__ == "__main__":
    main()
