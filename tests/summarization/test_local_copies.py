"""Local copies: each form that is read, and the sentence for what cannot be read."""

import csv
import hashlib
import io
import json
import pickle
import tempfile

import datasets
import pyarrow as pa
import pytest
from pyarrow import parquet
from summarize_runs import Payload

from pi2zero_course.summarization import data
from pi2zero_course.summarization.data import files

STORY = (
    "A ship sank\n\nNobody was hurt.\n\n@highlight\n\nShip sinks\n\n@highlight\n\nAll are well .\n"
)
SPLITS = ("train", "validation", "test")


def rows(split, count):
    return [
        {"id": f"{split}{i}", "article": f"{split} story {i} .", "highlights": "One .\nTwo ."}
        for i in range(count)
    ]


def as_lines(stories):
    return "".join(json.dumps(story) + "\n" for story in stories)


def as_csv(stories):
    text = io.StringIO()
    writer = csv.DictWriter(text, stories[0])
    writer.writeheader()
    writer.writerows(stories)
    return text.getvalue()


def folder_of_lines(root, **changed):
    """train.jsonl, validation.jsonl, test.jsonl, three good stories each, but for the changed."""
    for split in SPLITS:
        text = changed.get(split, as_lines(rows(split, 3)))
        (root / f"{split}.jsonl").write_bytes(text if isinstance(text, bytes) else text.encode())
    return root


def quiet(path, **arguments):
    return data.load(path, say=lambda text: None, **arguments)


def sizes(stories):
    return [len(stories.splits[split]) for split in SPLITS]


def write(form, folder, split, stories):
    if form == "parquet":
        table = pa.Table.from_pylist(stories)
        parquet.write_table(table, folder / f"{split}-00000-of-00001.parquet")
    elif form == "saved":
        datasets.Dataset.from_list(stories).shuffle(seed=0).save_to_disk(folder / split)
    else:
        write_as = {"jsonl": as_lines, "json": json.dumps, "csv": as_csv}[form]
        (folder / f"{split}.{form}").write_text(write_as(stories))


@pytest.mark.parametrize("form", ["parquet", "jsonl", "json", "csv", "saved"])
def test_tables(form, tmp_path):
    for split, count in {"train": 25, "validation": 3, "test": 4}.items():
        write(form, tmp_path, split, rows(split, count))
    stories = quiet(tmp_path)
    assert sizes(stories) == [25, 3, 4] and stories.name == str(tmp_path) and not stories.skipped
    assert f"{tmp_path} is in use, as you asked: " in stories.why
    for split in SPLITS:
        found = sorted(stories.splits[split].to_list(), key=lambda story: int(story["id"][-1]))
        assert {tuple(sorted(story.items())) for story in found} == {
            tuple(sorted(story.items())) for story in rows(split, len(found))
        }
    assert sizes(quiet(tmp_path, counts={"train": 7})) == [7, 3, 4]


@pytest.mark.parametrize("form", ["parquet", "jsonl", "json", "csv", "saved"])
def test_one_file_is_split_by_the_ids_always_in_the_same_way(form, tmp_path):
    write(form, tmp_path, "stories", rows("story", 200))
    (path,) = tmp_path.iterdir()
    stories = quiet(path)
    assert sum(sizes(stories)) == 200 and min(sizes(stories)) > 5 and "80 %" in stories.why
    split_of = {story: split for split in SPLITS for story in stories.splits[split]["id"]}
    expected = ["validation", "train", "train", "train", "test"]
    assert [split_of[f"story{i}"] for i in range(5)] == expected


def test_ids_may_be_missing_or_numbers(tmp_path):
    numbered = [row | {"id": 7 + i, "url": "x"} for i, row in enumerate(rows("train", 3))]
    without = [{"article": "a .", "highlights": "b ."}]
    stories = quiet(folder_of_lines(tmp_path, train=as_lines(numbered), test=as_lines(without)))
    assert list(stories.splits["train"]["id"]) == ["7", "8", "9"]
    assert stories.splits["test"].to_list() == [{"id": "test-1", **without[0]}]


def test_stories_that_cannot_be_used_are_reported_and_left_out(tmp_path):
    good = rows("train", 2)
    bad = [good[0] | {"id": "x", "article": ""}, good[0] | {"id": "y", "highlights": None}]
    twice = [good[0] | {"id": "z"}, rows("test", 1)[0] | {"id": "leak"}]
    said = []
    folder_of_lines(tmp_path, train=as_lines(good + bad + twice))
    stories = data.load(tmp_path, say=said.append)
    assert sizes(stories) == [2, 3, 3]
    assert stories.skipped == [
        "train.jsonl, story 3: 'article' is empty",
        "train.jsonl, story 4: 'highlights' is empty",
        "train.jsonl, story 5: the same article as in train.jsonl, story 1",
        "train.jsonl, story 6: the same article as in test.jsonl, story 1, which is in test: "
        "left out of train, so that test does not measure memory",
    ]
    assert said == [stories.why, *(f"  skipped {line}" for line in stories.skipped)]
    assert "4 stories were left out." in stories.why


# --- What is wrong with a file, in one sentence ---


@pytest.mark.parametrize(
    ("train", "says"),
    [
        (
            as_lines(rows("train", 2)) + '{"id": 1,\n',
            r"train.jsonl, line 3, column 10: not JSON \(",
        ),
        (as_lines(rows("train", 2)) + "[1]\n", "train.jsonl, line 3: not a JSON object"),
        ('{"article": "a", "highlights": 7}\n{"article": "a", "highlights": "b"}\n', "line 1: 'h"),
        (b'{"article": "a", "highlights": "b"}\n{"article": "\xe9"}', "line 2: byte 0xe9 is not"),
        (as_lines([{"document": "a", "highlights": "b"}]), "has no column 'article', only docum"),
        (as_lines([{"article": ["a"], "highlights": "b"}]), "line 1: 'article' is not a string"),
        ("{\n", "train.jsonl, line 1, column 2: not JSON"),
    ],
)
def test_a_bad_json_file_is_one_sentence_with_its_place(train, says, tmp_path):
    with pytest.raises(ValueError, match=says) as caught:
        quiet(folder_of_lines(tmp_path, train=train))
    assert "\n" not in str(caught.value) and "train.jsonl" in str(caught.value)
    assert "Expected" in str(caught.value) or "Rename" in str(caught.value)


def test_a_bad_array_or_csv_file_is_one_sentence_with_its_place(tmp_path):
    (tmp_path / "stories.json").write_text('[\n{"article": "a"},\n{"article": }\n]')
    with pytest.raises(ValueError, match=r"stories.json, line 3, column 13: not JSON"):
        quiet(tmp_path / "stories.json")
    (tmp_path / "stories.csv").write_text("article,highlights\na,b\nc,d,e\n")
    with pytest.raises(ValueError, match=r"stories.csv: .*Expected 2 fields in line 3, saw 3"):
        quiet(tmp_path / "stories.csv")


def test_damaged_tables(tmp_path):
    write("parquet", tmp_path, "stories", rows("story", 200))
    (table,) = tmp_path.iterdir()
    table.write_bytes(table.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"parquet: it is damaged, .* copy the file again"):
        quiet(table)
    write("saved", tmp_path, "saved", rows("story", 200))
    (arrow,) = (tmp_path / "saved").glob("*.arrow")
    arrow.write_bytes(arrow.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"saved: it is damaged, .* copy the file again"):
        quiet(tmp_path / "saved")


def test_pickles_and_archives_are_not_loaded(tmp_path):
    trap = pickle.dumps(Payload(tmp_path / "it ran"))
    for name in ("stories.parquet", "stories.jsonl", "stories.csv", "stories.pkl", "stories.zip"):
        (tmp_path / name).write_bytes(trap)
        with pytest.raises(ValueError, match=r"Expected"):
            quiet(tmp_path / name)
    assert not (tmp_path / "it ran").exists()


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_files_without_a_story(form, tmp_path):
    for split in SPLITS:
        text = {"jsonl": "", "csv": "article,highlights\n"}[form]
        (tmp_path / f"{split}.{form}").write_text(text)
    with pytest.raises(ValueError, match=r"no story left|damaged|Expected"):
        quiet(tmp_path)


def test_a_copy_that_is_refused_leaves_nothing(tmp_path, monkeypatch):
    """Its Arrow files may be gigabytes, and the kernel that asked lives on."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    copy = folder_of_lines(tmp_path, test=as_lines([{"article": "a", "highlights": ""}]))
    with pytest.raises(ValueError, match=r"no story left for test\. 1 were left out; the first"):
        quiet(copy)
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".lock") == [
        "test.jsonl",
        "train.jsonl",
        "validation.jsonl",
    ]


def test_files_that_changed_are_read_again(tmp_path):
    assert sizes(quiet(folder_of_lines(tmp_path))) == [3, 3, 3]
    assert sizes(quiet(folder_of_lines(tmp_path, train=as_lines(rows("train", 5))))) == [5, 3, 3]


# --- .story files ---


def test_story_files(tmp_path):
    for split in ("train", "val", "test"):
        (tmp_path / split).mkdir()
        (tmp_path / split / "1.story").write_text(STORY.replace("ship", f"ship of {split}"))
    (tmp_path / "train" / "2.story").write_text("A ship sank.\n")
    (tmp_path / "train" / "3.story").write_text("A cat.\n\n@highlight\n\n@highlight\n\nCat\n")
    (tmp_path / "train" / "4.story").write_bytes(b"A caf\xe9.\n@highlight\nx")
    (tmp_path / "train" / "\x1b[2J.story").write_text("cut")
    stories = quiet(tmp_path)
    assert sizes(stories) == [1, 1, 1] and "folders of .story files" in stories.why
    assert stories.splits["train"][0] == {
        "id": "1",
        "article": "A ship of train sank . Nobody was hurt.",
        "highlights": "Ship sinks .\nAll are well .",
    }
    text = " ".join(stories.skipped)
    assert "2.story: line 1: cut off: it ends without an @highlight" in text
    assert "3.story: line 3: cut off: there is nothing after this @highlight" in text
    assert "4.story: 'utf-8' codec can't decode byte 0xe9" in text and text.isprintable()


def test_the_original_download(tmp_path):
    (tmp_path / "cnn" / "stories").mkdir(parents=True)
    (tmp_path / "dailymail" / "stories").mkdir(parents=True)
    for split in ("train", "val", "test"):
        urls = [f"http://{paper}/{split}" for paper in ("cnn", "dailymail")]
        (tmp_path / f"all_{split}.txt").write_text("\n".join([*urls, f"http://no/{split}"]) + "\n")
        for url, paper in zip(urls, ("cnn", "dailymail"), strict=True):
            name = hashlib.sha1(url.encode()).hexdigest()
            story = STORY.replace("ship", f"ship of {url}")
            (tmp_path / paper / "stories" / f"{name}.story").write_text(story)
    stories = quiet(tmp_path)
    assert sizes(stories) == [2, 2, 2] and "original .story files" in stories.why
    assert len(stories.skipped) == 3
    assert "there is no file" in stories.skipped[0] and "for http://no/test" in stories.skipped[0]


# --- Which folder, which variable ---


def test_the_folder_around_a_copy(tmp_path):
    """The hub's cnn_dailymail has its stories in 3.0.0, next to older versions."""
    for version in ("1.0.0", "3.0.0"):
        (tmp_path / version).mkdir()
        folder_of_lines(tmp_path / version, train=as_lines(rows("train", int(version[0]))))
    stories = quiet(tmp_path)
    assert sizes(stories) == [3, 3, 3] and stories.why.endswith("json, in its folder 3.0.0.")
    (tmp_path / "3.0.0").rename(tmp_path / "2.0.0")
    with pytest.raises(ValueError, match=r"has stories in 1\.0\.0 and in 2\.0\.0\. Name one of"):
        quiet(tmp_path)


def test_paths_that_are_no_copy(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file or folder '.*reel'. Expected: .* 'real'"):
        quiet("reel")
    with pytest.raises(ValueError, match=r"has no stories in a form that can be read\. Expected"):
        quiet(tmp_path)
    (tmp_path / "train.jsonl").write_text("")
    with pytest.raises(ValueError, match=r"has json, but none for test and validation\. Expected"):
        quiet(tmp_path)
    (tmp_path / "a.tsv").write_text("")
    with pytest.raises(ValueError, match=r"ends in '\.tsv', not in \.parquet"):
        quiet(tmp_path / "a.tsv")


def test_the_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("PI2ZERO_DAILYMAIL", str(folder_of_lines(tmp_path)))
    stories = quiet("auto", download=False)
    assert sizes(stories) == [3, 3, 3] and "because $PI2ZERO_DAILYMAIL names it" in stories.why
    (tmp_path / "test.jsonl").unlink()
    with pytest.raises(ValueError, match=r"\$PI2ZERO_DAILYMAIL names a copy .* none for test.* un"):
        quiet("auto")
    monkeypatch.setenv("PI2ZERO_DAILYMAIL", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match=r"\$PI2ZERO_DAILYMAIL .* no file or folder .*now"):
        quiet("auto")


def test_a_path_with_signs_of_a_pattern(tmp_path):
    (folder := tmp_path / "my [1] *stories").mkdir()
    assert sizes(quiet(folder_of_lines(folder))) == [3, 3, 3]
    assert files.parse_story(STORY.encode())[1] == "Ship sinks .\nAll are well ."
