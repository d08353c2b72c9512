"""What the tests of faults share."""

import pytest

from .kernel import Notebook


@pytest.fixture
def notebook():
    """A fresh kernel; nothing of it may be left at the end of the test."""
    book = Notebook()
    yield book
    book.close()
