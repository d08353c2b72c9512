#!/bin/bash
#SBATCH --job-name=mpirun
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --time=00:10:00
#SBATCH --output=%x-%j.out
# A program on all tasks of the job, as one MPI world:
#   sbatch scripts/slurm/mpirun.sh scripts/zero_check_mem.py --stage 2
# From the clone's folder, which all nodes have to see.
set -eu
: "${SLURM_JOB_ID:?Submit this script: sbatch $0 PROGRAM.py OPTIONS}"
export PATH="$PWD/.venv/bin:$PATH" OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
unset PYTHONPATH PYTHONHOME # modules set them for another Python

world=$(mpirun -n "$SLURM_NTASKS" python -c "from mpi4py import MPI; print(MPI.COMM_WORLD.size)" | sort -u)
[ "$world" = "$SLURM_NTASKS" ] || { echo "mpirun made worlds of $world, not one of $SLURM_NTASKS." >&2; exit 1; }
exec mpirun -n "$SLURM_NTASKS" python "$@"
