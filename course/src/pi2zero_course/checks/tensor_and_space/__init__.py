"""The checks of lab 7, tensor parallelism and space. Each is called on all ranks, in a `%%px` cell: `check.task1(column)`.

Right means: the values and the gradients of one process, in float64, on 4, 3, 2 and 1 ranks, where parts are uneven, too; and no
more calls or messages than the task's target.
"""

from pi2zero_course.checks.tensor_and_space.convolutions import task6, task7
from pi2zero_course.checks.tensor_and_space.halos import task4, task5
from pi2zero_course.checks.tensor_and_space.layers import task1, task2, task3

__all__ = ["task1", "task2", "task3", "task4", "task5", "task6", "task7"]
