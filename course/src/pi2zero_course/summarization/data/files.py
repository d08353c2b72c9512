"""Local copies of CNN/DailyMail, and stories of one's own in the same forms. What is read:

- a folder with train*, val* and test* files, all .parquet, all .jsonl/.json (one JSON object a line, or one array of them)
  or all .csv (the first line names the columns); each with the columns article, highlights (a sentence a line) and, if
  there is one, id;
- one such file: the id's hash puts 80 % of its stories into train, 10 % into validation, 10 % into test;
- what `save_to_disk` of the `datasets` library has written, with three splits or one;
- a folder with the folders train, val* and test, full of .story files: the article, and a line "@highlight" before each
  highlight;
- the original download: cnn/stories and dailymail/stories (or cnn_stories and dailymail_stories), with the lists
  all_train.txt, all_val.txt and all_test.txt of URLs beside them or in url_lists; the SHA-1 of a URL is the name of its story;
- a folder that holds one of these, as the hub's cnn_dailymail holds 3.0.0.

A story that cannot be used (an article of more than a million characters, too) is reported and left out; so is one whose article
was seen before. Test comes first, then validation: of an article that is in training too, the training story is left out.
"""

import contextlib
import hashlib
import reprlib
from pathlib import Path

from pi2zero import ownership
from pi2zero_course.summarization.data import readers

PREFIX = {
    "test": "test",
    "validation": "val",
    "train": "train",
}  # of the names, in the order of reading
BATCH = 1000  # stories that wait for being written
SHORT = reprlib.Repr()  # what a file says, in a sentence about it
SHORT.maxstring, SHORT.maxlist = 60, 10  # (before Python 3.12 not as arguments)
EXPECTED = (
    "Expected: a folder with train*, val* and test* files (.parquet, .jsonl, .json or .csv), one such file, what save_to_disk "
    "wrote, a folder with train, val* and test full of .story files, or the original cnn/stories and dailymail/stories with "
    "all_train.txt, all_val.txt and all_test.txt."
)
CONFIG = "3.0.0"  # the folder of CNN/DailyMail's usual version in a copy of the hub's
SHARES = "80 % of it for training, 10 % for validation, 10 % for the test, by the hash of the id"
_folders = []  # of the Arrow files that the splits are mapped from; they go when the process ends


def read(path: str | Path, counts: dict[str, int] | None = None) -> tuple[str, dict, list[str]]:
    """(which form it has, {split: Dataset}, what was skipped as "file:line: what is wrong") of a local copy.

    counts: {split: how many good stories to read at most}; the rest of a file is then not looked at.
    Raises FileNotFoundError if there is no such path, ValueError if it is in none of the forms or if a split has no story.
    """
    path, counts = Path(path).expanduser(), counts or {}
    if not path.exists():
        raise FileNotFoundError(
            f"There is no file or folder {str(path)!r}. {EXPECTED} Or 'auto', 'embedded' or 'real'."
        )
    form, parts = _folder(path) if path.is_dir() else _single(path)
    with contextlib.ExitStack() as kept:
        folder = kept.enter_context(ownership.temporary_dir("stories"))
        stores = {
            split: _Store(Path(folder) / f"{split}.arrow", counts.get(split)) for split in PREFIX
        }
        for store in stores.values():
            kept.callback(
                store.close
            )  # an error's traceback would keep it open, and the disk would stay full
        skipped = _fill(stores, parts)
        if empty := [split for split, store in stores.items() if not store.size]:
            raise ValueError(_nothing_left(path, empty, skipped))
        splits = {split: stores[split].dataset() for split in ("train", "validation", "test")}
        _folders.append(kept.pop_all())  # a copy that is refused leaves nothing
    return form, splits, skipped


def _fill(stores, parts):
    """Store the good stories. Returns what was skipped."""
    sieve = _Sieve()
    for split, items in parts:
        for where, item in items:
            story = sieve.check(where, item, split or "this file")
            if story:
                stores[split or _split_of(story["id"])].add(story)
            if all(stores[name].full for name in ([split] if split else stores)):
                break
    return sieve.skipped


class _Sieve:
    """Lets the good stories through, each once. skipped: the others, as "file:line: what is wrong"."""

    def __init__(self):
        self.skipped: list[str] = []
        self._articles: dict[
            bytes, tuple[str, str]
        ] = {}  # digest of an article -> its split and place
        self._ids: dict[tuple[str, str], str] = {}  # split and id -> place

    def check(self, where: str, item: dict | str, split: str) -> dict | None:
        """The story with exactly the three columns, or None if it was skipped."""
        wrong = item if isinstance(item, str) else self._wrong(where, item, split)
        if wrong:
            self.skipped.append(f"{where}: {wrong}")
            return None
        return {name: item[name] for name in ("id", "article", "highlights")}

    def _wrong(self, where, item, split):
        for name in ("article", "highlights"):
            if name not in item:
                return f"the column {name!r} is missing (it has {SHORT.repr(list(item))[1:-1] or 'none'})"
            if not isinstance(item[name], str):
                return f"{name!r} is not a string but {readers.kind(item[name])}"
            if not item[name].strip():
                return "the article is empty" if name == "article" else "there are no highlights"
            if (size := len(item[name])) > readers.STORY:
                return f"{name!r} has {size:,} characters; a story has at most {readers.STORY:,}"
        if isinstance(item["id"], int) and not isinstance(item["id"], bool):
            item["id"] = str(item["id"])  # numbered stories
        if not isinstance(item["id"], str):
            return f"'id' is not a string but {readers.kind(item['id'])}"
        try:
            digest = hashlib.sha1(
                " ".join(item["article"].split()).encode(), usedforsecurity=False
            ).digest()
            (item["id"] + item["highlights"]).encode()
        except UnicodeEncodeError as error:
            return f"not UTF-8: it has half a character ({error.object[error.start]!a})"
        if (split, item["id"]) in self._ids:
            return f"the id {SHORT.repr(item['id'])} was in {self._ids[split, item['id']]} already"
        if digest in self._articles:
            return self._seen(*self._articles[digest], split)
        self._articles[digest], self._ids[split, item["id"]] = (split, where), where
        return None

    def _seen(self, other, place, split):
        if other == split:
            return f"the same article as in {place}"
        return f"the same article as in {place}, which is in {other}: left out of {split}, else {other} would measure memory"


class _Store:
    """The stories of a split in an Arrow file, to be mapped into memory. (`Dataset.from_generator` would take the file of an
    earlier call, with the same arguments, even if the stories have changed since.)"""

    def __init__(self, path: Path, limit: int | None):
        import pyarrow as pa

        self.path, self.limit, self.size, self._waiting = path, limit, 0, []
        self._schema = pa.schema({name: pa.string() for name in ("id", "article", "highlights")})
        self._file = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_stream(self._file, self._schema)

    @property
    def full(self) -> bool:
        return self.limit is not None and self.size >= self.limit

    def add(self, story: dict[str, str]) -> None:
        if not self.full:
            self.size += 1
            self._waiting.append(story)
            if len(self._waiting) == BATCH:
                self._flush()

    def _flush(self):
        import pyarrow as pa

        if self._waiting:
            self._writer.write_batch(pa.RecordBatch.from_pylist(self._waiting, self._schema))
            self._waiting = []

    def close(self) -> None:
        self._file.close()

    def dataset(self):
        from datasets import Dataset

        self._flush()
        self._writer.close()
        self.close()
        return Dataset.from_file(str(self.path))


def _folder(root: Path) -> tuple[str, list]:
    """(form, [(split, its items)]) of a folder, or of the one inside it that has stories."""
    if _is_saved(root):
        return f"one of the {readers.SAVED}, {SHARES}", [
            (None, readers.items(readers.SAVED, [root], root.parent))
        ]
    if found := _splits_in(root):
        form, files = found
        return form, [(split, readers.items(form, files[split], root)) for split in PREFIX]
    inner = (
        [root / CONFIG]
        if (root / CONFIG).is_dir()
        else [folder for folder in sorted(root.iterdir()) if folder.is_dir()]
    )
    fit = [folder for folder in inner if _is_saved(folder) or _splits_in(folder)]
    if len(fit) > 1:
        raise ValueError(
            f"{root} has stories in {' and in '.join(folder.name for folder in fit)}. Name one of these folders."
        )
    if not fit:
        raise ValueError(f"{root} has no stories in a form that can be read. {EXPECTED}")
    form, parts = _folder(fit[0])
    return f"{form}, in its folder {fit[0].name}", parts


def _splits_in(root: Path) -> tuple[str, dict[str, list[Path]]] | None:
    """(form, {split: its files}) of a folder; None if it has nothing. ValueError if a split is missing."""
    found = {
        readers.SAVED: {
            split: [at for at in sorted(root.glob(f"{PREFIX[split]}*")) if _is_saved(at)]
            for split in PREFIX
        }
    }
    for form, suffixes in readers.TABLES.items():
        tables = [
            file for file in sorted(root.iterdir()) if file.suffix in suffixes and file.is_file()
        ]
        found[form] = {
            split: [file for file in tables if file.name.startswith(PREFIX[split])]
            for split in PREFIX
        }
    found[readers.STORIES] = {
        split: sorted(root.glob(f"{PREFIX[split]}*/*.story")) for split in PREFIX
    }
    found[readers.ORIGINAL] = {split: _lists(root, split) for split in PREFIX}
    for form, files in found.items():
        if any(files.values()):
            if missing := [split for split in PREFIX if not files[split]]:
                raise ValueError(
                    f"{root} has {form}, but none for {' and '.join(missing)}. {EXPECTED}"
                )
            return form, files
    return None


def _is_saved(folder):
    """Is this a split that the `datasets` library has saved?"""
    return (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file()


def _lists(root, split):
    name = f"all_{PREFIX[split]}.txt"
    return [file for file in (root / name, root / "url_lists" / name) if file.is_file()][:1]


def _single(file: Path) -> tuple[str, list]:
    """The same for one file; the split of its items is None."""
    if not file.is_file():
        raise ValueError(f"{file} is neither a file nor a folder. {EXPECTED}")
    for form, suffixes in readers.TABLES.items():
        if file.suffix in suffixes:
            return f"one file of {form}, {SHARES}", [
                (None, readers.items(form, [file], file.parent))
            ]
    raise ValueError(
        f"{file} ends in {file.suffix!r}, not in .parquet, .jsonl, .json or .csv. {EXPECTED}"
    )


def _split_of(key: str) -> str:
    """The split of a story in a single file, the same each time."""
    tenth = int.from_bytes(hashlib.sha1(key.encode(), usedforsecurity=False).digest()[:8]) % 10
    return {0: "test", 1: "validation"}.get(tenth, "train")


def _nothing_left(path, empty, skipped):
    reasons = f" {len(skipped):,} were skipped, the first was {skipped[0]}." if skipped else ""
    return (
        f"{path} has no story left for {' and '.join(empty)}.{reasons} Each of train, validation and test needs one at least. "
        "Correct the files; if it is one small file, make it a folder with train.jsonl, validation.jsonl and test.jsonl."
    )
