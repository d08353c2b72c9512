"""A checkpoint of a stranger: its configuration, its tokenizer and its weights, changed.

As in test_fuzz.py, the kit reads it or says in a sentence what is wrong.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_fuzz import TRIES, WORDS, files, fuzz, read
from transformers import AutoTokenizer, T5Config, T5ForConditionalGeneration

from pi2zero.deepspeed_support import checkpoints

SHIPPED = Path(__file__).parents[2] / "data" / "summarizer"
FEWER = settings(fuzz, max_examples=TRIES // 4)  # some 50 ms each


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A checkpoint with a model of a few thousand numbers."""
    folder = tmp_path_factory.mktemp("checkpoint")
    tokenizer = AutoTokenizer.from_pretrained(SHIPPED)
    sizes = {
        "vocab_size": len(tokenizer),
        "d_model": 8,
        "d_kv": 4,
        "d_ff": 8,
        "num_layers": 1,
        "num_heads": 2,
    }
    model = T5ForConditionalGeneration(T5Config(**sizes, decoder_start_token_id=0))
    model.save_pretrained(folder), tokenizer.save_pretrained(folder)
    return folder


def loaded(whole, folder, name, text):
    """What `load` makes of a copy in which one file is `text`."""
    shutil.copytree(whole, folder, dirs_exist_ok=True)
    (folder / name).write_bytes(text)
    found = read(lambda: checkpoints.load(folder), checkpoints.UnreadableError)
    if found:
        assert all(isinstance(value, torch.Tensor) for value in found[1].state_dict().values())


def values(name):
    """The file's own keys with other values."""
    return st.dictionaries(st.sampled_from(name), st.sampled_from(WORDS), min_size=1, max_size=3)


SIZES = [
    "vocab_size",
    "d_model",
    "d_kv",
    "d_ff",
    "num_layers",
    "num_decoder_layers",
    "num_heads",
    "dropout_rate",
    "feed_forward_proj",
]
OTHERS = [
    "model_type",
    "architectures",
    "dtype",
    "torch_dtype",
    "auto_map",
    "quantization_config",
    "relative_attention_num_buckets",
]


@FEWER
@given(changes=values(SIZES + OTHERS))
@example(changes={"num_layers": "100000000"})
@example(changes={"num_decoder_layers": "900"})
@example(changes={"d_ff": "1000000000000"})
@example(changes={"vocab_size": "1000000000"})
@example(changes={"vocab_size": "500"})
@example(changes={"dtype": "1" * 5000})
def test_configurations(whole, tmp_path_factory, changes):
    told = json.loads((whole / "config.json").read_text())
    for key, word in changes.items():
        try:
            told[key] = json.loads(word)
        except (ValueError, RecursionError):
            told[key] = word
    loaded(whole, tmp_path_factory.mktemp("copy"), "config.json", json.dumps(told).encode())


@FEWER
@given(
    text=files(
        '{\n"model_type": "t5",\n"vocab_size": 60,\n"d_model": 8,\n"num_layers": 1,\n"num_heads": 2\n}'
    )
)
def test_texts_of_configurations(whole, tmp_path_factory, text):
    loaded(whole, tmp_path_factory.mktemp("copy"), "config.json", text)


@FEWER
@given(
    cut=st.floats(0, 1),
    new=st.binary(max_size=12),
    name=st.sampled_from(["model.safetensors", "tokenizer.json"]),
)
def test_bytes_of_weights_and_tokenizers(whole, tmp_path_factory, cut, new, name):
    text = (whole / name).read_bytes()
    at = int(cut * min(len(text), 2000))
    loaded(
        whole,
        tmp_path_factory.mktemp("copy"),
        name,
        text[:at] + new + text[at + len(new) :] if new else text[:at],
    )
