"""Install packages for tools/setup.py: by uv, in seconds, else by pip; one sentence if it fails, and mending after a kill.

Standard library only, as tools/setup.py.
"""

import csv
import glob
import os
import re
import shutil
import subprocess
import sys

from setup_talk import Follow, is_full, say, stop, stop_full
from setup_uv import has_gpu, is_on, pip_settings, torch_backend, uv_environment

NO_NETWORK = (
    r"Retrying \(Retry|NewConnectionError|Temporary failure in name resolution|Network is unreachable|ReadTimeout"
    r"|dns error|error sending request|operation timed out|Connection refused|tcp connect error|[Nn]etwork timeout"
)
DISK_FULL = "No space left on device|Disk quota exceeded"
OTHER_HASH = "[Hh]ash mismatch|DO NOT MATCH THE HASHES"
FINAL = DISK_FULL + "|" + OTHER_HASH  # what pip would fail at, too
PIP = ["-m", "pip", "install"]
FIRST = (
    "uv",
    "setuptools",
)  # by pip: what installs all else, and what builds the few packages that come as source


def pins(requirements):
    """How many packages a file of pins lists."""
    with open(requirements) as f:
        return sum("==" in line and not line.startswith("#") for line in f)


def locked(lock, names):
    """The entries of some packages in a lock file, each with the hashes on the lines below it."""
    with open(lock) as f:
        entries = re.findall(r"^[\w.-]+==(?:.*\\\n)*.*\n", f.read(), re.M)
    return "".join(entry for entry in entries if entry.partition("==")[0] in names)


def is_whole(folder):
    """Whether each file of an installed package is there, and not shorter than the package's list of files says.

    (Longer is no fault: the kit tells DeepSpeed what it has compiled.) The list is written last, and cut itself on a full disk.
    """
    try:
        with open(os.path.join(folder, "RECORD"), newline="", errors="replace") as f:
            text = f.read()
        rows = [row for row in csv.reader(text.splitlines()) if len(row) == 3]
        sizes = [(row[0], int(row[2])) for row in rows if row[2]]
        listed = text.endswith("\n") and any(row[0].endswith(".dist-info/RECORD") for row in rows)
        return listed and all(
            os.path.getsize(os.path.join(os.path.dirname(folder), path)) >= size
            for path, size in sizes
        )
    except (OSError, ValueError):
        return False


def temporary_folder(venv):
    """Where Python, pip and uv unpack: in the environment. A kill leaves nothing elsewhere, and the next set-up removes it."""
    return os.path.join(venv, "set-up-tmp")


class Packages:
    """The packages of one environment. uv's and pip's words go to the file `log`; they keep `lock` open while they live."""

    def __init__(self, venv, log, lock):
        self.venv, self.log, self.lock = venv, log, lock
        self.python = os.path.join(venv, "bin", "python")
        self.uv = os.path.join(venv, "bin", "uv")
        self.site = glob.glob(os.path.join(venv, "lib", "python3*", "site-packages"))[0]
        # Options for another Python than the environment's would send packages elsewhere. The rest of pip's settings
        # (indexes, proxies, certificates, caches) is the user's and stays.
        drop = ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT")
        self.env = {name: value for name, value in os.environ.items() if name not in drop}
        self.temporary = temporary_folder(venv)
        self.env.update(
            PIP_USER="0",
            PYTHONUNBUFFERED="1",
            PYTHONIOENCODING="utf-8",
            PIP_DISABLE_PIP_VERSION_CHECK="1",
        )
        self.env.update(TMPDIR=self.temporary)
        self.settings = pip_settings(self.python, self.env)
        self.uv_env = uv_environment(self.settings, self.env)

    def clear(self):
        """Remove what the installers have unpacked."""
        shutil.rmtree(self.temporary, ignore_errors=True)

    # --- which ---------------------------------------------------------------------------------------------------------

    def fetch_uv(self, lock):
        """Have uv, by pip. Without it pip goes on, only slower."""
        part = os.path.join(self.venv, "set-up-first.txt")
        with open(part, "w") as f:
            f.write(locked(lock, FIRST))
        code = self.run(PIP + ["--no-deps", "--retries", "2", "--require-hashes", "-r", part])
        os.remove(part)
        if code and self.says(NO_NETWORK):
            self.explain()
        if code or not self.uv_runs():
            self.uv = None
            say(
                "      uv, the fast installer, cannot be had here; pip does the same in some minutes."
            )

    def uv_runs(self):
        try:
            return (
                subprocess.run(
                    [self.uv, "--version"], stdout=subprocess.DEVNULL, env=self.uv_env
                ).returncode
                == 0
            )
        except OSError:
            return False

    def torch(self):
        """(options for torch's installation, whether it is the build for CUDA, which is several GB)."""
        gpu = has_gpu()
        backend = torch_backend(self.settings, self.python, self.uv_env, gpu) if self.uv else None
        if backend:
            return ["--torch-backend", backend], backend != "cpu"
        offered = any(
            self.settings.get(name)
            for name in ("index-url", "extra-index-url", "find-links", "no-index")
        )
        return [], sys.platform.startswith(
            "linux"
        ) and not offered  # PyPI's torch for Linux carries CUDA

    # --- install -------------------------------------------------------------------------------------------------------

    def install(self, arguments, total=1, remedy=True):
        """Install, or end with a sentence that says why not (without `remedy`: return False). Returns whether it worked."""
        before = self.installed()

        def doing():
            done = self.installed() - before
            return "%d of %d packages installed" % (done, total) if done > 0 else "fetching"

        with Follow(doing):
            if self.uv:
                only = ["--no-index"] * is_on(self.settings, "no-index")
                command = ["pip", "install", "--python", self.python] + only + arguments
                code = self.run(command, uv=True)
                if code and self.says(DISK_FULL) and not is_full(self.venv):
                    self.leave_cache("uv's cache (in your home folder, mostly) has no space")
                    self.mend()  # or uv takes the package that it could not finish for installed
                    code = self.run(command, uv=True)
                if code and remedy and not self.says(FINAL):
                    say("      uv could not do it; pip tries, which takes some minutes.")
                    self.uv = None
            if not self.uv:
                code = self.run(
                    PIP + ["--progress-bar", "off", "--retries", "2", "--use-pep517"] + arguments
                )
        if code and remedy:
            self.explain()
        return code == 0

    def has_cache(self):
        """Whether what is installed comes from uv's cache: uv trusts what it has unpacked once."""
        return bool(self.uv) and "UV_NO_CACHE" not in self.uv_env

    def leave_cache(self, why):
        say("      %s: without it, then." % why)
        self.uv_env["UV_NO_CACHE"] = "1"

    def install_lock(self, lock):
        """Exactly what a lock file lists, each with one of its hashes. Sources are built by the setuptools that it lists."""
        self.install(
            ["--no-deps", "--require-hashes", "--no-build-isolation", "-r", lock], pins(lock)
        )

    def install_torch(self, pin, options, constraints):
        """torch in the build that suits the machine, with what that build needs (for CUDA: NVIDIA's libraries)."""
        rest = [pin, "-c", constraints]
        if self.settings.get("constraint") and self.uv:
            rest += [word for name in self.settings["constraint"].split() for word in ("-c", name)]
        if options and self.install(rest + options, remedy=False):
            return
        asked = self.uv_env.get("UV_TORCH_BACKEND")
        if asked:  # not another build than the one that somebody wants
            how = (
                "read what was said: %s" % self.log
                if self.uv
                else "let pip.conf name the index of that build"
            )
            stop(
                "torch for UV_TORCH_BACKEND=%s cannot be had here." % asked,
                "%s; or leave that variable out." % how,
            )
        self.install(rest)

    def install_kit(self, root, other_python=False):
        """The kit itself, where it lies. other_python: perhaps a later one than the pins were tried with; only pip takes it."""
        if other_python:
            self.uv = None
        self.install(
            ["--no-deps", "--no-build-isolation"]
            + ["--ignore-requires-python"] * other_python
            + ["-e", root, "-e", os.path.join(root, "course")]
        )

    def run(self, arguments, uv=False):
        """Run uv or Python; its words go to the log. Returns its exit status."""
        command, env = ([self.uv], self.uv_env) if uv else ([self.python], self.env)
        os.makedirs(self.temporary, exist_ok=True)
        with open(self.log, "ab") as out:
            self.since = out.tell()
            process = subprocess.Popen(
                command + arguments, stdout=out, stderr=out, env=env, pass_fds=[self.lock.fileno()]
            )
            try:
                return process.wait()
            except KeyboardInterrupt:
                process.terminate()
                process.wait()
                raise

    # --- look ----------------------------------------------------------------------------------------------------------

    def installed(self):
        """How many packages are in the environment."""
        return len(glob.glob(os.path.join(self.site, "*.dist-info")))

    def mend(self):
        """Forget packages that a kill has left half installed, or that came cut from uv's cache. Returns their names."""
        damaged = [
            folder
            for folder in glob.glob(os.path.join(self.site, "*.dist-info"))
            if not is_whole(folder)
        ]
        for folder in damaged:
            shutil.rmtree(folder)
        for folder in glob.glob(os.path.join(self.site, "~*")):  # what pip had put aside
            shutil.rmtree(folder, ignore_errors=True)
        self.clear()
        return sorted(os.path.basename(folder)[: -len(".dist-info")] for folder in damaged)

    def says(self, pattern):
        """Whether the last command has said that."""
        with open(self.log, errors="replace") as f:
            f.seek(self.since)
            return re.search(pattern, f.read())

    def explain(self):
        """Turn a failure into a sentence."""
        if self.says(DISK_FULL) or is_full(self.venv):
            stop_full(self.log)
        if self.says(NO_NETWORK):
            stop(
                "a package index could not be reached (no network, or a proxy that pip does not know).",
                "check the network (and HTTPS_PROXY or pip.conf, if you need them), then run make again. Details: %s"
                % self.log,
            )
        if self.says(OTHER_HASH):
            stop(
                "a package is not the one that the kit was tested with (its hash differs).",
                "look at %s; a mirror may be out of order, or a file was damaged on its way. Then run make again."
                % self.log,
            )
        with open(self.log, errors="replace") as f:
            lines = [line.strip() for line in f if line.strip()]
        last = (
            [line for line in lines if re.match("(?i)error|×|╰", line)][-1:]
            or lines[-1:]
            or ["it said nothing"]
        )
        stop(
            "the installation failed: %s" % "".join(last),
            "read %s, mend what it says, then run make again." % self.log,
        )
