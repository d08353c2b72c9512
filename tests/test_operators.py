"""Locks of torch's compiler: a killed one's is taken away, a living one's stays."""

import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

from pi2zero.mpi import mpi_env
from pi2zero.zero import operators


def test_only_stale_locks_go(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    locks = {name: tmp_path / name / "lock" for name in ("stale", "held")}
    for lock in locks.values():
        lock.parent.mkdir()
        lock.touch()
    with locks["held"].open():
        assert operators.drop_stale_locks() == [locks["stale"]]
        assert locks["held"].exists() and not locks["stale"].exists()
    assert operators.load(SimpleNamespace(load=lambda: "module")) == "module"
    assert not locks["held"].exists()


def test_torch_keeps_its_lock_open_while_it_compiles(tmp_path):
    """What the rule above rests on."""
    from torch.utils.file_baton import FileBaton

    baton = FileBaton(str(tmp_path / "lock"))
    assert baton.try_acquire() and tmp_path / "lock" in operators.open_files()
    baton.release()
    assert not (tmp_path / "lock").exists()


def test_deepspeed_starts_after_a_killed_compiler(tmp_path, monkeypatch):
    from torch.utils.cpp_extension import _get_build_directory

    mpi_env()
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR", raising=False)
    operators.use_folder()
    compiled = _get_build_directory("deepspeed_shm_comm", False)
    shutil.copytree(compiled, tmp_path / "deepspeed_shm_comm", ignore=shutil.ignore_patterns("lock"))
    lock = tmp_path / "deepspeed_shm_comm" / "lock"
    lock.touch()
    program = "from pi2zero import ranks; ranks.join(deepspeed=True); ranks.leave()"
    env = dict(os.environ, TORCH_EXTENSIONS_DIR=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, env=env)
    assert done.returncode == 0 and not done.stdout, done.stderr
    assert not lock.exists()
