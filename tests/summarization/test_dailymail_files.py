"""Local copies, in each form that is read, and every way in which a story can be bad."""

import contextlib
import csv
import hashlib
import io
import json
import os
import struct
import subprocess
import tempfile
import tracemalloc
from pathlib import Path

import datasets
import pyarrow as pa
import pytest
from pyarrow import parquet

from pi2zero import ownership
from pi2zero_course.summarization import data
from pi2zero_course.summarization.data import files, readers

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


def folder_of_lines(root, **changed):
    """train.jsonl, validation.jsonl, test.jsonl, three good stories each; changed: {split: text or bytes of the file}."""
    for split in SPLITS:
        text = changed.get(split, as_lines(rows(split, 3)))
        (root / f"{split}.jsonl").write_bytes(text if isinstance(text, bytes) else text.encode())
    return root


def quiet(path, **arguments):
    return data.load(path, say=lambda text: None, **arguments)


def sizes(stories):
    return [len(stories.splits[split]) for split in SPLITS]


def test_what_a_killed_process_left_is_cleared_away(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    brief = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    mine, gone = (
        ownership.owner_mark().replace("/", "@"),
        ownership.owner_mark(brief.pid).replace("/", "@"),
    )
    brief.communicate()
    elsewhere = gone.replace(
        gone.partition("@")[0], "another-host", 1
    )  # the temporary folder may be shared by hosts
    kept = {f"pi2zero-stories@{name}x" for name in (mine, elsewhere, "somebody")}
    for name in (*kept, f"pi2zero-stories@{gone}x"):
        (tmp_path / name).mkdir()
    (tmp_path / "stories").mkdir()
    quiet(folder_of_lines(tmp_path / "stories"))
    left = {path.name for path in tmp_path.glob("pi2zero-stories*")}
    assert f"pi2zero-stories@{gone}x" not in left
    assert kept < left  # and the folder of this reading


def test_parquet(tmp_path):
    for split, count in {"train": 2500, "validation": 3, "test": 3}.items():
        parquet.write_table(
            pa.Table.from_pylist(rows(split, count)), tmp_path / f"{split}-00000-of-00001.parquet"
        )
    extra = [{"highlights": "One .", "article": f"more {i} .", "url": "x"} for i in range(3)]
    parquet.write_table(
        pa.Table.from_pylist([*extra, dict(extra[0], article=None)]),
        tmp_path / "train-00001-of-00002.parquet",
    )
    stories = quiet(tmp_path)
    assert sizes(stories) == [2503, 3, 3] and stories.name == str(tmp_path)
    assert stories.why == f"{tmp_path} is in use, as you asked: parquet. 1 story was left out."
    assert stories.splits["train"].column_names == ["id", "article", "highlights"]
    assert stories.splits["train"][2502] == {
        "id": "train-00001-of-00002-3",
        "article": "more 2 .",
        "highlights": "One .",
    }
    assert stories.skipped == [
        "train-00001-of-00002.parquet:4: 'article' is not a string but empty (null)"
    ]
    few = quiet(tmp_path, counts={"train": 7})
    assert sizes(few) == [7, 3, 3] and not few.skipped and few.splits["train"][6]["id"] == "train6"


def test_parquet_that_is_none(tmp_path):
    for split in SPLITS:
        parquet.write_table(
            pa.Table.from_pylist([{"document": "a", "highlights": "b"}]),
            tmp_path / f"{split}.parquet",
        )
    with pytest.raises(
        ValueError,
        match=r"test.parquet has no column 'article', only document, highlights\. Rename",
    ):
        quiet(tmp_path)
    (tmp_path / "test.parquet").write_bytes((tmp_path / "train.parquet").read_bytes()[:-20])
    with pytest.raises(
        ValueError, match=r"test.parquet is not parquet, or damaged .* Copy it again"
    ):
        quiet(tmp_path)


def test_parquet_in_another_encoding(tmp_path):
    """Arrow lets it into a column of strings."""
    for split in SPLITS:
        ends = pa.py_buffer(b"".join(number.to_bytes(4, "little") for number in (0, 2, 4)))
        articles = pa.StringArray.from_buffers(2, ends, pa.py_buffer(split[:2].encode() + b"\xe9c"))
        parquet.write_table(
            pa.table({"article": articles, "highlights": ["x", "y"]}), tmp_path / f"{split}.parquet"
        )
    stories = quiet(tmp_path)
    assert sizes(stories) == [1, 1, 1]
    assert stories.skipped[0] == "test.parquet:2: not UTF-8 (byte 0xe9); save the file as UTF-8"


def test_parquet_whose_column_has_a_damaged_name(tmp_path):
    """Changed bytes that Arrow itself does not notice (found by test_fuzz_state.py)."""
    for split in SPLITS:
        parquet.write_table(
            pa.table({"article": ["a", "b"], "highlights": ["x", "y"]}),
            tmp_path / f"{split}.parquet",
        )
    whole = (tmp_path / "test.parquet").read_bytes()
    (tmp_path / "test.parquet").write_bytes(whole.replace(b"article", b"\xbdrticle"))
    with pytest.raises(
        ValueError,
        match=r"test.parquet is not parquet, or damaged \('utf-8' codec .* Copy it again",
    ) as caught:
        quiet(tmp_path)
    assert type(caught.value) is ValueError
    (tmp_path / "test.parquet").write_bytes(whole.replace(b"article", b"\x08rticle"))
    with pytest.raises(
        ValueError, match=r"has no column 'article', only \?rticle, highlights\. Rename"
    ):
        quiet(tmp_path)


def test_json_lines(tmp_path):
    more = (
        '\n{"article": "No id", "highlights": "None"}\n{"id": 7, "article": "x", "highlights": "y"}'
    )
    stories = quiet(folder_of_lines(tmp_path, train="\ufeff" + as_lines(rows("train", 3)) + more))
    assert sizes(stories) == [5, 3, 3] and "as you asked: JSON." in stories.why
    assert list(stories.splits["train"]["id"]) == ["train0", "train1", "train2", "train-5", "7"]
    assert not stories.skipped


BAD_LINES = {
    "not JSON (": b'{"article": "cut o',
    "not UTF-8 (byte 0xe9); save": '{"article": "café", "highlights": "x"}'.encode("latin-1"),
    "not UTF-8: it has half a character ('\\ud800')": b'{"article": "a \\ud800", "highlights": "x"}',
    "not a JSON object but a list": b"[1, 2]",
    "the column 'highlights' is missing (it has 'id', 'article')": b'{"id": "5", "article": "x"}',
    "'highlights' is not a string but a list": b'{"article": "x", "highlights": ["a", "b"]}',
    "'article' is not a string but empty (null)": b'{"article": null, "highlights": "x"}',
    "'id' is not a string but a list": b'{"id": [], "article": "x", "highlights": "y"}',
    "the article is empty": b'{"article": " ", "highlights": "x"}',
    "there are no highlights": b'{"article": "x", "highlights": ""}',
    "the id 'train0' was in train.jsonl:1 already": b'{"id": "train0", "article": "new", "highlights": "x"}',
    "the same article as in train.jsonl:2": b'{"id": "n", "article": "train  story 1 .", "highlights": "x"}',
    "the same article as in test.jsonl:3, which is in test: left out": b'{"article": "test story 2 .", "highlights": "x"}',
}


@pytest.mark.parametrize("what", BAD_LINES)
def test_bad_lines_are_reported_and_the_rest_is_used(what, tmp_path):
    train = (
        as_lines(rows("train", 2)).encode()
        + BAD_LINES[what]
        + b"\n"
        + as_lines(rows("train", 3)[2:]).encode()
    )
    stories = quiet(folder_of_lines(tmp_path, train=train))
    assert sizes(stories) == [3, 3, 3] and len(stories.skipped) == 1
    assert stories.skipped[0].startswith(f"train.jsonl:3: {what}")


def test_five_are_printed(tmp_path, capsys):
    data.load(folder_of_lines(tmp_path, train=as_lines(rows("train", 2)) + "{\n" * 7))
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].endswith("JSON. 7 stories were left out.")
    assert [line[:28] for line in printed[1:6]] == [
        f"  skipped train.jsonl:{n}: not" for n in range(3, 8)
    ]
    assert printed[6:] == ["  ... and 2 more"]


def test_nothing_left(tmp_path):
    with pytest.raises(
        ValueError,
        match=r"no story left for train\. 2 were skipped, the first was train.jsonl:1: not JSON",
    ):
        quiet(folder_of_lines(tmp_path, train="{\n{\n"))


def test_one_file_is_split_by_its_ids(tmp_path):
    file = tmp_path / "all.jsonl"
    file.write_text(as_lines([*rows("story", 400), rows("story", 1)[0]]))
    stories = quiet(file)
    assert sum(sizes(stories)) == 400 and 280 < sizes(stories)[0] < 360 and min(sizes(stories)) > 20
    assert stories.skipped == ["all.jsonl:401: the id 'story0' was in all.jsonl:1 already"]
    assert "80 % of it for training, 10 % for validation, 10 % for the test" in stories.why
    file.write_text(as_lines(reversed(rows("story", 400))))
    again = quiet(file)
    assert all(
        set(stories.splits[split]["id"]) == set(again.splits[split]["id"]) for split in SPLITS
    )
    parquet.write_table(pa.Table.from_pylist(rows("story", 400)), tmp_path / "all.parquet")
    few = quiet(tmp_path / "all.parquet", counts={"train": 5, "test": 2, "validation": 1})
    assert sizes(few) == [5, 1, 2]
    assert all(set(few.splits[split]["id"]) <= set(stories.splits[split]["id"]) for split in SPLITS)
    file.write_text(as_lines(rows("story", 2)))
    with pytest.raises(
        ValueError, match=r"no story left for .* if it is one small file, make it a folder"
    ):
        quiet(file)


def test_folders_of_stories(tmp_path):
    for split in ("train", "val", "test"):
        (tmp_path / split).mkdir()
        for i in range(2):
            text = STORY.replace("ship", f"ship {split} {i}")
            (tmp_path / split / f"{i}.story").write_text(text, newline="\r\n" if i else "\n")
    (tmp_path / "train" / "cut.story").write_text(STORY[:30])
    stories = quiet(tmp_path)
    assert sizes(stories) == [2, 2, 2] and stories.skipped == [
        "train/cut.story:3: cut off: it ends without an @highlight"
    ]
    article = "A ship validation 1 sank . Nobody was hurt.".replace("validation", "val")
    assert stories.splits["validation"][1] == {
        "id": "1",
        "article": article,
        "highlights": "Ship sinks .\nAll are well .",
    }


@pytest.mark.parametrize(
    ("story", "line", "what"),
    [
        (b"Text.\n\nMore.\n", 3, "cut off: it ends without an @highlight"),
        (
            STORY.encode() + b"\n@highlight\n\n",
            13,
            "cut off: there is nothing after this @highlight",
        ),
        (
            b"Text.\n\n@highlight\n\n@highlight\n\nOne\n",
            3,
            "cut off: there is nothing after this @highlight",
        ),
        (b"\n\n@highlight\n\nOne\n", 1, "the article is empty"),
        (b"", 1, "the article is empty"),
        (
            "One.\n\nA café.\n\n@highlight\n\nOne\n".encode("latin-1"),
            3,
            "not UTF-8 (byte 0xe9); save the file as UTF-8",
        ),
        (STORY.encode("utf-16"), 1, "not UTF-8 (byte 0xff); save the file as UTF-8"),
    ],
)
def test_bad_stories(story, line, what):
    with pytest.raises(readers.Bad) as bad:
        readers.parse_story(story)
    assert (bad.value.line, bad.value.what) == (line, what)


@pytest.mark.parametrize("place", [".", "url_lists"])
def test_the_original_download(place, tmp_path):
    (tmp_path / place).mkdir(exist_ok=True)
    for number, split in enumerate(("train", "val", "test")):
        urls = [f"http://example.org/{split}/{i}" for i in range(3)]
        for i, url in enumerate(urls):
            stories = tmp_path / ("cnn" if i else "dailymail") / "stories"
            stories.mkdir(parents=True, exist_ok=True)
            (stories / f"{hashlib.sha1(url.encode()).hexdigest()}.story").write_text(
                f"{number} {i}. {STORY}"
            )
        listed = [*urls, "http://example.org/lost", urls[0]][: 5 - 2 * number]
        (tmp_path / place / f"all_{split}.txt").write_text("\n".join(listed))
    stories = quiet(tmp_path)
    assert sizes(stories) == [3, 3, 1]
    lost, twice = stories.skipped
    key = hashlib.sha1(b"http://example.org/lost").hexdigest()
    assert lost.endswith(
        f"all_train.txt:4: no story for http://example.org/lost "
        f"(looked for: {key}.story in {tmp_path.name}/cnn/stories or {tmp_path.name}/dailymail/stories)"
    )
    assert twice.startswith("dailymail/stories/") and " was in dailymail/stories/" in twice
    assert stories.splits["train"][1]["article"] == "0 1. A ship sank . Nobody was hurt."


def test_the_original_download_unpacked_under_other_names(tmp_path):
    """As many copies have it: cnn_stories beside url_lists."""
    (tmp_path / "url_lists").mkdir()
    (tmp_path / "cnn_stories").mkdir()
    for split in ("train", "val", "test"):
        url = f"http://example.org/{split}"
        (tmp_path / "url_lists" / f"all_{split}.txt").write_text(url + "\n" + url + "/lost\n")
        (tmp_path / "cnn_stories" / f"{hashlib.sha1(url.encode()).hexdigest()}.story").write_text(
            f"{split}. {STORY}"
        )
    stories = quiet(tmp_path)
    assert sizes(stories) == [1, 1, 1]
    assert (
        all(line.endswith(f".story in {tmp_path.name}/cnn_stories)") for line in stories.skipped)
        and len(stories.skipped) == 3
    )


def as_csv(stories):
    text = io.StringIO()
    table = csv.DictWriter(text, ["id", "article", "highlights"])
    table.writeheader()
    table.writerows(stories)
    return text.getvalue()


def test_csv(tmp_path):
    """A story has several lines: its highlights are a sentence a line."""
    for split in SPLITS:
        (tmp_path / f"{split}.csv").write_text("\ufeff" + as_csv(rows(split, 3)))
    train = as_csv([*rows("train", 2), {"id": "bad", "article": "", "highlights": "x"}])
    train += 'n,"an article of "" some words","y\nz"\n'
    (tmp_path / "train.csv").write_bytes(
        train.encode() + "l,café,x\n".encode("latin-1") + b'cut,"o'
    )
    stories = quiet(tmp_path)
    assert sizes(stories) == [3, 3, 3] and "CSV" in stories.why
    assert stories.splits["train"][2] == {
        "id": "n",
        "article": 'an article of " some words',
        "highlights": "y\nz",
    }
    assert stories.skipped == [
        "train.csv:6: the article is empty",
        "train.csv:9: not UTF-8: it has half a character ('\\udce9')",
        "train.csv:10: not CSV (unexpected end of data); the rest of the file is left out",
    ]
    (tmp_path / "test.csv").write_text("document,summary\na,b\n")
    with pytest.raises(
        ValueError, match=r"test.csv has no column 'article' in its first line\. Rename"
    ):
        quiet(tmp_path)


@pytest.mark.parametrize("indent", [None, 2])
def test_json_arrays(indent, tmp_path, monkeypatch):
    """A piece of them at a time is read, wherever it ends."""
    monkeypatch.setattr(readers, "PIECE", 7)
    for split in SPLITS:
        (tmp_path / f"{split}.json").write_text(
            "\ufeff\n" + json.dumps(rows(split, 4), indent=indent)
        )
    more = [
        rows("train", 1)[0] | {"article": "a [ in it, }", "id": 7},
        12,
        {"highlights": "only"},
        *rows("train", 2)[1:],
    ]
    (tmp_path / "train.json").write_text(json.dumps(more, indent=indent))
    stories = quiet(tmp_path)
    assert sizes(stories) == [2, 4, 4] and not stories.splits["test"]["article"][3].endswith("3")
    assert list(stories.splits["train"]["id"]) == ["7", "train1"]
    assert stories.skipped == [
        "train.json, story 2: not a JSON object but a number",
        "train.json, story 3: the column 'article' is missing (it has 'highlights', 'id')",
    ]


@pytest.mark.parametrize(
    "end", ["", ', {"article": "cut o', ", nonsense]", ', {"article": ' + "[" * 2000]
)
def test_a_json_array_that_is_cut_short(end, tmp_path):
    text = json.dumps(rows("train", 3))[:-1] + end
    for split in SPLITS:
        (tmp_path / f"{split}.json").write_text(json.dumps(rows(split, 3)))
    (tmp_path / "train.json").write_text(text)
    stories = quiet(tmp_path)
    assert sizes(stories) == [3, 3, 3]
    assert stories.skipped == ["train.json, story 4: not JSON; the rest of the file is left out"]


def test_saved_datasets(tmp_path):
    """As `save_to_disk` writes them: three splits with their index, each of them alone, and one."""
    parts = datasets.DatasetDict(
        {split: datasets.Dataset.from_list(rows(split, 5)) for split in SPLITS}
    )
    parts["train"] = parts["train"].shuffle(seed=0)  # an index beside the table
    parts.save_to_disk(tmp_path / "three")
    stories = quiet(tmp_path / "three")
    assert sizes(stories) == [5, 5, 5] and "save_to_disk" in stories.why
    assert list(stories.splits["train"]["id"]) == list(parts["train"]["id"])
    datasets.Dataset.from_list(rows("story", 200)).save_to_disk(tmp_path / "one")
    assert sum(sizes(quiet(tmp_path / "one"))) == 200
    (arrow,) = (tmp_path / "three" / "test").glob("*.arrow")
    arrow.write_bytes(arrow.read_bytes()[:100])
    with pytest.raises(
        ValueError, match=r"three/test is (not what save_to_disk writes, or )?damaged"
    ):
        quiet(tmp_path / "three")


def test_a_saved_dataset_whose_offsets_lead_out_of_it_is_refused(tmp_path):
    """Arrow believes them: it would read another part of memory, or end the process."""
    datasets.Dataset.from_list(rows("train", 5)).save_to_disk(tmp_path / "saved")
    (file,) = (tmp_path / "saved").rglob("*.arrow")
    whole, length = file.read_bytes(), len(rows("train", 5)[0]["article"].encode())
    at = whole.index(struct.pack("<ii", 0, length)) + 4  # where the first article ends
    file.write_bytes(whole[:at] + struct.pack("<i", 900_000) + whole[at + 4 :])
    with pytest.raises(ValueError, match="is damaged"):
        quiet(tmp_path / "saved")


def test_a_line_of_a_saved_dataset_that_is_no_utf8_is_reported_and_the_rest_is_used(tmp_path):
    given = rows("train", 30)
    datasets.Dataset.from_list(given).save_to_disk(tmp_path / "saved")
    (file,) = (tmp_path / "saved").rglob("*.arrow")
    whole, article = file.read_bytes(), given[2]["article"].encode()
    assert whole.count(article) == 1
    file.write_bytes(whole.replace(article, b"\xff" + article[1:]))
    stories = quiet(tmp_path / "saved")
    assert sum(sizes(stories)) == 29 and stories.skipped == [
        "saved:3: not UTF-8 (byte 0xff); save the file as UTF-8"
    ]


def test_a_pipe_in_a_saved_dataset_is_not_waited_for(tmp_path):
    datasets.Dataset.from_list(rows("train", 5)).save_to_disk(tmp_path / "saved")
    (file,) = (tmp_path / "saved").rglob("*.arrow")
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(ValueError, match="has something in it that is no file"):
        quiet(tmp_path / "saved")


@pytest.mark.parametrize("name", ["train.jsonl", "train.csv", "one.story", "all_train.txt"])
def test_what_has_no_end_is_not_read_whole(name, tmp_path, monkeypatch):
    """A file of many GB may take no room on the disk, and be one line."""
    monkeypatch.setattr(readers, "LONGEST", 10_000)
    good, read = {
        "train.jsonl": (as_lines(rows("train", 3)), readers._json_lines),
        "train.csv": (as_csv(rows("train", 3)), readers._csv),
        "one.story": ("", readers._story),
        "all_train.txt": ("http://a/1\nhttp://a/2\nhttp://a/3\n", readers._listed),
    }[name]
    (tmp_path / name).write_text(good)
    with (tmp_path / name).open("ab") as whole:
        whole.truncate(len(good.encode()) + 10_000_000)
    tracemalloc.start()
    *stories, (_, last) = read(tmp_path / name, tmp_path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 5_000_000 and "of more than 10,000" in last and len(stories) == (3 if good else 0)


def test_the_folder_around_a_copy(tmp_path):
    """The hub's cnn_dailymail has its stories in 3.0.0, beside older versions."""
    for version in ("1.0.0", "3.0.0"):
        (tmp_path / version).mkdir()
        folder_of_lines(tmp_path / version, train=as_lines(rows("train", int(version[0]))))
    stories = quiet(tmp_path)
    assert sizes(stories) == [3, 3, 3] and stories.why.endswith("JSON, in its folder 3.0.0.")
    (tmp_path / "3.0.0").rename(tmp_path / "2.0.0")
    with pytest.raises(
        ValueError, match=r"has stories in 1\.0\.0 and in 2\.0\.0\. Name one of these folders"
    ):
        quiet(tmp_path)


def test_folders_that_are_no_copy(tmp_path):
    with pytest.raises(
        FileNotFoundError,
        match=r"no file or folder '.*reel'. Expected: .* Or 'auto', 'embedded' or 'real'",
    ):
        quiet("reel")
    with pytest.raises(
        ValueError,
        match=r"has no stories in a form that can be read\. Expected: a folder with train",
    ):
        quiet(tmp_path)
    (tmp_path / "train.jsonl").write_text("")
    with pytest.raises(ValueError, match=r"has JSON, but none for test and validation\. Expected"):
        quiet(tmp_path)
    (tmp_path / "a.tsv").write_text("")
    with pytest.raises(ValueError, match=r"ends in '\.tsv', not in \.parquet"):
        quiet(tmp_path / "a.tsv")


def test_a_copy_that_is_refused_leaves_nothing(tmp_path, monkeypatch):
    """What was read of it until then may be gigabytes, and the kernel that asked lives on."""
    copy = folder_of_lines(tmp_path, train=as_lines(rows("train", 3000)), test="no story\n")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(
        ValueError, match="test"
    ) as kept:  # as a notebook's kernel keeps its last error
        quiet(copy)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        f"{split}.jsonl" for split in SPLITS
    )
    held = []
    for file in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(OSError):  # the one that listed them
            held.append(str(file.readlink()))
    assert kept.value and not [path for path in held if ".arrow" in path], (
        "removed, but the disk is as full"
    )


def test_the_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("PI2ZERO_DAILYMAIL", str(folder_of_lines(tmp_path)))
    stories = quiet("auto", download=False)
    assert sizes(stories) == [3, 3, 3] and "because $PI2ZERO_DAILYMAIL names it" in stories.why
    (tmp_path / "test.jsonl").unlink()
    with pytest.raises(
        ValueError, match=r"\$PI2ZERO_DAILYMAIL names a copy .* none for test.* unset it"
    ):
        quiet("auto")
    monkeypatch.setenv("PI2ZERO_DAILYMAIL", str(tmp_path / "nowhere"))
    with pytest.raises(
        FileNotFoundError, match=r"\$PI2ZERO_DAILYMAIL .* no file or folder .*nowhere.* Correct"
    ):
        quiet("auto")


def test_files_that_changed_are_read_again(tmp_path):
    assert sizes(quiet(folder_of_lines(tmp_path))) == [3, 3, 3]
    assert sizes(quiet(folder_of_lines(tmp_path, train=as_lines(rows("train", 5))))) == [5, 3, 3]


def test_splits_of_single_files_stay():
    """Who trained with a file yesterday tests on the same stories today."""
    assert [files._split_of(f"story{i}") for i in range(5)] == [
        "validation",
        "train",
        "train",
        "train",
        "test",
    ]
