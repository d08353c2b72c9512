"""The checks of lab 1, π on MPI ranks. Each is called on all ranks, in a `%%px` cell: `check.task1(count_inside)`."""

from pi2zero_course.checks.pi.alone import task1, task2, task3
from pi2zero_course.checks.pi.together import task4, task5, task6

__all__ = ["task1", "task2", "task3", "task4", "task5", "task6"]
