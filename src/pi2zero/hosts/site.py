"""The site file: where ranks run when nobody says it, written once by an instructor. `python -m pi2zero site` checks it.

It is `~/.config/pi2zero/site.toml`, or what PI2ZERO_SITE names. Without one, ranks run on the kernel's own machine.
"""

import os
import shlex
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path

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
# interface = "ib0"                       # the network interface of THIS machine that leads to the nodes
"""
# A shell that is no login shell may not have `module`.
MODULES = """\
type module >/dev/null 2>&1 || for file in /etc/profile.d/*mod*.sh; do . "$file"; done
module load {0} || {{ echo "The site file's modules were not loaded on $(hostname): {0}" >&2; exit 1; }}
unset PYTHONPATH PYTHONHOME  # for another Python; what SITE=1 keeps of a site's packages, the environment knows"""


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

    def sbatch(self, n: int) -> list[str]:
        """sbatch's options for n ranks. Raises PlaceError if they do not fit."""
        if self.nodes and self.ranks_per_node and n > self.nodes * self.ranks_per_node:
            room = self.nodes * self.ranks_per_node
            raise PlaceError(
                f"{n} ranks do not fit: {path()} has nodes = {self.nodes}, ranks_per_node = {self.ranks_per_node}: {room}."
            )
        words = [f"--ntasks={n}"]
        nodes = min(self.nodes, n)
        if self.ranks_per_node and not nodes:
            nodes = -(-n // self.ranks_per_node)
        if nodes:
            words += [f"--nodes={nodes}", f"--ntasks-per-node={-(-n // nodes)}"]
            words[0] = f"--ntasks={nodes * -(-n // nodes)}"
        given = {"partition": self.partition, "account": self.account, "time": self.time}
        words += [f"--{name}={value}" for name, value in given.items() if value]
        words += [f"--gpus-per-node={self.gpus_per_node}"] * bool(self.gpus_per_node)
        return [*words, *self.options]

    def prepared(self, line: str) -> str:
        """A line of bash, with the site's modules, lines and scratch before it."""
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
    """What the site file says; a Site of defaults if there is none. Raises PlaceError that names what is wrong in it."""
    try:
        text = path().read_text()
    except FileNotFoundError:
        return Site()
    except OSError as error:
        raise PlaceError(f"{path()} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise PlaceError(f"{path()} is no text in UTF-8: {error}.") from None
    try:
        told = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also numbers and nests that are too long
        raise PlaceError(f"{path()} is not TOML: {error}.") from None
    return Site(**{name: checked(name, value) for name, value in told.items()})


def checked(name: str, value):
    """A value of the file, if it is of the right kind. Raises PlaceError."""
    kinds = {field.name: type(field.default) for field in fields(Site)}
    if name not in kinds:
        raise PlaceError(f"{path()}: {repr(name)[:100]} is not known. Known: {', '.join(kinds)}.")
    if kinds[name] is tuple or (name == "on" and isinstance(value, list)):
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise PlaceError(
                f"{path()}: {name} has to be a list of texts; it is {repr(value)[:200]}."
            )
        return value if name == "on" else tuple(value)
    if type(value) is not kinds[name] or (kinds[name] is int and value < 1):
        kind = "a whole number from 1 up" if kinds[name] is int else "a text in quotes"
        raise PlaceError(f"{path()}: {name} has to be {kind}; it is {repr(value)[:200]}.")
    return value
