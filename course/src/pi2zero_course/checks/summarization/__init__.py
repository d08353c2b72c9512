"""The checks of lab 5, a summarizer. Each is called on all ranks, in a `%%px` cell: `check.task1(choose)`."""

from pi2zero_course.checks.summarization.choice import task1
from pi2zero_course.checks.summarization.curves import task2
from pi2zero_course.checks.summarization.leaks import task3
from pi2zero_course.checks.summarization.length import task4
from pi2zero_course.checks.summarization.train import task5

__all__ = ["task1", "task2", "task3", "task4", "task5"]
