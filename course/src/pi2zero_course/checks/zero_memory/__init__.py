"""The checks of lab 4, ZeRO's memory. Each is called on all ranks, in a `%%px` cell:
`check.predict(predict)`.

Right means: what the formula says, and what DeepSpeed holds on these very ranks (ranks.py measures
it).
"""

from pi2zero_course.checks.zero_memory.formula import choose, predict
from pi2zero_course.checks.zero_memory.ranks import mend
from pi2zero_course.checks.zero_memory.step import zero1_step
from pi2zero_course.checks.zero_memory.tables import table

__all__ = ["choose", "mend", "predict", "table", "zero1_step"]
