"""The two checkpoints in data/: notebook 10 begins before copying is learnt, lab 5 after it."""

from pathlib import Path

import pytest

from pi2zero.deepspeed_support import checkpoints
from pi2zero_course.checks.summarization import stories as lab
from pi2zero_course.summarization.scores import scores

DATA = Path(__file__).parents[2] / "data"


def test_both_read_the_same_pieces():
    one, other = (
        (DATA / name / "tokenizer.json").read_bytes() for name in ("summarizer", "summarizer_early")
    )
    assert one == other


@pytest.mark.long
def test_the_early_one_writes_phrases_and_hardly_copies_a_name():
    given, found = lab.stories("validation", 60), {}
    for name in ("summarizer", "summarizer_early"):
        _, net = checkpoints.load(DATA / name)
        texts, _ = lab.summaries(
            net, [story["article"] for story in given], max_new_tokens=60, do_sample=False
        )
        found[name] = scores(texts, [story["highlights"] for story in given])
    assert found["summarizer_early"]["facts"][1] < 20 < 60 < found["summarizer"]["facts"][1]
    assert found["summarizer_early"]["rouge1"][1] > 40, "the phrases are there"
