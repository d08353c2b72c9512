"""A clone with an environment of its own, in which the real builder compiles a Horovod of ten lines: seconds, not minutes.

Its source comes from a folder by the real pip, is compiled by the real compiler, and is kept in a cache folder of its own.
"""

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
VERSION = "0.28.1"
OTHERS = (
    "deepspeed",
    "horovod",
    "torch",
    "pi2zero",
    "__editable__",
    "tensorflow",
)  # packages that a toy kit has not, or its own
SETUP = """
import os, subprocess, sysconfig, time
from pathlib import Path
from setuptools import setup
from setuptools.command.build_py import build_py

class Build(build_py):
    def run(self):
        super().run()
        assert os.environ["HOROVOD_WITHOUT_TENSORFLOW"] == "1" and "-std=c++17" in Path(os.environ["CXX"]).read_text()
        compiler, done = [os.environ["CXX"], "-fPIC", "-I", sysconfig.get_paths()["include"]], Path("whole.o")
        print("[ 10%] Building CXX object", flush=True)
        if not done.exists():
            subprocess.run([*compiler, "-c", os.environ.get("TOY_SOURCE", "lib.cc"), "-o", done], check=True)
            print("compiled lib.cc", flush=True)
        print("[ 60%] Linking CXX", flush=True)
        while os.path.exists(os.environ.get("TOY_HOLD", "")):
            time.sleep(0.05)
        library = Path(self.build_lib, "horovod", "torch", "mpi_lib_v2.so")
        subprocess.run([*compiler, "-shared", done, "-o", library], check=True)

setup(name="horovod", version="VERSION", packages=["horovod", "horovod.torch"], cmdclass={"build_py": Build})
"""
LIBRARY = """#include <Python.h>
static struct PyModuleDef def = {PyModuleDef_HEAD_INIT, "mpi_lib_v2", 0, -1, 0};
PyMODINIT_FUNC PyInit_mpi_lib_v2(void) { return PyModule_Create(&def); }
"""


class Kit:
    def __init__(self, folder: Path, cache: Path):
        self.folder, self.venv, self.cache = folder, folder / ".venv", cache
        self.python, self.hold = self.venv / "bin" / "python", folder / "hold"
        self.site = self.venv / "lib" / "python3.11" / "site-packages"
        shutil.copytree(
            ROOT / "src" / "pi2zero",
            folder / "src" / "pi2zero",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.venv], check=True)
        for path in Path(sysconfig.get_paths()["purelib"]).iterdir():
            if not path.name.startswith(OTHERS):
                (self.site / path.name).symlink_to(path)
        (self.site / "kit.pth").write_text(f"{folder / 'src'}\n")
        self.torch("2.13.0")
        self.bin = folder / "path"  # a PATH with the compiler and nothing else
        self.bin.mkdir()
        for tool in ("g++", "make", "as", "ld"):
            (self.bin / tool).symlink_to(shutil.which(tool))
        archive = sdist(folder / "index" / f"horovod-{VERSION}.tar.gz")
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        (folder / "requirements.lock").write_text(f"# horovod=={VERSION} --hash=sha256:{digest}\n")

    def torch(self, version: str) -> None:
        """Have a torch of this version: what is looked at, not what computes."""
        shutil.rmtree(self.site / "torch-0.dist-info", ignore_errors=True)
        for name, text in {
            "torch/version.py": f"__version__ = '{version}+cpu'\n",
            "torch-0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n",
        }.items():
            (self.site / name).parent.mkdir(exist_ok=True)
            (self.site / name).write_text(text)

    def env(self, **more: str) -> dict:
        """Of a user who has nothing but the compiler, and whose pip looks into one folder."""
        drop = ("PIP_", "HOROVOD_", "PYTHON", "CXX", "PI2ZERO", "XDG_")
        env = {name: value for name, value in os.environ.items() if not name.startswith(drop)}
        env |= {
            "PATH": str(self.bin),
            "XDG_CACHE_HOME": str(self.cache),
            "PIP_CONFIG_FILE": os.devnull,
        }
        return (
            env
            | {
                "PIP_NO_INDEX": "1",
                "PIP_FIND_LINKS": str(self.folder / "index"),
                "TOY_HOLD": str(self.hold),
            }
            | more
        )

    def built(self, *options: str, within=(), **env: str) -> tuple[int, str]:
        """`python -m pi2zero built`: its exit status and what it says. within: the words of a command that starts it."""
        command = [*within, self.python, "-m", "pi2zero", "built", *options]
        done = subprocess.run(
            command, capture_output=True, text=True, env=self.env(**env), timeout=100
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout

    def log(self) -> str:
        """What the last build has said."""
        file = self.venv / "built" / "horovod.log"
        return file.read_text() if file.exists() else ""

    def told(self) -> dict:
        return json.loads((self.venv / "built" / "horovod.json").read_text())

    def until(self, what, waits: bool = True) -> None:
        """Wait until something is so. waits: the builder knows that somebody does."""
        deadline = time.monotonic() + 60
        while not what():
            assert time.monotonic() < deadline, self.log()
            if waits:
                (self.venv / "built" / "waited").touch()
            time.sleep(0.05)

    def start_and_hold(self, **env: str) -> None:
        """The builder is at work in the background, and stands still at 60 %."""
        self.hold.touch()
        self.built(**env)
        self.until(lambda: "[ 60%]" in self.log())

    def entries(self) -> list[Path]:
        """What is in the cache."""
        folder = self.cache / "pi2zero"
        return sorted(folder.iterdir()) if folder.exists() else []


def sdist(place: Path) -> Path:
    """The source of that Horovod."""
    files = {
        "setup.py": SETUP.replace("VERSION", VERSION),
        "lib.cc": LIBRARY,
        "horovod/__init__.py": f"__version__ = '{VERSION}'\n",
    }
    files |= {
        "horovod/torch/__init__.py": "",
        "PKG-INFO": f"Metadata-Version: 2.1\nName: horovod\nVersion: {VERSION}\n",
    }
    place.parent.mkdir()
    with (
        gzip.GzipFile(place, "wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for name, text in files.items():
            info = tarfile.TarInfo(f"horovod-{VERSION}/{name}")
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    return place
