"""One of the programs of bench_training.py: trains a few steps in each of its turns.

Turn N begins when FOLDER/goN exists; each rank then writes the seconds of its steps to
FOLDER/N.RANK. FOLDER/end ends the program.
"""

import argparse
import itertools
import json
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))
import synthetic_benchmark as script


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--method", required=True)
    parser.add_argument("--model", required=True)
    for name in ("ranks", "batch-size", "image-size", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rank, ranks, device = script.join(args.method)
    if ranks != args.ranks:
        sys.exit(f"{args.ranks} ranks were asked for, this is a world of {ranks}")
    train, _ = script.training(args, rank, device)
    train()
    for turn in itertools.count():
        while not (args.folder / f"go{turn}").exists():
            if (args.folder / "end").exists():
                return script.leave(args.method)
            time.sleep(0.01)
        train()  # fills caches and wakes threads
        seconds = [timed(train) for _ in range(args.steps)]
        write_whole(args.folder / f"{turn}.{rank}", seconds)
        if (
            args.method == "single"
        ):  # A rank that stops early would leave the machine to the others.
            while not all((args.folder / f"{turn}.{other}").exists() for other in range(ranks)):
                train()


def timed(train):
    """Seconds of one step."""
    start = time.perf_counter()
    train()
    return time.perf_counter() - start


def write_whole(path, seconds):
    """Write the file in one step, because the other program waits for it."""
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps(seconds))
    new.replace(path)


if __name__ == "__main__":
    main()
