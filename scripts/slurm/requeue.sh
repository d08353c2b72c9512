#!/bin/bash
#SBATCH --job-name=requeue
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --time=00:10:00
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
# A training that is longer than a job's time: 120 s before the time is over, the job asks Slurm to run it once more.
#   sbatch scripts/slurm/requeue.sh scripts/train_ddp.py --epochs 3000 --checkpoint digits.pt --resume
# From the clone's folder, which all nodes have to see. The program has to save while it goes, and to go on from what it saved.
set -eu
: "${SLURM_JOB_ID:?Submit this script: sbatch $0 PROGRAM.py OPTIONS}"
export PATH="$PWD/.venv/bin:$PATH" OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
unset PYTHONPATH PYTHONHOME # modules set them for another Python

world=$(mpirun -n "$SLURM_NTASKS" python -c "from mpi4py import MPI; print(MPI.COMM_WORLD.size)" | sort -u)
[ "$world" = "$SLURM_NTASKS" ] || { echo "mpirun made worlds of $world, not one of $SLURM_NTASKS." >&2; exit 1; }

goes_on() {
  echo "Start $((${SLURM_RESTART_COUNT:-0} + 1)): the time is nearly over. The job goes back into the queue."
  scontrol requeue "$SLURM_JOB_ID"
}
trap goes_on USR1
mpirun -n "$SLURM_NTASKS" python "$@" &
until wait $!; do # a signal ends the waiting, not the program
  kill -0 $! 2>/dev/null || exit 1
done
