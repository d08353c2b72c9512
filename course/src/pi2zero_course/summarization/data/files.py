"""Local copies of CNN/DailyMail, and your own stories in the same forms.

- A folder with train*, val* and test* files, all .parquet, all .jsonl or .json (one JSON object per
  line, or one array of them) or all .csv (the first line names the columns). Columns: article,
  highlights (one sentence per line) and, if there is one, id.
- One such file: a hash of the id puts 80 % of its stories into train, 10 % into validation, 10 %
  into test.
- What `save_to_disk` of the `datasets` library wrote: a folder for each split, or one.
- A folder with the folders train*, val* and test*, full of .story files: the article, and a line
  "@highlight" before each highlight.
- The original download: cnn/stories and dailymail/stories (or cnn_stories and dailymail_stories),
  with the lists all_train.txt, all_val.txt and all_test.txt of URLs next to them or in url_lists.
  The SHA-1 of a URL is the name of its story.
- A folder that contains one of these, as the hub's cnn_dailymail contains 3.0.0.

A file that is not in its form raises ValueError with the place of the first mistake. A story that
cannot be used is reported and left out; so is one whose article was seen before. Test is read
first, then validation: an article that is in training too is left out of training.
"""

import csv
import glob
import hashlib
import json
import tempfile
import uuid
from pathlib import Path

from pi2zero import ownership
from pi2zero_course.summarization.data import dailymail

PREFIX = {"test": "test", "validation": "val", "train": "train"}  # in the order of reading
TABLES = {".parquet": "parquet", ".jsonl": "json", ".json": "json", ".csv": "csv"}
COLUMNS = ("id", "article", "highlights")
SAVED, STORIES = "datasets that save_to_disk wrote", "folders of .story files"
ORIGINAL = "the original .story files with lists of URLs"
ORIGINAL_DIRS = ("cnn/stories", "dailymail/stories", "cnn_stories", "dailymail_stories")
# A line of CNN/DailyMail 3.0.0 that does not end so gets " ." at its end.
SENTENCE_ENDS = (".", "!", "?", "'", "`", '"', "\u2019", "\u201d", ")")
EXPECTED = (
    "Expected: a folder with train*, val* and test* files (.parquet, .jsonl, .json or .csv), one "
    "such file, what save_to_disk wrote, a folder with train, val* and test full of .story files, "
    "or the original cnn/stories and dailymail/stories with all_train.txt, all_val.txt and "
    "all_test.txt."
)
ONE_FILE = "80 % of it for training, 10 % for validation, 10 % for the test, by a hash of the id"
BATCH = 1000  # stories that are checked at a time
_caches: list[tempfile.TemporaryDirectory] = []  # Arrow files of the splits, until Python ends


def read(path: str | Path, counts: dict[str, int] | None = None) -> tuple[str, dict, list[str]]:
    """Return (form, {split: Dataset}, what was left out as "file, story 3: what is wrong").

    counts: {split: how many good stories to take at most}.
    Raises FileNotFoundError if there is no such path, ValueError if it is in none of the forms, if
    a file is damaged, or if a split has no story.
    """
    import datasets

    path, counts = Path(path).expanduser(), counts or {}
    if not path.exists():
        raise FileNotFoundError(
            f"There is no file or folder {str(path)!r}. {EXPECTED} Or 'auto', 'embedded' or 'real'."
        )
    form, files = _form_of(path)
    cache, sieve = ownership.temporary_dir("stories"), _Sieve()
    chosen: dict = {split: [] for split in PREFIX}
    for split, file in files:
        table = _load(form, file, path, cache.name)
        rows: dict[str, list[int]] = {name: [] for name in PREFIX}
        for row, story in _stories(table, file):
            target = split or _split_of(str(story["id"]))
            taken = sum(len(part) for part in chosen[target]) + len(rows[target])
            if taken != counts.get(target) and sieve.lets_through(story, file.name, row, target):
                rows[target].append(row)
        for target, indices in rows.items():
            if indices:
                chosen[target].append(table.select(indices).select_columns(list(COLUMNS)))
    if empty := [split for split in PREFIX if not chosen[split]]:
        raise ValueError(_nothing_left(path, empty, sieve.skipped))
    splits = {
        split: datasets.concatenate_datasets(chosen[split])
        for split in ("train", "validation", "test")
    }
    _caches.append(cache)
    return form, splits, sieve.skipped


class _Sieve:
    """Lets good stories through, each article once. skipped: the others, and what is wrong."""

    def __init__(self):
        self.skipped: list[str] = []
        self._seen: dict[bytes, tuple[str, str]] = {}  # digest of an article -> (split, place)

    def lets_through(self, story: dict, file: str, row: int, split: str) -> bool:
        place = _printable(f"{file}, story {row + 1}")
        problem = story.get("problem") or self._problem(story, place, split)
        if problem:
            self.skipped.append(f"{place}: {problem}")
        return not problem

    def _problem(self, story, place, split):
        for name in ("article", "highlights"):
            if not (story[name] or "").strip():
                return f"{name!r} is empty"
        words = " ".join(story["article"].split()).encode()
        digest = hashlib.sha1(words, usedforsecurity=False).digest()
        if digest in self._seen:
            other, where = self._seen[digest]
            return f"the same article as in {where}" + (
                f", which is in {other}: left out of {split}, so that {other} does not measure "
                "memory"
                if other != split
                else ""
            )
        self._seen[digest] = split, place
        return None


def _stories(table, file):
    """Yield (row, {column: text}) of a table."""
    import pyarrow as pa

    try:
        for start in range(0, len(table), BATCH):
            batch = table[start : start + BATCH]
            for offset, values in enumerate(zip(*batch.values(), strict=True)):
                yield start + offset, dict(zip(batch, values, strict=True))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ValueError(_what_is_wrong(file, _reason(error))) from error


def _split_of(key: str) -> str:
    """The split of a story in a single file, always the same."""
    tenth = int.from_bytes(hashlib.sha1(key.encode(), usedforsecurity=False).digest()[:8]) % 10
    return {0: "test", 1: "validation"}.get(tenth, "train")


# --- Which form a path has ---


def _form_of(path: Path) -> tuple[str, list[tuple[str | None, Path]]]:
    """(form, [(split, or None for one file, and a file)]), the test's files first."""
    if path.is_file():
        if path.suffix not in TABLES:
            raise ValueError(
                f"{path} ends in {path.suffix!r}, not in .parquet, .jsonl, .json or .csv. "
                f"{EXPECTED}"
            )
        return f"one file of {TABLES[path.suffix]}, {ONE_FILE}", [(None, path)]
    if _is_saved(path):
        return f"one of the {SAVED}, {ONE_FILE}", [(None, path)]
    if found := _splits_in(path):
        return found
    inner = [path / dailymail.CONFIG]
    if not inner[0].is_dir():
        inner = [folder for folder in sorted(path.glob("*/")) if folder.is_dir()]
    fit = [folder for folder in inner if _is_saved(folder) or _splits_in(folder)]
    if len(fit) > 1:
        names = " and in ".join(folder.name for folder in fit)
        raise ValueError(f"{path} has stories in {names}. Name one of these folders.")
    if not fit:
        raise ValueError(f"{path} has no stories in a form that can be read. {EXPECTED}")
    form, files = _form_of(fit[0])
    return f"{form}, in its folder {fit[0].name}", files


def _splits_in(root: Path):
    """The same of a folder with splits; None if it has none. ValueError if a split is missing."""
    tables = [file for file in sorted(root.iterdir()) if file.suffix in TABLES]
    forms = {
        SAVED: lambda prefix: [file for file in root.glob(f"{prefix}*") if _is_saved(file)],
        **{
            form: lambda prefix, form=form: [
                file
                for file in tables
                if TABLES[file.suffix] == form and file.name.startswith(prefix)
            ]
            for form in ("parquet", "json", "csv")
        },
        STORIES: lambda prefix: [d for d in root.glob(f"{prefix}*/") if any(d.glob("*.story"))],
        ORIGINAL: lambda prefix: [
            file
            for file in (root / f"all_{prefix}.txt", root / "url_lists" / f"all_{prefix}.txt")
            if file.is_file()
        ][:1],
    }
    for form, find in forms.items():
        files = {split: sorted(find(prefix)) for split, prefix in PREFIX.items()}
        if any(files.values()):
            if missing := [split for split in PREFIX if not files[split]]:
                names = " and ".join(missing)
                raise ValueError(f"{root} has {form}, but none for {names}. {EXPECTED}")
            return form, [(split, file) for split in PREFIX for file in files[split]]
    return None


def _is_saved(folder):
    return (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file()


# --- Reading one file ---


def _load(form, file, root, cache):
    """A Dataset of a file's stories; of .story files it has a column problem, too."""
    import datasets

    shown = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        with dailymail.offline():
            if form.startswith((STORIES, ORIGINAL)):
                find = _story_files if form.startswith(STORIES) else _listed_files
                return datasets.Dataset.from_generator(
                    _parsed,
                    features=_features(*COLUMNS, "problem"),
                    gen_kwargs={"files": find(file, root)},
                    cache_dir=cache,
                )
            if _is_saved(file):
                table = datasets.load_from_disk(str(file))
            else:
                kind, name = TABLES[file.suffix], glob.escape(str(file))
                options = {"data_files": name, "split": "train", "cache_dir": cache}
                if kind == "csv":  # every column is text, so an empty cell is not a number
                    with file.open(newline="", encoding="utf-8-sig") as lines:
                        columns = next(csv.reader(lines), COLUMNS)
                    options |= {"features": _features(*columns), "keep_default_na": False}
                table = datasets.load_dataset(kind, **options)
    except Exception as error:  # the library has errors of its own, and raises those of three more
        raise ValueError(_what_is_wrong(file, _reason(error))) from error
    finally:
        if not shown:
            datasets.enable_progress_bars()
    return _with_columns(table, file, cache)


def _features(*columns):
    import datasets

    return datasets.Features({name: datasets.Value("string") for name in columns})


def _with_columns(table, file, cache):
    if missing := [name for name in COLUMNS[1:] if name not in table.column_names]:
        columns = _printable(", ".join(table.column_names))
        raise ValueError(
            f"{file} has no column {missing[0]!r}, only {columns}. Rename its columns to "
            "article and highlights."
        )
    table = table.select_columns([name for name in COLUMNS if name in table.column_names])
    for name, feature in table.features.items():
        if name != "id" and getattr(feature, "dtype", "") not in ("string", "large_string", "null"):
            type_name = _printable(str(feature))[:80]
            raise ValueError(_what_is_wrong(file, f"the column {name!r} is {type_name}"))
    if "id" not in table.column_names:
        table = table.add_column("id", [f"{file.stem}-{row + 1}" for row in range(len(table))])
    table = table.select_columns(list(COLUMNS))
    if table.features != _features(*COLUMNS):  # e.g. stories with numbers as ids
        table = table.cast(_features(*COLUMNS), cache_file_name=f"{cache}/{uuid.uuid4().hex}.arrow")
    return table


def _what_is_wrong(file, reason):
    """Sentences: the file, the line and the column of the mistake, what is expected, what to do.

    reason: what the `datasets` library says; it knows no line of JSON and no column.
    """
    place, problem = "", f"it is damaged, or not in the form of its name ({reason})"
    if file.suffix in (".jsonl", ".json", ".csv"):
        data = file.read_bytes()
        try:
            text = data.decode("utf-8-sig")
            if file.suffix != ".csv":
                place, problem = _json_mistake(text) or (place, problem)
        except UnicodeDecodeError as mistake:
            line = data.count(b"\n", 0, mistake.start) + 1
            place, problem = f", line {line}", f"byte {data[mistake.start]:#04x} is not UTF-8"
    advice = "Correct it there, or save or copy the file again."
    return f"{file}{place}: {problem}. Expected: article and highlights as text. {advice}"


def _json_mistake(text):
    """(place, what is wrong) of the first mistake in lines of JSON, or in an array of objects."""
    is_array = text.lstrip().startswith("[")
    for number, part in enumerate([text] if is_array else text.split("\n"), 1):
        if not part.strip():
            continue
        try:
            value = json.loads(part)
        except json.JSONDecodeError as mistake:
            line = mistake.lineno if is_array else number
            return f", line {line}, column {mistake.colno}", f"not JSON ({mistake.msg})"
        except RecursionError:
            return f", line {number}", "not JSON (too many brackets)"
        for index, story in enumerate(value if is_array else [value], 1):
            place = f", story {index}" if is_array else f", line {number}"
            if not isinstance(story, dict):
                return place, "not a JSON object"
            for name in COLUMNS[1:]:
                if not isinstance(story.get(name), str | None):
                    return place, f"{name!r} is not a string"
    return None


def _reason(error):
    """The first line of the innermost error."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__
    return _printable(str(error).partition("\n")[0])[:200].rstrip(".")


def _printable(text):
    """A text without what a terminal would obey, for sentences that quote a file."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


# --- .story files ---


def _story_files(folder, root):
    return [(str(file), None) for file in sorted(folder.glob("*.story"))]


def _listed_files(urls, root):
    """[(file, or where it was looked for, and None or the URL)] of a list of URLs, in its order."""
    folders = [root / name for name in ORIGINAL_DIRS if (root / name).is_dir()]
    listed = []
    for line in urls.read_bytes().splitlines():
        if url := line.strip():
            name = hashlib.sha1(url, usedforsecurity=False).hexdigest() + ".story"
            found = [folder / name for folder in folders if (folder / name).is_file()]
            listed.append((str(found[0]) if found else name, None if found else url.decode()))
    return listed


def _parsed(files):
    """Yield each story with its columns and its problem, if it has one."""
    for name, url in files:
        story = dict.fromkeys((*COLUMNS, "problem")) | {"id": Path(name).stem}
        try:
            if url:
                raise ValueError(f"there is no file {name} for {_printable(url)}")
            story["article"], story["highlights"] = parse_story(Path(name).read_bytes())
        except (ValueError, OSError) as error:
            story["problem"] = f"{_printable(Path(name).name)}: {error}"
        yield story


def parse_story(data: bytes) -> tuple[str, str]:
    """Return (article, highlights) of a .story file, in the form of CNN/DailyMail 3.0.0.

    The article's paragraphs are on one line, each highlight is on a line of its own, and lines that
    end without a mark get " .". Raises ValueError with the line and what is wrong.
    """
    lines = [line.strip() for line in data.decode("utf-8-sig").split("\n")]
    marks = [number for number, line in enumerate(lines) if line.startswith("@highlight")]
    article = [_ended(line) for line in lines[: marks[0] if marks else None] if line]
    if not article or not marks:
        line, problem = 1, "the article is empty"
        if article:
            line, problem = len(data.splitlines()), "cut off: it ends without an @highlight"
        raise ValueError(f"line {line}: {problem}")
    highlights = []
    for start, end in zip(marks, [*marks[1:], len(lines)], strict=True):
        block = [_ended(line) for line in lines[start + 1 : end] if line]
        if not block:
            raise ValueError(f"line {start + 1}: cut off: there is nothing after this @highlight")
        highlights += block
    return " ".join(article), "\n".join(highlights)


def _ended(line):
    return line if line.endswith(SENTENCE_ENDS) else f"{line} ."


def _nothing_left(path, empty, skipped):
    reasons = f" {len(skipped):,} were left out; the first was {skipped[0]}." if skipped else ""
    return (
        f"{path} has no story left for {' and '.join(empty)}.{reasons} Train, validation and test "
        "need one story each. Correct the files; if it is one small file, make it a folder with "
        "train.jsonl, validation.jsonl and test.jsonl."
    )
