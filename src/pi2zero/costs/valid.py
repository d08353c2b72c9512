"""Arguments of the models: as float arrays, or a clear error."""

import numpy as np


def positive(name, value):
    """value as float, every element above 0."""
    return _checked(value, lambda a: a > 0, f"{name}: every value has to be above 0")


def ranks(value):
    """Numbers of ranks as float, 1 or more."""
    return _checked(value, lambda a: a >= 1, "ranks: the number of ranks is 1 or more")


def not_negative(name, value):
    """value as float, no element below 0."""
    return _checked(value, lambda a: a >= 0, f"{name}: no value may be below 0")


def fraction(name, value):
    """Shares in 0..1 as float."""
    expected = f"{name}: a share between 0 and 1, such as 0.05 for 5 %"
    return _checked(value, lambda a: (a >= 0) & (a <= 1), expected)


def _checked(value, is_valid, expected):
    array = np.asarray(value, dtype=float)[()]
    if not np.all(is_valid(array)):
        raise ValueError(f"{expected}; got {value!r}.")
    return array
