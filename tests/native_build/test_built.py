"""What is compiled in the background: once, whole, going on after a kill, kept for the next clone; a failure is one sentence."""

import json
import os
import re
import subprocess
from pathlib import Path

import psutil
import pytest
from mounts import mounted
from no_network import CUT, cut_here
from toy_kit import Kit

from pi2zero.built import builder

pytestmark = pytest.mark.long


@pytest.fixture
def kit(tmp_path):
    kit = Kit(tmp_path / "kit", tmp_path / "cache")
    yield kit
    kit.hold.unlink(missing_ok=True)
    kit.built("--stop")


def builders(kit) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(builder.BUILDER) == str(kit.venv):
                found.append(process)
        except psutil.Error:
            pass
    return found


def is_gone(process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_built_once_and_a_second_clone_has_it_in_seconds(kit, tmp_path):
    assert kit.built("--wait") == (0, "Horovod: ready\n")
    assert "compiled lib.cc" in kit.log()
    subprocess.run([kit.python, "-c", "from horovod.torch import mpi_lib_v2"], check=True)
    assert not (kit.venv / "built" / "horovod").exists(), "sources and object files are gone"
    (kit.venv / "built" / "horovod.log").unlink()
    assert kit.built("--wait") == (0, "Horovod: ready\n") and kit.log() == "", "nothing to do"
    clone = Kit(tmp_path / "clone", kit.cache)
    assert clone.built("--wait") == (0, "Horovod: ready\n")
    assert "compiled" not in clone.log() and "Successfully installed horovod" in clone.log()
    subprocess.run([clone.python, "-c", "from horovod.torch import mpi_lib_v2"], check=True)


def test_from_a_folder_that_is_gone_the_next_clone_still_has_it_in_seconds(kit, tmp_path):
    assert kit.built("--wait")[0] == 0
    clone, gone = Kit(tmp_path / "clone", kit.cache), tmp_path / "gone"
    gone.mkdir()
    script = f"cd {gone} && /bin/rmdir {gone} && {clone.python} -m pi2zero built --wait"
    done = subprocess.run(
        ["/bin/sh", "-c", script], env=clone.env(), capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, "Horovod: ready\n"), done.stderr
    assert "compiled" not in clone.log() and len(kit.entries()) == 1


def test_it_goes_on_in_the_background_and_after_a_kill(kit):
    kit.start_and_hold()
    (first,) = [p for p in builders(kit) if "pi2zero.built.builder" in p.cmdline()]
    assert os.getsid(first.pid) == first.pid and first.nice() == 19, "alone, and modest"
    kit.until(lambda: kit.told()["share"] > 0.5)
    assert re.fullmatch(r"Horovod: 59 %, about \d+ (s|min) more\n", kit.built()[1])
    first.kill()
    orphans = [p for p in builders(kit) if p.pid != first.pid]
    assert orphans, "its pip and compiler live on"
    kit.until(lambda: is_gone(first))
    kit.hold.unlink()
    code, text = kit.built("--wait")
    assert (code, text) == (0, "Horovod: ready\n")
    assert all(is_gone(p) for p in orphans), "they were ended first"
    assert "compiled lib.cc" not in kit.log(), "what was compiled was kept"


def test_an_environment_of_somebody_else_is_left_alone(kit):
    """Unless the set-up has made it, or somebody has asked for it there, nothing is built, and nobody waits."""
    program = "import pi2zero; pi2zero.wait_for('horovod')"
    subprocess.run([kit.python, "-c", program], env=kit.env(), check=True, timeout=60)
    assert not (kit.venv / "built").exists()
    (kit.venv / "pi2zero-set-up").touch()
    subprocess.run([kit.python, "-c", program], env=kit.env(), check=True, timeout=60)
    assert "compiled lib.cc" in kit.log()


@pytest.mark.skipif(
    not Path("/proc/self/autogroup").exists(),
    reason="Linux deals the processor out by process here",
)
def test_it_is_less_modest_while_somebody_waits(kit):
    """Also while it compiles bytecode, before any part: on a busy machine that came to no end, with somebody waiting for it."""
    slow = kit.folder / "src" / "pi2zero" / "built" / "bytecode.py"
    slow.write_text(
        "import time\ndef is_there(): return False\nif __name__ == '__main__': time.sleep(60)\n"
    )
    kit.built()
    kit.until(lambda: any("pi2zero.built.bytecode" in p.cmdline() for p in builders(kit)))
    (first,) = [p for p in builders(kit) if "pi2zero.built.builder" in p.cmdline()]
    kit.until(lambda: shares(first) == 0)
    kit.until(lambda: shares(first) == 19, waits=False)


def shares(process):
    """By which nice value Linux deals the processor out to this process's session."""
    return int(Path(f"/proc/{process.pid}/autogroup").read_text().split()[-1])


def test_one_at_a_time(kit):
    kit.start_and_hold()
    command = [kit.python, "-m", "pi2zero.built.builder"]
    second = subprocess.run(
        command,
        env=kit.env() | {builder.BUILDER: str(kit.venv)},
        timeout=30,
        capture_output=True,
        text=True,
    )
    assert second.returncode == 0 and not second.stderr
    assert len([p for p in builders(kit) if "pi2zero.built.builder" in p.cmdline()]) == 1
    kit.hold.unlink()
    assert kit.built("--wait")[0] == 0
    assert kit.log().count("[ 10%]") == 1


def test_another_torch_or_other_options_are_another_build(kit):
    assert kit.built("--wait")[0] == 0
    assert kit.built("--wait", HOROVOD_TIMELINE="file.json")[0] == 0 and len(kit.entries()) == 1, (
        "that is for running"
    )
    assert kit.built("--wait", HOROVOD_GPU_OPERATIONS="NCCL")[0] == 0 and len(kit.entries()) == 1, (
        "nobody asked"
    )
    assert kit.built("--wait", "--again", HOROVOD_GPU_OPERATIONS="NCCL")[0] == 0
    assert "compiled lib.cc" in kit.log() and len(kit.entries()) == 2
    assert kit.built("--wait")[0] == 0 and len(kit.entries()) == 2, "it stays as it was asked for"
    kit.torch("9.9.0")
    assert kit.built("--wait")[0] == 0 and len(kit.entries()) == 3


def test_a_failure_is_a_sentence_and_is_tried_again_when_somebody_asks(kit):
    broken = kit.folder / "broken.cc"
    broken.write_text("int main() { return undeclared; }\n")
    code, text = kit.built("--wait", TOY_SOURCE=str(broken))
    assert code == 1 and "error: 'undeclared' was not declared" in text.replace("‘", "'").replace(
        "’", "'"
    )
    assert "`make horovod`" in text and "could not be built" in text
    assert kit.built("--wait")[0] == 1 and not builders(kit), "not again by itself"
    assert kit.built("--again", "--wait") == (0, "Horovod: ready\n")


@pytest.mark.parametrize("tool", ["g++", "make"])
def test_a_missing_tool_is_named_and_tried_again_when_it_is_there(kit, tool):
    link = kit.bin / tool
    where = link.readlink()
    link.unlink()
    code, text = kit.built("--wait")
    assert code == 1 and f"there is no {tool}" in text and f"apt-get install {tool}" in text
    link.symlink_to(where)
    assert kit.built("--wait", *(["--again"] if tool == "make" else [])) == (0, "Horovod: ready\n")


def test_no_network(kit):
    unreachable = {
        "PIP_NO_INDEX": "0",
        "PIP_FIND_LINKS": "",
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
    }
    code, text = kit.built("--wait", **unreachable)
    assert code == 1 and "could not reach a package index" in text and "network" in text


@cut_here
def test_a_network_that_is_cut(kit):
    """No refusal comes back from anywhere: no name is known, no host is reached."""
    usual = {"PIP_NO_INDEX": "0", "PIP_FIND_LINKS": "", "PATH": f"{kit.bin}:{os.environ['PATH']}"}
    code, text = kit.built("--wait", within=CUT, **usual)
    assert code == 1 and "could not reach a package index" in text and "network" in text
    assert kit.built("--again", "--wait") == (0, "Horovod: ready\n"), "with its source at hand"


def test_another_source_than_the_lock_names_is_refused(kit):
    (archive,) = (kit.folder / "index").iterdir()
    archive.write_bytes(archive.read_bytes() + b"\0")
    assert kit.built("--wait")[0] == 1
    assert "DO NOT MATCH THE HASHES" in kit.log()


def test_no_disk_space(kit):
    (work := kit.venv / "built").mkdir(exist_ok=True)
    with mounted(work, "size=100m") as again:
        code, text = kit.built("--wait")
        assert (
            code == 1
            and "has 0.1 GB free; the build needs 0.5 GB" in text
            and "free some space" in text
        )
        again("size=1g")
        assert kit.built("--again", "--wait") == (0, "Horovod: ready\n")


def test_a_damaged_entry_is_built_anew(kit, tmp_path):
    kit.built("--wait")
    (entry,) = kit.entries()
    (wheel,) = entry.glob("*.whl")
    wheel.write_bytes(wheel.read_bytes()[: wheel.stat().st_size // 2])
    clone = Kit(tmp_path / "clone", kit.cache)
    assert clone.built("--wait") == (0, "Horovod: ready\n") and "compiled lib.cc" in clone.log()
    (again,) = kit.entries()
    assert zip_is_whole(next(again.glob("*.whl")))


def zip_is_whole(path: Path) -> bool:
    import zipfile

    with zipfile.ZipFile(path) as archive:
        return archive.testzip() is None


CELL = 'import pi2zero\npi2zero.wait_for("horovod")\nprint("here")'


def test_a_cell_waits_with_a_bar(kit):
    """In a real kernel of that environment: the bar moves, and the next line runs as soon as it is there."""
    import nbformat
    from jupyter_client import KernelManager
    from nbclient import NotebookClient

    kit.start_and_hold()
    spec = json.dumps(
        {
            "argv": [str(kit.python), "-m", "ipykernel_launcher", "-f", "{connection_file}"],
            "display_name": "toy",
        }
    )
    home = kit.folder / "jupyter" / "kernels" / "toy"
    home.mkdir(parents=True)
    (home / "kernel.json").write_text(spec)
    manager = KernelManager(kernel_name="toy")
    manager.kernel_spec_manager.kernel_dirs.insert(0, str(home.parent))
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    seen = []

    def look(cell, cell_index, **_):
        seen.append(cell_index)
        kit.hold.unlink()

    client = NotebookClient(book, km=manager, timeout=60, on_cell_execute=look)
    try:
        client.execute(env=kit.env())
    finally:
        manager.shutdown_kernel(now=True)  # nbclient leaves it to whoever made the manager
    bar, printed = book.cells[0].outputs
    assert (
        re.fullmatch(r"Horovod: ready, \d+ s", bar.data["text/plain"]) and printed.text == "here\n"
    )
