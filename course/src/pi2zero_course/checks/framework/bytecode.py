"""What a function does, by its bytecode: lines that are never reached are not in it."""

import dis
import inspect


def steps(function):
    """The instructions of a function, or of its code, and of the functions and comprehensions in it."""
    codes = [
        function
        if inspect.iscode(function)
        else getattr(inspect.unwrap(function), "__code__", None)
    ]
    for code in filter(None, codes):
        for step in dis.get_instructions(code):
            yield step
            if inspect.iscode(step.argval):
                codes.append(step.argval)


def global_names(function) -> set[str]:
    """The names that are neither its arguments nor its own variables: its notebook's and Python's."""
    return {step.argval for step in steps(function) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
