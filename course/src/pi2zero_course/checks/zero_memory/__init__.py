"""The checks of lab 4, ZeRO's memory. Each is called on all ranks, in a `%%px` cell: `check.task1(predict)`.

Right means: what the formula says, and what DeepSpeed holds on these very ranks (ranks.py measures it).
"""

from pi2zero_course.checks.zero_memory.formula import task1, task3
from pi2zero_course.checks.zero_memory.ranks import task4
from pi2zero_course.checks.zero_memory.step import task5
from pi2zero_course.checks.zero_memory.table import task2

__all__ = ["task1", "task2", "task3", "task4", "task5"]
