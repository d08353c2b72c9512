"""What a rank's IPython does differently from a notebook's. This runs on the engines."""

import pdb
import sys
import warnings

NO_KEYBOARD = (
    "A rank has no keyboard, so {} cannot ask. Ask in a cell without %%px, and send the answer: "
    'cluster.view["answer"] = input()'
)
NO_DEBUGGER = (
    "There is no debugger on a rank. Print what you want to see, "
    'or read it after the cell: cluster[0]["x"]'
)


class NotOnRanksError(RuntimeError):
    """Something that a notebook can do and a rank cannot. The message is all that is shown."""

    def _render_traceback_(self):
        return [f"NotOnRanksError: {self}"]


def adapt_shell(shell) -> None:
    """Number cells as the notebook does, and refuse in a sentence what needs a person or ends the
    engine."""
    _number_cells_as_the_notebook(shell)
    # exit() and quit() would end the engine, and with it all ranks: like sys.exit(), they end the
    # cell. IPython's advice on how to exit is wrong here.
    shell.ask_exit = sys.exit
    warnings.filterwarnings("ignore", message="To exit: use")
    for name, function in {"raw_input": "input()", "getpass": "getpass()"}.items():
        setattr(shell.kernel, name, _refusal(NO_KEYBOARD.format(function)))
    sys.breakpointhook = pdb.set_trace = pdb.post_mortem = pdb.pm = _refusal(NO_DEBUGGER)
    for name in ("debug", "pdb"):
        shell.register_magic_function(_refusal(NO_DEBUGGER), "line_cell", name)


def _refusal(text: str):
    def refuse(*args, **options):
        raise NotOnRanksError(text)

    return refuse


def _number_cells_as_the_notebook(shell) -> None:
    """Let tracebacks name a cell by its number in the notebook: this engine counts its own."""
    cache = shell.compile.cache

    def cache_with_label(code, number=0, raw_code=None):
        label = shell.kernel.get_parent("shell").get("metadata", {}).get("label") or ""
        number = int(label) if label.isdigit() and int(label) else number
        return cache(code, number, raw_code=raw_code)

    shell.compile.cache = cache_with_label
