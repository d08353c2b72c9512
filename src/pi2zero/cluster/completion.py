"""Tab and Shift+Tab in `%%px` cells: a rank answers, because what is named there lives there."""

import functools
import re
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic_arguments import parse_argstring

PATIENCE = 0.7  # s for a rank's answer; without one the front end shows nothing
CELL = re.compile(r"\s*%%(px\w*)(.*)\n")  # name, options
LINE = re.compile(r"[ \t]*%(px\w*)[ \t]+")


def complete_on_ranks(shell) -> None:
    """Let this shell's kernel ask a rank about the code that `%px`, `%%px` and `%autopx` send."""
    kernel = getattr(shell, "kernel", None)  # a terminal's IPython has none
    for name in ("do_complete", "do_inspect") if kernel else ():
        if not hasattr(own := getattr(kernel, name), "__wrapped__"):  # not yet, by an earlier start
            setattr(kernel, name, _asking_a_rank(shell, own))


def _asking_a_rank(shell, own):
    """A kernel's do_complete or do_inspect that passes on what runs on ranks."""

    @functools.wraps(own)
    def request(code, cursor_pos=None, *args, **options):
        cursor = len(code) if cursor_pos is None else cursor_pos
        if (found := _code_for_ranks(shell, code, cursor)) is None:
            return own(code, cursor_pos, *args, **options)
        magics, rank, begin, end = found
        question = own.__name__, code[begin:end], cursor - begin, *args
        reply = magics.cluster.ask(rank, answer, question, PATIENCE)
        return _moved(reply, begin) if reply else _nothing(own.__name__, cursor)

    return request


def _code_for_ranks(shell, code: str, cursor: int):
    """(the magics, the rank, begin and end of what they send); None if the cursor is elsewhere."""
    line = code.rfind("\n", 0, cursor) + 1
    name, options, begin, end = "px", "", 0, len(code)
    if cell := CELL.match(code):
        name, options, begin = cell[1], cell[2], cell.end()
    elif magic := LINE.match(code, line):
        name, begin, end = magic[1], magic.end(), (code.find("\n", cursor) + 1 or end + 1) - 1
    magics: Any = getattr(shell.magics_manager.magics["cell"].get(name), "__self__", None)
    everything = not begin and not getattr(magics, "_autopx", False)
    if cursor < begin or everything or not hasattr(magics, "cluster"):
        return None
    try:
        targets = parse_argstring(magics.cell_px, options).targets
        ranks = magics._eval_target_str(targets) if targets else magics.view.targets
    except UsageError:  # running the cell will say what is wrong with its options
        ranks = None
    return magics, (ranks or [0])[0], begin, end


def answer(method: str, *question) -> dict:
    """This runs on a rank: what its own kernel answers."""
    from IPython import get_ipython

    return getattr(get_ipython().kernel, method)(*question)


def _moved(reply: dict, by: int) -> dict:
    """The reply for the whole cell: all positions in it are those of the code behind `%%px`."""
    for place in (reply, *reply.get("metadata", {}).get("_jupyter_types_experimental", [])):
        for key in {"cursor_start", "cursor_end", "start", "end"} & place.keys():
            place[key] += by
    return reply


def _nothing(method: str, cursor: int) -> dict:
    if method == "do_inspect":
        return {"status": "ok", "found": False, "data": {}, "metadata": {}}
    place = {"cursor_start": cursor, "cursor_end": cursor}
    return {"status": "ok", "matches": [], "metadata": {}, **place}
