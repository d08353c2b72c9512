#!/usr/bin/env python
"""Run notebooks by nbval and compare their outputs with the stored ones, cell by cell.

  python tools/compare_notebooks.py                             notebooks/ and solutions/
  python tools/compare_notebooks.py notebooks/02_mpi_pi.ipynb   this one

This file is pytest's plugin as well. With PI2ZERO_TIMING=0 an assert whose message begins with
"other work disturbed this" does not fail its cell: it is printed at the end.
"""

import argparse
import os
import re
import socket
import sys
import tempfile
from pathlib import Path

import failure_log
import nbval.kernel
import needs
import pytest
from jupyter_client.manager import KernelManager
from nbval.plugin import IPyNbCell

from notebooks import THIS_HOST, named

ROOT = Path(__file__).resolve().parent.parent
# For one cell: a limit for hangs. The longest takes 180 s alone on an idle machine, and 620 s
# next to another notebook on a processor without AVX-512.
CELL_TIMEOUT = 1500
# The slowest begin first, so that no worker is left with one of them at the end.
SLOWEST = [
    *("10_dailymail", "11c_tissue", "12_clusters", "05_horovod", "09_zero", "08_deepspeed"),
    *("04_zero_memory", "11_model_parallel", "05_summarization", "06_ddp"),
]
TIMING_ASSERT = re.compile(r'^( *)assert (.+), (f?"other work disturbed this.*")$', re.MULTILINE)
MISSED = "PI2ZERO_MISSED_TIMES"  # names the file of the asserts that did not hold


class PrivateKernelManager(KernelManager):
    """Uses sockets in a private folder: anybody could listen on TCP ports."""

    def __init__(self, **options):
        self._folder = tempfile.TemporaryDirectory()
        super().__init__(transport="ipc", ip=f"{self._folder.name}/kernel", **options)


def execute(kernel, source, allow_stdin=None):
    """As nbval does, but the kernel stores the cell: else IPython ignores a `;` at its end."""
    if path := os.environ.get(MISSED):
        # An assert, because the value of an expression at the cell's end would be shown.
        note = rf'\1assert (\2) or not print(\3, file=open({path!r}, "a"))'
        source = TIMING_ASSERT.sub(note, source)
    return kernel.kc.execute(source, allow_stdin=allow_stdin, stop_on_error=False)


def pytest_configure():
    nbval.kernel.KernelManager = PrivateKernelManager
    nbval.kernel.RunningKernel.execute_cell_input = execute


def pytest_collection_modifyitems(items):
    # Stable: a notebook's cells keep their order.
    items.sort(key=lambda item: [*SLOWEST, item.path.stem].index(item.path.stem))
    reasons = {}
    for item in items:
        if isinstance(item, IPyNbCell):
            if item.path not in reasons:
                reasons[item.path] = needs.why_not(item.parent.nb)
            if reasons[item.path]:
                item.add_marker(pytest.mark.skip(reason=f"{item.path.name}: {reasons[item.path]}"))
            if needs.ON_HOSTS and "one-host" in item.cell.metadata.get("tags", []):
                item.options["check"] = False  # MPI's messages differ between memory and network


def main():
    description, usage = __doc__.split("\n\n", 1)
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        description=description, epilog=usage, formatter_class=formatter
    )
    parser.add_argument("path", nargs="*", help="notebooks or folders")
    parser.add_argument("--timeout", type=float, default=CELL_TIMEOUT, help="seconds for one cell")
    parser.add_argument(
        "--workers",
        type=int,
        help="notebooks at the same time (default: 2; 1 if timing asserts bind)",
    )
    options, pytest_options = parser.parse_known_args()
    paths = options.path or [str(ROOT / "notebooks"), str(ROOT / "solutions")]
    if missing := [path for path in paths if not Path(path).exists()]:
        sys.exit(f"{', '.join(missing)}: no such notebook or folder.")
    timing = os.environ.get("PI2ZERO_TIMING") != "0"
    arguments = ["--nbval", "-p", "compare_notebooks", "-q", "--tb=short", "-rs", "--durations=15"]
    arguments += [
        "--nbval-cell-timeout",
        f"{options.timeout}",
        f"--timeout={options.timeout + 120}",
    ]
    arguments += ["-p", "failure_log"] * (failure_log.LOG in os.environ)
    workers = options.workers or (1 if timing else 2)  # a rank that waits spins
    if workers > 1:
        arguments += ["-n", str(workers), "--dist=loadfile", "--no-loadscope-reorder"]
    with tempfile.TemporaryDirectory() as folder:
        hosts, missed = Path(folder, "hosts"), Path(folder, "missed")
        hosts.write_text(f"regex: {named(socket.gethostname())}\nreplace: {THIS_HOST}\n")
        missed.touch()
        if not timing:
            os.environ[MISSED] = str(missed)
        code = pytest.main(
            [*arguments, "--nbval-sanitize-with", str(hosts), *pytest_options, *paths]
        )
        print(missed.read_text(), end="", flush=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
