"""Stories from a stranger: names that a terminal would obey, links and pipes, pickles, archives, tables that explode."""

import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from summarize_runs import Payload
from test_dailymail_files import STORY, folder_of_lines, quiet, sizes

from pi2zero_course.summarization import data

PRIVATE = "the words of somebody else"


@pytest.fixture
def stories(tmp_path):
    """A folder of .story files, two good ones in each split."""
    for split in ("train", "val", "test"):
        (tmp_path / "s" / split).mkdir(parents=True)
        for i in range(2):
            (tmp_path / "s" / split / f"{i}.story").write_text(
                STORY.replace("ship", f"ship {split} {i}")
            )
    return tmp_path / "s"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"\x1b[2J\x1b]0;yours.story", r"train/\x1b[2J\x1b]0;yours.story:1: "),
        (b"two\nlines.story", r"train/two\nlines.story:1: "),
        (b"latin \xe9.story", r"train/latin \udce9.story:1: "),
        ("right \u202e to left.story".encode(), r"train/right \u202e to left.story:1: "),
        (b"; rm -rf $HOME `id` %s {0}.story", r"train/; rm -rf $HOME `id` %s {0}.story:1: "),
    ],
    ids=["escapes", "two lines", "another encoding", "right to left", "shell"],
)
def test_hostile_names_are_shown_not_obeyed(stories, name, shown):
    Path(os.fsdecode(os.fsencode(stories / "train") + b"/" + name)).write_text("cut")
    said = []
    assert sizes(data.load(stories, say=said.append)) == [2, 2, 2]
    (line,) = [line for line in said if line.startswith("  skipped ")]
    assert line.encode() and line.startswith(f"  skipped {shown}") and line.isprintable()


def test_links_out_of_the_folder_tell_nothing(stories, tmp_path):
    (tmp_path / "private").write_text(f"{PRIVATE}\n{PRIVATE}\n")
    for name in ("a", "b"):
        (stories / "train" / f"{name}.story").symlink_to(tmp_path / "private")
    (tmp_path / "lines").mkdir()
    folder_of_lines(tmp_path / "lines")
    (tmp_path / "lines" / "train-more.jsonl").symlink_to(tmp_path / "private")
    for where in (stories, tmp_path / "lines"):
        found = quiet(where)
        assert len(found.skipped) == 2 and PRIVATE not in "".join(found.skipped)
        assert PRIVATE not in "".join(found.splits["train"]["article"])


@pytest.mark.timeout(30)
def test_what_is_no_file_is_named_not_read(stories, tmp_path):
    """Each would be read for ever, or fail in the middle."""
    train = stories / "train"
    os.mkfifo(train / "pipe.story")
    (train / "device.story").symlink_to("/dev/zero")
    (train / "loop.story").symlink_to(train / "loop.story")
    (train / "gone.story").symlink_to(train / "nowhere")
    (train / "folder.story").mkdir()
    found = quiet(stories)
    assert sizes(found) == [2, 2, 2]
    assert [line.partition(": ")[2] for line in found.skipped] == [
        "not a file, or a link that leads to none"
    ] * 5
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(ValueError, match=r"pipe.jsonl is neither a file nor a folder"):
        quiet(tmp_path / "pipe.jsonl")


def test_pickles_are_never_loaded(stories, tmp_path):
    trap = pickle.dumps(Payload(tmp_path / "it ran"))
    (stories / "train" / "x.story").write_bytes(trap)
    assert quiet(stories).skipped == [
        "train/x.story:1: not UTF-8 (byte 0x80); save the file as UTF-8"
    ]
    for split in ("train", "val", "test"):
        (stories / f"{split}.parquet").write_bytes(trap)
    with pytest.raises(ValueError, match=r"is not parquet, or damaged"):
        quiet(stories)
    (tmp_path / "stories.pkl").write_bytes(trap)
    with pytest.raises(ValueError, match=r"ends in '\.pkl', not in \.parquet"):
        quiet(tmp_path / "stories.pkl")
    assert not (tmp_path / "it ran").exists()


def test_an_archive_is_not_unpacked(tmp_path):
    with zipfile.ZipFile(tmp_path / "stories.zip", "w") as archive:
        archive.writestr("../../train.jsonl", "{}")
    with pytest.raises(ValueError, match=r"ends in '\.zip', not in \.parquet"):
        quiet(tmp_path / "stories.zip")


MEMORY = """
import re, sys
from pathlib import Path
from pi2zero_course.summarization import data
import datasets
def peak():  # MB of this program; getrusage's begins at that of the process that started it
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1000
before = peak()
try:
    data.load(sys.argv[1], say=lambda text: None)
except ValueError as error:
    print(error)
print(peak() - before)
"""


def refused(folder, table, **options):
    """(the sentence, MB that the reader took to come to it) for a table as each of three splits; no limit is set."""
    for split in ("train", "val", "test"):
        parquet.write_table(
            table, folder / f"{split}.parquet", compression="zstd", store_schema=False, **options
        )
    assert (folder / "train.parquet").stat().st_size < 100_000
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, folder], capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr
    *said, megabytes = done.stdout.splitlines()
    return "\n".join(said), int(megabytes)


@pytest.mark.long
def test_a_table_of_kilobytes_with_gigabytes_of_one_article(tmp_path):
    """400 times the same article of 8 MB, 3 GB, of which some rows are in memory at a time."""
    articles = pa.DictionaryArray.from_arrays(
        pa.array([0] * 400, pa.int32()), pa.array(["a" * 8_000_000])
    )
    said, megabytes = refused(tmp_path, pa.table({"article": articles, "highlights": ["x"] * 400}))
    assert "has 8,000,000 characters; a story has at most 1,048,576" in said and megabytes < 800, (
        said[:500],
        megabytes,
    )


@pytest.mark.long
def test_a_column_that_unfolds_is_not_read(tmp_path):
    """Each row is its own, so that the file itself says how large they are."""
    table = pa.table(
        {"article": [f"{row}{'a' * 8_000_000}" for row in range(40)], "highlights": ["x"] * 40}
    )
    said, megabytes = refused(tmp_path, table, use_dictionary=False, write_statistics=False)
    assert "would unfold from" in said and said.endswith("It is not read.") and megabytes < 100, (
        said[:500],
        megabytes,
    )


EACH_BYTE = """
import sys
from pathlib import Path
from pi2zero_course.summarization.data import readers

path = Path(sys.argv[1])
whole, read, refused = path.read_bytes(), 0, 0
for at in range(len(whole)):
    for new in (0, 24, 41, 255):
        path.write_bytes(whole[:at] + bytes([new]) + whole[at + 1 :])
        try:
            read += bool(list(readers.items("parquet", [path], path.parent)))
        except ValueError:
            refused += 1
print(read, refused)
"""


@pytest.mark.long
def test_no_damaged_byte_of_a_table_ends_the_process(tmp_path):
    """Some did: pyarrow's description of a column, asked for its size, aborts where its reader raises."""
    path = tmp_path / "stories.parquet"
    parquet.write_table(
        pa.table({"article": ["One ship. Two."] * 9, "highlights": ["One."] * 9}),
        path,
        compression="none",
    )
    done = subprocess.run(
        [sys.executable, "-c", EACH_BYTE, path], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    read, refused = map(int, done.stdout.split())
    assert read > 100 and refused > 100


@pytest.mark.parametrize("form", ["jsonl", "json", "csv", "parquet"])
def test_files_without_a_story(tmp_path, form):
    for split in ("train", "val", "test"):
        file = tmp_path / f"{split}.{form}"
        if form == "parquet":
            parquet.write_table(
                pa.table(
                    {"article": pa.array([], pa.string()), "highlights": pa.array([], pa.string())}
                ),
                file,
            )
        else:
            file.write_text({"jsonl": "", "json": "[]", "csv": "article,highlights\n"}[form])
    with pytest.raises(ValueError, match=r"no story left for test and validation and train"):
        quiet(tmp_path)
