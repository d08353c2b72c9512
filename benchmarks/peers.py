"""Four ranks in a notebook, compared with other packages: speed, and what a failing cell leaves.

Writes benchmarks/peers.md. Each peer runs in real Jupyter kernels, one after the other, all in one
run. nbdistributed and torchmonarch come from the package index into environments of their own
(build/peers/), on top of this one's packages. So all have the same Python, ipykernel and torch.
`%dist_shutdown` of nbdistributed is not tried: its `pkill -f` ends every program that has
"worker.py" in its command line. A `pkill` that does nothing comes first on its PATH here.
"""

import argparse
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import sysconfig
import threading
import time
import uuid
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import psutil
from figures import HERE, conditions, table, write_page
from jupyter_client.manager import KernelManager

BUILD = HERE.parent / "build" / "peers"
STOP = 45  # s after which the stop button is pressed
AFTER = 15  # s that a cell has to end then, and that the ranks have to answer
NEVER = float("inf")
ANSI = re.compile(r"\x1b\[[0-9;]*m")
SETTINGS = {  # root is allowed, and more ranks than cores
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": "slot:oversubscribe",
}
HEADER = [
    "peer",
    "start of 4 ranks (s)",
    "an empty cell (ms)",
    "one rank raises, the others wait: ends",
    "a barrier that one rank leaves out: ends",
    "processes left 5 s after the kernel",
]
CELLS = {  # what each rank runs
    "empty": "pass",
    "raises": "if {rank} == 1:\n    raise ValueError('one rank')\n{barrier}",
    "barrier": "if {rank} != 1:\n    {barrier}",
    "works": "{barrier}\nprint('together')",
}
MONARCH = """
import tempfile, time
from pathlib import Path
from monarch.actor import Actor, current_rank, endpoint, this_host

class Rank(Actor):
    @endpoint
    def run(self, code, folder):
        rank, said = current_rank().rank, []

        def barrier():
            Path(folder, str(rank)).touch()
            while len(list(Path(folder).iterdir())) < 4:
                time.sleep(0.01)

        exec(code, {"rank": rank, "barrier": barrier, "print": said.append})
        return said

ranks = this_host().spawn_procs(per_host={"ranks": 4}).spawn("ranks", Rank)
ranks.run.call("pass", "").get()
"""
IPYPARALLEL = """import ipyparallel as ipp
cluster = ipp.Cluster(engines="mpi", n=4)
rc = cluster.start_and_connect_sync(activate=True)
"""


@dataclass
class Peer:
    """cell: of a notebook, around the code of a rank. package: to install into an environment of
    its own.
    """

    start: str
    cell: str = "%%px\nfrom mpi4py import MPI\n{code}"
    rank: str = "MPI.COMM_WORLD.rank"
    barrier: str = "MPI.COMM_WORLD.Barrier()"
    package: str = ""

    def cell_of(self, name: str) -> str:
        return self.cell.format(code=CELLS[name].format(rank=self.rank, barrier=self.barrier))


PEERS = {
    "pi2zero": Peer("import pi2zero\ncluster = pi2zero.start(n=4)"),
    "ipyparallel": Peer(IPYPARALLEL),
    "nbdistributed": Peer(
        "%load_ext nbdistributed\n%dist_init -n 4",
        *("{code}", "rank", "dist.barrier()", "nbdistributed==0.1.0"),
    ),
    "torchmonarch": Peer(
        MONARCH,
        'ranks.run.call("""{code}""", tempfile.mkdtemp()).get()',
        *("rank", "barrier()", "torchmonarch==0.7.0"),
    ),
}


def environment(name: str, peer: Peer) -> Path:
    """The Python of the environment that the peer runs in, which is made if need be."""
    if not peer.package:
        return Path(sys.executable)
    folder = BUILD / name
    python = folder / "bin" / "python"
    if not (folder / peer.package).exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        packages = next(folder.glob("lib/python*/site-packages"))
        (packages / "workshop.pth").write_text(sysconfig.get_path("purelib") + "\n")
        subprocess.run([python, "-m", "pip", "install", "--quiet", peer.package], check=True)
        (folder / "bin" / "pkill").write_text("#!/bin/sh\n")
        (folder / "bin" / "pkill").chmod(0o755)
        (folder / peer.package).touch()
    return python


class Kernel:
    """A kernel of a peer's environment; `close` ends every process that it has started."""

    def __init__(self, python: Path):
        self.mark = uuid.uuid4().hex
        path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
        self.manager = KernelManager()
        self.manager.kernel_spec.argv[0] = str(python)
        self.manager.start_kernel(env=os.environ | SETTINGS | {"PATH": path, "PEERS": self.mark})
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=120)

    def run(self, cell: str, stop: float = 600) -> tuple[float, str]:
        """(seconds until the cell ended, infinite if it never did; what was shown).

        stop: s until the cell is interrupted.
        """
        shown, begin = [], time.perf_counter()

        def keep(message):
            if message["msg_type"] != "execute_input":
                shown.append(str(message["content"]))

        button = threading.Timer(stop, self.manager.interrupt_kernel)
        button.start()
        try:
            self.client.execute_interactive(cell, output_hook=keep, timeout=stop + AFTER)
            return time.perf_counter() - begin, ANSI.sub("", "".join(shown))
        except TimeoutError:
            return NEVER, ANSI.sub("", "".join(shown))
        finally:
            button.cancel()

    def close(self) -> int:
        """How many processes live on 5 s after the kernel; they are ended."""
        self.client.stop_channels()
        self.manager.shutdown_kernel()
        time.sleep(5)
        left = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("PEERS") == self.mark:
                    left.append(process)
                    process.kill()
        return len(left)


def measure(python: Path, peer: Peer) -> dict:
    """One round: seconds of two starts and of empty cells, and what came of the two mistakes."""
    result = {"start": [], "empty": [], "left": []}
    for mistake in ("raises", "barrier"):
        kernel = Kernel(python)
        try:
            result["start"].append(kernel.run(peer.start)[0])
            kernel.run(peer.cell_of("works"))
            result["empty"] += [kernel.run(peer.cell_of("empty"))[0] for _ in range(20)]
            seconds, shown = kernel.run(peer.cell_of(mistake), STOP)
            after, said = kernel.run(peer.cell_of("works"), AFTER)
            usable = after < AFTER and "traceback" not in said and said.count("together") >= 4
            result[mistake] = {"seconds": seconds, "shown": shown, "usable": usable}
        finally:
            result["left"].append(kernel.close())
    return result


def spread(values, unit=1.0):
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle * unit:.3g} ({low * unit:.3g} to {high * unit:.3g})"


def outcome(rounds, mistake):
    """What happened in each round, in one sentence."""
    results = [result[mistake] for result in rounds]
    median = statistics.median(result["seconds"] for result in results)
    if median == NEVER:
        ended = f"never, not {AFTER} s after the stop button either"
    else:
        ended = f"by the stop button, at {STOP} s" if median >= STOP else f"{median:.2g} s"
    named = sum("ValueError: one rank" in result["shown"] for result in results)
    names = f"; shows the rank's error: {named} of {len(rounds)}" * (mistake == "raises")
    usable = sum(result["usable"] for result in results)
    return f"{ended}{names}; ranks work afterwards: {usable} of {len(rounds)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    load, results = os.getloadavg()[0], {name: [] for name in PEERS}
    pythons = {name: environment(name, PEERS[name]) for name in PEERS}
    for _ in range(args.rounds):
        for name in PEERS:
            results[name].append(measure(pythons[name], PEERS[name]))
            (BUILD / "results.json").write_text(json.dumps(results, indent=1))
    rows = []
    for name, rounds in results.items():
        start, empty, left = (
            [value for result in rounds for value in result[key]]
            for key in ("start", "empty", "left")
        )
        mistakes = [outcome(rounds, mistake) for mistake in ("raises", "barrier")]
        title = PEERS[name].package or f"{name} {version(name)}"
        rows.append([title, spread(start), spread(empty, 1e3), *mistakes, spread(left)])
    busy = " Other work ran on this machine meanwhile." * (load > 1)
    rounds = f"{args.rounds} rounds, median (lowest to highest)."
    write_page("peers", "# Peers", f"{conditions(load)} {rounds}{busy}", table(HEADER, rows))


if __name__ == "__main__":
    main()
