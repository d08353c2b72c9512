"""What the kit leans on in other packages without a promise of theirs: each is an entry, tried on the real package."""

import functools
import subprocess
import sys
from pathlib import Path

from pi2zero import mpi

ROOT = Path(__file__).parents[2]


def leans(*uses):
    """Makes a test an entry. Its docstring is what has to be true.

    uses: "file: words", a file of the kit, and the words in it that need it. So an entry neither outlives its use, nor fails
    without naming who suffers.
    """
    places = [use.split(": ", 1) for use in uses]

    def entry(test):
        @functools.wraps(test)
        def tried(*args, **options):
            for file, words in places:
                assert words in (ROOT / file).read_text(), (
                    f"{file} no longer says {words!r}. Is this entry still needed?"
                )
            try:
                test(*args, **options)
            except Exception as error:
                files = " and ".join(dict.fromkeys(file for file, _ in places))
                raise AssertionError(
                    f"{files} will break. No longer true: {test.__doc__}"
                ) from error

        return tried

    return entry


def python(program, *arguments):
    """What a Python of its own prints: MPI, once loaded, stays in a process."""
    mpi.mpi_env()
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
