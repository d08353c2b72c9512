"""DeepSpeed's operators are compiled before somebody needs them; a killed compiler's lock is taken away, a living one's stays."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pi2zero
from pi2zero.deepspeed_support import operators

PLAIN_ADAM = """
import deepspeed, torch
net = torch.nn.Linear(4, 4)
config = {"train_batch_size": 2, "optimizer": {"type": "Adam", "params": {"lr": 0.1}}}
engine, optimizer, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=config)
engine.backward(engine(torch.ones(2, 4)).sum())
engine.step()
print(type(optimizer).__name__)
"""


def test_only_stale_locks_go(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    locks = {name: tmp_path / name / "lock" for name in ("stale", "held")}
    for lock in locks.values():
        lock.parent.mkdir()
        lock.touch()
    with locks["held"].open():
        assert operators.drop_stale_locks() == [locks["stale"]]
        assert locks["held"].exists() and not locks["stale"].exists()
    assert operators.drop_stale_locks() == [locks["held"]]


def test_a_lock_that_is_a_link_leads_to_nothing(tmp_path, monkeypatch):
    """Somebody else may have laid it, where the folder is open to them."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "folder"))
    (tmp_path / "folder" / "operator").mkdir(parents=True)
    (mine := tmp_path / "notebook.ipynb").write_text("mine")
    (tmp_path / "folder" / "operator" / "lock").symlink_to(mine)
    assert operators.drop_stale_locks() == [] and mine.exists()


@pytest.mark.parametrize("name", ["JUPYTERHUB_API_TOKEN", "JUPYTER_TOKEN"])
def test_a_kernel_knows_no_server_s_token(name, monkeypatch):
    """horovodrun writes its whole environment on a command line."""
    monkeypatch.setenv(name, "secret")
    start = Path(__file__).parents[2] / "course" / "ipython_config.py"
    code = f"import os, runpy; runpy.run_path({str(start)!r}); print(os.environ.get({name!r}))"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "None\n"
    )


@pytest.mark.parametrize("mine", [True, False], ids=["own environment", "shared environment"])
def test_a_kernel_starts_without_torch(mine, monkeypatch, tmp_path):
    """Also in a room, where the environment may not be written: then operators are kept at home."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR", raising=False)
    start = Path(__file__).parents[2] / "course" / "ipython_config.py"
    code = f"import os, runpy, sys; os.access = lambda *_: {mine}; runpy.run_path({str(start)!r})"
    code += "; print('torch' in sys.modules, os.environ['TORCH_EXTENSIONS_DIR'])"
    loaded, folder = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert loaded == "False" and Path(folder).is_relative_to(sys.prefix if mine else tmp_path)


def test_torch_keeps_its_lock_open_while_it_compiles(tmp_path):
    """What the rule above rests on."""
    from torch.utils.file_baton import FileBaton

    baton = FileBaton(str(tmp_path / "lock"))
    assert baton.try_acquire() and tmp_path / "lock" in operators.open_files()
    baton.release()
    assert not (tmp_path / "lock").exists()


def run(program, tmp_path, **env):
    """Run a program whose DeepSpeed would compile into an empty folder, in which it would find no compiler."""
    env = (
        dict(
            os.environ,
            TORCH_EXTENSIONS_DIR=str(tmp_path),
            DS_ACCELERATOR="cpu",
            CXX="/nonexistent/g++",
        )
        | env
    )
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=200, env=env
    )


@pytest.mark.long
def test_a_plain_adam_compiles_nothing(tmp_path):
    """As the tutorials write it, and without the kit: DeepSpeed finds its operators compiled in its own package."""
    pi2zero.wait_for("deepspeed")
    pi2zero.mpi_env()
    done = run(
        PLAIN_ADAM,
        tmp_path,
        RANK="0",
        WORLD_SIZE="1",
        LOCAL_RANK="0",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT="0",
    )
    assert done.returncode == 0 and done.stdout.split()[-1] == "FusedAdam", (
        done.stdout[-500:] + done.stderr[-2000:]
    )
    assert not list(tmp_path.rglob("*.so"))
    untold = "import deepspeed.git_version_info as told; told.installed_ops = {}\n"
    untold += "from pi2zero.native_build.parts import load_operators; load_operators()"
    assert "not callable" in run(untold, tmp_path).stderr, "the proof would tell"


@pytest.mark.long
def test_deepspeed_starts_after_a_killed_compiler(tmp_path):
    lock = tmp_path / "some_op" / "lock"
    lock.parent.mkdir()
    lock.touch()
    done = run("from pi2zero import ranks; ranks.join(deepspeed=True); ranks.leave()", tmp_path)
    assert done.returncode == 0 and not done.stdout, done.stderr
    assert not lock.exists()
