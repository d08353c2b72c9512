"""Arguments of the models: as arrays, or a clear error."""

import numpy as np


def positive(name, value):
    """value as float, every element above 0."""
    array = np.asarray(value, dtype=float)[()]
    if not np.all(array > 0):
        raise ValueError(f"{name}: every value has to be above 0; got {value!r}.")
    return array


def ranks(value):
    """Numbers of ranks as float, 1 or more."""
    array = np.asarray(value, dtype=float)[()]
    if not np.all(array >= 1):
        raise ValueError(f"ranks: the number of ranks is 1 or more; got {value!r}.")
    return array


def not_negative(name, value):
    """value as float, no element below 0."""
    array = np.asarray(value, dtype=float)[()]
    if not np.all(array >= 0):
        raise ValueError(f"{name}: no value may be below 0; got {value!r}.")
    return array


def fraction(name, value):
    """Shares in 0..1 as float."""
    array = np.asarray(value, dtype=float)[()]
    if not np.all((array >= 0) & (array <= 1)):
        raise ValueError(f"{name}: a share between 0 and 1, such as 0.05 for 5 %; got {value!r}.")
    return array
