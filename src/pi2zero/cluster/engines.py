"""One set of MPI ranks as processes: ipyparallel's Cluster, which ranks died in it and why."""

import contextlib
import json
import logging
import os
import re
import secrets
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ipyparallel as ipp
import psutil
from traitlets.config import Config

from pi2zero import log, obstacles, ownership
from pi2zero.cluster import engine_setup, output_changes
from pi2zero.cluster.activity_sampler import sample_path
from pi2zero.cluster.live_ranks import ENGINE
from pi2zero.cluster.mpirun_messages import exit_reasons, ranks_that_lost_a_peer
from pi2zero.cluster.report import Frame, parse_stack
from pi2zero.cluster.watchdog import ensure_watchdog
from pi2zero.environment import not_for_ranks
from pi2zero.hosts.agent import is_rank
from pi2zero.hosts.concurrency import defer_sigint
from pi2zero.hosts.group import HostGroup
from pi2zero.hosts.host import HostError
from pi2zero.hosts.place import Place, shared_memory_dir, variables_for_ranks
from pi2zero.hosts.port_filter import restrict_listeners
from pi2zero.log import logger
from pi2zero.mpi import NO_UCX, ONE_SIDED, RUN_DIR, mpi_env, one_host_env

# ipyparallel's own log lines, except those that say why an engine gave up
IPYPARALLEL_LOG = re.compile(r"\d{4}-\S+ \S+ \[(IPEngine|KernelNanny)(?!.*\] (CRITICAL|FATAL))")
FIRST_UNKNOWN = "one of them first, and mpirun does not say which"
# Seconds for the ranks to arrive (four took 90 from a slow disk), and more for each; more on other
# hosts, where hundreds of files are read over a network.
START_TIMEOUT, PER_RANK, OTHER_HOSTS = 180.0, 3.0, 180.0
POLL = 0.05  # s
SETTLE = 0.5  # s that mpirun gets to write its message after a death


class ClusterError(RuntimeError):
    """The ranks could not be started, or are gone. The message has their output, and what to do."""

    def _render_traceback_(self):
        """IPython shows this instead of the traceback: the kit's own lines do not matter."""
        return f"ClusterError: {self}".splitlines()


def refuse_missing_folder() -> None:
    """Raise ClusterError if this process's folder is gone: no program can start in it."""
    try:
        Path.cwd()
    except FileNotFoundError:
        raise ClusterError(
            "The folder in which this notebook's kernel runs was removed or replaced: no rank can "
            "start in it. Restart the kernel (Kernel > Restart) where the notebook is now, or go "
            "to another folder first: %cd ~"
        ) from None


class Engines:
    """A controller here and n engines at a place, in one MPI world.

    They have a private run folder, and are marked with this process as their owner. client: the
    ipyparallel Client. ids: its engine ids in the order of the MPI ranks. info: what each rank said
    of itself (see `prepare_engine`). All of them change when the ranks are replaced."""

    hosts: HostGroup  # from the moment when all of them have answered

    def __init__(self, n: int, progress: Callable[[str], None], place: Place | None = None):
        mpi_env()
        self.n, self.place = n, place or Place()
        self.mark = f"{ownership.owner_mark()}cluster-{time.monotonic_ns()}/"
        self.client: Any = None  # ipyparallel's; it has no types
        self.ipp: Any = None
        self._folder_in_home: Path | None = None
        self._former: set[str] = set()  # uuids of engines that were replaced
        self._stopped, self._starting = False, threading.Lock()
        self.folder = ownership.make_run_dir(
            ownership.TMP_ON_EVERY_HOST if self.place.slots else None
        )
        start = time.monotonic()
        log.write_to(self.folder, "kernel")
        logger.info(
            "starting %d ranks; versions %s; settings %s", n, log.versions(), log.settings()
        )
        try:
            ensure_watchdog()
            logger.info("place: %s", self.place.slots or "this host")
            self.patience = START_TIMEOUT + PER_RANK * n + OTHER_HOSTS * bool(self.place.slots)
            self.hosts = HostGroup(self.place, self.mark, self.folder)
            self._start(progress)
            logger.info("up after %.1f s: %s", time.monotonic() - start, self.info)
        except BaseException as error:
            logger.error("the start failed: %r", error)
            with defer_sigint():  # nothing is left, however often the stop button is pressed
                self.stop()
            if isinstance(error, HostError):
                raise ClusterError(str(error)) from None
            raise

    def _start(self, progress: Callable[[str], None]) -> None:
        config = Config()
        config.Cluster.load_profile = False
        # CurveZMQ: with signed messages alone, any user of the host could read cells and output.
        encrypted = os.environ.get("IPP_ENABLE_CURVE", "1")
        environment = {ownership.MARK: self.mark, "IPP_ENABLE_CURVE": encrypted}
        config.ControllerLauncher.environment = environment
        profile = self.folder / "profile"
        profile.mkdir(mode=0o700)
        # Signed as well: ipyparallel leaves that out with encryption, and warns on the terminal.
        (profile / "ipcontroller_config.py").write_text(
            f"get_config().Session.key = {secrets.token_hex(32).encode()}\n"
        )
        # -P: a file random.py in the notebook's folder is not the module that they want.
        for launcher, module in (("Controller", "ipyparallel.controller"), ("Engine", ENGINE)):
            command = [sys.executable, "-P", "-m", module]
            config[f"{launcher}Launcher"][f"{launcher.lower()}_cmd"] = command
        config.EngineLauncher.engine_args = [f"--file={self.address}", *self._engine_timeouts()]
        self.ipp = ipp.Cluster(
            engines="mpi",
            n=self.n,
            delay=0,  # the engines wait for the controller's address themselves, see `_publish`
            send_engines_connection_env=False,
            controller_ip=self.place.address() or "127.0.0.1",  # on that network alone
            # An engine has arrived at its first heartbeat: the default of 3 s is half of the start.
            # The kit looks itself whether a rank lives, so a busy one is not given up (2 min).
            controller_args=[
                "--HeartMonitor.period=200",
                "--HeartMonitor.max_heartmonitor_misses=600",
            ],
            profile_dir=str(profile),  # no file is shared with another kernel
            cluster_id="",
            shutdown_atexit=False,  # the kit does it, also for what ipyparallel does not know
            log_level=logging.CRITICAL,
            config=config,
            parent=None,
        )
        progress("the controller")
        with defer_sigint():  # ipyparallel's thread would start what is never ended
            self.ipp.start_controller_sync()
            self._start_ranks()
        self._publish()
        self.client = self.ipp.connect_client_sync()
        self._await_ranks(progress)

    def _engine_timeouts(self) -> list[str]:
        """By default an engine gives up if the controller is silent for 5 s at the start, or 35 s
        later: too early on a busy machine."""
        waits = [f"--IPEngine.{what}={self.patience}" for what in ("wait_for_url_file", "timeout")]
        return [*waits, "--IPEngine.max_heartbeat_misses=170"]  # one in 0.7 s, so 2 min

    @property
    def address(self) -> Path:
        """The file in which the engines find the controller."""
        return self.folder / "controller.json"

    def _publish(self) -> None:
        """Give the controller's address to the engines once its file is whole.

        Engines would read half of a file, and fail.
        """
        # The controller writes this file last.
        written = Path(self.ipp.controller.connection_files["engine"])
        deadline = time.monotonic() + self.patience
        while True:
            with contextlib.suppress(FileNotFoundError, ValueError):
                json.loads(text := written.read_text())
                break
            if not self.controller_runs() or time.monotonic() > deadline:
                raise ClusterError(
                    "ipyparallel's controller did not start. It said:\n"
                    f"{self.ipp.controller.get_output()}{obstacles.hint()}"
                )
            time.sleep(0.02)
        self._controller_address = text
        self.hosts.publish(self.address, text)

    @property
    def shared_folder(self) -> Path:
        """A private folder for a notebook's own files, which all ranks see; it goes with them."""
        if not self.place.slots:
            (folder := self.folder / "files").mkdir(mode=0o700, exist_ok=True)
            return folder
        if not self._folder_in_home:
            ownership.cache_dir().mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder_in_home = ownership.make_run_dir(ownership.cache_dir())
        return self._folder_in_home

    def restore_files(self) -> None:
        """Make the cluster's folders again if a cleaner of temporary files has removed them here.

        The ranks do so for their own files, see engine_setup.py. Raises ClusterError.
        """
        if not (self.address.exists() and Path(shared_memory_dir(self.folder)).exists()):
            logger.warning("files of this cluster have been removed; making them again")
            self._make_folders()

    def _make_folders(self) -> None:
        """Make what is missing on any host. Raises ClusterError."""
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            for host in self.hosts:
                host.call("hello", str(self.folder))
            (self.folder / "profile").mkdir(mode=0o700, exist_ok=True)
            self.hosts.publish(self.address, self._controller_address)
        except (OSError, HostError) as error:
            raise ClusterError(
                f"The folder of these ranks, {self.folder}, was removed (by a cleaner of temporary "
                f"files?), and it cannot be made again: {error}\n"
                f"Start anew: pi2zero.start(n={self.n})"
            ) from None

    def _start_ranks(self) -> None:
        self.ranks_mark = f"{self.mark}ranks-{time.monotonic_ns()}/"
        self.ipp.engines.clear()
        withheld = not_for_ranks()  # what has told this process who it is, for instance
        environment = {
            ownership.MARK: self.ranks_mark,
            # As torchrun does, because ranks share the cores
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
            RUN_DIR: str(self.folder),
        }
        if self.place.slots:
            if os.environ.get(ONE_SIDED) == NO_UCX:  # their network cards may differ
                withheld.append(ONE_SIDED)
            inherited = variables_for_ranks()
            environment = {n: inherited[n] for n in inherited if n not in withheld} | environment
        else:
            environment |= one_host_env(shared_memory_dir(self.folder))
        self.ipp.config.EngineLauncher.environment = environment
        unset = [word for name in withheld for word in ("-u", name)]
        self.ipp.config.MPILauncher.mpi_cmd = ["env", *unset, "mpiexec"]
        self.ipp.config.MPILauncher.mpi_args = self.place.mpi_args(self.n, environment, self.folder)
        self.ipp.start_engines_sync(self.n)

    def _await_ranks(self, progress: Callable[[str], None] = lambda what: None) -> None:
        """Wait for all engines, order them by MPI rank, and prepare each to be watched."""
        fresh = self._await_engines(progress)
        # Again, because a port may have been opened since; PMIx's stay open where ranks may spawn.
        engine_environment = self.ipp.config.EngineLauncher.environment
        spawns = "tcp" in engine_environment.get("OMPI_MCA_btl", "tcp")
        restrict_listeners(self.mpirun_pid, loopback=not spawns)
        self.hosts.restrict_listeners(self.ranks_mark)
        prepare, address = engine_setup.prepare_engine, self.place.address()
        try:
            answers = self.client[fresh].apply_async(prepare, str(self.folder), address)
            infos = answers.get(self.patience)
        except TimeoutError:
            raise ClusterError(
                f"{self.n} ranks arrived, but did not answer within {self.patience:.0f} s: "
                "other work keeps the machine busy. Try again, or with fewer ranks."
            ) from None
        order = sorted(range(self.n), key=lambda index: infos[index]["rank"])
        self.info = [infos[index] for index in order]
        self.ids = [fresh[index] for index in order]
        sizes = sorted(info["size"] for info in self.info)
        if set(sizes) != {self.n}:
            raise ClusterError(
                f"These {self.n} ranks are not one MPI world: {sizes} ranks in each."
            )
        samples = {rank: str(sample_path(str(self.folder), rank)) for rank in range(self.n)}
        self.hosts.watch(self.ranks_mark, self.info, samples)

    def _await_engines(self, progress: Callable[[str], None]) -> list[int]:
        """Wait for all engines; their ids. Raises ClusterError as soon as a rank has ended."""
        deadline = time.monotonic() + self.patience
        seen = 0  # live ranks on this host, at most
        sealed = 0  # ports of mpirun
        while len(fresh := self._fresh_ids()) < self.n:
            if self._stopped:
                raise ClusterError("The cluster was stopped while its ranks were starting.")
            time.sleep(POLL)
            progress(f"{len(fresh)} of {self.n} MPI ranks")
            sealed = sealed or restrict_listeners(self.mpirun_pid, self.hosts.addresses)
            alive = self._live_ranks()
            seen = max(seen, alive)
            if alive < seen or not is_alive(self.mpirun_pid):
                time.sleep(SETTLE)
                raise ClusterError(
                    f"The {self.n} MPI ranks ended before they had arrived. They said:\n"
                    f"{self.output()}{obstacles.hint()}"
                )
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"Only {len(fresh)} of {self.n} ranks arrived within {self.patience:.0f} s. "
                    f"They said:\n{self.output()}{obstacles.hint()}\n"
                    "Try `python -m pi2zero doctor` in a terminal, or fewer ranks."
                )
        return fresh

    def _fresh_ids(self) -> list[int]:
        """ids of the engines that were not there before a restart. An id is reused, a uuid is
        not."""
        return [id_ for id_, uuid in list(self.client._engines.items()) if uuid not in self._former]

    def replace(self) -> None:
        """End the ranks, whatever state they are in; start as many under the same controller."""
        self._former |= set(self.client._engines.values())
        if over := self.place.why_over():
            self.place.give_back()  # a requeued job would start again, for nobody
            raise ClusterError(f"{over}, and its ranks with it.")
        if lost := self.hosts.lost():
            lines = [f"The host {host} is lost: {why}" for host, why in lost.items()]
            raise ClusterError("\n".join(lines))
        refuse_missing_folder()
        self.hosts.end(self.ranks_mark)
        self._make_folders()
        with self._starting:
            if not self._stopped:
                self._start_ranks()
        self._await_ranks()

    def stop(self) -> None:
        """End the ranks and the controller, and remove their files. May be called twice."""
        with self._starting:  # what is being started is ended; nothing starts after it
            stopped, self._stopped = self._stopped, True
        if stopped:
            return
        logger.info("stopping")
        # From the last step to the first; each of them, also if the stop button cuts one short.
        with contextlib.ExitStack() as steps:
            steps.callback(shutil.rmtree, self.folder, ignore_errors=True)
            if self._folder_in_home:
                steps.callback(shutil.rmtree, self._folder_in_home, ignore_errors=True)
            if self.ipp:
                steps.callback(drop_ipyparallel_caches, self.ipp)
            if self.client is not None:  # a client without engines counts as false
                steps.callback(self.client.close)
            steps.callback(ownership.end_marked, self.mark)  # also if it ended before it had hosts
            steps.callback(self.place.give_back)
            hosts = getattr(self, "hosts", None)
            if hosts:
                steps.callback(hosts.close)
            steps.callback(log.keep, self.folder)  # before anything is removed
            if hosts:
                steps.callback(hosts.collect_logs)

    @property
    def mpirun_pid(self) -> int:
        """The process of the mpirun that has started the ranks and waits for them."""
        return self.ipp.engine_set.pid

    def controller_runs(self) -> bool:
        """Whether ipyparallel's controller lives: without it no rank can be reached."""
        return is_alive(self.ipp.controller.pid)

    def has_spawned(self) -> bool:
        """Whether processes live that ranks have spawned: Open MPI has more children than ranks."""
        return self._live_ranks() + sum(host.launched() for host in self.hosts.remote) > self.n

    def is_busy(self, rank: int) -> bool:
        """Whether a cell or a call was sent to this rank that it has not answered yet."""
        uuid = self.client._engines[self.ids[rank]]
        return bool(self.client._outstanding_dict.get(uuid))

    def _live_ranks(self) -> int:
        """Live ranks among mpirun's children. mpirun may stay forever after a failure in
        MPI_Init."""
        with contextlib.suppress(psutil.NoSuchProcess):
            mpirun = psutil.Process(self.mpirun_pid)
            proxies = [child for child in mpirun.children() if child.name() == "hydra_pmi_proxy"]
            daemons = proxies or [mpirun]  # MPICH's ranks are children of its proxies
            return sum(is_rank(child) for daemon in daemons for child in daemon.children())
        return 0

    def dead_ranks(self) -> dict[int, str]:
        """{rank: why it is gone}; empty if all live.

        When one dies, mpirun ends the others: those are left out.
        """
        dead = self.hosts.ranks_on_lost() or self._dead_processes()
        if dead and (over := self.place.why_over()):
            return dict.fromkeys(range(self.n), over)
        return dead

    def _dead_processes(self) -> dict[int, str]:
        gone = self.hosts.dead_ranks()
        if not gone and is_alive(self.mpirun_pid):
            if self.controller_runs():
                return {}
            return {0: "the controller is gone, and with it the way to every rank"}
        deadline = time.monotonic() + 4 * SETTLE
        while not (reasons := self._reasons_by_mpirun()) and time.monotonic() < deadline:
            time.sleep(POLL)
        unknown = "its process is gone" if len(gone) < 2 else FIRST_UNKNOWN
        return reasons or dict.fromkeys(gone or [0], unknown)

    def _reasons_by_mpirun(self) -> dict[int, str]:
        """The rank that ended first, as mpirun has it.

        If mpirun names only ranks that lost their connection to it: as the hosts saw it.
        """
        output = self.output()
        if (reasons := exit_reasons(output)) or not (others := ranks_that_lost_a_peer(output)):
            return reasons
        first = self.hosts.first_to_exit(others)
        why = "its process is gone, and how it ended is not known"
        return dict.fromkeys(first, why if len(first) < 2 else FIRST_UNKNOWN)

    def stacks(self, ranks: list[int]) -> dict[int, list[Frame]]:
        """Where ranks are now, innermost frame first; also inside a call of MPI that never
        returns."""
        paths = {rank: engine_setup.stack_path(str(self.folder), rank) for rank in ranks}
        texts = self.hosts.read_after(paths, lambda: self.signal(engine_setup.STACK_SIGNAL, ranks))
        return {rank: parse_stack(text) for rank, text in texts.items()}

    def execute(self, source: str, ranks: list[int], number: int = 0):
        """Send a cell to these ranks. Returns ipyparallel's AsyncResult at once. number: 62 for
        In [62]."""
        view = self.client[[self.ids[rank] for rank in ranks]]
        # `engine_shell.py` reads the label.
        result = view.execute(source, silent=False, block=False, label=str(number))
        output_changes.follow(result)
        return result

    def ask(self, rank: int, function: Callable, arguments: tuple, patience: float) -> Any:
        """What a function returns on a rank. Raises TimeoutError after `patience` seconds."""
        result = self.client[self.ids[rank]].apply_async(function, *arguments)
        try:
            return result.get(patience)
        finally:
            if result.done():  # else the client would keep each answer
                self.client.purge_local_results(result)

    def signal(self, signum: int, ranks: list[int]) -> None:
        """Send a signal to these ranks alone. (mpirun would end the whole world at SIGINT.)"""
        ids = [self.ids[rank] for rank in ranks]
        self.client.send_signal(int(signum), targets=ids, block=False)

    def output(self) -> str:
        """What mpirun and the ranks wrote outside of any cell, without ipyparallel's log lines."""
        launcher = self.ipp.engine_set
        try:
            text = Path(launcher.output_file).read_text(errors="replace")
        except FileNotFoundError:  # ipyparallel has noticed the end, read the file and removed it
            text = launcher.get_output()
        lines = [line for line in text.splitlines() if not IPYPARALLEL_LOG.match(line)]
        return "\n".join(lines).strip()[-4000:] or "(nothing)"


def drop_ipyparallel_caches(cluster: ipp.Cluster) -> None:
    """End the thread that runs ipyparallel's *_sync methods in a kernel, and forget all results."""
    for method in (ipp.AsyncResult.split, ipp.AsyncResult.__len__, ipp.AsyncResult._count_chunks):
        method.cache_clear()  # functools' caches: a result keeps its client
    if loop := getattr(cluster, "_thread_loop", None):
        loop.add_callback(loop.stop)
        thread: Any = cluster._async_thread
        thread.join(5)
        if not thread.is_alive():
            loop.close()


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return ownership.is_running(psutil.Process(pid))
    return False
