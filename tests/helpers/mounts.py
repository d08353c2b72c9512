"""A small or peculiar file system, really mounted: full, read-only, or one that runs nothing."""

import contextlib
import os
import subprocess

import pytest


@contextlib.contextmanager
def mounted(folder, options):
    """A file system of its own in a folder. Yields what changes its options."""
    if (
        os.getuid()
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True
        ).returncode
    ):
        pytest.skip("nothing can be mounted here")
    try:
        yield lambda other: subprocess.run(["mount", "-o", f"remount,{other}", folder], check=True)
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
