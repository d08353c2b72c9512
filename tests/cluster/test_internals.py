"""The list of what the kit leans on in Python, Jupyter and installers, beyond what they promise. (MPI, torch: ..._of_ranks.py)

After a change of versions, run these first: each names what is no longer true and the file of the kit that needs it.
"""

import argparse
import asyncio
import contextlib
import ctypes
import faulthandler
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import ipyparallel
import nbval.kernel
import nbval.plugin
import psutil
import pytest
from ipykernel.compiler import get_file_name
from ipykernel.kernelbase import Kernel
from ipyparallel.client.magics import ParallelMagics
from IPython.core.application import ENV_CONFIG_DIRS
from IPython.core.interactiveshell import InteractiveShell
from leans import ROOT, leans, python

import pi2zero
from pi2zero import ownership
from pi2zero.cluster import magics
from pi2zero.cluster.calls import call_of
from pi2zero.cluster.engines import let_go
from pi2zero.cluster.report import parse_stack

HERE = Path(__file__)


# --- Python itself ----------------------------------------------------------------------------------------------------


@leans(
    "src/pi2zero/cluster/report.py: _FRAME = re.compile",
    "src/pi2zero/cluster/enrol.py: faulthandler.register",
)
def test_faulthandler_s_text(tmp_path):
    """faulthandler writes a stack as lines '  File "...", line N in function', the innermost first."""
    with (tmp_path / "stack").open("w") as file:
        faulthandler.register(signal.SIGUSR1, file=file, all_threads=False)
        os.kill(os.getpid(), signal.SIGUSR1)
        faulthandler.unregister(signal.SIGUSR1)
    innermost = parse_stack((tmp_path / "stack").read_text())[0]
    assert (innermost.file, innermost.function) == (str(HERE), "test_faulthandler_s_text")


@leans("src/pi2zero/cluster/pulse.py: ctypes.pythonapi.Py_AddPendingCall")
def test_pending_calls():
    """a call left with Py_AddPendingCall is made as soon as the main thread runs Python, not while it is in one call of C."""
    made = threading.Event()
    call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda _: made.set() or 0)
    seen = []

    def ask():
        time.sleep(0.5)  # the main thread is in its call by then
        ctypes.pythonapi.Py_AddPendingCall(call, None)
        seen.append(made.wait(0.3))

    asking = threading.Thread(target=ask)
    asking.start()
    time.sleep(1.5)  # one call of C
    asking.join()
    assert seen == [False] and made.is_set()


@leans(
    "src/pi2zero/cluster/calls.py: co_positions()",
    "src/pi2zero/cluster/pulse.py: sys._current_frames()",
)
def test_the_expression_at_which_a_frame_stands():
    """a frame's co_positions() and f_lasti lead to the expression that it is in, in bytes of its line."""
    held = threading.Lock()
    held.acquire()
    thread = threading.Thread(target=lambda: [len("π"), held.acquire(timeout=20)])
    thread.start()
    time.sleep(0.1)
    call = call_of(sys._current_frames()[thread.ident])
    held.release()
    thread.join()
    assert (call.text, call.method) == ("held.acquire(timeout=20)", "acquire")


@leans(
    "scripts/cpi.py: parser._print_message =", "scripts/allreduce_bench.py: parser._print_message ="
)
def test_argparse_says_everything_in_one_place(capsys):
    """argparse prints help and complaints through _print_message, so that a rank can be silent."""
    parser = argparse.ArgumentParser()
    parser._print_message = lambda *_: None
    for wrong in ("--no-such-option", "--help"):
        with pytest.raises(SystemExit):
            parser.parse_args([wrong])
    assert capsys.readouterr() == ("", "")


# --- IPython, ipykernel and nbval -------------------------------------------------------------------------------------


class Short(RuntimeError):
    def _render_traceback_(self):
        return ["only this"]


@leans(
    "src/pi2zero/cluster/report.py: _render_traceback_",
    "src/pi2zero/cluster/engines.py: _render_traceback_",
    "src/pi2zero/cluster/views.py: _render_traceback_",
    "src/pi2zero/built/state.py: _render_traceback_",
)
def test_an_error_may_render_itself(capsys):
    """IPython shows an exception's _render_traceback_() in place of the traceback."""
    InteractiveShell(user_ns={"error": Short()}).run_cell("raise error")
    assert "".join(capsys.readouterr()).strip() == "only this"


@leans("src/pi2zero/cluster/report.py: from ipykernel.compiler import get_file_name")
def test_the_file_name_of_a_cell_comes_from_its_text():
    """ipykernel names a cell's file by a hash of its text, below a folder of the process."""
    source = "x = 1\n"
    elsewhere = python(
        "import sys; from ipykernel.compiler import get_file_name as name; print(name(sys.argv[1]))",
        source,
    )
    assert (
        Path(elsewhere.strip()).name
        == Path(get_file_name(source)).name
        != Path(get_file_name("x = 2\n")).name
    )


@leans('src/pi2zero/cluster/report.py: function == "_modified_open"')
def test_open_in_a_cell_goes_through_ipython():
    """A cell's open() is a function of IPython's file, which would else count as the end of the learner's code."""
    shell = InteractiveShell()
    assert shell.user_ns["open"].__code__.co_name == "_modified_open"
    assert inspect.getfile(shell.user_ns["open"]).endswith("/IPython/core/interactiveshell.py")


@leans("src/pi2zero/cluster/trees.py: /IPython/core/compilerop.py")
def test_ipython_builds_a_cell_s_tree_in_one_file():
    """IPython compiles cells to syntax trees in core/compilerop.py."""
    from IPython.core import compilerop

    assert "PyCF_ONLY_AST" in inspect.getsource(compilerop) and compilerop.__file__.endswith(
        "/IPython/core/compilerop.py"
    )


@leans("src/pi2zero/cluster/watch.py: client._outstanding_dict")
def test_a_client_knows_what_each_engine_has_not_answered():
    """ipyparallel's client keeps the numbers of the messages that are on their way, by the engine's uuid."""
    from ipyparallel import Client

    assert "_outstanding_dict" in Client.class_traits() and "_engines" in Client.class_traits()
    assert "if ident_str in self._engines.values():" in (source := inspect.getsource(Client._send))
    assert "self._outstanding_dict[ident_str].add(msg_id)" in source


@leans(
    "src/pi2zero/cluster/enrol.py: kernel._supports_kernel_subshells = False",
    "src/pi2zero/cluster/enrol.py: parent_thread",
)
def test_an_await_asks_for_the_thread_of_subshells():
    """ipykernel asks shell_channel_thread.parent_thread before an await, and _supports_kernel_subshells elsewhere."""
    from ipykernel.ipkernel import IPythonKernel

    assert "self.shell_channel_thread.parent_thread" in inspect.getsource(IPythonKernel.do_execute)
    assert "shell_channel_thread" in Kernel.class_traits()
    assert isinstance(inspect.getattr_static(Kernel, "_supports_kernel_subshells"), property)


@leans("src/pi2zero/cluster/magics.py: shell.magics_manager.magics")
def test_a_magic_tells_whose_it_is():
    """IPython keeps cell magics as bound methods by their names."""
    shell = InteractiveShell()
    mine = ParallelMagics(shell, None)
    shell.magics_manager.register(mine)
    assert shell.magics_manager.magics["cell"]["px"].__self__ is mine


@leans("course/build_backend.py: Distribution.has_data = ")
def test_every_kernel_reads_the_environments_own_settings():
    """IPython reads etc/ipython of the environment, and setuptools cannot put a file there when it installs editably."""
    assert str(Path(sys.prefix) / "etc" / "ipython") in ENV_CONFIG_DIRS
    lacks = python(
        "import setuptools; d = setuptools.Distribution; print(hasattr(d, 'has_data'), hasattr(d, 'has_data_files'))"
    )
    assert lacks.split() == ["False", "True"], (
        "setuptools has mended it: course/build_backend.py can go"
    )


@leans(
    "tools/compare_notebooks.py: nbval.kernel.KernelManager =",
    "tools/compare_notebooks.py: RunningKernel.execute_cell_input =",
)
def test_nbval_s_two_places():
    """nbval starts kernels with the KernelManager of nbval.kernel, and runs cells with execute_cell_input.

    A cell's options say whether it is skipped and compared.
    """
    assert "KernelManager" in nbval.kernel.start_new_kernel.__code__.co_names
    assert list(inspect.signature(nbval.kernel.RunningKernel.execute_cell_input).parameters) == [
        "self",
        "cell_input",
        "allow_stdin",
    ]
    run = inspect.getsource(nbval.plugin.IPyNbCell.runtest)
    assert all(
        word in run
        for word in (
            "execute_cell_input",
            "self.options['skip']",
            "self.options['check']",
            "self.cell",
        )
    )


# --- ipyparallel ------------------------------------------------------------------------------------------------------


@leans(
    "src/pi2zero/cluster/magics.py: from ipyparallel.client.magics import NO_LAST_RESULT, ParallelMagics, exec_args"
)
def test_the_options_of_px():
    """ipyparallel's %%px has these options and no others: what is new must be done or refused, never ignored."""
    ours = magics.RankMagics(InteractiveShell(), None, "")
    given = vars(magics.parse_argstring(ours.cell_px, ""))
    known = {
        "block",
        "stream",
        "targets",
        "set_verbose",
        "progress_after_seconds",
        "signal_on_interrupt",
        "groupby",
        "save_name",
    }
    assert set(given) == known | {"local", "timeout"}
    theirs = {*vars(magics.parse_argstring(ParallelMagics.cell_px, ""))}
    assert theirs == known | {"local"}


@leans(
    "src/pi2zero/cluster/magics.py: def parallel_execute(",
    "src/pi2zero/cluster/magics.py: SimpleNamespace(targets=ranks",
)
def test_px_and_autopx_come_down_to_parallel_execute():
    """ipyparallel's %px and %autopx call self.parallel_execute, and its magics keep view, last_result and stream_output."""
    for method in (ParallelMagics.px, ParallelMagics.pxrun_nodes):
        assert "self.parallel_execute(" in inspect.getsource(method)
    theirs = ParallelMagics(InteractiveShell(), "a view", "_suffix")
    assert (theirs.view, theirs.suffix, theirs.last_result, theirs.stream_output) == (
        "a view",
        "_suffix",
        None,
        True,
    )
    assert "px_suffix" in theirs.magics["line"]


@leans(
    "src/pi2zero/cluster/engines.py: --HeartMonitor.period",
    "src/pi2zero/cluster/engines.py: --IPEngine.{what}",
)
def test_settings_of_the_controller_and_the_engines():
    """ipyparallel's HeartMonitor, IPEngine and Session have these settings: an unknown one would be passed over in silence."""
    from ipyparallel.controller.heartmonitor import HeartMonitor
    from ipyparallel.engine.app import IPEngine
    from jupyter_client.session import Session

    assert {"period", "max_heartmonitor_misses"} <= HeartMonitor.class_traits().keys()
    assert {
        "wait_for_url_file",
        "timeout",
        "max_heartbeat_misses",
    } <= IPEngine.class_traits().keys()
    assert "key" in Session.class_traits()
    assert {
        "load_profile",
        "delay",
        "send_engines_connection_env",
    } <= ipyparallel.Cluster.class_traits().keys()


@leans(
    "src/pi2zero/cluster/engines.py: _thread_loop", "src/pi2zero/cluster/engines.py: _async_thread"
)
def test_the_thread_of_ipyparallel_s_cluster():
    """within a kernel ipyparallel's Cluster runs its *_sync methods in a thread with a loop, and never ends it."""
    cluster = ipyparallel.Cluster(n=1)

    async def within_a_loop():
        with contextlib.suppress(
            ValueError
        ):  # none has been started: the thread is there all the same
            cluster.stop_engines_sync()

    asyncio.run(within_a_loop())
    thread = cluster._async_thread
    assert thread.is_alive()
    let_go(cluster)
    assert not thread.is_alive()


@leans(
    "src/pi2zero/cluster/engines.py: _count_chunks",
    "src/pi2zero/cluster/magics.py: shell.configurables",
)
def test_what_ipyparallel_and_ipython_keep_of_an_earlier_start():
    """results stay in three caches of AsyncResult's methods, magics in the shell's list `configurables`."""
    for method in (
        ipyparallel.AsyncResult.split,
        ipyparallel.AsyncResult.__len__,
        ipyparallel.AsyncResult._count_chunks,
    ):
        assert method.cache_info().maxsize
    shell = InteractiveShell()
    before = len(shell.configurables)
    magics.RankMagics(shell, None, "")
    assert len(shell.configurables) == before + 1
    for _ in range(3):
        magics.register(shell)
    assert len(shell.configurables) == before + 1


@pytest.fixture(scope="module")
def two():
    """Two ranks that need not stay whole."""
    ranks = pi2zero.start(n=2)
    yield ranks
    ranks.stop()


@pytest.mark.long
@leans(
    "src/pi2zero/cluster/engines.py: self.client._engines",
    "src/pi2zero/cluster/engines.py: self.ipp.engines.clear()",
)
def test_ranks_can_be_replaced_under_the_same_controller(two):
    """ipyparallel's client knows its engines' uuids, its Cluster forgets engines at engines.clear() and reads its config anew."""
    engines = two._engines
    before, mark = dict(engines.client._engines), two.info[0]["mark"]
    launcher = engines.ipp.engine_set
    assert set(before) == set(engines.ids) and len(set(before.values())) == 2
    assert Path(launcher.output_file).exists() and json.loads(
        Path(engines.ipp.controller.connection_files["engine"]).read_text()
    )
    assert (
        psutil.Process(engines.ipp.controller.pid).is_running()
        and psutil.Process(launcher.pid).is_running()
    )
    engines.replace()
    assert not set(before.values()) & {engines.client._engines[i] for i in engines.ids}
    assert two.info[0]["mark"] != mark  # another process, with the mark of its own start
    assert {info["pid"] for info in two.info} <= {
        process.pid for process in ownership.marked_processes(engines.ranks_mark)
    }


@pytest.mark.long
@leans("src/pi2zero/cluster/views.py: view.push, view.pull = push_and_note, pull_or_say")
def test_what_a_view_sends_and_fetches_goes_through_push_and_pull(two):
    """ipyparallel's view["x"] = 1 and view["x"] call the view's own push and pull."""
    steps = len(two._history)
    two.view["sent"] = 1
    assert len(two._history) == steps + 1 and two.view["sent"] == [1, 1]
    with pytest.raises(NameError, match="ranks 0 and 1 have no variable 'missing'"):
        two.view["missing"]


@pytest.mark.long
@leans(
    "src/pi2zero/cluster/enrol.py: shell.kernel.shell_channel_thread",
    "src/pi2zero/cluster/output.py: class Capped",
)
def test_output_and_await_on_an_engine(two, capsys):
    """an engine's print goes where sys.stdout leads, and a top-level await ends."""
    two.run(
        "import asyncio\nawait asyncio.sleep(0.01)\nimport sys\nprint(type(sys.stdout).__name__)",
        timeout=10,
    )
    assert capsys.readouterr().out == "[stdout:0] Capped\n[stdout:1] Capped\n"


@pytest.mark.long
@leans("src/pi2zero/cluster/enrol.py: shell.kernel._abort_queues")
def test_no_cell_is_left_out_after_an_error(two):
    """a cell that comes right after one that failed runs, where ipykernel would leave it out."""
    for _ in range(20):
        sent = [two.send(source, [0, 1]) for source in ("x = 0", "1 / 0", "x = 1")]
        assert [result.status for result in sent[2].get(10)] == ["ok", "ok"]
    assert two.view["x"] == [1, 1]


@pytest.mark.long
@leans(
    "src/pi2zero/cluster/watch.py: self.sent.split()",
    "src/pi2zero/cluster/watch.py: isinstance(error, CompositeError)",
)
def test_the_results_of_a_cell_and_of_an_engine_that_ends(two):
    """ipyparallel splits an AsyncResult by engine, keeps what each prints in metadata, and calls an engine's end EngineError.

    But a cell's result on one engine it does not split: its error comes as a CompositeError.
    """
    sent = two.send("print('here')", [0, 1])
    first, second = sent.split()
    sent.get(10), sent.wait_for_output(10)
    assert (
        [m["stdout"] for m in sent.metadata] == ["here\n", "here\n"]
        and first.done()
        and second.done()
    )
    assert {"stdout", "stderr", "outputs", "data", "execute_result"} <= sent.metadata[0].keys()
    with pytest.raises(ipyparallel.error.CompositeError) as of_one:
        two.send("1 / 0", [1]).split()[0].get(10)
    assert ipyparallel.error.RemoteError(*of_one.value.elist[0]).ename == "ZeroDivisionError"
    with pytest.raises(
        pi2zero.RankError, match=r"^rank 1 raised ZeroDivisionError: division by zero$"
    ):
        two.run("1 / 0", [1])
    _, second = two.send("import os; os.kill(os.getpid(), 9)", [0, 1]).split()
    with pytest.raises(ipyparallel.error.RemoteError) as ended:
        second.get(30)
    assert ended.value.ename == "EngineError"


# --- pypdf ------------------------------------------------------------------------------------------------------------


@leans("slides/pdf.py: return writer._add_object(form)")
def test_pypdf_takes_an_object_for_two_pages():
    """a writer of pypdf's takes an object that is on no page, and gives what pages name it by."""
    from pypdf import PdfWriter
    from pypdf.generic import DecodedStreamObject, IndirectObject

    assert isinstance(PdfWriter()._add_object(DecodedStreamObject()), IndirectObject)


# --- the words of uv and pip ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        ["uv", "pip", "install", "--python", sys.executable],
        ["python", "-m", "pip", "install", "--retries", "1"],
    ],
)
@leans("tools/setup_packages.py: NO_NETWORK = (")
def test_the_words_of_no_network(command, tmp_path):
    """uv and pip say in these words that an index cannot be reached."""
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        from setup_packages import NO_NETWORK
    finally:
        sys.path.pop(0)
    nowhere = {
        "UV_HTTP_RETRIES": "0",
        "UV_CACHE_DIR": str(tmp_path),
        "PIP_CONFIG_FILE": os.devnull,
        "UV_NO_CONFIG": "1",
    }
    options = [
        "--index-url",
        "http://127.0.0.1:1/simple",
        "--target",
        str(tmp_path / "packages"),
        "no-such-package",
    ]
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))
    }
    if not (program := Path(sys.executable).with_name(command[0])).exists():
        pytest.skip("this environment was made without uv")
    done = subprocess.run(
        [program, *command[1:], *options], env=kept | nowhere, capture_output=True, text=True
    )
    assert done.returncode and re.search(NO_NETWORK, done.stdout + done.stderr), (
        done.stdout + done.stderr
    )
