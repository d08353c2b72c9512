"""The cache of built parts: an entry is whole or not there, and what does not agree with its manifest is never used."""

import os
import shutil
import signal
from pathlib import Path

import pytest

from pi2zero.built import cache
from pi2zero.built.parts import Part


class Small(Part):
    name = "small"

    def __init__(self, version="1"):
        self.version = version

    def depends_on(self):
        return {"version": self.version}


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """A part in the cache, and its entry."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "a.so").write_bytes(b"library")
    (tmp_path / "b.so").write_bytes(b"another")
    cache.keep(Small(), [tmp_path / "a.so", tmp_path / "b.so"])
    (entry,) = (tmp_path / "cache" / "pi2zero").iterdir()
    return entry


def test_what_is_kept_can_be_taken_by_the_same_only(stored):
    assert [path.read_bytes() for path in cache.take(Small())] == [b"library", b"another"]
    assert cache.take(Small("2")) == [] and stored.exists()


@pytest.mark.parametrize(
    "change",
    ["shorter", "longer", "gone", "more", "no manifest", "half a manifest", "of something else"],
)
def test_what_does_not_agree_with_its_manifest_is_never_used(stored, change):
    manifest = stored / "manifest.json"
    if change in ("shorter", "longer"):
        (stored / "a.so").write_bytes(b"librar" if change == "shorter" else b"library!")
    elif change == "gone":
        (stored / "a.so").unlink()
    elif change == "more":
        (stored / "c.so").write_bytes(b"")
    elif change == "no manifest":
        manifest.unlink()
    elif change == "half a manifest":
        manifest.write_text(manifest.read_text()[:40])
    else:
        manifest.write_text(manifest.read_text().replace('"version": "1"', '"version": "0"'))
    assert cache.take(Small()) == []
    assert not stored.exists()


def test_what_others_may_write_is_not_used(stored):
    stored.chmod(0o777)
    assert cache.take(Small()) == []


def test_a_write_that_is_killed_leaves_no_entry(tmp_path, monkeypatch):
    """Killed at each of its steps: afterwards there is no entry, or a whole one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "a.so").write_bytes(b"library")
    for step in range(12):
        pid = os.fork()
        if pid == 0:
            die_at_step(step)
            cache.keep(Small(), [tmp_path / "a.so"])
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        taken = cache.take(Small())
        assert taken == [] or taken[0].read_bytes() == b"library"
        if not os.WIFSIGNALED(status):
            assert taken
            return
    raise AssertionError("it was killed at every step")


def die_at_step(step: int) -> None:
    """Be killed, as by the system, just before the given one of the calls that change the disk."""
    left = [step]

    def deadly(real):
        def call(*arguments, **options):
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return real(*arguments, **options)

        return call

    Path.mkdir, Path.write_text, Path.rename = (
        deadly(Path.mkdir),
        deadly(Path.write_text),
        deadly(Path.rename),
    )
    shutil.copyfile, os.fsync = deadly(shutil.copyfile), deadly(os.fsync)


def test_a_cache_that_cannot_be_written_is_no_failure(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    cache.keep(Small(), [tmp_path / "file"])
    assert cache.take(Small()) == []
