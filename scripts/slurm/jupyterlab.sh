#!/bin/bash
#SBATCH --job-name=jupyterlab
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --time=04:00:00
#SBATCH --output=%x-%j.out
# JupyterLab on the job's first node; its notebooks' ranks span all nodes of the job.
#   sbatch scripts/slurm/jupyterlab.sh         then read jupyterlab-JOB.address: the ssh line and the address
# From the clone's folder, which all nodes have to see.
set -eu
: "${SLURM_JOB_ID:?Submit this script: sbatch $0}"
export PATH="$PWD/.venv/bin:$PATH"
unset PYTHONPATH PYTHONHOME # modules set them for another Python

port=$((20000 + SLURM_JOB_ID % 20000))
export JUPYTER_TOKEN=${JUPYTER_TOKEN:-$(python -c 'import secrets; print(secrets.token_hex(24))')}
# A kernel's sockets do not fit into a long home's path
export JUPYTER_RUNTIME_DIR=$(python -c 'import sys; sys.path.insert(0, "tools"); import lab; print(lab.runtime_dir())')
# In a file of its own, from its first moment for you alone: others may have opened what this job prints
told=$PWD/jupyterlab-$SLURM_JOB_ID.address
me=$(id -un)
rm -f "$told"
(umask 077; set -C; cat >"$told") <<TEXT
On your own machine, leave this running (if it does not know $SLURM_SUBMIT_HOST: the name by which you log in there):
  ssh -N -L $port:127.0.0.1:$port -J $me@$SLURM_SUBMIT_HOST $me@$(hostname)
and open:
  http://127.0.0.1:$port/lab/tree/notebooks/00_start_here.ipynb?token=$JUPYTER_TOKEN
TEXT
echo "The ssh line and the address to open are in $told"
root=
[ "$(id -u)" != 0 ] || root=--allow-root
exec jupyter lab --config=tools/jupyter_lab_config.py --ServerApp.root_dir="$PWD" --no-browser --ip=127.0.0.1 --port="$port" --ServerApp.port_retries=0 $root
