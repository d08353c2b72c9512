"""The checks of lab 6, pipelines. Each is called on all ranks, in a `%%px` cell: `check.cut(cut)`.

Right means: the gradients of one process, to a stated tolerance, and a bubble and activations no
larger than the schedule allows. Both are taken from the order in which the stages did their work,
as they recorded it themselves (meters/stages.py): not from the clock, which a busy machine would
disturb. Every send waits for its receiver here, as MPI's do for large arrays.
"""

from pi2zero_course.checks.pipeline.fixes import loss_of, receive, row
from pi2zero_course.checks.pipeline.schedules import backward, cut, gpipe, one_f_one_b

__all__ = ["backward", "cut", "gpipe", "loss_of", "one_f_one_b", "receive", "row"]
