"""What every kernel of the environment does at its start, be it JupyterLab, nbclient or an editor
that starts it.

pip installs this file with the course into the environment's etc/ipython. So a notebook that knows
nothing of the kit can start MPI ranks, `%%px` says what to do until there are any, and DeepSpeed
finds its operators compiled, without the lock that a killed compiler leaves behind. Packages that a
cell installs leave the kit's versions alone.
"""

import os
import re
import sys

from pi2zero import environment
from pi2zero.deepspeed_support import operators

MPL = "MPLBACKEND"
operators.use_folder()
operators.drop_stale_locks()
environment.constrain_installers()
environment.set_prefixes()
get_config().InteractiveShellApp.extensions.append("pi2zero")  # noqa: F821 (IPython gives it)
# No kernel needs these, and a program that it starts may show them: horovodrun writes its
# environment on a command line, which everyone can read.
for name in ("JUPYTERHUB_API_TOKEN", "JPY_API_TOKEN", "JUPYTER_TOKEN"):
    os.environ.pop(name, None)
# A notebook's metadata names the language as its kernel tells it. With Python's version in it,
# JupyterLab marked each notebook as changed when it was only opened, and git did when it was saved.
# tools/notebooks.py stores the same.
if "ipykernel.ipkernel" in sys.modules:
    sys.modules["ipykernel.ipkernel"].IPythonKernel.language_info["version"] = "3"
    # A shell's MPLBACKEND is meant for windows, or for files. Here no picture would come.
    if not re.search(
        "module://|inline|ipympl|widget|nbagg|notebook", os.environ.get(MPL, ""), re.I
    ):
        os.environ[MPL] = "module://matplotlib_inline.backend_inline"
