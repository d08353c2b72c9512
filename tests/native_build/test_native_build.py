"""Horovod and DeepSpeed's operators compile once per user, in the background, after a kill too."""

import subprocess
import time
from importlib.metadata import version

import psutil
import pytest

from pi2zero.native_build import NotBuiltError, builder, wait_for
from pi2zero.native_build.parts import PARTS, DeepSpeed

pytestmark = pytest.mark.long
READY = (0, "Horovod: ready\n")
NO_FLOCK = """
import errno, fcntl
def flock(*_):
    raise OSError(errno.ENOLCK, "No locks available")
fcntl.flock = flock
"""


def background(clone):
    """The background processes of a clone."""
    command = [str(clone.python), *builder.COMMAND[1:]]
    return [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == command]


def is_compiled(clone):
    return "compiling lib.cc" in clone.log()


def test_the_second_clone_need_not_compile(clone, second_clone):
    assert clone.build("--wait") == READY and is_compiled(clone)
    clone.run("-c", "from horovod.torch import mpi_lib_v2").check_returncode()
    assert not list((clone.venv / "native_build").glob("work-*"))
    assert second_clone.build("--wait") == READY and not is_compiled(second_clone)
    second_clone.run("-c", "from horovod.torch import mpi_lib_v2").check_returncode()
    assert not psutil.wait_procs(background(clone), timeout=30)[1]


def test_two_environments_at_the_same_time_compile_once(clone, second_clone):
    clone.start_and_hold()
    second_clone.build()
    time.sleep(3)  # in which it would begin to compile
    assert background(second_clone) and not is_compiled(second_clone)
    clone.hold.unlink()
    assert second_clone.build("--wait") == READY and not is_compiled(second_clone)


def test_one_process_compiles_at_a_time_and_after_a_kill_the_next_one_does(clone):
    clone.start_and_hold()
    (first,) = background(clone)
    second = clone.run(*builder.COMMAND[1:])
    assert (second.returncode, second.stderr) == (0, "") and background(clone) == [first]
    for child in (*first.children(recursive=True), first):
        child.kill()
    clone.hold.unlink()
    assert clone.build("--wait") == READY


def test_stop_ends_the_compiler_too(clone):
    clone.start_and_hold()
    running = [p for first in background(clone) for p in (first, *first.children(recursive=True))]
    assert len(running) > 1 and clone.build("--stop") == (0, "")
    assert not psutil.wait_procs(running, timeout=10)[1]


@pytest.mark.nightly
def test_a_file_system_without_locks(clone):
    (clone.site / "sitecustomize.py").write_text(NO_FLOCK)
    assert clone.build("--wait") == READY


@pytest.mark.nightly
def test_an_error_of_the_background_process_is_not_hidden_by_its_lock(clone):
    """fork() raises BlockingIOError where a user has too many processes."""
    (clone.venv / "native_build").mkdir()
    code = "from pi2zero.native_build import builder\ndef full(part): raise BlockingIOError('full')"
    code += "\nbuilder.build = full\nbuilder.main()"
    error = clone.run("-c", code).stderr
    assert "BlockingIOError: full" in error and "RuntimeError" not in error


def test_an_environment_of_somebody_else_is_left_alone(clone):
    """Nothing is compiled, and nobody waits, unless the set-up has made it or somebody asks."""
    program = "import pi2zero; pi2zero.wait_for('horovod')"
    clone.run("-c", program).check_returncode()
    assert not (clone.venv / "native_build").exists()
    (clone.venv / "pi2zero-set-up").touch()
    clone.run("-c", program).check_returncode()
    assert is_compiled(clone)


@pytest.mark.nightly
def test_another_torch_or_options_are_another_build(clone):
    nccl = {"HOROVOD_GPU_OPERATIONS": "NCCL"}
    assert clone.build("--wait") == READY
    (clone.venv / "native_build" / "horovod.log").unlink()
    assert clone.build("--wait", **nccl) == READY and not is_compiled(clone), "nobody asked"
    assert clone.build("--wait", "--again", **nccl) == READY and is_compiled(clone)
    assert len(clone.cached()) == 1, "a build with options does not go to other clones"
    clone.have_torch("9.9.9")
    assert clone.build("--wait") == READY and len(clone.cached()) == 2


def test_a_failure_is_a_sentence_and_is_tried_again_when_somebody_asks(clone):
    broken = clone.folder / "broken.cc"
    broken.write_text("int main() { return undeclared; }\n")
    code, text = clone.build("--wait", TOY_SOURCE=str(broken), LC_ALL="C")
    assert code == 1 and "error: 'undeclared' was not declared" in text
    assert "could not be compiled" in text and "`make horovod`" in text and "horovod.log" in text
    assert not psutil.wait_procs(background(clone), timeout=30)[1]
    assert clone.build("--wait")[0] == 1 and not background(clone), "not again by itself"
    assert clone.build("--again", "--wait") == READY


@pytest.mark.nightly
@pytest.mark.parametrize("tool", ["g++", "make"])
def test_a_missing_tool_is_named(clone, tool):
    (clone.bin / tool).unlink()
    code, text = clone.build("--wait")
    assert code == 1 and f"there is no {tool}" in text and "apt-get install g++ make" in text


@pytest.mark.nightly
def test_no_network_for_the_source(clone):
    nowhere = {"PIP_NO_INDEX": "0", "PIP_FIND_LINKS": "", "PIP_INDEX_URL": "http://127.0.0.1:9/"}
    code, text = clone.build("--wait", PIP_RETRIES="1", **nowhere)
    assert code == 1 and "NewConnectionError" in text and "What to do" in text


@pytest.mark.nightly
def test_a_source_with_another_hash_is_refused(clone):
    clone.archive.write_bytes(clone.archive.read_bytes() + b"\0")
    assert clone.build("--wait")[0] == 1
    assert "DO NOT MATCH THE HASHES" in clone.log() and not is_compiled(clone)


@pytest.mark.nightly
def test_a_damaged_cache_or_one_that_others_may_write_is_not_used(clone, second_clone):
    clone.build("--wait")
    (wheel,) = clone.cached()
    whole = wheel.read_bytes()
    wheel.write_bytes(whole[: len(whole) // 2])
    assert second_clone.build("--wait") == READY and is_compiled(second_clone)
    assert len(wheel.read_bytes()) > len(whole) // 2
    (clone.cache / "pi2zero").chmod(0o777)
    clone.have_torch("9.9.9")
    second_clone.have_torch("9.9.9")
    assert clone.build("--wait") == READY
    assert second_clone.build("--wait") == READY and is_compiled(second_clone)


@pytest.mark.nightly
def test_a_cache_that_cannot_be_written_is_no_failure(clone):
    clone.cache.write_text("a file where the folder would be")
    assert clone.build("--wait") == READY


def test_a_process_that_breaks_off_is_an_error(monkeypatch, tmp_path):
    started = []

    def start():
        started.append(subprocess.Popen(["false"]))
        return started[0]

    monkeypatch.setattr(builder, "start", start)
    monkeypatch.setattr(builder, "can_build", lambda: True)
    monkeypatch.setattr(builder, "folder", lambda: tmp_path)
    begin = time.monotonic()
    with pytest.raises(NotBuiltError, match=r"broke off\. Read .*builder\.log"):
        wait_for("horovod", show=False)
    assert time.monotonic() - begin < 30 and len(started) == 1


def test_the_pinned_deepspeed_is_the_one_that_is_compiled():
    assert version("deepspeed") == DeepSpeed.VERSION
    assert [*PARTS] == ["deepspeed", "horovod"]


def test_an_unknown_name_is_an_error():
    with pytest.raises(NotBuiltError, match="deepspeed, horovod"):
        wait_for("torch")
