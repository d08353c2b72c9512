"""What the labs' checks share, as far as it needs no ranks: what is not written, whole numbers, what a function uses."""

import numpy as np
import pytest

from pi2zero_course.checks.framework.base import TaskNotDone, answer, named, whole
from pi2zero_course.checks.framework.bytecode import global_names, steps
from pi2zero_course.checks.pipeline.schedules import _part


def unwritten():
    raise NotImplementedError("task 2: write unwritten()")


def of_no_task():
    raise NotImplementedError


def calls_it():
    return 1 + unwritten()


@pytest.mark.parametrize(
    ("function", "name", "task"),
    [
        (unwritten, "unwritten", 2),
        (calls_it, "unwritten", 2),
        (of_no_task, "of_no_task", None),
        (named(calls_it, lambda: calls_it()), "unwritten", 2),
    ],
)
def test_the_function_that_is_not_written_is_named_not_the_one_that_calls_it(function, name, task):
    with pytest.raises(
        TaskNotDone, match=f"^{name} is not written yet: replace its `raise NotImplementedError`"
    ) as missing:
        answer(function)
    assert missing.value.task == task


def test_between_ranks_what_is_not_written_keeps_its_task():
    import pickle

    sent = pickle.loads(pickle.dumps(TaskNotDone("f is not written yet", 2)))
    assert (str(sent), sent.task) == ("f is not written yet", 2)


@pytest.mark.parametrize(
    ("value", "right"),
    [(9.0, 9), (np.float64(9), 9), (np.float32(9), 9), (9, 9), (np.int64(9), 9), (-0.0, 0)]
    + [(value, None) for value in (9.5, np.nan, np.inf, True, "9", None, [9], np.array([9]))],
)
def test_whole_numbers_may_be_floats(value, right):
    assert whole(value) == right and (right is None) == (whole(value) is None)


size = 4  # as in a notebook


def test_what_is_never_reached_is_not_used():
    def function(comm, rank):
        if comm:
            return [one for one in range(rank) if one < size]
        else:
            return len([])
        print("never")

    assert global_names(function) == {"range", "size", "len"}
    assert not global_names(np.sqrt) and not list(steps(None))


@pytest.mark.parametrize("value", [0, 0.5, np.array([0.5]), "torch"])
def test_the_part_of_a_loss_is_a_number(value):
    import torch

    value = torch.tensor([0.5], requires_grad=True) if value == "torch" else value
    assert _part(value, last=False) in (0, 0.5)
