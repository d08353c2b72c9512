"""Answers to lab 4 as learners write them. `right` may differ from the solution and is right all the same.

Each wrong one comes with words that the check has to say. The functions are sent to real ranks as text.
"""

RIGHT = {number: [] for number in range(1, 6)}
WRONG = {number: [] for number in range(1, 6)}


def right(number):
    return lambda function: RIGHT[number].append(function) or function


def wrong(number, words):
    return lambda function: WRONG[number].append((function, words)) or function


from . import paper, together  # noqa: E402, F401 - they register their answers here
