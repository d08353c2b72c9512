"""`%%px` while a kernel has no ranks. It loads quickly: every kernel of the course imports it."""

import re

from IPython.core.error import UsageError

NOT_STARTED = (
    "There are no ranks in this kernel yet: "
    "run the cell with pi2zero.start (Run > Run All Above Selected Cell). "
    "A new notebook begins with: import pi2zero; cluster = pi2zero.start(n=4)"
)
START_FAILED = (
    "There are no ranks: pi2zero.start failed, and its message says why. "
    "Fix that, and run the cell with pi2zero.start again."
)
NEW_KERNEL = (
    "{} is not there in this kernel yet. If the kernel was restarted: "
    "Run > Run All Above Selected Cell, then this cell."
)
_UNDEFINED = re.compile(r"name '(pi2zero|cluster)' is not defined")


def register(shell) -> None:
    """Let `%%px` say that there are no ranks yet, unless it is known already."""
    add_input_transform(shell)
    if "px" not in shell.magics_manager.magics["cell"]:
        # Not `%px`: without it, ipyparallel's own `%%px` comes with the first of its clients.
        shell.register_magic_function(_refusal(NOT_STARTED), "cell", "px")
        shell.events.register("post_run_cell", explain_new_kernel)


def register_failed_start(shell) -> None:
    """Let `%%px` say that the start has failed, instead of what ipyparallel would say of it."""
    if shell and "px" not in shell.magics_manager.magics["line"]:
        for name, kind in {"px": "line_cell", "pxresult": "line", "autopx": "line"}.items():
            shell.register_magic_function(_refusal(START_FAILED), kind, name)


def explain_new_kernel(result) -> None:
    """After a cell: does it lack what the notebook's first cells make?"""
    error = result.error_in_exec
    if isinstance(error, NameError) and (match := _UNDEFINED.search(str(error))):
        print(NEW_KERNEL.format(match[1]))


def add_input_transform(shell) -> None:
    """Let a `%%px` that is indented begin its cell anyway."""
    if without_leading_blanks not in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.append(without_leading_blanks)


def without_leading_blanks(lines: list[str]) -> list[str]:
    """A cell's lines; blanks before the `%%` of its first line are removed."""
    if lines and re.match(r"\s+%%\w", lines[0]):
        return [lines[0].lstrip(), *lines[1:]]
    return lines


def _refusal(text: str):
    def px(line, cell=None):
        """Run the cell on all ranks; there are none."""
        raise UsageError(text)

    return px
