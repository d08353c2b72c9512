"""faults.toml binds each fault to a test that is there and looks for the words that the list says a learner sees."""

import re
from pathlib import Path

import pytest
from fault_page import FAULTS, PAGE

ROOT = Path(__file__).parents[2]
LAYERS = {"set-up", "a cell on ranks", "MPI, torch, Horovod, DeepSpeed", "data", "Jupyter", "two users", "hosts and Slurm"}


def test_there_are_enough_in_every_layer():
    layers = [layer for layer, *_ in FAULTS.values()]
    assert len(layers) >= 60 and set(layers) >= LAYERS and min(layers.count(layer) for layer in LAYERS) >= 5
    names = [name for _, name, *_ in FAULTS.values()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("test", FAULTS)
def test_it_is_bound_to_a_test_that_looks_for_its_words(test):
    _, _, sees, then = FAULTS[test]
    file, function, _, case = re.fullmatch(r"([\w/]+\.py)::(\w+)(\[(.*)\])?", test).groups()
    source = (ROOT / file).read_text()
    assert f"def {function}(" in source and then
    helpers = "".join((ROOT / "tests" / name).read_text() for name in ("summarize_runs.py", "fault_tables.py"))
    assert sees.startswith("(") or sees in source + helpers, "its test does not look for these words"
    for word in re.findall(r"\w+", case or "")[:3]:
        book = any((ROOT / folder / f"{word}.ipynb").exists() for folder in ("notebooks", "labs"))
        assert book or word in source + helpers, f"no case {case!r}"


def test_the_page_has_every_fault_and_none_that_failed():
    text = PAGE.read_text()
    rows = {name: f"| {name} | {sees if sees.startswith('(') else f'`{sees}`'} |" for _, name, sees, _ in FAULTS.values()}
    assert not [name for name, row in rows.items() if f"\n{row}" not in text], "run `make faults`"
    assert not [word for word in ("FAILED", "skipped", "not run yet") if f"| {word} |" in text]
