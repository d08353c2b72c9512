"""The checks of lab 5, a summarizer. Each is called on all ranks, in a `%%px` cell:
`check.choose(choose)`."""

from pi2zero_course.checks.summarization.choice import choose
from pi2zero_course.checks.summarization.curves import scaled_loss
from pi2zero_course.checks.summarization.leaks import leaked
from pi2zero_course.checks.summarization.length import settings
from pi2zero_course.checks.summarization.training import train

__all__ = ["choose", "leaked", "scaled_loss", "settings", "train"]
