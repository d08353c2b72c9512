"""Files from strangers, by the thousand: each reader returns what it read, or says in a sentence what is wrong.

Half of the files are any bytes, half are good ones that were changed in a few places: the same ones in each run.
PI2ZERO_FUZZ=20000 tries as many others for each reader; failures are kept in .hypothesis and come first in the next run.
"""

import os
import time

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pi2zero import costs
from pi2zero.hosts import find, place, site
from pi2zero_course.summarization import data
from pi2zero_course.summarization.data import readers

TRIES = int(os.environ.get("PI2ZERO_FUZZ", "150"))
LONGEST = 5  # s of the processor for one file
fuzz = settings(
    max_examples=TRIES,
    derandomize="PI2ZERO_FUZZ" not in os.environ,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)

NUMBERS = [
    "0",
    "-1",
    "1",
    "2",
    "3",
    "7",
    "1.5",
    "1e400",
    "-0.0",
    "nan",
    "inf",
    "-inf",
    "999999999999999999999999",
    "1_000_000_000",
]
OTHERS = [
    "true",
    "[]",
    "[1]",
    "[[]]",
    "{}",
    '""',
    '"x"',
    '"mixed"',
    "'\"'",
    "=",
    "[",
    "]",
    "#",
    "1" * 5000,
    "[" * 2000,
]
WORDS = [
    *NUMBERS,
    *OTHERS,
    "\0",
    "\ud7ff",
    "é",
    "²",
    "@highlight",
    "slots=2",
    "slots=0",
    "node1:2",
    '"2026-11-27"',
]
PLAN = costs.EXAMPLE.replace("layers = 48", "layers = 4").replace(
    "ranks = 64", "ranks = 8"
)  # fewer layouts to look at
HOSTS = "node1 slots=2\nnode2 slots=2 max_slots=4  # two\n\nnode3.here slots=1\n"
SITE = site.EXAMPLE.replace("# ", "")
STORY = "A ship came. It left.\n\nNobody saw it\n\n@highlight\n\nA ship came and left\n\n@highlight\n\nNobody saw it\n"
LINES = """{"id": "a", "article": "One ship. Two.", "highlights": "One."}
{"date": "2026-11-27T09:00:00Z", "article": "Three ships.", "highlights": "Two.\\nThree."}
"""


@st.composite
def changed(draw, good: str) -> bytes:
    """A good file with a few values, lines or bytes changed."""
    lines = good.splitlines()
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(lines) - 1))
        how = draw(st.sampled_from(["value", "value", "value", "drop", "double", "word", "cut"]))
        name, equals, _ = lines[at].partition("=")
        word = draw(st.sampled_from(WORDS))
        if how == "value":
            lines[at] = f"{name}= {word}" if equals else word
        elif how == "drop" and len(lines) > 1:
            del lines[at]
        elif how == "double":
            lines.insert(at, lines[at])
        elif how == "word":
            middle = draw(st.integers(0, len(lines[at])))
            lines[at] = lines[at][:middle] + word + lines[at][middle:]
        else:
            lines[at] = lines[at][: draw(st.integers(0, len(lines[at])))]
    text = "\n".join(lines).encode("utf-8", "surrogatepass")
    return text[: draw(st.integers(0, len(text)))] if draw(st.integers(0, 9)) == 0 else text


def files(good: str):
    return st.one_of(st.binary(max_size=300), changed(good))


def read(reader, *errors):
    """What a reader gives; None if it refuses in words, by one of these errors. All else is a failure, and so is a long wait."""
    start = time.process_time()
    try:
        found = reader()
    except errors as error:
        assert type(error) in errors, f"{type(error).__name__}: {error}"
        words = str(error)
        assert 10 < len(words) < 2000 and words.isprintable(), repr(words)
        found = None
    assert time.process_time() - start < LONGEST
    return found


@fuzz
@given(text=files(PLAN))
def test_plans(text):
    try:
        text = text.decode()
    except UnicodeDecodeError:
        return
    plan = read(lambda: costs.plan_from(text), ValueError)
    assert plan is None or "Why the others lose" in costs.plan_text(plan)


@fuzz
@given(text=files(SITE))
def test_site_files(tmp_path, text):
    path = tmp_path / "site.toml"
    path.write_bytes(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PI2ZERO_SITE", str(path))
        found = read(site.load, place.PlaceError)
    assert found is None or isinstance(found, site.Site)


@fuzz
@given(text=files(HOSTS))
def test_hostfiles(tmp_path, text):
    path = tmp_path / "hosts"
    path.write_bytes(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(find, "cores_of", lambda host: 2)  # no stranger's host is asked by ssh
        found = read(lambda: find.counted(find.in_file(path)), place.PlaceError)
    assert found is None or all(name and slots > 0 for name, slots in found.items())


@fuzz
@given(text=files(STORY))
def test_story_files(text):
    try:
        article, highlights = readers.parse_story(text)
    except readers.Bad as bad:
        assert bad.line >= 1 and bad.what.isprintable()
        return
    assert article and highlights and "@highlight" not in highlights.split("\n")


@fuzz
@given(text=files(LINES))
@example(text=LINES.replace("article", "1" * 5000).encode())
@example(text=(LINES.replace('"article"', '"id": "%s", "article"' % ("1" * 5000)) * 2).encode())
def test_tables_of_stories(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("stories") / "stories.jsonl"
    path.write_bytes(text)
    found = read(lambda: data.load(path, say=lambda line: None), ValueError)
    if found is not None:
        for part in found.splits.values():
            assert all(isinstance(story["article"], str) and story["article"] for story in part)
