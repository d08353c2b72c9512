"""What notebooks can disturb each other by: the names that two of them have in common.

Two that run at once on one machine share its processors, and what both can name: a file, a port, shared memory, a process to
signal. `python tests/audits/names.py` runs each notebook beside itself, as two people would, under strace, and writes
benchmarks/names.md: each name that one run changes, and another one, of any notebook, changes or reads, with the reason why that
is harmless (tests/audits/names.toml). A name without a reason ends it with status 1. Adds to benchmarks/pairs.md, too. Some 60 minutes;
what is recorded already (build/names) is not run again.
"""

import json
import re
import shutil
import socket
import sys
import time
import tomllib
from collections import defaultdict
from itertools import combinations_with_replacement
from pathlib import Path

import pairs
from pairs import ROOT

RECORDS, REASONS, PAGE = (
    ROOT / "build" / "names",
    ROOT / "tests" / "names.toml",
    ROOT / "benchmarks" / "names.md",
)
KEYS = ("shmget", "semget", "msgget")  # System V's: a number for a name
FILES = [
    f"{call}{form}"
    for call in ("mkdir", "rename", "unlink", "link", "symlink")
    for form in ("", "at")
]
CALLS = [
    "open",
    "openat",
    "creat",
    "rmdir",
    "truncate",
    "renameat2",
    "mq_open",
    "bind",
    "kill",
    *KEYS,
    *FILES,
]
LINE = re.compile(r"^(\d+) +(\w+)\((.*)\) += (-?\d+)(?:<(.*)>)?")
BEGUN, ENDED = (
    re.compile(r"^(\d+) +(\w+\(.*) <unfinished \.\.\.>$"),
    re.compile(r"^(\d+) +<\.\.\. \w+ resumed>(.*)$"),
)
WORD = re.compile(r'(?:AT_FDCWD|\d+)?(?:<([^<>]*)>, )?"((?:[^"\\]|\\.)*)"')
HEAD = """# What two notebooks have in common

Written by `python tests/audits/names.py`: each notebook ran beside itself, under strace; {calls:,} calls of the system were looked at.
{books} notebooks, so {all} pairs: what one run changes and another changes or reads is all that they can disturb each other by,
besides the time of the processors. (Names with a number in them that is drawn for each run are never in common.) {unexplained}

| what | names | notebooks that change it | that read it | why it disturbs nobody |
|---|---|---|---|---|
"""


def command(log):
    """strace's words before the command that it watches."""
    calls = ",".join(f"?{call}" for call in CALLS)  # not every kind of processor has all of them
    return [
        "strace",
        "-f",
        "-qq",
        "--seccomp-bpf",
        "-y",
        "-s",
        "400",
        "-o",
        str(log),
        "-e",
        f"trace={calls}",
    ]


def whole(lines):
    """strace's lines; a call during which another process came is put together again."""
    begun = {}
    for line in lines:
        line = line.rstrip("\n")
        if found := BEGUN.match(line):
            begun[found[1]] = found[2]
        elif found := ENDED.match(line):
            yield f"{found[1]} {begun.pop(found[1], '')}{found[2]}"
        else:
            yield line


def record(lines):
    """{"changed": names, "read": names, "calls": how many} of one run. Only calls that succeeded."""
    changed, read, family, aims, calls = set(), set(), set(), set(), 0
    for line in whole(lines):
        family.add(line.partition(" ")[0])
        if not (found := LINE.match(line)) or int(found[4]) < 0:
            continue
        calls += 1
        _, call, args, _, opened = found.groups()
        if call in ("open", "openat", "creat"):
            writes = call == "creat" or re.search(r"O_(WRONLY|RDWR|CREAT|TRUNC)", args)
            (changed if writes else read).add(shown(opened or args))
        elif call == "bind":
            changed |= addresses(args)
        elif call == "kill":
            aims.add(args.split(",")[0].lstrip("-"))
        elif call in KEYS:
            changed |= {f"{call} {args.split(',')[0]}"} - {f"{call} IPC_PRIVATE"}
        else:
            changed |= {
                shown(str(Path(folder or ".", name))) for folder, name in WORD.findall(args)
            }
    changed |= {f"process {aim}" for aim in aims - family - {"0"}}  # whom it did not start
    return {"changed": sorted(changed), "read": sorted(read), "calls": calls}


def addresses(args):
    """Of a socket's: a port that was asked for by its number, or a name; none where the system chooses."""
    if found := re.search(r"sin6?_port=htons\((\d+)\)", args):
        return {f"port {found[1]}"} - {"port 0"}
    return {shown(name) for name in re.findall(r'sun_path=@?"([^"]+)"', args)}


def shown(name):
    """As it can be published."""
    for place, word in (
        (str(ROOT), "."),
        (str(Path.home()), "~"),
        (socket.gethostname(), "this-host"),
    ):
        name = name.replace(place, word)
    return name


def run_beside_itself(book, books):
    """Record two runs that go at the same time."""
    logs = [RECORDS / f"{book.stem}-{number}.strace" for number in (1, 2)]
    runs = [pairs.Run(book, command(log)) for log in logs]
    while any(run.process.poll() is None for run in runs):
        runs[0].meets(runs[1])
        time.sleep(0.5)
    for run, log in zip(runs, logs, strict=True):
        page = pairs.PAGE.read_text() if pairs.PAGE.exists() else ""
        pairs.PAGE.write_text(pairs.written(page, *run.over(), books))
        with log.open(errors="replace") as lines:
            log.with_suffix(".json").write_text(json.dumps(record(lines)))
        log.unlink()


def in_common(records):
    """name -> (notebooks that change it, that read it), of all that two runs have in common and one of them changes.

    records: {(notebook, run): record}. The two runs of one notebook are two, a run and itself are not.
    """
    sets = {key: (set(one["changed"]), set(one["read"])) for key, one in records.items()}
    names = set()
    for one, two in combinations_with_replacement(sets, 2):
        if one != two:
            (changed, read), (changed_2, read_2) = sets[one], sets[two]
            names |= changed & changed_2 | changed & read_2 | read & changed_2
    found = defaultdict(lambda: (set(), set()))
    for (book, _), both in sets.items():
        for kind, own in enumerate(both):
            for name in own & names:
                found[name][kind].add(book)
    return dict(found)


def page(records, rules):
    """(text, names without a reason)."""
    rows, unexplained = defaultdict(lambda: [0, set(), set()]), []
    for name, (change, read) in sorted(in_common(records).items()):
        rule = next((rule for rule in rules if re.fullmatch(rule["name"], name)), None)
        if rule is None:
            unexplained.append(
                f"- `{name}`: changed by {', '.join(sorted(change))}; read by {', '.join(sorted(read)) or 'none'}"
            )
            continue
        row = rows[rule["what"], rule["why"]]
        row[0], row[1], row[2] = row[0] + 1, row[1] | change, row[2] | read
    books = len({book for book, _ in records})
    said = (
        f"{len(unexplained)} names have no reason yet: below."
        if unexplained
        else "Each has its reason."
    )
    calls = sum(one["calls"] for one in records.values())
    text = HEAD.format(calls=calls, books=books, all=books * (books + 1) // 2, unexplained=said)
    for (what, why), (names, change, read) in rows.items():
        text += f"| {what} | {names} | {len(change)} | {len(read)} | {why} |\n"
    return text + "\n" * bool(unexplained) + "\n".join(unexplained) + "\n" * bool(
        unexplained
    ), unexplained


def recorded():
    """What is recorded: {(notebook, run): record}."""
    found = {}
    for file in sorted(RECORDS.glob("*.json")):
        stem, _, number = file.stem.rpartition("-")
        found[stem, number] = json.loads(file.read_text())
    return found


def main():
    if not shutil.which("strace"):
        sys.exit("strace is not here: apt install strace")
    RECORDS.mkdir(parents=True, exist_ok=True)
    books = sorted(pairs.books(), key=pairs.seconds)
    for book in books:
        if not all((RECORDS / f"{book.stem}-{number}.json").exists() for number in (1, 2)):
            run_beside_itself(book, len(books))
    text, unexplained = page(recorded(), tomllib.loads(REASONS.read_text())["rule"])
    PAGE.write_text(text)
    print(*unexplained, sep="\n")
    sys.exit(bool(unexplained))


if __name__ == "__main__":
    main()
