"""What every kernel of the environment does at its start, whoever starts it: JupyterLab, `make lab`, nbclient, an editor.

pip installs this file with the kit into the environment's etc/ipython. So a notebook that knows nothing of the kit can start
MPI ranks, and finds DeepSpeed's operators compiled.
"""

from pi2zero.zero.operators import use_folder

use_folder()
