#!/bin/bash
#SBATCH --job-name=torchrun
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=2
#SBATCH --time=00:10:00
#SBATCH --output=%x-%j.out
# A program of torch.distributed, with a rank for each core (or GPU) of a node: one torchrun on each node starts them.
#   sbatch scripts/slurm/torchrun.sh scripts/train_ddp.py --epochs 3
# From the clone's folder, which all nodes have to see. The ranks are one world if all torchruns meet at the same address.
set -eu
: "${SLURM_JOB_ID:?Submit this script: sbatch $0 PROGRAM.py OPTIONS}"
export PATH="$PWD/.venv/bin:$PATH" OMP_NUM_THREADS=1

first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
each=${SLURM_GPUS_ON_NODE:-$SLURM_CPUS_PER_TASK}
port=$((20000 + SLURM_JOB_ID % 20000)) # two jobs on a node don't meet
exec srun --cpu-bind=none torchrun --nnodes "$SLURM_JOB_NUM_NODES" --nproc-per-node "$each" \
  --rdzv-backend c10d --rdzv-id "$SLURM_JOB_ID" --rdzv-endpoint "$first:$port" "$@"
