"""The generated stories: always the same, in CNN/DailyMail's form, and different in each split."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from pi2zero_course.summarization.data import news
from pi2zero_course.summarization.scores import facts, sentences

ROOT = Path(__file__).resolve().parents[2]
PLAIN = {
    "Bus",
    "Train",
    "Postal",
    "Teachers",
    "Nurses",
    "Bakers",
    "Cleaners",
    "Dockers",
}  # trades that may begin a sentence


def templates(split):
    """Every sentence of a split's file, with [a|b] written out."""
    found = []
    raw = tomllib.loads((Path(news.__file__).parent / f"{split}.toml").read_text(encoding="utf-8"))
    for part in (raw["scene"], *raw["topic"].values()):
        for name in ("sentences", "aside", "event", "count", "plan"):
            found += part.get(name, [])
        found += [line for row in part.get("highlights", []) for line in row]
    return {variant for template in found for variant in written_out(template)}


def written_out(template):
    found = re.search(r"\[([^]]*)\]", template)
    if not found:
        return [template]
    return [
        one
        for choice in found[1].split("|")
        for one in written_out(template.replace(found[0], choice, 1))
    ]


def test_a_story_is_always_the_same():
    with (ROOT / "data/news_sample.jsonl").open(encoding="utf-8") as lines:
        sample = [json.loads(line) for line in lines]
    assert len(sample) == 30
    for kept in sample:
        split, seed, index = kept["id"].split("-")
        assert news.story(split, int(index), int(seed)) == kept


def test_other_arguments_give_other_stories():
    stories = [
        news.story(split, index, seed)["article"]
        for split in news.SPLITS
        for index in (0, 1)
        for seed in (0, 1)
    ]
    assert len(set(stories)) == len(stories)


def test_splits_share_no_sentence_and_no_name():
    for one, other in (("train", "validation"), ("train", "test"), ("validation", "test")):
        assert not templates(one) & templates(other)
        for kind in ("given", "family", "town"):
            assert not set(news._names(one)[kind]) & set(news._names(other)[kind])


@pytest.mark.parametrize("split", news.SPLITS)
def test_the_highlights_tell_what_the_article_tells(split):
    for story in news.stories(split, 300):
        assert set(story) == {"id", "article", "highlights"}
        assert len(story["highlights"].split("\n")) == 3
        assert facts(story["highlights"]) <= set(re.findall(r"[\w'-]+", story["article"])) | PLAIN
        assert not re.search(r"[{}\[\]|]|\b[Aa] [aeiou]|  ", story["article"] + story["highlights"])
        assert all(
            line[0].isupper() or line[0].isdigit() for line in story["highlights"].split("\n")
        )
        assert 4 <= len(sentences(story["article"])) <= 9


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("dev", 0), "There is no split 'dev'"),
        (("test", -1), "0 or more, not -1"),
        (("test", 0, 0, ("fire", "sport")), "There is no topic 'sport'. The topics are fire"),
    ],
)
def test_bad_arguments_are_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        news.story(*arguments)
