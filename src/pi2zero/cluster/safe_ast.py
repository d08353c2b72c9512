"""Parse source in one thread while another may parse, too.

Up to Python 3.11.7 all threads share a recursion counter of the parser (CPython's issue 106905):
the learner's cell could end in "SystemError: AST constructor recursion depth mismatch".
"""

import ast
import gc
import sys
import threading
from typing import Any

PARSER_FILES = ("/ast.py", "/IPython/core/compilerop.py")


class ParserBusyError(Exception):
    """Another thread is building a syntax tree."""


def builds_ast(frame) -> bool:
    """Whether the thread of this frame is building a syntax tree: then no other thread may."""
    while frame is not None:
        if frame.f_code.co_filename.endswith(PARSER_FILES):
            return True
        frame = frame.f_back
    return False


def parse(source: str, mode: str = "exec") -> Any:
    """ast.parse. Raises ParserBusyError if another thread is parsing.

    A thread that parses lets another one run only in a garbage collection. So the collector is off
    from before the other threads are looked at until this thread has parsed.
    """
    was_enabled, current = gc.isenabled(), threading.get_ident()
    gc.disable()
    try:
        # No name for these frames: this one is among them, and the cycle would keep them all alive.
        if any(
            builds_ast(frame)
            for thread, frame in sys._current_frames().items()
            if thread != current
        ):
            raise ParserBusyError
        return ast.parse(source, mode=mode)
    finally:
        if was_enabled:
            gc.enable()
