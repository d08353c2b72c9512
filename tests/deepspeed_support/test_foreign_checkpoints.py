"""A checkpoint whose config.json does not fit its weights is refused in a sentence, at once."""

import json
import shutil
from pathlib import Path

import pytest

from pi2zero.deepspeed_support import checkpoints

SHIPPED = Path(__file__).parents[2] / "data" / "summarizer"


@pytest.mark.parametrize(
    "change",
    [
        {"num_layers": 100_000_000},
        {"num_decoder_layers": 900},
        {"d_ff": 10**12},
        {"vocab_size": 10**9},
        {"vocab_size": 500},
        {"d_model": "wide"},
    ],
)
def test_a_configuration_that_describes_another_model_is_refused(change, tmp_path):
    """Some would take all memory, or minutes, before they failed."""
    shutil.copytree(SHIPPED, tmp_path / "copy")
    config = tmp_path / "copy" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | change))
    with pytest.raises(checkpoints.UnreadableError) as refused:
        checkpoints.load(tmp_path / "copy")
    assert str(refused.value).isprintable()
