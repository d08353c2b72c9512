"""Stories from files, one after the other: each with its place (file:line) and either its columns or what is wrong with it."""

import csv
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

TABLES = {
    "parquet": (".parquet",),
    "JSON": (".jsonl", ".json"),
    "CSV": (".csv",),
}  # form -> ends of the file names
SAVED, STORIES = "datasets that save_to_disk has written", "folders of .story files"
ORIGINAL = "the original .story files with lists of URLs"
COLUMNS = ("id", "article", "highlights")
PLACES = (
    "cnn/stories",
    "dailymail/stories",
    "cnn_stories",
    "dailymail_stories",
)  # of the original download, as it is unpacked
PIECE, LONGEST = (
    2**20,
    2**24,
)  # characters of a JSON array that are read at a time; of one story as JSON or CSV
STORY = (
    2**20
)  # characters of a column of a story that is used; the longest article of CNN/DailyMail has less than a tenth
BATCH, FEW = (
    1000,
    16,
)  # rows in memory at a time; of a parquet file, where a few bytes may stand for many long rows
UNFOLDS = (
    200,
    2**28,
)  # a parquet file that grows by more than this factor, and to more than these bytes, is a trap
ENDS = (
    ".",
    "!",
    "?",
    "'",
    "`",
    '"',
    "\u2019",
    "\u201d",
    ")",
)  # of a sentence; CNN/DailyMail 3.0.0 adds " ." to other lines
Item = tuple[str, dict | str]  # (file:line, the columns or what is wrong)


def items(form: str, files: list[Path], root: Path) -> Iterator[Item]:
    """All items of these files, of one form (a key of TABLES, or SAVED, STORIES, ORIGINAL); places are relative to root.

    Some stories are in memory at a time, never a whole file. A story without an id gets one from the name of its file and its
    line. Raises ValueError for a file that has not its form.
    """
    read = {
        "parquet": _parquet,
        "JSON": _json,
        "CSV": _csv,
        SAVED: _saved,
        STORIES: _story,
        ORIGINAL: _listed,
    }[form]
    for file in files:
        yield from read(file, root)


def kind(value: object) -> str:
    """What a value is, for who wrote it into a file: "empty (null)", "a number", "a list" ..."""
    if value is None:
        return "empty (null)"
    names = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        list: "a list",
        dict: "an object",
        str: "a string",
    }
    return names.get(type(value), type(value).__name__)


def parse_story(data: bytes) -> tuple[str, str]:
    """(article, highlights) of a .story file's bytes, as CNN/DailyMail 3.0.0 has them: the article's paragraphs in a line, each
    highlight on a line of its own, " ." after a line that ends without a mark. Raises Bad with the line and what is wrong."""
    try:
        lines = [line.strip() for line in data.decode("utf-8-sig").split("\n")]
    except UnicodeDecodeError as error:
        raise Bad(data.count(b"\n", 0, error.start) + 1, _not_utf8(error)) from None
    marks = [number for number, line in enumerate(lines) if line.startswith("@highlight")]
    article = [_with_end(line) for line in lines[: marks[0] if marks else None] if line]
    if not article:
        raise Bad(1, "the article is empty")
    if not marks:
        raise Bad(len(data.splitlines()), "cut off: it ends without an @highlight")
    highlights = []
    for start, end in zip(marks, [*marks[1:], len(lines)], strict=True):
        block = [_with_end(line) for line in lines[start + 1 : end] if line]
        if not block:
            raise Bad(start + 1, "cut off: there is nothing after this @highlight")
        highlights += block
    return " ".join(article), "\n".join(highlights)


class Bad(Exception):
    """A story that cannot be used: line, what."""

    def __init__(self, line: int, what: str):
        super().__init__(line, what)
        self.line, self.what = line, what


def _parquet(file, root):
    import pyarrow as pa
    from pyarrow import parquet

    name = _place(file, root)
    try:
        with parquet.ParquetFile(file) as table:
            columns = table.schema_arrow.names
            _check_columns(columns, file)
            _check_growth(table.metadata, file)
            row = 0
            for batch in table.iter_batches(
                FEW, columns=[column for column in COLUMNS if column in columns]
            ):
                for index in range(len(batch)):
                    row += 1
                    yield f"{name}:{row}", _row(batch, index, file, row)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last: a column's name
        raise ValueError(
            f"{file} is not parquet, or damaged ({_reason(error)}). Copy it again."
        ) from error


def _check_columns(names, place):
    if missing := [column for column in COLUMNS[1:] if column not in names]:
        raise ValueError(
            f"{place} has no column {missing[0]!r}, only {_printable(', '.join(names))}. Rename its columns."
        )


def _check_growth(metadata, file):
    """Of all columns together: asked for the size of one, pyarrow 26 ends the process if that one's description is damaged."""
    times, most = UNFOLDS
    size, whole = (
        file.stat().st_size,
        sum(metadata.row_group(at).total_byte_size for at in range(metadata.num_row_groups)),
    )
    if whole > max(most, times * size):
        raise ValueError(f"{file} would unfold from {size:,} to {whole:,} bytes. It is not read.")


def _reason(error):
    """Arrow's words, their first line."""
    return _printable(str(error).partition("\n")[0]).rstrip(".")


def _printable(text):
    """A text in which a damaged file's bytes may stand."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)


def _row(batch, index, file, row):
    """A row's story, or what is wrong with it."""
    try:
        story = {column: batch.column(column)[index].as_py() for column in batch.schema.names}
    except UnicodeDecodeError as error:  # Arrow does not look into its strings
        return _not_utf8(error)
    return _with_id(story, file, row)


def _saved(folder, root):
    """A folder with one split, as `Dataset.save_to_disk` writes it."""
    import datasets
    import pyarrow as pa

    if not all(
        path.is_file() or path.is_dir() for path in folder.rglob("*")
    ):  # a pipe would be read for ever
        raise ValueError(f"{folder} has something in it that is no file. Copy it again.")
    try:
        saved = datasets.load_from_disk(str(folder), keep_in_memory=False)
    except Exception as error:  # each part of that library has its own, for a file cut short or somebody else's state.json
        raise ValueError(
            f"{folder} is not what save_to_disk writes, or damaged. Copy it again."
        ) from error
    _check_columns(saved.column_names, folder)
    saved, row = (
        saved.select_columns([column for column in COLUMNS if column in saved.column_names]),
        0,
    )
    try:
        for batch in saved.with_format("arrow").iter(BATCH):
            for column in (
                batch.columns
            ):  # Arrow believes offsets that lead out of the file. (UTF-8 is each row's.)
                kind_of = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}.get(
                    column.type, column.type
                )
                column.cast(kind_of).validate(full=True)
            for index in range(len(batch)):
                row += 1
                yield f"{_place(folder, root)}:{row}", _row(batch, index, folder, row)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{folder} is damaged ({_reason(error)}). Copy it again.") from error


def _csv(file, root):
    """A table whose first line names the columns; a story may have several lines."""
    csv.field_size_limit(LONGEST)
    name = _place(file, root)
    with file.open(newline="", encoding="utf-8-sig", errors="surrogateescape") as lines:
        rows, number, line = csv.DictReader(_bounded(lines), strict=True), 0, 2
        try:
            if missing := [
                column for column in COLUMNS[1:] if column not in (rows.fieldnames or ())
            ]:
                raise ValueError(
                    f"{file} has no column {missing[0]!r} in its first line. Rename its columns."
                )
            for row in rows:
                number += 1
                story = {column: row[column] for column in COLUMNS if row.get(column) is not None}
                yield f"{name}:{line}", _with_id(story, file, number)
                line = rows.line_num + 1
        except csv.Error as error:
            yield f"{name}:{line}", f"not CSV ({error}); the rest of the file is left out"


def _bounded(lines):
    """The lines of a text; csv.Error for one that is longer than any story: it would be held whole."""
    while line := lines.readline(LONGEST + 1):
        if len(line) > LONGEST:
            raise csv.Error(f"a line of more than {LONGEST:,} characters")
        yield line


def _json(file, root):
    """A JSON object a line, or one array of them."""
    with file.open("rb") as lines:
        is_array = lines.read(1000).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"["
    return (_array if is_array else _json_lines)(file, root)


def _json_lines(file, root):
    return _by_lines(
        file, root, lambda where, number, line: [(where, _json_line(line, file, number))]
    )


def _by_lines(file, root, read):
    """What read(where, number, line) gives for each line that is not empty; one longer than any story, held whole, is the end."""
    name = _place(file, root)
    with file.open("rb") as lines:
        for number, line in enumerate(iter(lambda: lines.readline(LONGEST + 1), b""), 1):
            if len(line) > LONGEST:
                yield (
                    f"{name}:{number}",
                    f"a line of more than {LONGEST:,} bytes; the rest of the file is left out",
                )
                return
            if line.strip():
                yield from read(f"{name}:{number}", number, line)


def _array(file, root):
    """Of an array, a piece at a time is read: the whole would need several times its size in memory."""
    decode, between, number = json.JSONDecoder().raw_decode, re.compile(r"[\s,]*"), 0
    with file.open(encoding="utf-8-sig", errors="surrogateescape") as text:
        held = text.read(PIECE)
        at = held.index("[") + 1
        while True:
            at = between.match(held, at).end()
            if held[at : at + 1] == "]":
                return
            try:
                story, end = decode(held, at)
                whole = end < len(held) or isinstance(story, dict)  # else it may go on: 12 of 123
            except (ValueError, RecursionError):
                whole = False
            if whole:
                number, at = number + 1, end
                yield f"{_place(file, root)}, story {number}", _with_id(story, file, number)
                continue
            held, at = held[at:], 0
            more = text.read(max(PIECE, len(held))) if len(held) < LONGEST else ""
            if not more:
                yield (
                    f"{_place(file, root)}, story {number + 1}",
                    "not JSON; the rest of the file is left out",
                )
                return
            held += more


def _json_line(line, file, number):
    """A line's story, or what is wrong with it."""
    try:
        story = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        return _not_utf8(error)
    except (ValueError, RecursionError) as error:
        return f"not JSON ({error})"
    return _with_id(story, file, number)


def _with_id(story, file, number):
    if not isinstance(story, dict):
        return f"not a JSON object but {kind(story)}"
    if story.get("id") in (None, ""):
        story["id"] = f"{file.stem}-{number}"
    return story


def _story(file, root):
    name = _place(file, root)
    if not file.is_file():  # a pipe or a device would be read for ever
        yield f"{name}:1", "not a file, or a link that leads to none"
        return
    try:
        with file.open("rb") as story:
            text = story.read(LONGEST + 1)
        if len(text) > LONGEST:
            raise Bad(1, f"a story of more than {LONGEST:,} bytes")
        article, highlights = parse_story(text)
    except Bad as bad:
        yield f"{name}:{bad.line}", bad.what
    except OSError as error:
        yield f"{name}:1", f"cannot be read ({error.strerror})"
    else:
        yield f"{name}:1", {"id": file.stem, "article": article, "highlights": highlights}


def _listed(urls, root):
    """The stories of a list of URLs, in its order."""
    places = [place for place in PLACES if (root / place).is_dir()] or PLACES
    folders = " or ".join(f"{root.name}/{place}" for place in places)

    def story(where, _, line):
        url = line.strip()
        key = hashlib.sha1(url, usedforsecurity=False).hexdigest()
        file = next(
            (file for place in places if (file := root / place / f"{key}.story").exists()), None
        )
        if file:
            return _story(file, root)
        told = _printable(url[:500].decode(errors="replace"))
        return [(where, f"no story for {told} (looked for: {key}.story in {folders})")]

    return _by_lines(urls, root, story)


def _place(file, root):
    """A file's name in a report. What a terminal would obey, and what is no UTF-8, is written as Python writes it."""
    name = file.relative_to(root).as_posix()
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def _with_end(line):
    return line if line.endswith(ENDS) else f"{line} ."


def _not_utf8(error):
    return f"not UTF-8 (byte {error.object[error.start]:#04x}); save the file as UTF-8"
