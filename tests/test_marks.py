"""Marks: which processes are the kit's, and whose."""

import os
import subprocess
import sys
import time

import psutil
import pytest

from pi2zero import marks


@pytest.fixture
def sleeper():
    """Start a process with a mark; all are ended after the test."""
    started = []

    def start(mark: str) -> subprocess.Popen:
        started.append(subprocess.Popen(["sleep", "60"], env=dict(os.environ, **{marks.MARK: mark})))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_mark_does_not_change_when_the_clock_is_set(monkeypatch):
    before = marks.owner_mark()
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: time.time())
    assert marks.owner_mark() == before
    assert not marks.owner_is_gone(before)


@pytest.mark.parametrize("mark", ["1:0/", "999999999:5/", "nonsense", "/"])
def test_a_mark_of_nobody(mark):
    assert marks.owner_is_gone(mark)


def test_a_mark_of_a_process_that_has_ended():
    short = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    mark = marks.owner_mark(short.pid)
    assert not marks.owner_is_gone(f"{mark}cluster-1/")
    short.communicate()
    assert marks.owner_is_gone(mark)


def test_only_what_begins_with_the_mark_is_ended(sleeper):
    mine = f"{os.getpid()}:0/"
    ranks, controller, other, longer = (
        sleeper(mark) for mark in (f"{mine}cluster-1/ranks-1/", f"{mine}cluster-1/", f"{mine}cluster-12/", f"{os.getpid()}:01/")
    )
    assert marks.end_marked(f"{mine}cluster-1/ranks-1/") == 1
    assert [p.poll() is None for p in (ranks, controller, other, longer)] == [False, True, True, True]
    assert marks.end_marked(f"{mine}cluster-1/") == 1
    assert [p.poll() is None for p in (controller, other, longer)] == [False, True, True]
    assert marks.end_marked(mine) == 1
    assert longer.poll() is None
