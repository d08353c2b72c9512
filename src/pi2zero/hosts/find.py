"""Which place is meant: by what a cell says, the Slurm job that the kernel is in, or the site file."""

import re
import shutil
import subprocess
from pathlib import Path

from pi2zero.hosts import site, slurm
from pi2zero.hosts.place import SSH, Place, PlaceError


def find(on=None):
    """Where ranks shall run: what `on` says; else the nodes of the Slurm job that this kernel is in; else what the
    site file says; else this machine. Raises PlaceError.

    on: "local" (this machine), "slurm" (a job of its own, as the site file says), hosts with slots such as ["node1:2",
    "node2:2"], or the path of an Open MPI hostfile.
    """
    told = site.load()
    if on is None:
        if (found := slurm.of_this_job(told)) is not None:
            return found
        on = told.on
    if on == "local":
        return Place()
    if on == "slurm":
        return slurm.Wanted(told)
    if not (slots := counted(in_file(Path(on)) if isinstance(on, str | Path) else in_list(on))):
        raise PlaceError(
            f'on={on!r} names no host. Write on=["node1:2", "node2:2"], or leave it out for this machine.'
        )
    return Place(slots, tuple(SSH), told.interface)


def counted(told) -> dict[str, int]:
    """The slots of each host. told: (host, its slots or "" for one for each core, what is wrong if these are none)."""
    slots = {}
    for name, number, wrong in told:
        if not re.fullmatch(r"\w[\w.-]*", name) or not re.fullmatch(r"[1-9]\d{0,5}|", number):
            raise PlaceError(wrong)
        slots[name] = slots.get(name, 0) + (int(number) if number else cores_of(name))
    return slots


def in_list(on):
    """What `counted` needs, from ["node1:2", "node2"] or {"node1": 2}."""
    for one in (
        [f"{name}:{number}" for name, number in on.items()]
        if isinstance(on, dict)
        else map(str, on)
    ):
        name, _, number = one.partition(":")
        wrong = f"{one[:200]!r} is not a host with its slots. Write it as node1:2, or node1 for one slot for each core."
        yield name, number, wrong


def in_file(path: Path):
    """What `counted` needs, from Open MPI's hostfile: a host a line, `slots=2` behind it. Raises PlaceError."""
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise PlaceError(
            f'on={str(path)!r} is no place ("local"; a list of hosts; a hostfile): {error.strerror}.'
        ) from None
    except UnicodeDecodeError as error:
        raise PlaceError(f"{path} is no hostfile: no text in UTF-8, {error}.") from None
    for at, line in enumerate(lines, start=1):
        if words := line.partition("#")[0].split():
            found = re.fullmatch(r"(?:slots=(\w+)(?: max_slots=\d+)?)?", " ".join(words[1:]))
            wrong = f"{path}, line {at}: {line.strip()[:200]!r}. A line is a host and its slots: node1 slots=2"
            yield words[0], (found[1] or "") if found else "?", wrong


def cores_of(host: str) -> int:
    """How many cores a host has, asked by ssh. Raises PlaceError."""
    if not shutil.which("ssh"):
        raise PlaceError(
            "Other hosts are reached by ssh, and there is none here. Install an ssh client (Debian: openssh-client)."
        )
    done = subprocess.run([*SSH, host, "nproc"], capture_output=True, text=True, errors="replace")
    if done.returncode:
        raise PlaceError(f"{host} cannot be reached by ssh: {done.stderr.strip()}")
    last = done.stdout.split()[-1:]  # before it, the host's shell may have said something
    if not last or not last[0].isdecimal():
        raise PlaceError(
            f"{host} does not say how many cores it has, but {done.stdout.strip()!r}. Write {host}:2 for two slots."
        )
    return int(last[0])
