#!/usr/bin/env python
"""`make r`: install R, Rmpi and IRkernel (Debian, as root), and register R's kernel in JupyterLab.

  python tools/r.py                  install what is missing, register the kernel, test it
  python tools/r.py --kernel FILE    what JupyterLab starts: becomes R

Rmpi uses the system's MPI, not the one of the kit's environment.
"""

import argparse
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

SPEC = Path(sys.prefix) / "share" / "jupyter" / "kernels" / "ir" / "kernel.json"
# Rmpi opens libmpi.so, which is in libopenmpi-dev.
DEBIAN = ["r-base-core", "r-cran-rmpi", "r-cran-irkernel", "libopenmpi-dev"]
PACKAGES = ["Rmpi", "IRkernel"]
PR_SET_PDEATHSIG = 1  # prctl(2): a signal for this process when its parent ends
OTHER_MPI = re.compile(r"(OMPI|OPAL|ORTE|PRTE|PMIX|PMI|MPI4PY|MPICH|HYDRA)_")
# For Debian's Open MPI 4: root may start ranks, more than cores; messages stay on this host.
SETTINGS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_oob_tcp_if_include": "lo",
    "OMPI_MCA_btl_tcp_if_include": "lo",
}
PROGRAM = """
library(Rmpi)
mpi.spawn.Rslaves(nslaves = 2, needlog = FALSE, quiet = TRUE)
mpi.bcast.cmd(mpi.reduce(mpi.comm.rank(), type = 1))
total <- mpi.reduce(0L, type = 1)
invisible(mpi.close.Rslaves(dellog = FALSE))
stopifnot(total == 3L)
cat("Rmpi", format(packageVersion("Rmpi")), "in R", format(getRversion()))
mpi.quit()
"""


def environment():
    """This process's variables, but for those of another MPI and this environment's folders."""
    env = {name: value for name, value in os.environ.items() if not OTHER_MPI.match(name)}
    for name in ("PATH", "LD_LIBRARY_PATH"):
        folders = filter(None, env.pop(name, "").split(os.pathsep))
        if kept := [path for path in folders if not Path(path).is_relative_to(sys.prefix)]:
            env[name] = os.pathsep.join(kept)
    return env | SETTINGS


def why_not(book):
    """Why a notebook (nbformat's) cannot run: R's kernel is not registered. Empty if it can."""
    if book.metadata.get("kernelspec", {}).get("name") != SPEC.parent.name or SPEC.exists():
        return ""
    return "its kernel is R, which JupyterLab does not know here. To have it: make r"


def become_kernel(file):
    """JupyterLab ends and interrupts the process that it started, so R takes its place."""
    if sys.platform == "linux":  # IRkernel does not look whether JupyterLab is still there
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    env = environment()
    os.execvpe(
        "R",
        ["R", "--no-echo", "--no-save", "--no-restore", "-e", "IRkernel::main()", "--args", file],
        env,
    )


def missing():
    """What R lacks: the names of packages, or R itself."""
    if not shutil.which("Rscript", path=environment().get("PATH")):
        return ["R", *PACKAGES]
    look = f"cat(setdiff(c({', '.join(map(repr, PACKAGES))}), rownames(installed.packages())))"
    return subprocess.run(
        ["Rscript", "-e", look], env=environment(), capture_output=True, text=True, check=True
    ).stdout.split()


def install():
    """By Debian's apt-get."""
    env = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    get = ["apt-get", "-qq", "-y", "-o", "DPkg::Lock::Timeout=120"]
    print(f"Installing {', '.join(DEBIAN)} by apt-get (about 30 s)", flush=True)
    for command in ([*get, "update"], [*get, "install", "--no-install-recommends", *DEBIAN]):
        done = subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        sys.exit(f"apt-get could not install them: {last}\nFix that, then run make r again.")


def register():
    """Write the kernel's entry into this environment: Debian's own would not find its MPI."""
    SPEC.parent.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, str(Path(__file__).resolve()), "--kernel", "{connection_file}"]
    SPEC.write_text(
        json.dumps({"argv": argv, "display_name": "R", "language": "R"}, indent=1) + "\n"
    )


def spawn_two():
    """Two children of R, a broadcast and a reduce. Returns what R says of itself."""
    done = subprocess.run(
        ["Rscript", "-e", PROGRAM], env=environment(), capture_output=True, text=True, timeout=120
    )
    if done.returncode or not done.stdout.startswith("Rmpi"):
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-5:])
        sys.exit(f"R cannot start two children by Rmpi:\n{last}\nFix that, then run make r again.")
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kernel", metavar="FILE", help="Jupyter's connection file")
    options = parser.parse_args()
    if options.kernel:
        become_kernel(options.kernel)
    if missing() and shutil.which("apt-get") and os.getuid() == 0:
        install()
    if lacks := missing():
        sys.exit(
            f"Missing here: {', '.join(lacks)}.\n"
            "On Debian or Ubuntu, as root: apt-get install --no-install-recommends "
            f"{' '.join(DEBIAN)}\nElsewhere install R (on a cluster often: module load R), and "
            'in it, with the machine\'s MPI: install.packages(c("Rmpi", "IRkernel")).\n'
            "Then run make r again."
        )
    register()
    print(f"{spawn_two()}: two children spawned, their sum right.")
    print("JupyterLab has the kernel R now (reload its page). Open notebooks/A1_mpi_in_r.ipynb.")


if __name__ == "__main__":
    main()
