"""What is compiled in the background, in words: why it failed, how far it is, how long it will take."""

import time

import pytest

from pi2zero.built import builder

REASONS = [
    (
        "WARNING: Retrying (Retry(total=1)) after NewConnectionError",
        "could not reach a package index",
        "network",
    ),
    (
        "ERROR: No matching distribution found for cffi>=1.4.0",
        "does not have cffi",
        "pip.conf",
    ),  # setup_requires of Horovod
    ("cc1plus: error: write: No space left on device", "the disk is full", "free some space"),
    ("c++: fatal error: Killed signal terminated program cc1plus", "ran out of memory", "JOBS=1"),
    (
        "ok\n  a.cc:3:1: error: 'x' was not declared\nb.cc:1:1: error: y",
        "a.cc:3:1: error: 'x' was not",
        "read the log",
    ),
    (
        "CMake Error at CMakeLists.txt:1: no MPI",
        "CMake Error at CMakeLists.txt:1: no MPI",
        "read the log",
    ),
    (
        "CMake Error at a/F.cmake:290 (message):\n  Could NOT find Z\n\n",
        "CMake Error: Could NOT find Z",
        "read the log",
    ),
    (
        "CMake Error at F:290 (message):\n  Could NOT find CUDAToolkit (missing: CUDA_CUDART)",
        "not found",
        "HOROVOD_CUDA_HOME",
    ),
    ("", "no words", "read the log"),
]


@pytest.mark.parametrize(("log", "why", "remedy"), REASONS)
def test_the_reason_is_in_the_log(log, why, remedy):
    found = builder.reason(log)
    assert why in found[0] and remedy in found[1]


def test_progress_is_what_make_says(tmp_path):
    from pi2zero.built.horovod import Horovod

    part = Horovod()
    assert part.share(tmp_path) == 0
    for line in (
        b"  -- Found MPI\n",
        b"  [  9%] Building CXX object a.o\n",
        b"  [ 42%] Linking CXX\n",
    ):
        part.hear(line)
    assert 0.4 < part.share(tmp_path) < 0.45


def test_the_time_left_follows_the_pace(tmp_path, monkeypatch):
    from pi2zero.built import state
    from pi2zero.built.horovod import Horovod

    monkeypatch.setattr(state, "folder", lambda: tmp_path)
    note = state.Note(Horovod())
    assert note.left(0.0) == pytest.approx(Horovod.typical, abs=1)
    note.begin = time.time() - 30
    assert note.left(0.5) == pytest.approx(30, abs=1)
    assert state.about(44) == "40 s" and state.about(3) == "10 s" and state.about(290) == "5 min"
