"""`python -m pi2zero.hosts.srun --job=NUMBER NODE LINE...`: run a shell line on a node of a job.

Open MPI and the kit call it as they call ssh. The site's modules and lines are prepared first on
that node, unless the kernel itself is in the job: srun hands over what was loaded there.
"""

import os
import sys

from pi2zero.hosts import site

SRUN = (
    *("srun", "--overlap", "--nodes=1", "--ntasks=1"),
    *("--cpu-bind=none", "--mpi=none", "--quiet", "--unbuffered"),
)


def command(job: str, node: str, line: str, is_own_job: bool = False) -> list[str]:
    """srun's whole command. is_own_job: the kernel is in that job."""
    line = line if is_own_job else site.load().prepared(line)
    return [*SRUN, f"--jobid={job}", f"--nodelist={node}", "bash", "-c", line]


def main() -> None:
    """Become srun, which runs the line on the node. Does not return."""
    job, node, *line = sys.argv[1:]
    job = job.removeprefix("--job=")
    is_own_job = os.environ.get("SLURM_JOB_ID") == job
    # srun hands the environment over, but not this machine's temporary folder, which Slurm would
    # make there and leave, nor the wishes of the kernel's own job, nor ipyparallel's folders here.
    unwanted = [n for n in os.environ if n.startswith(("SLURM_", "IPP_")) and n != "SLURM_CONF"]
    for name in unwanted if is_own_job else [*unwanted, "TMPDIR"]:
        os.environ.pop(name, None)
    words = command(job, node, " ".join(line), is_own_job)
    os.execvp(words[0], words)


if __name__ == "__main__":
    main()
