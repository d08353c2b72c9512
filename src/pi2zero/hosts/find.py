"""Which place is meant: by the cell, the Slurm job that the kernel is in, or the site file."""

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from pi2zero.hosts import site, slurm
from pi2zero.hosts.place import SSH, Place, PlaceError, PlaceRequest

SSH_PATIENCE = 30.0  # s for a host to say how many cores it has
Entry = tuple[str, str, str]  # a host; its slots, or "" for one per core; the error if it is wrong


def find(on: str | Path | list | dict | None = None) -> PlaceRequest:
    """Where ranks shall run: what `on` says; else the nodes of the Slurm job that this kernel is
    in; else what the site file says; else this machine. Raises PlaceError.

    on: "local" (this machine), "slurm" (a job of its own, as the site file says), hosts with slots
    such as ["node1:2", "node2:2"], or the path of an Open MPI hostfile.
    """
    site_file = site.load()
    if on is None:
        if (place := slurm.place_of_this_job(site_file)) is not None:
            return PlaceRequest(place)
        on = site_file.on
    if on == "local":
        return PlaceRequest()
    if on == "slurm":
        return slurm.SlurmRequest(site_file)
    slots = parse_slots(read_hostfile(Path(on)) if isinstance(on, str | Path) else read_list(on))
    if not slots:
        raise PlaceError(
            f'on={on!r} names no host. Write on=["node1:2", "node2:2"], or leave it out for this '
            "machine."
        )
    return PlaceRequest(Place(slots, SSH, site_file.interface))


def parse_slots(entries: Iterable[Entry]) -> dict[str, int]:
    """The slots of each host. Raises PlaceError with an entry's own error if it is wrong."""
    slots: dict[str, int] = {}
    for host, number, error in entries:
        if not re.fullmatch(r"\w[\w.-]*", host) or not re.fullmatch(r"[1-9]\d{0,5}|", number):
            raise PlaceError(error)
        slots[host] = slots.get(host, 0) + (int(number) if number else cores_of(host))
    return slots


def read_list(on: list | dict) -> Iterator[Entry]:
    """Entries of ["node1:2", "node2"] or {"node1": 2}."""
    texts = (f"{host}:{n}" for host, n in on.items()) if isinstance(on, dict) else map(str, on)
    for text in texts:
        host, _, number = text.partition(":")
        error = (
            f"{text[:200]!r} is not a host with its slots. Write it as node1:2, or node1 for one "
            "slot for each core."
        )
        yield host, number, error


def read_hostfile(path: Path) -> Iterator[Entry]:
    """Entries of Open MPI's hostfile: a host per line, then `slots=2`. Raises PlaceError."""
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise PlaceError(
            f'on={str(path)!r} is no place ("local"; a list of hosts; a hostfile): '
            f"{error.strerror}."
        ) from None
    except UnicodeDecodeError as error:
        raise PlaceError(f"{path} is no hostfile: no text in UTF-8, {error}.") from None
    for number, line in enumerate(lines, start=1):
        if words := line.partition("#")[0].split():
            slots = re.fullmatch(r"(?:slots=(\w+)(?: max_slots=\d+)?)?", " ".join(words[1:]))
            error = (
                f"{path}, line {number}: {line.strip()[:200]!r}. A line is a host and its slots: "
                "node1 slots=2"
            )
            yield words[0], (slots[1] or "") if slots else "?", error


def cores_of(host: str) -> int:
    """How many cores a host has, asked by ssh. Raises PlaceError."""
    if not shutil.which("ssh"):
        raise PlaceError(
            "Other hosts are reached by ssh, and there is none here. Install an ssh client "
            "(Debian: openssh-client)."
        )
    try:
        done = subprocess.run(
            [*SSH, host, "nproc"], capture_output=True, errors="replace", timeout=SSH_PATIENCE
        )
    except subprocess.TimeoutExpired:
        raise PlaceError(
            f"{host} has not answered by ssh for {SSH_PATIENCE:.0f} s. Write {host}:2 for two "
            "slots, or leave the host out."
        ) from None
    if done.returncode:
        raise PlaceError(f"{host} cannot be reached by ssh: {done.stderr.strip()}")
    last = done.stdout.split()[-1:]  # before it, the host's shell may have said something
    if not last or not last[0].isdecimal():
        raise PlaceError(
            f"{host} does not say how many cores it has, but {done.stdout.strip()!r}. Write "
            f"{host}:2 for two slots."
        )
    return int(last[0])
