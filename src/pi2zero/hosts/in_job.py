"""`python -m pi2zero.hosts.in_job --job=NUMBER NODE LINE...`: run a line of sh on a node of a job, with its input and output.

Open MPI and the kit call it as they call ssh. The site's modules and lines are prepared first, on that node; not in the job that
the kernel itself is in: the ranks on its own node have what was loaded before it, and so have the others, by srun.
"""

import os
import sys

from pi2zero.hosts import site

SRUN = [
    "srun",
    "--overlap",
    "--nodes=1",
    "--ntasks=1",
    "--cpu-bind=none",
    "--mpi=none",
    "--quiet",
    "--unbuffered",
]


def command(job: str, node: str, line: str, ours: bool = False) -> list[str]:
    """srun's whole command. ours: the kernel is in that job."""
    return [
        *SRUN,
        f"--jobid={job}",
        f"--nodelist={node}",
        "bash",
        "-c",
        line if ours else site.load().prepared(line),
    ]


def main() -> None:
    """Become srun, which runs the line on the node. Does not return."""
    job, node, *line = sys.argv[1:]
    job = job.removeprefix("--job=")
    # srun hands the environment over. Not this machine's temporary folder: Slurm would make it there, and leave it; unless the
    # kernel runs in this job. Not what the kernel's own job was asked for, nor ipyparallel's folders here.
    ours = os.environ.get("SLURM_JOB_ID") == job
    if not ours:
        os.environ.pop("TMPDIR", None)
    for name in [
        name for name in os.environ if name.startswith(("SLURM_", "IPP_")) and name != "SLURM_CONF"
    ]:
        del os.environ[name]
    words = command(job, node, " ".join(line), ours)
    os.execvp(words[0], words)


if __name__ == "__main__":
    main()
