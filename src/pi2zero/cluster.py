"""Start, watch, mend and stop a set of MPI ranks (ipyparallel's own Cluster underneath)."""

import atexit
import logging
import os
import re
import signal
import threading
import time
from pathlib import Path

import ipyparallel as ipp
import psutil
from IPython import get_ipython
from traitlets.config import Config

from pi2zero import processes, ranks
from pi2zero.progress import Progress
from pi2zero.report import CellSources, Frame, Outcome, parse_stack, render
from pi2zero.watch import Watch

START_TIMEOUT = 60.0  # s for the ranks to arrive; a slow shared node takes 20
ENDED_FROM_OUTSIDE = "This cluster was ended from outside (a reset?). Start one: cluster = pi2zero.start(n="
_running: list["MPICluster"] = []


class ClusterError(RuntimeError):
    """The ranks could not be started, or are gone. The message holds what they printed, and the remedy."""


class MPICluster:
    """n MPI ranks, each an IPython engine, that outlive any mistake in a cell. Made by `start`.

    n: the world size. view: an ipyparallel DirectView in the order of the MPI ranks.
    """

    def __init__(self, n: int):
        if not isinstance(n, int) or isinstance(n, bool) or n < 1:
            raise ValueError(f"n is the number of ranks, a whole number from 1 up; got {n!r}. Try pi2zero.start(n=4).")
        self.n = n
        self.view = None
        self.sources = CellSources()
        self.history: dict[str, tuple[list[int], float]] = {}  # cells that succeeded: their targets and time-out
        self._mender: threading.Thread | None = None
        self._mending_failed: Exception | None = None
        self._client = None
        self._cluster = None

    def __repr__(self):
        state = "stopped" if self._cluster is None else f"{self.n} ranks"
        return f"<MPICluster: {state}>"

    # --- starting and stopping -------------------------------------------------------------------------------------

    def _start(self, progress: Progress) -> None:
        processes.mpi_env()
        self._owner = processes.owner_mark()
        self._dir = processes.make_run_dir()
        self._warden = processes.start_warden()
        config = Config()
        config.Cluster.load_profile = False
        # In its own folder: no file is shared with another kernel, and one removal cleans up.
        self._cluster = ipp.Cluster(
            engines="mpi",
            n=self.n,
            delay=0,  # nobody waits for the controller first: the engines look for its address when they are ready
            send_engines_connection_env=False,
            # An engine counts as arrived at its first heartbeat: the default of one in 3 s makes up half of the start.
            # Whether a rank lives, the kit looks itself; so a rank too busy to answer is not given up (600 beats = 3 min).
            controller_args=["--HeartMonitor.period=200", "--HeartMonitor.max_heartmonitor_misses=600"],
            profile_dir=str(self._dir / "profile"),
            cluster_id="",
            shutdown_atexit=False,  # we do it, also for what ipyparallel does not know
            log_level=logging.CRITICAL,
            config=config,
            parent=None,
        )
        try:
            progress("the controller")
            self._cluster.start_controller_sync()
            progress(f"{self.n} MPI ranks")
            self._start_ranks()
            self._client = self._cluster.connect_client_sync()
            self._await_ranks(progress)
        except BaseException:
            self.stop()
            raise
        _running.append(self)

    def _start_ranks(self) -> None:
        self._set = f"{self._owner}/{time.monotonic_ns()}"
        self._cluster.engines.clear()
        config = self._cluster.config
        config.EngineLauncher.environment = {processes.RANKS: self._set}
        self._cluster.start_engines_sync(self.n)

    def _await_ranks(self, progress: Progress | None = None) -> None:
        """Wait for all engines, order them by MPI rank and make each watchable. Ends at once if mpirun has ended."""
        deadline = time.monotonic() + START_TIMEOUT
        while len(fresh := self._fresh_ids()) < self.n:
            time.sleep(0.05)
            if progress:
                progress(f"{len(fresh)} of {self.n} MPI ranks")
            if not self._mpirun_runs():
                raise ClusterError(f"The {self.n} MPI ranks ended before they had arrived. They said:\n{self._output()}")
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"Only {len(fresh)} of {self.n} ranks arrived within {START_TIMEOUT:.0f} s. They said:\n"
                    f"{self._output()}\nTry `python -m pi2zero doctor` in a terminal, or fewer ranks."
                )
        found = self._client[fresh].apply_sync(ranks.enrol, str(self._dir))
        order = sorted(range(self.n), key=lambda i: found[i]["rank"])
        self.info = [found[i] for i in order]
        self.view = self._client[[fresh[i] for i in order]]
        self.view.block = True

    def stop(self) -> None:
        """End the ranks and the controller, and remove their files. May be called twice."""
        if self._mender:
            self._mender.join()
        if self._client is not None:
            self._client.close()
        if self._cluster is not None:
            processes.end_marked(self._owner)
            self._cluster = self._client = self.view = None
        processes.remove_run_dirs(self._owner)
        if self in _running:
            _running.remove(self)

    # --- running cells ---------------------------------------------------------------------------------------------

    def run(self, source: str, targets: list[int] | None = None, timeout: float = 30.0) -> None:
        """Run a cell on the ranks and show what they print, rank by rank. Raises RankError if a rank fails.

        targets: MPI ranks, default all. timeout: seconds without any rank moving, after which the cell is ended.
        """
        self._ready()
        targets = list(range(self.n)) if targets is None else targets
        ids = self.view.targets
        self.sources.add(source)
        watch = Watch(self, self._client, targets, [ids[rank] for rank in targets], timeout)
        outcome = watch.run(source)
        watch.show_outputs()
        if outcome.good:
            self.history.setdefault(source, (targets, timeout))  # a cell run again keeps its first place
            return
        if not self._controller_runs():
            self.stop()
            raise ClusterError(f"{ENDED_FROM_OUTSIDE}{self.n})")
        if outcome.dead or outcome.stuck:
            outcome.restarted = True
            self._mend()
        raise render(outcome, self.sources, self.n, len(self.history))

    def replay(self) -> None:
        """Run the earlier `%%px` cells that succeeded again, in their order: after a restart of the ranks."""
        for number, (source, (targets, timeout)) in enumerate(list(self.history.items()), start=1):
            print(f"%%px cell {number} of {len(self.history)}: {source.strip().splitlines()[0]}")
            self.run(source, targets, timeout)

    def _ready(self) -> None:
        """Wait for ranks that are being restarted."""
        if self._cluster is None:
            raise ClusterError("This cluster is stopped. Start one: cluster = pi2zero.start(n=4)")
        if self._mender:
            self._mender.join()
            self._mender = None
        if self._mending_failed:
            error, self._mending_failed = self._mending_failed, None
            raise ClusterError(f"The ranks could not be restarted: {error}\nStart anew: cluster = pi2zero.start(n={self.n})")
        if not self._controller_runs():
            self.stop()
            raise ClusterError(f"{ENDED_FROM_OUTSIDE}{self.n})")
        if notes := self.death_notes():  # died between two cells
            outcome = Outcome(dead=notes, restarted=True)
            self._mend()
            raise render(outcome, self.sources, self.n, len(self.history))

    # --- what the watch asks ---------------------------------------------------------------------------------------

    def death_notes(self) -> dict[int, str]:
        """Ranks that are gone, and why; empty if all live. When one dies, mpirun ends the others: those are left out."""
        dead = [i["rank"] for i in self.info if not _alive(i["pid"])]
        if not dead and self._mpirun_runs():
            return {} if self._controller_runs() else {0: "the controller is gone, and with it the way to every rank"}
        deadline = time.monotonic() + 2.0
        while not (notes := _exit_reasons(self._output())) and time.monotonic() < deadline:
            time.sleep(0.05)  # mpirun writes its account a moment after the death
        return notes or {rank: "its process is gone" for rank in dead[:1] or [0]}

    def stacks(self, which: list[int]) -> dict[int, list[Frame]]:
        """Where ranks are now, innermost frame first: also inside an MPI call that will never return."""
        paths = {rank: ranks.stack_path(str(self._dir), rank) for rank in which}
        for path in paths.values():
            path.write_text("")
        self._signal(signal.SIGUSR1, which)
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline and not all(p.stat().st_size for p in paths.values()):
            time.sleep(0.01)
        time.sleep(0.02)  # the last frames
        return {rank: parse_stack(path.read_text()) for rank, path in paths.items()}

    def interrupt(self, which: list[int]) -> None:
        """Send SIGINT to these ranks alone (through mpirun it would end the world)."""
        self._signal(signal.SIGINT, which)

    def _signal(self, signum: int, which: list[int]) -> None:
        ids = self.view.targets
        self._client.send_signal(int(signum), targets=[ids[rank] for rank in which], block=False)

    # --- mending ---------------------------------------------------------------------------------------------------

    def _mend(self) -> None:
        """Replace the ranks, in the background: the learner reads the report meanwhile."""
        self._old_engines = set(self._client._engines.values())
        self._mender = threading.Thread(target=self._replace_ranks, name="pi2zero mender", daemon=True)
        self._mender.start()

    def _replace_ranks(self) -> None:
        try:
            processes.end_marked(self._owner, ranks=self._set)
            self._start_ranks()
            self._await_ranks()
        except Exception as error:
            self._mending_failed = error

    _old_engines: set[str] = set()

    def _fresh_ids(self) -> list[int]:
        """ipyparallel's ids of the engines that are not the ones before the restart. An id is given anew; a uuid is not."""
        return [i for i, uuid in list(self._client._engines.items()) if uuid not in self._old_engines]

    def _controller_runs(self) -> bool:
        return _alive(self._cluster.controller.pid)

    def _mpirun_runs(self) -> bool:
        return _alive(self._cluster.engine_set.pid)

    def _output(self) -> str:
        """What mpirun and the ranks wrote outside of any cell."""
        launcher = self._cluster.engine_set
        try:
            text = Path(launcher.output_file).read_text(errors="replace")
        except FileNotFoundError:  # ipyparallel has noticed the end, read the file and removed it
            text = launcher.get_output()
        return text.strip()[-4000:] or "(nothing)"


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _exit_reasons(output: str) -> dict[int, str]:
    """Read mpirun's account: which rank ended first, and how."""
    text = re.sub(r"\s+", " ", output)
    notes = {}
    for match in re.finditer(r"process rank (\d+) with PID \d+ on node \S+ exited on signal (\d+)", text):
        notes[int(match[1])] = f"signal {_signal_name(int(match[2]))}"
    for match in re.finditer(r"MPI_ABORT was invoked on rank (\d+) .*?[Ee]rrorcode:? (\d+)", text):
        notes[int(match[1])] = f"it called MPI_Abort with error code {match[2]}"
    for match in re.finditer(r"Process name: \[[^\],]*[,@](\d+)\] Exit code: (\d+)", text):
        notes[int(match[1])] = f"its process ended with exit code {match[2]}"
    return notes


def _signal_name(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        return str(number)
    hints = {
        "SIGKILL": "SIGKILL (killed from outside, often because memory ran out)",
        "SIGSEGV": "SIGSEGV (segmentation fault)",
        "SIGABRT": "SIGABRT (the program aborted itself)",
    }
    return hints.get(name, name)


def start(n: int = 4) -> MPICluster:
    """Start n MPI ranks and let `%%px` run cells on them, watched.

    n: the world size; more than the machine has cores works, slower. A cluster that this kernel already runs is
    stopped first. Raises ClusterError with the ranks' own output if they do not arrive.
    """
    from pi2zero.magics import register

    cluster = MPICluster(n)
    for old in list(_running):
        old.stop()
    with Progress(f"Starting {n} ranks") as progress:
        cluster._start(progress)
        plural = "s are" if n > 1 else " is"
        progress.done(f"{n} rank{plural} up ({cluster.info[0]['library']}), {{seconds:.1f}} s. %%px runs a cell on all of them.")
    if shell := get_ipython():
        register(shell, cluster)
    return cluster


def reset() -> str:
    """End every process of this user that the kit started, remove its files, and say how many there were.

    Other notebooks' ranks are ended too; they notice at their next `%%px` cell.
    """
    count = len(processes.marked())
    for cluster in list(_running):
        cluster.stop()
    processes.end_marked()
    processes.remove_run_dirs()
    return f"{count} processes ended, their files removed." if count else "Nothing of the kit was running."


@atexit.register
def _at_exit() -> None:
    for cluster in list(_running):
        cluster.stop()
    if os.environ.get(processes.OWNER) == processes.owner_mark():
        processes.end_marked(processes.owner_mark())
