"""Syntax trees beside a thread that builds one, too: up to Python 3.11.7 the two share a counter, and the learner's cell could
end in "SystemError: AST constructor recursion depth mismatch" (CPython's issue 106905)."""

import ast
import gc
import sys
import threading

BUILD = ("/ast.py", "/IPython/core/compilerop.py")


class Building(Exception):
    """Another thread is building a syntax tree."""


def builds_a_tree(frame) -> bool:
    """Whether the thread of this frame is building a syntax tree: then no other may."""
    while frame is not None:
        if frame.f_code.co_filename.endswith(BUILD):
            return True
        frame = frame.f_back
    return False


def parsed(text: str, mode: str = "exec") -> ast.AST:
    """ast.parse. Raises Building if another thread is at it.

    Only in a collection of garbage does a thread that builds a tree let another one run. So there is none from before anybody
    looks who builds one until this one is built.
    """
    collects, me = gc.isenabled(), threading.get_ident()
    gc.disable()
    try:
        if any(
            builds_a_tree(frame) for thread, frame in sys._current_frames().items() if thread != me
        ):
            raise Building
        return ast.parse(text, mode=mode)
    finally:
        if collects:
            gc.enable()
