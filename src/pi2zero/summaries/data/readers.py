"""Stories from files, one after the other: each with its place (file:line) and either its columns or what is wrong with it."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

TABLES = {"parquet": (".parquet",), "JSON lines": (".jsonl", ".json")}  # form -> ends of the file names
STORIES, ORIGINAL = "folders of .story files", "the original .story files with lists of URLs"
COLUMNS = ("id", "article", "highlights")
PAPERS = ("cnn", "dailymail")  # the folders of the original download
BATCH = 1000  # rows of a parquet file that are Python objects at a time
ENDS = (".", "!", "?", "'", "`", '"', "\u2019", "\u201d", ")")  # of a sentence; CNN/DailyMail 3.0.0 adds " ." to other lines
Item = tuple[str, dict | str]  # (file:line, the columns or what is wrong)


def items(form: str, files: list[Path], root: Path) -> Iterator[Item]:
    """All items of these files, which are of one form (a key of TABLES, STORIES or ORIGINAL); places are relative to root.

    A story without an id gets one from the name of its file and its line. Raises ValueError for a file that has not its form.
    """
    read = {"parquet": _parquet, "JSON lines": _json_lines, STORIES: _story, ORIGINAL: _listed}[form]
    for file in files:
        yield from read(file, root)


def kind(value: object) -> str:
    """What a value is, for who wrote it into a file: "empty (null)", "a number", "a list" ..."""
    if value is None:
        return "empty (null)"
    names = {bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "an object", str: "a string"}
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
            if missing := [column for column in COLUMNS[1:] if column not in columns]:
                raise ValueError(f"{file} has no column {missing[0]!r}, only {', '.join(columns)}. Rename its columns.")
            row = 0
            for batch in table.iter_batches(BATCH, columns=[column for column in COLUMNS if column in columns]):
                for index in range(len(batch)):
                    row += 1
                    yield f"{name}:{row}", _row(batch, index, file, row)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).split("\n")[0].rstrip(".")
        raise ValueError(f"{file} is not parquet, or damaged ({reason}). Copy it again.") from error


def _row(batch, index, file, row):
    """A row's story, or what is wrong with it."""
    try:
        story = {column: batch.column(column)[index].as_py() for column in batch.schema.names}
    except UnicodeDecodeError as error:  # Arrow does not look into its strings
        return _not_utf8(error)
    return _with_id(story, file, row)


def _json_lines(file, root):
    name = _place(file, root)
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if number == 1 and line.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
                raise ValueError(
                    f"{file} holds one JSON array; expected is one JSON object a line. Convert it: "
                    'pandas.read_json("old.json").to_json("train.jsonl", orient="records", lines=True).'
                )
            if line.strip():
                yield f"{name}:{number}", _json(line, file, number)


def _json(line, file, number):
    """A line's story, or what is wrong with it."""
    try:
        story = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        return _not_utf8(error)
    except (ValueError, RecursionError) as error:
        return f"not JSON ({error})"
    if not isinstance(story, dict):
        return f"not a JSON object but {kind(story)}"
    return _with_id(story, file, number)


def _with_id(story, file, number):
    if story.get("id") in (None, ""):
        story["id"] = f"{file.stem}-{number}"
    return story


def _story(file, root):
    name = _place(file, root)
    if not file.is_file():  # a pipe or a device would be read for ever
        yield f"{name}:1", "not a file, or a link that leads to none"
        return
    try:
        article, highlights = parse_story(file.read_bytes())
    except Bad as bad:
        yield f"{name}:{bad.line}", bad.what
    except OSError as error:
        yield f"{name}:1", f"cannot be read ({error.strerror})"
    else:
        yield f"{name}:1", {"id": file.stem, "article": article, "highlights": highlights}


def _listed(urls, root):
    """The stories of a list of URLs, in its order."""
    name, places = _place(urls, root), " or ".join(f"{paper}/stories" for paper in PAPERS)
    for number, line in enumerate(urls.read_bytes().splitlines(), 1):
        if url := line.strip():
            key = hashlib.sha1(url, usedforsecurity=False).hexdigest()
            file = next((file for paper in PAPERS if (file := root / paper / "stories" / f"{key}.story").exists()), None)
            if file:
                yield from _story(file, root)
            else:
                yield f"{name}:{number}", f"no story for {url.decode(errors='replace')} (expected: {key}.story in {places})"


def _place(file, root):
    """A file's name in a report. What a terminal would obey, and what is no UTF-8, is written as Python writes it."""
    name = file.relative_to(root).as_posix()
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def _with_end(line):
    return line if line.endswith(ENDS) else f"{line} ."


def _not_utf8(error):
    return f"not UTF-8 (byte {error.object[error.start]:#04x}); save the file as UTF-8"
