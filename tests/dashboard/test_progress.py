"""What an attendee has done of the course, as JupyterLab's menu shows it."""

import os

from pi2zero_course.dashboard import notes, progress


def test_what_a_check_accepts_counts_once_without_consent(tmp_path, monkeypatch):
    monkeypatch.setenv("PI2ZERO_PROGRESS", str(tmp_path / "home" / "progress.txt"))
    assert progress.done() == []
    for result in ("open", "not yet", "right", "right"):
        notes.note("lab 1, task 2", result)
    progress.record("notebook notebooks/01_monte_carlo_pi.ipynb")
    assert progress.done() == ["lab 1, task 2", "notebook notebooks/01_monte_carlo_pi.ipynb"]
    assert progress.overview().data == progress.done()


def test_a_home_that_cannot_be_written_stops_no_check(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    for place in (tmp_path / "file" / "progress.txt", os.devnull):
        monkeypatch.setenv("PI2ZERO_PROGRESS", str(place))
        notes.note("lab 1, task 2", "right")
        assert progress.done() == []
