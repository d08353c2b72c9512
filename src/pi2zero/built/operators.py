"""DeepSpeed's operators for CPUs: its Adam, the Adam that plain configurations load, and messages through shared memory.

DeepSpeed would compile each when it is first loaded, one minute in which a rank looks as if it hung. It loads without a
compiler what stands in its own package and in the list `installed_ops`: that is how its set-up delivers compiled operators.
`python -m pi2zero.built.operators FOLDER` compiles them.
"""

import re
import sys
from pathlib import Path

from pi2zero.built.parts import SITE, Failed, Part, torch_build, version_of_package

BUILDERS = ("CPUAdamBuilder", "FusedAdamBuilder", "ShareMemCommBuilder")
SOURCES = 6  # of the three together
TOLD = "# The compiled operators that pi2zero has put here."
HOMES = {
    "cpu_adam_op": "adam",
    "fused_adam_op": "adam",
    "deepspeed_shm_comm_op": "comm",
}  # folders in deepspeed/ops
LIST = SITE / "deepspeed" / "git_version_info_installed.py"


class Operators(Part):
    name = "deepspeed"
    title = "DeepSpeed's operators"
    wants = "notebooks 08 to 09c and lab 04"
    typical = 120.0

    def depends_on(self):
        return {
            "deepspeed": version_of_package("deepspeed"),
            "torch": torch_build(),
            "ninja": version_of_package("ninja"),
        }

    def is_installed(self):
        return (
            LIST.exists()
            and LIST.read_text().startswith(TOLD)
            and all(path.exists() for path in listed(LIST.read_text()))
        )

    def works(self, run):
        return run([sys.executable, "-m", "pi2zero.built.operators"]) == 0

    def build(self, work, run):
        if not self.made_of()["compiler"]:
            raise Failed(
                "there is no C++ compiler", "install it (Debian or Ubuntu: apt-get install g++)"
            )
        run([sys.executable, "-m", "pi2zero.built.operators", str(work)], check=True)
        return sorted(work.glob("*/*_op.so"))

    def install(self, files, run):
        """The files into DeepSpeed's package, then the list that makes it load them. Each replaces what stood there at once."""
        places = {file: SITE / "deepspeed" / "ops" / HOMES[file.stem] / file.name for file in files}
        for file, place in places.items():
            replace(place, file.read_bytes())
        replace(LIST, installed_list(places.values()).encode())

    def share(self, work):
        return len(list(work.glob("*/*.o"))) / (
            SOURCES + 1
        )  # each is there when it is whole; then they are linked


def listed(text: str) -> list[Path]:
    """The files that the list names."""
    return [SITE / name for name in re.findall(r"^# (\S+\.so)$", text, re.M)]


def installed_list(places) -> str:
    """What DeepSpeed's own set-up writes into this file when it has compiled operators."""
    names = {place.stem.removesuffix("_op"): True for place in places}
    version = re.match(r"\d+\.\d+", version_of_package("torch"))[0]
    absent = dict.fromkeys(("cuda_version", "nccl_version", "hip_version"), "0.0")
    return "\n".join(
        [
            TOLD,
            *(f"# {place.relative_to(SITE)}" for place in places),
            f"version = {version_of_package('deepspeed')!r}",
            "git_hash = git_branch = 'unknown'",
            "from .ops.op_builder.all_ops import ALL_OPS",
            f"installed_ops = dict.fromkeys(ALL_OPS, False) | {names!r}",
            "accelerator_name = 'cpu'",
            f"torch_info = {dict(absent, version=version, bf16_support=False)!r}",
            "",
        ]
    )


def replace(place: Path, content: bytes) -> None:
    """Write a file beside its place, then put it there: also where it is a link into an installer's cache."""
    place.parent.mkdir(exist_ok=True)
    part = place.with_name(f".{place.name}.part")
    part.write_bytes(content)
    part.replace(place)


# --- in a process of its own ------------------------------------------------------------------------------------------


def compile_all(work: Path) -> None:
    """Compile what this machine's accelerator wants compiled: on GPUs nothing."""
    from deepspeed.accelerator import get_accelerator

    if get_accelerator().device_name() != "cpu":
        return
    for name in BUILDERS:
        compile_one(get_accelerator().create_op_builder(name), work)


def compile_one(builder, work: Path) -> None:
    """Compile an operator with the sources and options of its builder, under the name by which DeepSpeed imports it."""
    from torch.utils.cpp_extension import load

    name = builder.absolute_name().rpartition(".")[2]
    (work / name).mkdir(parents=True, exist_ok=True)
    (work / name / "lock").unlink(
        missing_ok=True
    )  # of a compiler that was killed: torch would wait for it for ever

    def absolute(paths):
        return [
            str(Path(builder.deepspeed_src_path(path)).resolve())
            for path in builder.strip_empty_entries(paths)
        ]

    load(
        name=name,
        sources=absolute(builder.sources()),
        extra_include_paths=absolute(builder.include_paths()),
        extra_cflags=[*builder.strip_empty_entries(builder.cxx_args()), "-UC10_USE_GLOG", "-g0"],
        extra_ldflags=[*builder.strip_empty_entries(builder.extra_ldflags()), "-Wl,--strip-debug"],
        build_directory=str(work / name),
        verbose=True,
    )


def prove() -> None:
    """Load each as DeepSpeed does; fails if DeepSpeed would have to compile it."""
    from deepspeed.accelerator import get_accelerator

    if get_accelerator().device_name() != "cpu":
        return
    for name in BUILDERS:
        builder = get_accelerator().create_op_builder(name)
        builder.jit_load = None  # TypeError if it is called
        builder.load()


if __name__ == "__main__":
    compile_all(Path(sys.argv[1])) if len(sys.argv) > 1 else prove()
