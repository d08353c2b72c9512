"""What every kernel of the environment does at its start, whoever starts it: JupyterLab, `make lab`, nbclient, an editor.

pip installs this file with the kit into the environment's etc/ipython. So a notebook that knows nothing of the kit can start
MPI ranks, and DeepSpeed finds its operators compiled, without the lock that a killed compiler leaves behind.
"""

from pi2zero.zero import operators

operators.use_folder()
operators.drop_stale_locks()
