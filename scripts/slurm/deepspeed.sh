#!/bin/bash
#SBATCH --job-name=deepspeed
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=2
#SBATCH --time=00:10:00
#SBATCH --output=%x-%j.out
# A DeepSpeed program by DeepSpeed's own launcher, one on each node; each starts a rank for each GPU of its node, or for each core.
#   sbatch scripts/slurm/deepspeed.sh scripts/train_deepspeed.py --epochs 3 --stage 2
# From the clone's folder, which all nodes have to see.
set -eu
: "${SLURM_JOB_ID:?Submit this script: sbatch $0 PROGRAM.py OPTIONS}"
export PATH="$PWD/.venv/bin:$PATH" OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
unset PYTHONPATH PYTHONHOME # modules set them for another Python

# One launcher on each node: more tasks would be several worlds that do the same
[ "$SLURM_NTASKS" = "$SLURM_JOB_NUM_NODES" ] || {
  echo "deepspeed.sh starts one deepspeed on each node, but this job has $SLURM_NTASKS tasks on $SLURM_JOB_NUM_NODES nodes." >&2
  echo "Submit it with --ntasks-per-node=1; a node's ranks are its task's cores (--cpus-per-task=4), or its GPUs." >&2
  exit 1
}
each=${SLURM_GPUS_ON_NODE:-$SLURM_CPUS_PER_TASK}
# deepspeed gives its ranks the GPUs 0, 1, ...: another job's, where this job was given others and can see all
given=
[ -z "${SLURM_GPUS_ON_NODE:-}" ] || given=${CUDA_VISIBLE_DEVICES:-}
[ -z "$given" ] || [ "$given" = "$(seq -s, 0 $((each - 1)))" ] || {
  echo "This job has the GPUs $given, and deepspeed's launcher would take 0 to $((each - 1)). Submit it with --exclusive, or take torchrun.sh." >&2
  exit 1
}
[ -n "${SLURM_GPUS_ON_NODE:-}" ] || export DS_ACCELERATOR=cpu
hosts="deepspeed-$SLURM_JOB_ID.hosts"
trap 'rm -f "$hosts"' EXIT
scontrol show hostnames "$SLURM_JOB_NODELIST" | sed "s/\$/ slots=$each/" >"$hosts"
# Where the ranks meet: this node, at the address that the others reach, or that of the interface GLOO_SOCKET_IFNAME
address=$(python -m pi2zero.hosts.address $(scontrol show hostnames "$SLURM_JOB_NODELIST" | tail -n +2))
port=$((20000 + SLURM_JOB_ID % 20000)) # two jobs on a node don't meet
# $SLURM_NODEID is each task's own: bash on the node fills it in
srun --cpu-bind=none bash -c 'exec deepspeed --hostfile "$0" --no_ssh --node_rank "$SLURM_NODEID" --master_addr "$1" --master_port "$2" "${@:3}"' \
  "$hosts" "$address" "$port" "$@"
