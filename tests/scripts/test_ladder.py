"""The scripts of the ladder: each is train_single.py and a few lines more, which are tagged."""

import difflib

import pytest
from many_runs import SCRIPTS

SINGLE = SCRIPTS / "train_single.py"
# name: (at most so many lines added and left out together, left out alone)
MOST = {
    "train_ddp": (59, 14),
    "train_horovod": (59, 14),
    "train_deepspeed": (99, 39),  # DeepSpeed's engine saves and loads
    "train_pipeline": (99, 14),
    "train_tensor": (99, 14),
}


@pytest.mark.parametrize("name", MOST)
def test_it_is_single_plus_fewer_than_60_tagged_lines(name):
    single, ours = (
        SINGLE.read_text().splitlines(),
        (SCRIPTS / f"{name}.py").read_text().splitlines(),
    )
    delta = [line for line in difflib.ndiff(single, ours) if line[0] in "+-" and line[2:].strip()]
    added, removed = ([line[2:] for line in delta if line[0] == sign] for sign in "+-")
    together, left_out = MOST[name]
    assert 0 < len(added) < 60 and len(delta) <= together and len(removed) <= left_out
    assert [line for line in added if "# NEW" not in line] == []
    assert [line for line in ours if "# NEW" in line and line not in added] == []
    assert not any("# NEW" in line for line in single)
    rest = iter([line for line in single if line.strip()])
    kept = [line for line in ours if "# NEW" not in line and line.strip()]
    assert all(line in rest for line in kept), (
        "without the tagged lines, train_single.py's own lines remain, in order"
    )
