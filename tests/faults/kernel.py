"""A real Jupyter kernel for a test to break, and the processes that it started."""

import re
import tempfile
import time
from dataclasses import dataclass, field

import psutil
from jupyter_client import KernelManager

from pi2zero.ownership import marked_processes, owner_mark

ANSI = re.compile(r"\x1b\[[0-9;]*m")
# Cells: two ranks; and, where they have a `comm`, whether they still talk to each other.
START = "import pi2zero\ncluster = pi2zero.start(n=2)"
WORKS, WORKS_OUTPUT = "%%px\nprint(comm.allreduce(1))", "[stdout:0] 2\n[stdout:1] 2\n"


@dataclass
class Reply:
    """What a learner sees of one cell. seconds: until the cell ended."""

    ok: bool
    text: str
    error: str
    seconds: float
    outputs: list = field(default_factory=list)


class Notebook:
    """A kernel as JupyterLab starts it, cell by cell."""

    patience = 1  # how many times longer a report may take than beside ranks on this host

    def __init__(self, kernel_name="python3", **options):
        """options: of KernelManager.start_kernel, such as cwd and env."""
        self.sockets = tempfile.TemporaryDirectory()
        self.manager = KernelManager(
            kernel_name=kernel_name, transport="ipc", ip=f"{self.sockets.name}/kernel"
        )
        self.manager.start_kernel(**options)
        self._connect()

    def _connect(self):
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)
        self.owner = owner_mark(self.pid)

    @property
    def pid(self) -> int:
        return self.manager.provisioner.pid

    def run(
        self,
        code: str,
        timeout: float = 240,
        interrupt_after: float | None = None,
        watched: bool = False,
    ) -> Reply:
        """Run a cell; `interrupt_after` presses stop that many seconds after its first output.

        watched: as JupyterLab does for a person, not as a program that runs notebooks.
        """
        text, outputs, pressed = [], [], False

        def on_output(message):
            nonlocal pressed
            kind, content = message["msg_type"], message["content"]
            outputs.append((kind, content))
            if kind == "clear_output":
                text.clear()
            elif kind == "stream":
                text.append(content["text"])
            elif kind == "error":
                text.append("\n".join(content["traceback"]))
            if interrupt_after is not None and kind == "stream" and not pressed:
                pressed = True
                time.sleep(interrupt_after)
                self.manager.interrupt_kernel()

        start = time.monotonic()
        reply = self.client.execute_interactive(
            code, timeout=timeout, output_hook=on_output, allow_stdin=watched
        )
        content = reply["content"]
        error = (
            "" if content["status"] == "ok" else f"{content.get('ename')}: {content.get('evalue')}"
        )
        return Reply(
            not error, ANSI.sub("", "".join(text)), error, time.monotonic() - start, outputs
        )

    def processes(self) -> list[psutil.Process]:
        """Every process that this kernel started through the kit and that still lives."""
        return marked_processes(self.owner)

    def restart(self) -> None:
        """JupyterLab's Restart Kernel."""
        self.client.stop_channels()
        self.manager.restart_kernel(now=False)
        self._connect()

    def kill(self) -> None:
        """The kernel dies without a chance to clean up."""
        psutil.Process(self.pid).kill()

    def close(self, now: bool = True) -> None:
        """now: without the kernel's own goodbye, in which other packages clean up."""
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=now)
        self.sockets.cleanup()


def wait_until_gone(
    notebook: Notebook, owner: str, seconds: float
) -> tuple[float, list[psutil.Process]]:
    """Wait up to `seconds` until `owner` has no process: how long it took, and what is left."""
    start = time.monotonic()
    while (left := marked_processes(owner)) and time.monotonic() - start < seconds:
        time.sleep(0.1)
    return time.monotonic() - start, left
