"""One set of MPI ranks as processes: ipyparallel's Cluster, what died in it and why, and where each rank is now."""

import contextlib
import json
import logging
import os
import re
import secrets
import shutil
import threading
import time
from pathlib import Path

import ipyparallel as ipp
import psutil
from traitlets.config import Config

from pi2zero import ownership
from pi2zero.cluster import enrol
from pi2zero.cluster.account import cut_off, exit_reasons
from pi2zero.cluster.pulse import pulse_path
from pi2zero.cluster.report import Frame, parse_stack
from pi2zero.cluster.warden import ensure_warden
from pi2zero.hosts.agent import is_rank
from pi2zero.hosts.group import HostGroup
from pi2zero.hosts.host import HostError
from pi2zero.hosts.place import Place, shared_memory_dir, variables_for_ranks
from pi2zero.hosts.port_filter import restrict_listeners
from pi2zero.mpi import RUN_DIR, mpi_env, one_host_env

LOG = re.compile(
    r"\d{4}-\S+ \S+ \[(IPEngine|KernelNanny)(?!.*\] (CRITICAL|FATAL))"
)  # ipyparallel's own lines
NOT_KNOWN = "one of them first, and mpirun does not say which"
START_TIMEOUT, PER_RANK = (
    180.0,
    3.0,
)  # s for the ranks to arrive (a slow disk: four took 90), and more for each
ELSEWHERE = 180.0  # s more on other hosts: hundreds of files are read over a network


class ClusterError(RuntimeError):
    """The ranks could not be started, or are gone. The message holds what they printed, and the remedy."""

    def _render_traceback_(self):
        """IPython shows this in place of the traceback: what the ranks said matters, the kit's own lines do not."""
        return f"ClusterError: {self}".splitlines()


class Engines:
    """A controller here and n engines at a place, in one MPI world, in a private folder, marked with this process as their owner.

    client: the ipyparallel Client. ids: its engine ids in the order of the MPI ranks. info: what each rank said of
    itself (see `enrol.enrol`). All of them change when the ranks are replaced.
    """

    def __init__(self, n: int, progress, place: Place | None = None):
        mpi_env()
        self.n, self.place = n, place or Place()
        self.mark = f"{ownership.owner_mark()}cluster-{time.monotonic_ns()}/"
        self.client = self.hosts = self.ipp = None
        self._former: set[str] = set()  # uuids of engines that were replaced
        self._stopped, self._starting = False, threading.Lock()
        self.folder = ownership.make_run_dir(
            ownership.TMP_ON_EVERY_HOST if self.place.slots else None
        )
        try:
            ensure_warden()
            self.patience = START_TIMEOUT + PER_RANK * n + ELSEWHERE * bool(self.place.slots)
            self.hosts = HostGroup(self.place, self.mark, self.folder)
            self._start(progress)
        except HostError as error:
            self.stop()
            raise ClusterError(str(error)) from None
        except BaseException:
            self.stop()
            raise

    def _start(self, progress) -> None:
        config = Config()
        config.Cluster.load_profile = False
        # Encrypted (CurveZMQ): with signed messages alone, any user of the host could read the cells and what they print.
        encrypted = os.environ.get("IPP_ENABLE_CURVE", "1")
        config.ControllerLauncher.environment = {
            ownership.MARK: self.mark,
            "IPP_ENABLE_CURVE": encrypted,
        }
        profile = self.folder / "profile"
        profile.mkdir(mode=0o700)
        # Signed as well: ipyparallel leaves that out with encryption, and then warns on the terminal that it is missing.
        (profile / "ipcontroller_config.py").write_text(
            f"get_config().Session.key = {secrets.token_hex(32).encode()}\n"
        )
        config.EngineLauncher.engine_args = [f"--file={self.address}", *self._patience_of_engines()]
        # In its own folder: no file is shared with another kernel, and one removal cleans up.
        self.ipp = ipp.Cluster(
            engines="mpi",
            n=self.n,
            delay=0,  # nobody waits for the controller first: the engines wait for its address, see `_publish`
            send_engines_connection_env=False,
            # An engine counts as arrived at its first heartbeat: the default of one in 3 s makes up half of the start.
            # Whether a rank lives, the kit looks itself; so a rank too busy to answer is not given up (600 beats = 2 min).
            controller_ip=self.place.address() or "127.0.0.1",  # on that network alone
            controller_args=[
                "--HeartMonitor.period=200",
                "--HeartMonitor.max_heartmonitor_misses=600",
            ],
            profile_dir=str(profile),
            cluster_id="",
            shutdown_atexit=False,  # we do it, also for what ipyparallel does not know
            log_level=logging.CRITICAL,
            config=config,
            parent=None,
        )
        progress("the controller")
        self.ipp.start_controller_sync()
        self._start_ranks()
        self._publish()
        self.client = self.ipp.connect_client_sync()
        self._await_ranks(progress)

    def _patience_of_engines(self) -> list[str]:
        """An engine ends itself if the controller doesn't answer within 5 s, or is silent for 35 s: too early in a full room."""
        waits = [f"--IPEngine.{what}={self.patience}" for what in ("wait_for_url_file", "timeout")]
        return [
            *waits,
            "--IPEngine.max_heartbeat_misses=170",
        ]  # looked for each 0.7 s: 2 min, as the controller has it

    @property
    def address(self) -> Path:
        """The file in which the engines find the controller."""
        return self.folder / "controller.json"

    def _publish(self) -> None:
        """Give the controller's address to the engines once it is whole: they would read, and fail on, half a file."""
        written = Path(
            self.ipp.controller.connection_files["engine"]
        )  # the last file that the controller writes
        deadline = time.monotonic() + self.patience
        while True:
            with contextlib.suppress(FileNotFoundError, ValueError):
                json.loads(text := written.read_text())
                break
            if not self.controller_runs() or time.monotonic() > deadline:
                raise ClusterError(
                    f"ipyparallel's controller did not start. It said:\n{self.ipp.controller.get_output()}"
                )
            time.sleep(0.02)
        self.hosts.publish(self.address, text)

    def _start_ranks(self) -> None:
        self.ranks_mark = f"{self.mark}ranks-{time.monotonic_ns()}/"
        self.ipp.engines.clear()
        # One thread a rank, as torchrun has it, unless the user says otherwise: ranks share the cores.
        threads = os.environ.get("OMP_NUM_THREADS", "1")
        environment = {
            ownership.MARK: self.ranks_mark,
            "OMP_NUM_THREADS": threads,
            RUN_DIR: str(self.folder),
        }
        environment |= (
            variables_for_ranks() | environment
            if self.place.slots
            else one_host_env(shared_memory_dir(self.folder))
        )
        self.ipp.config.EngineLauncher.environment = environment
        self.ipp.config.MPILauncher.mpi_args = self.place.mpi_args(self.n, environment, self.folder)
        self.ipp.start_engines_sync(self.n)

    def _await_ranks(self, progress=lambda what: None) -> None:
        """Wait for all engines, order them by MPI rank and make each watchable. Ends at once if a rank has ended."""
        deadline = time.monotonic() + self.patience
        started = sealed = (
            0  # ranks that mpirun has been seen to have started on this host; its ports that were closed
        )
        while len(fresh := self._fresh_ids()) < self.n:
            if self._stopped:
                raise ClusterError("The cluster was stopped while its ranks were starting.")
            time.sleep(0.05)
            progress(f"{len(fresh)} of {self.n} MPI ranks")
            sealed = sealed or restrict_listeners(self.mpirun_pid, self.hosts.addresses)
            alive = self._ranks_alive()
            started = max(started, alive)
            if alive < started or not is_alive(self.mpirun_pid):
                time.sleep(0.5)  # mpirun writes its account a moment after the death
                raise ClusterError(
                    f"The {self.n} MPI ranks ended before they had arrived. They said:\n{self.output()}"
                )
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"Only {len(fresh)} of {self.n} ranks arrived within {self.patience:.0f} s. They said:\n"
                    f"{self.output()}\nTry `python -m pi2zero doctor` in a terminal, or fewer ranks."
                )
        # Again: a port may have been opened since, and nobody comes any more; PMIx's only where ranks may spawn others
        restrict_listeners(
            self.mpirun_pid,
            loopback="tcp"
            not in self.ipp.config.EngineLauncher.environment.get("OMPI_MCA_btl", "tcp"),
        )
        self.hosts.restrict_listeners(self.ranks_mark)
        try:
            found = (
                self.client[fresh]
                .apply_async(enrol.enrol, str(self.folder), self.place.address())
                .get(self.patience)
            )
        except TimeoutError:
            silent = f"{self.n} ranks arrived, but did not answer within {self.patience:.0f} s"
            raise ClusterError(
                f"{silent}: other work keeps the machine busy. Try again, or with fewer ranks."
            ) from None
        order = sorted(range(self.n), key=lambda i: found[i]["rank"])
        self.info = [found[i] for i in order]
        self.ids = [fresh[i] for i in order]
        if len({info["size"] for info in self.info} | {self.n}) > 1:
            sizes = sorted(info["size"] for info in self.info)
            raise ClusterError(
                f"These {self.n} ranks are not one MPI world: {sizes} ranks in each."
            )
        self.hosts.watch(
            self.ranks_mark,
            self.info,
            {rank: str(pulse_path(str(self.folder), rank)) for rank in range(self.n)},
        )

    def _fresh_ids(self) -> list[int]:
        """ipyparallel's ids of the engines that are not the ones before a restart. An id is given anew; a uuid is not."""
        return [i for i, uuid in list(self.client._engines.items()) if uuid not in self._former]

    def replace(self) -> None:
        """End the ranks, whatever state they are in, and start as many fresh ones under the same controller."""
        self._former |= set(self.client._engines.values())
        if over := self.place.why_over():
            self.place.give_back()  # a job that was put back into the queue would come again, for nobody
            raise ClusterError(f"{over}, and its ranks with it.")
        if lost := self.hosts.lost():
            raise ClusterError(
                "\n".join(f"The host {host} is lost: {why}" for host, why in lost.items())
            )
        self.hosts.end(self.ranks_mark)
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
        with (
            contextlib.ExitStack() as steps
        ):  # from the last to the first: each, also if the stop button cuts one short
            steps.callback(shutil.rmtree, self.folder, ignore_errors=True)
            steps.callback(let_go, self.ipp)
            steps.callback(
                lambda: self.client is None or self.client.close()
            )  # one without engines counts as false
            steps.callback(
                ownership.end_marked, self.mark
            )  # here, also if it ended before it had hosts
            steps.callback(self.place.give_back)
            steps.callback(lambda: self.hosts is None or self.hosts.close())

    @property
    def mpirun_pid(self) -> int:
        """The process of the mpirun that has started the ranks and waits for them."""
        return self.ipp.engine_set.pid

    def controller_runs(self) -> bool:
        """Whether ipyparallel's controller lives: without it no rank can be reached."""
        return is_alive(self.ipp.controller.pid)

    def has_spawned(self) -> bool:
        """Whether processes live that the ranks have spawned: Open MPI has more children than ranks."""
        return self._ranks_alive() + sum(host.launched() for host in self.hosts.remote) > self.n

    def _ranks_alive(self) -> int:
        """Live ranks among mpirun's children. mpirun itself may stay for ever after a rank has failed in MPI_Init."""
        with contextlib.suppress(psutil.NoSuchProcess):
            mpirun = psutil.Process(self.mpirun_pid)
            between = [
                child for child in mpirun.children() if child.name() == "hydra_pmi_proxy"
            ]  # MPICH's
            return sum(
                is_rank(child) for daemon in between or [mpirun] for child in daemon.children()
            )
        return 0

    def death_notes(self) -> dict[int, str]:
        """Ranks that are gone, and why; empty if all live. When one dies, mpirun ends the others: those are left out."""
        notes = self.hosts.ranks_on_lost() or self._notes_of_processes()
        if notes and (over := self.place.why_over()):
            return dict.fromkeys(range(self.n), over)
        return notes

    def _notes_of_processes(self) -> dict[int, str]:
        dead = self.hosts.dead_ranks()
        if not dead and is_alive(self.mpirun_pid):
            return (
                {}
                if self.controller_runs()
                else {0: "the controller is gone, and with it the way to every rank"}
            )
        deadline = time.monotonic() + 2.0
        while not (notes := self._account()) and time.monotonic() < deadline:
            time.sleep(0.05)  # mpirun writes its account a moment after the death
        return notes or dict.fromkeys(
            dead or [0], "its process is gone" if len(dead) < 2 else NOT_KNOWN
        )

    def _account(self) -> dict[int, str]:
        """The rank that ended first, as mpirun has it; if that names only one that its end has cut off, as its host saw it."""
        said = self.output()
        if (notes := exit_reasons(said)) or not (cut := cut_off(said)):
            return notes
        first = self.hosts.first_to_exit(cut)
        why = "its process is gone, and how it ended is not known" if len(first) < 2 else NOT_KNOWN
        return dict.fromkeys(first, why)

    def stacks(self, which: list[int]) -> dict[int, list[Frame]]:
        """Where ranks are now, innermost frame first: also inside an MPI call that will never return."""
        paths = {rank: enrol.stack_path(str(self.folder), rank) for rank in which}
        texts = self.hosts.read_after(paths, lambda: self.signal(enrol.STACK_SIGNAL, which))
        return {rank: parse_stack(text) for rank, text in texts.items()}

    def execute(self, source: str, which: list[int]):
        """Send a cell to these ranks. Returns ipyparallel's AsyncResult at once."""
        view = self.client[[self.ids[rank] for rank in which]]
        return view.execute(source, silent=False, block=False)

    def signal(self, signum: int, which: list[int]) -> None:
        """Send a signal to these ranks alone. (Sent to mpirun, SIGINT would end the whole world.)"""
        self.client.send_signal(
            int(signum), targets=[self.ids[rank] for rank in which], block=False
        )

    def output(self) -> str:
        """What mpirun and the ranks wrote outside of any cell, without ipyparallel's own log lines, but why an engine gave up."""
        launcher = self.ipp.engine_set
        try:
            text = Path(launcher.output_file).read_text(errors="replace")
        except FileNotFoundError:  # ipyparallel has noticed the end, read the file and removed it
            text = launcher.get_output()
        said = [line for line in text.splitlines() if not LOG.match(line)]
        return "\n".join(said).strip()[-4000:] or "(nothing)"


def let_go(ipp_cluster) -> None:
    """End the thread of ipyparallel's *_sync methods in a kernel, with its descriptors, and forget results: it keeps both."""
    for method in (ipp.AsyncResult.split, ipp.AsyncResult.__len__, ipp.AsyncResult._count_chunks):
        method.cache_clear()  # functools' caches: a result holds its client
    if loop := getattr(ipp_cluster, "_thread_loop", None):
        loop.add_callback(loop.stop)
        ipp_cluster._async_thread.join(5)
        if not ipp_cluster._async_thread.is_alive():
            loop.close()


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return ownership.is_running(psutil.Process(pid))
    return False
