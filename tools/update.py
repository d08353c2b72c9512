#!/usr/bin/env python
"""`make update`: take the corrections that the clone's origin has, and keep all that you wrote.

A file that you did not change becomes the new one. Where you changed it, git merges both versions
line by line; your outputs stay. If that fails, yours stays and the new one lies next to it as
NAME.corrected. A copy of what you had changed is in build/before_update. Nothing is committed.
"""

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


class UpdateError(Exception):
    """Why nothing was changed, and what to do."""


def git(folder: Path, *arguments: str, failure: str = "") -> bytes | None:
    """What git prints. If git fails: None, or UpdateError(failure) if that is given."""
    env = os.environ | {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}  # its words are read
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, env=env)
    if done.returncode == 0:
        return done.stdout
    if failure:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise UpdateError(f"{failure} Nothing was changed. (git: {lines[-1] if lines else ''})")
    return None


def update(folder: Path) -> list[tuple[str, str]]:
    """Bring a clone to its origin's version. (path, what happened to it) of each changed file."""
    if shutil.which("git") is None:
        raise UpdateError("There is no git here. Install it, then run make update again.")
    refuse_another_owner(folder)
    if git(folder, "rev-parse", "--show-prefix") != b"\n":
        raise UpdateError(f"{folder} is no clone: it has no origin. Clone the kit to a new folder.")
    if git(folder, "rev-parse", "--verify", "-q", "@{u}") is None:
        raise UpdateError(
            "This clone follows no branch. Try: git branch --set-upstream-to=origin/main"
        )
    offline = "The corrections could not be fetched: is there a network? Ask, and try again."
    git(folder, "fetch", "-q", failure=offline)
    if git(folder, "merge-base", "--is-ancestor", "HEAD", "@{u}") is None:
        raise UpdateError("This clone has commits of its own. Merge them: git pull")
    names = git(folder, "diff", "-z", "--name-only", "--no-renames", "HEAD", "@{u}").decode()
    report = []
    for path in filter(None, names.split("\0")):
        old, new = (git(folder, "show", f"{tree}:{path}") for tree in ("HEAD", "@{u}"))
        listed = git(folder, "ls-tree", "@{u}", "--", path) or b""
        report.append((path, apply(folder, path, old, new, listed.startswith(b"100755"))))
    unfinished = "The files are new, but git could not note it: run make update again."
    git(folder, "reset", "-q", "@{u}", failure=unfinished)
    return report


def refuse_another_owner(folder: Path) -> None:
    """Raise UpdateError if git refuses the clone because it is another user's."""
    env = os.environ | {"LC_ALL": "C"}
    tried = subprocess.run(["git", "rev-parse"], cwd=folder, capture_output=True, env=env)
    if b"dubious ownership" not in tried.stderr:
        return
    uids = {path.stat().st_uid for path in (folder, folder / ".git") if path.exists()}
    names = [user_name(uid) for uid in sorted(uids - {os.getuid()})]
    raise UpdateError(
        f"{folder} belongs to {' and '.join(names)}, not to you ({user_name(os.getuid())}): git "
        "does not work in it. Its owner can run make update; or clone the kit to a folder of yours."
    )


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def apply(
    folder: Path, path: str, old: bytes | None, new: bytes | None, executable: bool = False
) -> str:
    """Change one file from old to new (None: no file). What happened to it, in words."""
    file = folder / path
    yours = file.read_bytes() if file.is_file() else None
    if yours in (old, None):
        write(file, new, executable)
        return "new" if new is not None else "removed"
    if yours == new:
        return "was new already"
    keep_copy(folder, path)
    if new is None:
        return "gone in the correction; yours stays"
    if old is not None and (merged := merge(path, yours, old, new)) is not None:
        write(file, merged, executable)
        return "your changes and the correction, together"
    corrected = free_name(file, new)
    write(corrected, new, executable)
    return f"yours stays; the new one is {corrected.relative_to(folder)}"


def merge(path: str, yours: bytes, old: bytes, new: bytes) -> bytes | None:
    """Both changes of a text or a notebook; None where git cannot merge them."""
    texts = {"yours": yours, "old": old, "new": new}
    if path.endswith(".ipynb"):
        try:
            texts = with_your_outputs({name: json.loads(text) for name, text in texts.items()})
        except (ValueError, KeyError, TypeError, RecursionError):  # no notebook, or an old format
            return None
    with tempfile.TemporaryDirectory() as folder:
        for name, content in texts.items():
            Path(folder, name).write_bytes(content)
        merged = git(Path(folder), "merge-file", "-p", "-q", *texts)
    if merged is None or not path.endswith(".ipynb"):
        return merged
    try:
        names = [cell["id"] for cell in json.loads(merged)["cells"]]
    except ValueError:  # both changes fit as text, but not as JSON
        return None
    return merged if len(set(names)) == len(names) else None


def with_your_outputs(books: dict[str, dict]) -> dict[str, bytes]:
    """The notebooks as text, alike but for their sources: outputs and their numbers are yours."""
    yours = {cell["id"]: cell for cell in books["yours"]["cells"]}
    for book in books.values():
        book["metadata"] = books["yours"]["metadata"]
        for cell in book["cells"]:
            cell["source"] = "".join(cell["source"]).splitlines(keepends=True)
            for key in ("outputs", "execution_count", "metadata"):
                if key in yours.get(cell["id"], {}):
                    cell[key] = yours[cell["id"]][key]
    return {
        name: (json.dumps(book, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode()
        for name, book in books.items()
    }


def free_name(file: Path, new: bytes) -> Path:
    """x.corrected.ipynb, or with a number if that is taken by other content."""
    for number in ("", *range(2, 100)):
        path = file.with_name(f"{file.stem}.corrected{number}{file.suffix}")
        if not path.exists() or path.read_bytes() == new:
            return path
    raise UpdateError(f"{file}: a hundred corrections lie next to it. Move those you have read.")


def keep_copy(folder: Path, path: str) -> None:
    copy = folder / "build" / "before_update" / time.strftime("%Y-%m-%d_%H.%M.%S") / path
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(folder / path, copy)


def write(path: Path, content: bytes | None, executable: bool) -> None:
    """Write a file, or remove it (None). A reader sees the old file or the new one."""
    if content is None:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(content)
    part.chmod(part.stat().st_mode | 0o100 * executable)
    part.replace(path)


def main(folder: Path = ROOT) -> None:
    try:
        report = update(folder)
    except UpdateError as error:
        sys.exit(str(error))
    except OSError as error:
        sys.exit(f"A file could not be written ({error}). Fix that, then run make update again.")
    for path, result in report:
        print(f"{path}: {result}")
    if any(path.startswith("requirements") for path, _ in report):
        print("Packages have changed: end JupyterLab, then run make lab.")
    if any(path.endswith(".ipynb") for path, _ in report):
        print("In JupyterLab, reload open notebooks: File > Reload Notebook from Disk.")
    print(f"{len(report)} files were corrected." if report else "Nothing new.")


if __name__ == "__main__":
    main()
