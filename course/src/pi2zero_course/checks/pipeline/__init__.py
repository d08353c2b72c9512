"""The checks of lab 6, pipelines. Each is called on all ranks, in a `%%px` cell: `check.task1(cut)`.

Right means: the gradients of one process, to a stated tolerance, and a bubble and activations no larger than the schedule allows.
Both are taken from the order in which the stages did their work, as they recorded it themselves (meters/stages.py): not from
the clock, which a busy machine would disturb. Every send waits for its receiver here, as MPI's do for large arrays.
"""

from pi2zero_course.checks.pipeline.bugs import task5, task6, task7
from pi2zero_course.checks.pipeline.cut import task1
from pi2zero_course.checks.pipeline.schedules import task2, task3, task4

__all__ = ["task1", "task2", "task3", "task4", "task5", "task6", "task7"]
