"""What an environment lacks is said in one sentence: an optional package, or Linux."""

import subprocess
import sys

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

import pi2zero


def last_line(program: str) -> str:
    """What Python says last of a program that fails."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "package, program, install",
    [
        ("matplotlib", "from pi2zero import plots", "pi2zero[plots]"),
        ("ipywidgets", "from pi2zero import widgets", "pi2zero[plots]"),
        ("torch", "from pi2zero.meters import Memory", "pi2zero[train]"),
        ("torch", "from pi2zero import ranks; ranks.join()", "pi2zero[train]"),
        (
            "deepspeed",
            "from pi2zero import ranks; ranks.join(deepspeed=True)",
            "pi2zero[deepspeed]",
        ),
        ("transformers", "import pi2zero.deepspeed_support.checkpoints", "pi2zero[deepspeed]"),
        (
            "datasets",
            "from pi2zero_course.summarization import data; data.load('embedded')",
            "pi2zero-course[summaries]",
        ),
    ],
)
def test_a_missing_package_is_one_sentence_that_names_the_extra(package, program, install):
    told = last_line(f"import sys; sys.modules[{package!r}] = None; {program}")
    assert told == (
        f"pi2zero.requirements.MissingPackageError: This needs {package}, which is not installed. "
        f"Install it with: pip install '{install}'"
    )


@pytest.mark.parametrize("system, name", [("darwin", "a Mac"), ("win32", "Windows")])
@pytest.mark.parametrize(
    "program",
    [
        "pi2zero.start(n=2)",
        "pi2zero.load_ipython_extension(None)",
        "sys.argv = ['pi2zero', 'doctor']; import pi2zero.__main__ as m; m.main()",
    ],
)
def test_another_system_is_told_at_once_what_to_do(program, system, name):
    told = last_line(f"import sys, pi2zero; sys.platform = {system!r}; {program}")
    assert f"on Linux only, and this is {name}. Use a container" in told and "docs/start.md" in told


def test_models_work_on_another_system():
    program = (
        "import sys; sys.platform = 'darwin'; "
        "from pi2zero import costs; costs.zero_bytes(1e9, 4, 1)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_extension_says_how_to_start_ranks():
    shell = InteractiveShell()
    shell.extension_manager.load_extension("pi2zero")
    with pytest.raises(UsageError, match=r"pi2zero.start\(n=4\)"):
        shell.run_cell_magic("px", "", "1 + 1")


def test_the_extension_leaves_magics_alone_that_are_there():
    shell = InteractiveShell()
    shell.register_magic_function(lambda line, cell=None: "another's", "line_cell", "px")
    pi2zero.load_ipython_extension(shell)
    assert shell.run_cell_magic("px", "", "1 + 1") == "another's"
