"""Answers to lab 4 as learners write them. `right` may differ from the solution and is right all the same.

Each wrong one comes with words that the check has to say. The functions are sent to real ranks as text.
"""

from lab_checks import register

RIGHT, WRONG, right, wrong = register(tasks=5)


from . import paper, together  # noqa: E402, F401 - they register their answers here
