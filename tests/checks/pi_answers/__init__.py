"""Answers to lab 1 as learners write them. `right` may differ from the solution and is right all the same.

Each wrong one comes with words that the check has to say. The functions are sent to real ranks as text.
"""

from lab_checks import register

RIGHT, WRONG, right, wrong = register(tasks=6)
STILL_TO_DO = {number: [] for number in range(1, 7)}


def still_to_do(number):
    return lambda function: STILL_TO_DO[number].append(function) or function


from . import alone, together  # noqa: E402, F401 - they register their answers here
