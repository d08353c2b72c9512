"""A learner's function uses names of its notebook, such as `comm`: a check lends it others."""

from contextlib import contextmanager


@contextmanager
def with_names(function, **values):
    """A function's own global names with other values, meanwhile."""
    space = function.__globals__
    before = {name: space[name] for name in values if name in space}
    space.update(values)
    try:
        yield
    finally:
        for name in values.keys() - before.keys():
            del space[name]
        space.update(before)
