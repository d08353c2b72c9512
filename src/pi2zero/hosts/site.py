"""The site file: where ranks run if nobody says it, written once by an instructor.

It is `~/.config/pi2zero/site.toml`, or what PI2ZERO_SITE names. Without one, ranks run on the
kernel's own machine. `python -m pi2zero site` checks it.
"""

import os
import shlex
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pi2zero.hosts.place import PlaceError

EXAMPLE = """\
# Where the notebooks' ranks run. `python -m pi2zero site` checks this file.
on = "slurm"              # "slurm", "local", or hosts with their slots: ["node1:2", "node2:2"]

# For Slurm; what is left out is Slurm's own default.
# partition = "gpu"
# account = "workshop"
# time = "02:00:00"       # of one cluster; a job that is over ends its ranks
# nodes = 2
# ranks_per_node = 2
# gpus_per_node = 2
# options = ["--reservation=workshop", "--cpus-per-task=4"]   # more of sbatch's options
# modules = ["cuda/12.4"]                 # loaded on each node before the ranks start
# lines = ["export NCCL_DEBUG=WARN"]      # lines of bash, after the modules
# scratch = "/scratch"                    # for the ranks' temporary files
# interface = "ib0"                       # the interface of THIS machine that leads to the nodes
"""
# A shell that is no login shell may not have `module`. Modules set PYTHONPATH
# for another Python.
MODULES = """\
type module >/dev/null 2>&1 || for file in /etc/profile.d/*mod*.sh; do . "$file"; done
module load {0} || {{
  echo "The site file's modules were not loaded on $(hostname): {0}" >&2
  exit 1
}}
unset PYTHONPATH PYTHONHOME"""


@dataclass(frozen=True)
class Site:
    """What the site file says; see EXAMPLE."""

    on: str | list = "local"
    partition: str = ""
    account: str = ""
    time: str = ""
    nodes: int = 0
    ranks_per_node: int = 0
    gpus_per_node: int = 0
    options: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    scratch: str = ""
    interface: str = ""

    def sbatch_options(self, n: int) -> list[str]:
        """sbatch's options for n ranks. Raises PlaceError if they do not fit."""
        room = self.nodes * self.ranks_per_node
        if room and n > room:
            raise PlaceError(
                f"{n} ranks do not fit: {path()} has nodes = {self.nodes}, "
                f"ranks_per_node = {self.ranks_per_node}: {room}."
            )
        nodes = min(self.nodes, n)
        if self.ranks_per_node and not nodes:
            nodes = -(-n // self.ranks_per_node)
        words = [f"--ntasks={n}"]
        if nodes:
            per_node = -(-n // nodes)
            words = [
                f"--ntasks={nodes * per_node}", f"--nodes={nodes}", f"--ntasks-per-node={per_node}"
            ]  # fmt: skip
        named = {"partition": self.partition, "account": self.account, "time": self.time}
        named["gpus-per-node"] = str(self.gpus_per_node or "")
        words += [f"--{name}={value}" for name, value in named.items() if value]
        return [*words, *self.options]

    def prepared(self, line: str) -> str:
        """A line of bash with the site's modules, lines and scratch folder before it."""
        before = [MODULES.format(shlex.join(self.modules))] if self.modules else []
        before += self.lines
        before += [f"export TMPDIR={shlex.quote(self.scratch)}"] if self.scratch else []
        return "\n".join([*before, line])


def path() -> Path:
    """Where the site file is looked for: PI2ZERO_SITE, else ~/.config/pi2zero/site.toml."""
    return Path(os.environ.get("PI2ZERO_SITE") or Path.home() / ".config/pi2zero/site.toml")


def write() -> str:
    """Write EXAMPLE where the site file belongs, unless there is one; says what was done."""
    if path().exists():
        return f"{path()} is there already; it was not changed."
    path().parent.mkdir(parents=True, exist_ok=True)
    path().write_text(EXAMPLE)
    return f"Written: {path()}. Edit it, then run: python -m pi2zero site"


def load() -> Site:
    """What the site file says; defaults if there is none. Raises PlaceError if it is wrong."""
    try:
        settings = tomllib.loads(path().read_text())
    except FileNotFoundError:
        return Site()
    except OSError as error:
        raise PlaceError(f"{path()} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise PlaceError(f"{path()} is no text in UTF-8: {error}.") from None
    except (ValueError, RecursionError) as error:  # also of numbers and nests that are too long
        raise PlaceError(f"{path()} is not TOML: {error}.") from None
    return Site(**{name: checked(name, value) for name, value in settings.items()})


def checked(name: str, value) -> Any:
    """A value of the file as Site has it. Raises PlaceError if it is of another kind."""
    kinds = {field.name: type(field.default) for field in fields(Site)}
    if name not in kinds:
        raise PlaceError(f"{path()}: {repr(name)[:100]} is not known. Known: {', '.join(kinds)}.")
    kind, wanted = kinds[name], "a text in quotes"
    if kind is int:
        wanted, good = "a whole number from 1 up", type(value) is int and value >= 1
    elif kind is tuple or (name == "on" and isinstance(value, list)):
        wanted = "a list of texts"
        good = isinstance(value, list) and all(isinstance(text, str) for text in value)
    else:
        good = isinstance(value, str)
    if not good:
        raise PlaceError(f"{path()}: {name} has to be {wanted}; it is {repr(value)[:200]}.")
    return tuple(value) if kind is tuple and isinstance(value, list) else value
