"""What a built part is: what it depends on, whether it is there, how it is built and installed."""

import functools
import hashlib
import inspect
import os
import platform
import runpy
import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]  # the clone
HOW = ("recipe", "compiler", "flags", "options", "cmake", "ninja")
SITE = Path(sysconfig.get_paths()["purelib"])


def folder() -> Path:
    """Where an environment keeps the state of its parts, their logs, and half-built things."""
    return Path(sys.prefix) / "built"


class Failed(Exception):
    """A part could not be built. Its two arguments: why, and what to do."""


class Part:
    """One thing to build. Who inherits from it says what is missing here."""

    name: str  # as in wait_for(name), in file names and commands
    title: str  # in sentences
    wants: str  # what does not run without it
    typical = 60.0  # s on two cores, until its own pace is known

    def depends_on(self) -> dict:
        """Everything that the files to be made depend on beside what all parts do: versions, build options."""
        raise NotImplementedError

    def is_installed(self) -> bool:
        """Whether its files are in the environment: a quick look."""
        raise NotImplementedError

    def works(self, run) -> bool:
        """Whether it can really be used. run(command) gives the exit status, run(command, check=True) raises Failed."""
        raise NotImplementedError

    def build(self, work: Path, run) -> list[Path]:
        """Make it in the folder `work`, going on with what an earlier try has left there. Returns the files to keep."""
        raise NotImplementedError

    def hear(self, line: bytes) -> None:
        """Called with each line that the build says."""

    def install(self, files: list[Path], run) -> None:
        """Put these files where Python finds them."""
        raise NotImplementedError

    def share(self, work: Path) -> float:
        """How much of the build is done, 0 to 1."""
        raise NotImplementedError

    def made_of(self) -> dict:
        """Everything that the files to be made depend on."""
        recipe = hashlib.sha256(Path(inspect.getfile(type(self))).read_bytes()).hexdigest()[:16]
        return {"part": self.name, "recipe": recipe, **machine(), **self.depends_on()}

    def runs_with(self) -> dict:
        """What of that must be the same for files that are installed already: how they were made does not matter any more."""
        return {name: value for name, value in self.made_of().items() if name not in HOW}

    def key(self) -> str:
        """A short name of all that, for folders and comparisons."""
        words = "\n".join(f"{name}={value}" for name, value in sorted(self.made_of().items()))
        return f"{self.name}-{hashlib.sha256(words.encode()).hexdigest()[:16]}"


def machine() -> dict:
    """What every compiled file depends on. DeepSpeed and Horovod compile for this very processor."""
    return {
        "python": f"{sys.implementation.cache_tag} {platform.python_version()}",
        "system": f"{sys.platform} {platform.machine()} {' '.join(platform.libc_ver())}",
        "cpu": cpu(),
        "compiler": version_of_program(os.environ.get("CXX", "g++")),
        "flags": " ".join(
            os.environ.get(name, "") for name in ("CFLAGS", "CXXFLAGS", "LDFLAGS")
        ).strip(),
    }


@functools.cache
def cpu() -> str:
    """Model and abilities of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    told = {}
    for line in lines:
        name, _, value = line.partition(":")
        told.setdefault(name.strip(), value.strip())
    flags = hashlib.sha256(told.get("flags", told.get("Features", "")).encode()).hexdigest()[:16]
    return f"{told.get('model name', told.get('CPU part', ''))} {flags}"


def version_of_program(program: str) -> str:
    """The first line of what it says of its version; empty if it is not there."""
    path = shutil.which(program, path=search_path())
    if not path:
        return ""
    said = subprocess.run(
        [path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True
    ).stdout
    return said.splitlines()[0] if said else path


def search_path() -> str:
    """PATH with the environment's own programs first, also in a kernel that runs without."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def version_of_package(package: str) -> str:
    """Its version; empty if it is not there."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def torch_build() -> str:
    """Which torch: its version with the build (CPU, or which CUDA) and the commit it was made from. Does not import it."""
    try:
        told = runpy.run_path(str(SITE / "torch" / "version.py"))
    except OSError:
        return version_of_package("torch")
    return f"{told['__version__']} {told.get('cuda')} {told.get('git_version')}"
