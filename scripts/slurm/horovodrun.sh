#!/bin/bash
#SBATCH --job-name=horovodrun
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --time=00:10:00
#SBATCH --output=%x-%j.out
# A Horovod program by horovodrun, over gloo. It reaches the job's other nodes by ssh, which has to ask for nothing.
#   sbatch scripts/slurm/horovodrun.sh scripts/train_horovod.py --epochs 3
# From the clone's folder, which all nodes have to see. Where ssh is closed: scripts/slurm/mpirun.sh starts the same program.
set -eu
: "${SLURM_JOB_ID:?Submit this script: sbatch $0 PROGRAM.py OPTIONS}"
export PATH="$PWD/.venv/bin:$PATH" OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
unset PYTHONPATH PYTHONHOME # modules set them for another Python
unset JUPYTERHUB_API_TOKEN JPY_API_TOKEN JUPYTER_TOKEN HF_TOKEN # horovodrun writes its environment on a command line

each=$((SLURM_NTASKS / SLURM_JOB_NUM_NODES))
[ $((each * SLURM_JOB_NUM_NODES)) = "$SLURM_NTASKS" ] || {
  echo "horovodrun.sh starts as many ranks on each node, but this job has $SLURM_NTASKS tasks on $SLURM_JOB_NUM_NODES nodes." >&2
  echo "Submit it with --nodes and --ntasks-per-node; or take scripts/slurm/mpirun.sh, which starts the same program." >&2
  exit 1
}
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed "s/\$/:$each/" | paste -sd,)
exec horovodrun --gloo -np "$SLURM_NTASKS" -H "$hosts" python "$@"
