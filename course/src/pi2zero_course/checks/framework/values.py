"""The values that answers return: what they are, whether they are right, and how a message shows
them."""

import operator

import numpy as np

TOLERANCE = 1e-6  # relative


def is_int(value) -> bool:
    """Is it an integer of Python or NumPy? True, 3.0 and an array of one element are not."""
    try:
        return operator.index(value) is not None and not isinstance(value, bool)
    except TypeError:
        return False


def as_int(value) -> int | None:
    """The integer that a value is, also as a float, such as the 9.0 of `//`; None if it is none."""
    if isinstance(value, float | np.floating):
        return int(value) if float(value).is_integer() else None
    return operator.index(value) if is_int(value) else None


def scalar(value):
    """The element of an array of one, as `comm.Reduce` fills it; anything else as it is."""
    return value.item() if isinstance(value, np.ndarray) and value.size == 1 else value


def as_list_of(value, count: int) -> list | None:
    """The values in a tuple, a list or an array; None if they are not `count`."""
    if isinstance(value, np.ndarray) and value.shape == (count,):
        return value.tolist()
    return list(value) if isinstance(value, tuple | list) and len(value) == count else None


def as_number(value) -> float | None:
    """The number that a value is, also in an array of one element; None if it is none."""
    try:
        return None if isinstance(value, str | bytes) else float(scalar(value))
    except (TypeError, ValueError):
        return None


def close(value, right, relative=1e-9) -> bool:
    """Are they equal up to a relative error? False if value is no number."""
    number = as_number(value)
    return number is not None and abs(number - right) <= relative * abs(right)


def is_same(value, due, tolerance=TOLERANCE) -> bool:
    """Equal up to a relative error? Numbers, arrays and tensors of one shape, dicts and lists of
    them."""
    if isinstance(due, dict):
        return (
            isinstance(value, dict)
            and value.keys() == due.keys()
            and all(is_same(value[key], due[key], tolerance) for key in due)
        )
    if isinstance(due, tuple | list):
        value = list(value) if isinstance(value, np.ndarray) and value.ndim else value
        return (
            isinstance(value, tuple | list)
            and len(value) == len(due)
            and all(is_same(*pair, tolerance) for pair in zip(value, due, strict=True))
        )
    if due is None or isinstance(due, str | bool):
        return type(value) is type(due) and value == due
    try:
        value, due = np.asarray(value, dtype=float), np.asarray(due, dtype=float)
    except (TypeError, ValueError, RuntimeError):
        return False
    scale = np.nan_to_num(np.abs(due)).max(initial=0.0)
    return value.shape == due.shape and np.allclose(
        value, due, rtol=tolerance, atol=tolerance * scale, equal_nan=True
    )


def as_text(value) -> str:
    """A value in a message: numbers with six digits, also in a tuple; anything else as Python
    does."""
    if isinstance(value, tuple):
        return f"({', '.join(map(as_text, value))})"
    number = as_number(value)
    return repr(value) if number is None else f"{number:.6g}"


def show(value) -> str:
    """A value in a message, cut short."""
    if isinstance(value, tuple | list):
        text = ", ".join(map(show, value))
        return f"({text})" if isinstance(value, tuple) else f"[{text}]"
    if as_number(value) is not None and not isinstance(value, bool) and np.ndim(value) == 0:
        return as_text(value)
    text = " ".join(repr(value).split())
    return text if len(text) <= 90 else f"{text[:87]}..."


def in_units(nbytes) -> str:
    """31406250000.0 -> '31.41 GB'."""
    unit, name = (1e9, "GB") if abs(nbytes) >= 1e9 else (1e6, "MB")
    return f"{nbytes / unit:.4g} {name}"


def join_words(numbers) -> str:
    """[4, 3, 2] -> '4, 3 and 2'."""
    *rest, last = (f"{number:,}" for number in numbers)
    return f"{', '.join(rest)} and {last}"


def plural(count: int, noun: str) -> str:
    """3, 'rank' -> '3 ranks'."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def pick_hint(value, mistakes, same=close, otherwise="") -> str:
    """The first sentence whose mistake gives this value. mistakes: {sentence: its value}."""
    return next((hint for hint, wrong in mistakes.items() if same(value, wrong)), otherwise)
