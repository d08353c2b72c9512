"""Syntax trees beside a thread that builds one, too: up to Python 3.11.7 the two share a counter, and the learner's cell could
end in "SystemError: AST constructor recursion depth mismatch" (CPython's issue 106905)."""

import ast
import gc

BUILD = ("/ast.py", "/IPython/core/compilerop.py")


def builds_a_tree(frame) -> bool:
    """Whether the thread of this frame is building a syntax tree: then no other may."""
    while frame is not None:
        if frame.f_code.co_filename.endswith(BUILD):
            return True
        frame = frame.f_back
    return False


def parsed(text: str, mode: str = "exec") -> ast.AST:
    """ast.parse, without a collection of garbage: in one, another thread might begin to build one."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(text, mode=mode)
    finally:
        if collects:
            gc.enable()
