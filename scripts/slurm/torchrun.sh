#!/bin/bash
#SBATCH --job-name=torchrun
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=2
#SBATCH --time=00:10:00
#SBATCH --output=%x-%j.out
# A program of torch.distributed, with a rank for each core (or GPU) of a node: one torchrun on each node starts them.
#   sbatch scripts/slurm/torchrun.sh scripts/train_ddp.py --epochs 3
# From the clone's folder, which all nodes have to see. The ranks are one world because all torchruns meet at the same address.
set -eu
: "${SLURM_JOB_ID:?Submit this script: sbatch $0 PROGRAM.py OPTIONS}"
export PATH="$PWD/.venv/bin:$PATH" OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
unset PYTHONPATH PYTHONHOME # modules set them for another Python

# One launcher on each node: more tasks would be several worlds that do the same
[ "$SLURM_NTASKS" = "$SLURM_JOB_NUM_NODES" ] || {
  echo "torchrun.sh starts one torchrun on each node, but this job has $SLURM_NTASKS tasks on $SLURM_JOB_NUM_NODES nodes." >&2
  echo "Submit it with --ntasks-per-node=1; a node's ranks are its task's cores (--cpus-per-task=4), or its GPUs." >&2
  exit 1
}
# Where the ranks meet: this node, at the address that the others reach, or that of the interface GLOO_SOCKET_IFNAME
address=$(python -m pi2zero.hosts.address $(scontrol show hostnames "$SLURM_JOB_NODELIST" | tail -n +2))
each=${SLURM_GPUS_ON_NODE:-$SLURM_CPUS_PER_TASK}
port=$((20000 + SLURM_JOB_ID % 20000)) # two jobs on a node don't meet
# $SLURM_NODEID is each task's own: bash on the node fills it in
exec srun --cpu-bind=none bash -c 'exec torchrun --nnodes "$SLURM_JOB_NUM_NODES" --node-rank "$SLURM_NODEID" --nproc-per-node "$0" --master-addr "$1" --master-port "$2" "${@:3}"' \
  "$each" "$address" "$port" "$@"
