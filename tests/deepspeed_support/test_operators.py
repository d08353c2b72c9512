"""DeepSpeed's operators are compiled before somebody needs them; a killed compiler's lock is taken
away, a living one's stays.
"""

import os
import socket
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
engine, optimizer, *_ = deepspeed.initialize(model=net, \
model_parameters=net.parameters(), config=config)
engine.backward(engine(torch.ones(2, 4)).sum())
engine.step()
print(type(optimizer).__name__)
"""


@pytest.fixture
def locks(tmp_path, monkeypatch):
    """Two locks in this host's own folder of operators: (stale, held by this process)."""
    folder = tmp_path / socket.gethostname()
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(folder))
    paths = [folder / name / "lock" for name in ("stale", "held")]
    for lock in paths:
        lock.parent.mkdir(parents=True)
        lock.touch()
    with paths[1].open():
        yield paths


def test_only_stale_locks_go(locks):
    stale, held = locks
    assert operators.drop_stale_locks() == [stale]
    assert held.exists() and not stale.exists()


def test_a_lock_that_another_host_may_hold_stays_for_an_hour(locks, monkeypatch):
    """In a folder of the user's that several hosts share, a compiler elsewhere is not seen."""
    monkeypatch.setattr(operators.socket, "gethostname", lambda: "another-host")
    assert operators.drop_stale_locks() == []
    os.utime(locks[0], (1, 1))
    assert operators.drop_stale_locks() == [locks[0]]


def test_each_host_has_a_folder_of_its_own(monkeypatch):
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR", raising=False)
    folders = set()
    for host in ("login", "node1"):  # srun hands the login node's variable over to node1
        monkeypatch.setattr(operators.socket, "gethostname", lambda host=host: host)
        operators.use_folder()
        folders.add(os.environ["TORCH_EXTENSIONS_DIR"])
    assert {Path(folder).name for folder in folders} == {"login", "node1"}
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", "/somewhere")
    operators.use_folder()
    assert os.environ["TORCH_EXTENSIONS_DIR"] == "/somewhere"


def test_a_lock_that_is_a_link_leads_to_nothing(locks, tmp_path):
    """Somebody else may have made it, where the folder is open to them."""
    (own := tmp_path / "notebook.ipynb").write_text("own")
    locks[0].unlink()
    locks[0].symlink_to(own)
    assert operators.drop_stale_locks() == [] and own.exists()


def run_config(path):
    """What runs a file of settings as IPython does."""
    given = "{'get_config': __import__('traitlets.config').config.Config}"
    return f"runpy.run_path({str(path)!r}, init_globals={given})"


@pytest.mark.parametrize("name", ["JUPYTERHUB_API_TOKEN", "JUPYTER_TOKEN"])
def test_a_kernel_knows_no_server_s_token(name, monkeypatch):
    """horovodrun writes its whole environment on a command line."""
    monkeypatch.setenv(name, "secret")
    start = Path(__file__).parents[2] / "course" / "ipython_config.py"
    code = f"import os, runpy; {run_config(start)}; print(os.environ.get({name!r}))"
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
    code = f"import os, runpy, sys; os.access = lambda *_: {mine}; {run_config(start)}"
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
    """Run a program whose DeepSpeed would compile into an empty folder, in which it would find no
    compiler.
    """
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
    """As the tutorials write it, and without the kit: DeepSpeed finds its operators compiled in its
    own package.
    """
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
    lock = tmp_path / socket.gethostname() / "some_op" / "lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    program = "from pi2zero import ranks; ranks.join(deepspeed=True); ranks.leave()"
    done = run(program, lock.parent.parent)
    assert done.returncode == 0 and not done.stdout, done.stderr
    assert not lock.exists()
