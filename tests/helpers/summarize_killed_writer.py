"""For test_summarize.py: write checkpoints into a folder, each killed at another file operation,
and look at what is left.

Prints how many kills left the former checkpoint the latest, and how many the new one.
"""

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import safetensors.torch
import torch

from pi2zero.deepspeed_support import checkpoints

EVENTS = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree")
FOLDER = Path(sys.argv[1]) / "run"


class Part:
    """In place of a tokenizer and of a configuration."""

    def __init__(self, name):
        self.name = name

    def save_pretrained(self, folder):
        (folder / self.name).write_text("{}")


def write(step, value):
    weights, moments = {"w": torch.full((1000,), value)}, {"exp_avg/w": torch.full((1000,), value)}
    checkpoints._write(
        FOLDER,
        weights,
        moments,
        Part("config.json"),
        Part("tokenizer.json"),
        {"step": step, "value": value},
    )


def killed_at(operation):
    """Write step 10 in a child that is killed there; False if it came to the end before."""
    if child := os.fork():
        return os.waitpid(child, 0)[1] == signal.SIGKILL
    left = [operation]

    def count(event, _arguments):
        if event in EVENTS:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def half_then_whole(tensors, path, **options):  # it writes in Rust, where no event tells of it
        whole(tensors, path, **options)
        data = path.read_bytes()
        path.write_bytes(data[: len(data) // 2])
        count("open", ())
        path.write_bytes(data)

    whole, safetensors.torch.save_file = safetensors.torch.save_file, half_then_whole
    sys.addaudithook(count)
    write(10, 10.0)
    os._exit(0)


def value_of_latest():
    latest = checkpoints.find(FOLDER)
    value = json.loads((latest / "progress.json").read_text())["value"]
    for name in ("model.safetensors", "moments.safetensors"):
        for tensor in safetensors.torch.load_file(latest / name).values():
            assert tensor.tolist() == [value] * 1000, latest
    assert (latest / "config.json").read_text() == (latest / "tokenizer.json").read_text() == "{}"
    return value


def main():
    found, operation = [], 0
    while True:
        operation += 1
        shutil.rmtree(FOLDER, ignore_errors=True)
        write(5, 5.0)
        if not killed_at(operation):
            break
        found.append(value_of_latest())
        write(15, 15.0)
        assert value_of_latest() == 15.0
        assert sorted(path.name for path in FOLDER.iterdir()) == ["latest", "step15"]
        shutil.rmtree(FOLDER)
        write(5, 5.0)
        killed_at(operation)
        if found[-1] == 5.0:
            # another run may reach step 10, too: what the killed one left is not taken for its own
            write(10, 11.0)
            assert value_of_latest() == 11.0
    print(found.count(5.0), found.count(10.0))


main()
