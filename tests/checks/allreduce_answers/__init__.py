"""Answers to lab 2 as learners write them. `right` may differ from the solution and is right all the same.

Each wrong one comes with words that the check has to say. The functions are sent to real ranks as text, after SOLUTION's
functions of the same names, so that an answer to task 3 can use right halves.
"""

from lab_checks import register

RIGHT, WRONG, right, wrong = register(tasks=6)


from . import cost, ring  # noqa: E402, F401 - they register their answers here
