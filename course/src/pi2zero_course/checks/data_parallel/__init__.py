"""The checks of lab 3, data-parallel training. Each is called on all ranks, in a `%%px` cell: `check.task1(by_hand)`."""

from pi2zero_course.checks.data_parallel.bugs import task4, task5, task6, task7
from pi2zero_course.checks.data_parallel.training import task1, task2, task3

__all__ = ["task1", "task2", "task3", "task4", "task5", "task6", "task7"]
