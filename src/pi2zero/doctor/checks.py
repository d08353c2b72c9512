"""The doctor's checks: each says ok, warning or failed, what it saw, and what to do.

"failed" means that the notebooks cannot run as they are; "warning" that they run, but something is
less than they could have.
"""

import json
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

from pi2zero import native_build, obstacles, ownership
from pi2zero.doctor.probes import Probe
from pi2zero.hosts import limits as machine

ROOT = Path(__file__).resolve().parents[3]  # the clone
BUDGET = 28.0  # s for all checks together
PYTHONS = ((3, 11), (3, 12), (3, 13), (3, 14))
TRIED_MPI = "Open MPI 5"
CANNOT = {  # what the kit misses under others: reports/mpi_libraries.md
    "Open MPI 4": "start ranks on other hosts, or mpirun from a program that has started MPI",
    "MPICH": "start ranks on other hosts, or say which rank died first, and why",
}
ONLY_HOROVOD = "only notebook 05 and one task of lab 03 need it"
ONLY_DEEPSPEED = "only notebooks 08 to 09c and lab 04 need it"


@dataclass(frozen=True)
class Result:
    """One line of the doctor's table. status: ok, warning or failed. seconds: of the check."""

    name: str
    status: str
    detail: str
    remedy: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Limits:
    """Below `low` a warning, below `required` failed. Bytes; cores for `cores`.

    Four ranks, their controller, a kernel and JupyterLab take 0.7 GB together; the notebooks write
    next to nothing.
    """

    memory_low: float = 2e9
    memory_required: float = 0.8e9
    disk_low: float = 2e9
    disk_required: float = 0.1e9
    cores_low: float = 2


# --- Python and its packages ----------------------------------------------------------------------


def from_the_site() -> dict[str, str]:
    """What this environment takes from the site it was built on: {package: version or words}."""
    try:
        return json.loads((Path(sys.prefix) / "pi2zero-site").read_text())
    except (OSError, ValueError):
        return {}


def check_python(wanted: tuple[tuple[int, int], ...] = PYTHONS) -> Result:
    """The interpreter, and whether the installed packages are the pinned ones."""
    detail = f"{platform.python_version()} in {shown(Path(sys.prefix))}"
    if site := from_the_site():
        packages = [f"{name} {site[name]}" for name in site if name != "openmpi"]
        detail += f", on this site's {', '.join(packages) or 'MPI'}"
    elif sys.version_info[:2] not in wanted:
        names = [f"{major}.{minor}" for major, minor in wanted]
        remedy = f"Install Python {names[0]} and run: make lab PYTHON=/path/to/python{names[0]}"
        return Result("Python", "failed", f"{detail}; the kit needs {' or '.join(names)}", remedy)
    try:
        pins = [pin for pin in wanted_packages() if pin.name not in site]
    except metadata.PackageNotFoundError:
        return Result(
            "Python", "failed", f"{detail}; the kit is not installed in it", "Run: make lab"
        )
    odd = [
        f"{pin.name} {version_of(pin.name)}"
        for pin in pins
        if not pin.specifier.contains(version_of(pin.name))
    ]
    if odd:
        detail += f"; not as pinned: {', '.join(odd[:4])}{', ...' if len(odd) > 4 else ''}"
        return Result("Python", "warning", detail, "Run: make clean, then make lab")
    return Result("Python", "ok", f"{detail}; {len(pins)} packages as pinned")


def wanted_packages() -> list[Requirement]:
    """The pins of requirements.lock in the workshop's environment; elsewhere the ranges."""
    if is_workshop():
        lock = (ROOT / "requirements.lock").read_text()
        return [Requirement(pin) for pin in re.findall(r"(?m)^[\w.-]+==[^\s;]+", lock)]
    ranges = map(Requirement, metadata.requires("pi2zero") or [])
    return [want for want in ranges if not want.marker or want.marker.evaluate({"extra": ""})]


def is_workshop() -> bool:
    """Whether the workshop's set-up made this environment; else it is a stranger's own."""
    return (Path(sys.prefix) / "pi2zero-set-up").exists()


def missing(title: str, package: str, extra: str, needed_by: str) -> Result | None:
    """What to say of an optional package that is not installed; None in the workshop."""
    if is_workshop() or find_spec(package):
        return None
    detail = f"not installed; only {needed_by} need it"
    build = ", then python -m pi2zero build --wait" * (package == "horovod")
    return Result(title, "warning", detail, f"Run: pip install 'pi2zero[{extra}]'{build}")


def version_of(package: str) -> str:
    """The version of an installed package; "0" if it is missing, which no pin allows."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "0"


def shown(path: Path) -> str:
    """A path for the table: inside the clone without the clone's own path, which is private."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) and path != ROOT else str(path)


def reinstall(*packages: str) -> str:
    """The command that installs packages again."""
    return f"{sys.executable} -m pip install --force-reinstall --no-deps {' '.join(packages)}"


# --- MPI ------------------------------------------------------------------------------------------


def check_mpi(probe: Probe) -> Result:
    """The library that mpi4py loads, and an mpirun of the same version."""
    seen, why = probe("mpi")
    again = f"Install the kit's own again: {reinstall('openmpi', 'mpi4py')}"
    if not seen:
        detail = f"mpi4py cannot load an MPI library: {why}"
        return Result("MPI", "failed", detail, obstacles.hint().strip() or again)
    library, mpirun = seen["library"], seen["mpirun"]
    if not mpirun:
        missing = seen["why"].startswith("there is no")
        remedy = again if missing else obstacles.hint().strip() or again
        return Result("MPI", "failed", f"{library}, but {seen['why']}", remedy)
    version = re.search(r"\d[\d.]*", library)
    if version and version[0] not in re.findall(r"\d[\d.]*", mpirun):
        detail = f"mpi4py uses {library}, but mpirun is {mpirun}: ranks would not find each other"
        return Result("MPI", "failed", detail, again)
    detail = f"{library}, with its mpirun"
    if library.startswith(TRIED_MPI):
        return Result("MPI", "ok", detail)
    remedy = "".join(
        f"With it the kit cannot {what}. "
        for name, what in CANNOT.items()
        if library.startswith(name)
    )
    remedy += f"All of it was tried with {TRIED_MPI} only; with others: reports/mpi_libraries.md."
    return Result("MPI", "warning", detail, remedy)


def check_world(probe: Probe) -> Result:
    """mpirun starts 4 processes that all-reduce."""
    expected = {"size": 4, "sum": 10, "processes": 4}
    good = "4 processes by mpirun, all-reduce right"
    return started("MPI world of 4", "world", *probe("world"), expected, good)


def check_spawn(probe: Probe) -> Result:
    """A plain process spawns 2 and reduces their answers."""
    good = "2 processes spawned, bcast and reduce right"
    return started("spawn", "spawn", *probe("spawn"), {"sum": 21}, good)


def check_cluster(probe: Probe) -> Result:
    """A cluster of 2 as the notebooks start it."""
    seen, why = probe("cluster")
    good = f"{version_of('ipyparallel')}, a cluster of 2 ranks ran a cell"
    if seen and not seen.pop("closed", True):
        good += "; other users of this machine reach mpirun's port (docs/shared_host.md)"
    return started("ipyparallel", "cluster", seen, why, {"ranks": [0, 1], "size": 2}, good)


def started(
    name: str, probe: str, seen: dict | None, why: str, expected: dict, good: str
) -> Result:
    """The result of a check that starts ranks."""
    if seen == expected:
        return Result(name, "ok", good)
    remedy = obstacles.hint().strip() or (
        "Run: make reset, then make doctor. If it stays, restart the machine. All its words: "
        f"{sys.executable} -m pi2zero.doctor.probes {probe}"
    )
    return Result(name, "failed", f"expected {expected}, got {seen}" if seen else why, remedy)


# --- torch and what is compiled -------------------------------------------------------------------


def check_torch(probe: Probe) -> list[Result]:
    """torch, and the accelerator that it sees."""
    if absent := missing("torch", "torch", "train", "notebooks and labs that train"):
        return [absent]
    seen, why = probe("torch")
    again = f"Install it again: {reinstall('torch==' + version_of('torch'))}"
    for what, remedy in obstacles.of_python_path():
        again = f"{what}. {remedy}"
    if not seen:
        # Slow to load is no failure: the notebooks on π do without torch.
        status = "warning" if "in time" in why else "failed"
        unknown = "not known, because torch did not answer"
        return [
            Result("torch", status, f"torch cannot be used: {why}", again),
            Result("accelerator", "warning", unknown, "See the line above."),
        ]
    torch = Result("torch", "ok", f"{seen['version']}, a matrix product right")
    if not seen["cpu"]:
        torch = Result("torch", "failed", f"{seen['version']}: a matrix product is wrong", again)
    return [torch, check_accelerator(seen)]


def check_accelerator(seen: dict) -> Result:
    """The devices that torch found, each tried; or a GPU that torch cannot use."""
    names = [device["name"] for device in seen["devices"]]
    if broken := [device["name"] for device in seen["devices"] if not device["works"]]:
        detail = f"a matrix product came out wrong on {', '.join(broken)}"
        remedy = "Tell who runs the machine. The CPU works: export CUDA_VISIBLE_DEVICES="
        return Result("accelerator", "failed", detail, remedy)
    if names:
        detail = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
        return Result("accelerator", "ok", detail)
    if gpus := machine.nvidia_gpus():
        detail = f"{gpus} NVIDIA, but torch {seen['version']} cannot use it"
        remedy = "Nothing needs it. To use it, run on this machine: make clean, then make lab."
        return Result("accelerator", "warning", detail, remedy)
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
    return Result("Horovod", "warning", f"{ONLY_HOROVOD}: {why}", "Run: make horovod")


def check_deepspeed(probe: Probe) -> Result:
    """DeepSpeed; on CPUs its compiled operators, too."""
    if absent := missing("DeepSpeed", "deepspeed", "deepspeed", "notebooks 08 to 09c and lab 04"):
        return absent
    if early := unfinished("DeepSpeed", "deepspeed"):
        return early
    seen, why = probe("deepspeed")
    if seen and seen.get("error", 0.0) < 1e-6:
        what = "its Adam for CPUs equal to torch's"
        if "error" not in seen:
            what = f"on {seen['accelerator']}"
        return Result("DeepSpeed", "ok", f"{seen['version']}, {what}")
    if seen:
        why = f"a step of its Adam for CPUs is {seen['error']:g} away from torch's"
    return Result("DeepSpeed", "warning", f"{ONLY_DEEPSPEED}: {why}", "Run: make horovod")


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


# --- the user's settings --------------------------------------------------------------------------


def check_environment() -> list[Result]:
    """What of the user's settings and files is in the way, or may be: a line for each."""
    sources = (
        *(obstacles.of_the_environment, obstacles.of_the_machine),
        *(obstacles.of_jobs, obstacles.of_kernels),
    )
    found = [
        Result("environment", "warning", what, remedy)
        for source in sources
        for what, remedy in source()
    ]
    return found or [Result("environment", "ok", "no setting, file or name is in the way")]


# --- the machine ----------------------------------------------------------------------------------


def check_cores(limits: Limits) -> Result:
    """How many cores this process may use: enough to measure a speed-up?"""
    cores = machine.cores()
    if cores >= limits.cores_low:
        return Result("cores", "ok", f"{cores:g}")
    remedy = "All runs, but no speed-up can be measured. Ask for 2 cores or more."
    return Result("cores", "warning", f"{cores:g}", remedy)


def check_memory(limits: Limits) -> Result:
    """How much memory is free."""
    free, total = machine.free_memory(), machine.total_memory()
    detail = f"{free / 1e9:.1f} GB free of {total / 1e9:.1f} GB"
    remedy = (
        "Close other programs, or use a machine (or container) with more memory. `make reset` ends "
        "old ranks."
    )
    return grade("memory", free, limits.memory_low, limits.memory_required, detail, remedy)


def check_disk(limits: Limits) -> Result:
    """The fuller one of the two places that the kit writes to, and what is odd about them."""
    temporary = Path(tempfile.gettempdir())
    free, place = min((shutil.disk_usage(place).free, place) for place in (ROOT, temporary))
    detail = f"{free / 1e9:.1f} GB free in {shown(place)}"
    remedy = f"Free some space in {shown(place)}."
    if (own := ownership.listable(temporary)) != temporary:
        detail += f"; {temporary} may not be listed, so the kit's files are in {own}"
    result = grade("disk", free, limits.disk_low, limits.disk_required, detail, remedy)
    denied = Path("/dev/shm").is_dir() and Path("/dev/shm") != ownership.SHM_DIR
    if result.status != "ok" or not denied:
        return result
    detail += f"; /dev/shm may not be written, so ranks share memory in {ownership.SHM_DIR}"
    remedy = "All runs, slower. Ask the administrator for: chmod 1777 /dev/shm"
    return Result("disk", "warning", detail, remedy)


def grade(name: str, free: float, low: float, required: float, detail: str, remedy: str) -> Result:
    """The result for free bytes: below `low` a warning, below `required` failed."""
    if free >= low:
        return Result(name, "ok", detail)
    status = "failed" if free < required else "warning"
    return Result(name, status, f"{detail}; {low / 1e9:g} GB is comfortable", remedy)


def check_leftovers() -> Result:
    """Processes of the kit whose notebook is gone: there should be none."""
    if not (left := ownership.leftovers()):
        return Result("leftover processes", "ok", "none")
    pids = ", ".join(str(process.pid) for process in left)
    detail = f"{len(left)} of the kit whose notebook is gone: {pids}"
    return Result("leftover processes", "warning", detail, "Run: make reset")
