"""A clone with an environment of its own, which compiles a Horovod of ten lines in seconds.

The source comes from a folder by the real pip, is compiled by the real compiler, and is kept in a
cache of its own.
"""

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import time
from pathlib import Path

import pytest

from pi2zero.native_build.parts import Horovod

ROOT = Path(__file__).parents[2]
LEFT_OUT = ("deepspeed", "ninja", "horovod", "torch", "pi2zero", "__editable__")
SETUP = """
import os, subprocess, sysconfig, time
from pathlib import Path
from setuptools import setup
from setuptools.command.build_py import build_py

class Build(build_py):
    def run(self):
        super().run()
        assert os.environ["HOROVOD_WITHOUT_TENSORFLOW"] == "1"
        compiler = [os.environ["CXX"], "-fPIC", "-shared", "-I", sysconfig.get_paths()["include"]]
        print("compiling lib.cc", flush=True)
        while os.path.exists(os.environ.get("TOY_HOLD", "")):
            time.sleep(0.05)
        library = Path(self.build_lib, "horovod", "torch", "mpi_lib_v2.so")
        subprocess.run([*compiler, os.environ.get("TOY_SOURCE", "lib.cc"), "-o", library], \
check=True)

setup(name="horovod", version="VERSION", packages=["horovod", "horovod.torch"],
      cmdclass={"build_py": Build})
"""
LIBRARY = """#include <Python.h>
static struct PyModuleDef def = {PyModuleDef_HEAD_INIT, "mpi_lib_v2", 0, -1, 0};
PyMODINIT_FUNC PyInit_mpi_lib_v2(void) { return PyModule_Create(&def); }
"""


class ToyClone:
    """The kit's package, an environment without torch, and a folder as package index."""

    def __init__(self, folder: Path, cache: Path):
        self.folder, self.venv, self.cache = folder, folder / ".venv", cache
        self.python, self.hold = self.venv / "bin" / "python", folder / "hold"
        self.site = self.venv / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
        source = folder / "src" / "pi2zero"
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "src" / "pi2zero", source, ignore=ignored)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.venv], check=True)
        for path in Path(sysconfig.get_path("purelib")).iterdir():
            if not path.name.startswith(LEFT_OUT):
                (self.site / path.name).symlink_to(path)
        (self.site / "kit.pth").write_text(f"{folder / 'src'}\n")
        self.have_torch("2.13.0")
        self.bin = folder / "path"  # a PATH with the compiler and nothing else
        self.bin.mkdir()
        for tool in ("g++", "make", "as", "ld", "tar", "gzip", "sh"):
            (self.bin / tool).symlink_to(shutil.which(tool))
        self.archive = folder / "index" / f"horovod-{Horovod.VERSION}.tar.gz"
        write_source(self.archive)
        digest = hashlib.sha256(self.archive.read_bytes()).hexdigest()
        parts = source / "native_build" / "parts.py"
        parts.write_text(parts.read_text().replace(Horovod.SHA256, digest))

    def have_torch(self, version: str) -> None:
        """Have the metadata of a torch of this version."""
        shutil.rmtree(self.site / "torch-0.dist-info", ignore_errors=True)
        (self.site / "torch-0.dist-info").mkdir()
        text = f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n"
        (self.site / "torch-0.dist-info" / "METADATA").write_text(text)

    def env(self, **more: str) -> dict[str, str]:
        """The environment of a user who has only the compiler; pip looks into one folder."""
        drop = ("PIP_", "HOROVOD_", "PYTHON", "CXX", "PI2ZERO", "XDG_")
        env = {name: value for name, value in os.environ.items() if not name.startswith(drop)}
        own = {
            "PATH": str(self.bin),
            "XDG_CACHE_HOME": str(self.cache),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.archive.parent),
            "TOY_HOLD": str(self.hold),
        }
        return env | own | more

    def run(self, *words, **env: str) -> subprocess.CompletedProcess:
        """Run this environment's Python."""
        command, options = [self.python, *words], {"capture_output": True, "text": True}
        return subprocess.run(command, env=self.env(**env), timeout=100, **options)

    def build(self, *options: str, **env: str) -> tuple[int, str]:
        """`python -m pi2zero build`: its exit status and what it prints."""
        done = self.run("-m", "pi2zero", "build", *options, **env)
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout

    def log(self) -> str:
        """The words of the last build."""
        file = self.venv / "native_build" / "horovod.log"
        return file.read_text() if file.exists() else ""

    def start_and_hold(self) -> None:
        """Start a build in the background, which stands still while it compiles."""
        self.hold.touch()
        self.build()
        deadline = time.monotonic() + 60
        while "compiling lib.cc" not in self.log():
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.05)

    def cached(self) -> list[Path]:
        """The wheels in the cache."""
        return sorted(self.cache.glob("pi2zero/*/*.whl"))


def write_source(place: Path) -> None:
    """Write the source distribution of the small Horovod."""
    files = {
        "setup.py": SETUP.replace("VERSION", Horovod.VERSION),
        "lib.cc": LIBRARY,
        "horovod/__init__.py": "",
        "horovod/torch/__init__.py": "",
        "PKG-INFO": f"Metadata-Version: 2.1\nName: horovod\nVersion: {Horovod.VERSION}\n",
    }
    place.parent.mkdir()
    with (
        gzip.GzipFile(place, "wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for name, text in files.items():
            info = tarfile.TarInfo(f"horovod-{Horovod.VERSION}/{name}")
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))


@pytest.fixture
def clone(tmp_path):
    """A toy clone; its builder is ended with the test."""
    clone = ToyClone(tmp_path / "clone", tmp_path / "cache")
    yield clone
    clone.hold.unlink(missing_ok=True)
    clone.build("--stop")


@pytest.fixture
def second_clone(clone, tmp_path):
    """Another clone of the same user."""
    return ToyClone(tmp_path / "second", clone.cache)
