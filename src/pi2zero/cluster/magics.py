"""`%%px` and its companions: ipyparallel's magics, on the kit's ranks and watched."""

from __future__ import annotations

import re
import sys
import weakref
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ipyparallel.client.magics import NO_LAST_RESULT, ParallelMagics, exec_args, output_args
from IPython.core.error import UsageError
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

from pi2zero import px_without_ranks
from pi2zero.cluster.cell_output import EQUAL, show_grouped
from pi2zero.cluster.cell_source import definitions, split_installs, statements
from pi2zero.cluster.completion import complete_on_ranks
from pi2zero.cluster.names import explain_here
from pi2zero.cluster.report import RankError
from pi2zero.mpi import name_ranks

if TYPE_CHECKING:
    from pi2zero.cluster.mpi_cluster import MPICluster

TIMEOUT = 30.0  # s, see MPICluster.run
LOCAL_CELL_ID = "%%px --local"  # of what such a cell runs in the notebook's own process


def register(shell, cluster: MPICluster, ranks: list[int] | None = None, suffix: str = "") -> None:
    """Let `%%px` (with a suffix: `%%px_suffix`) in this shell run on all ranks, or on these."""
    for old in [one for one in shell.configurables if isinstance(one, RankMagics)]:
        if old.suffix == suffix:
            old.forget()
    magics = RankMagics(shell, cluster, ranks, suffix)
    shell.magics_manager.register(magics)
    px_without_ranks.add_input_transform(shell)
    if not suffix:
        complete_on_ranks(shell)
        for hook in magics.hooks:
            shell.events.register("post_run_cell", hook)


def cluster_of(shell) -> MPICluster | None:
    """The cluster that `%%px` of this shell ran on last, also if it is stopped."""
    magics = shell and shell.magics_manager.registry.get("RankMagics")
    return magics.cluster if magics else None


def parse_targets(text: str, n: int) -> list[int]:
    """'all', '0', '0,2', '1:3' or '-1' as a list of ranks in 0..n-1.

    Raises UsageError with what is possible.
    """
    try:
        if text == "all":
            return list(range(n))
        if ":" in text:
            bounds = [int(part) if part else None for part in text.split(":")]
            chosen = list(range(n))[slice(*bounds)]
        else:
            chosen = [range(n)[int(part)] for part in text.strip("[]").split(",")]
    except (ValueError, IndexError, TypeError):
        chosen = []
    if not chosen:
        raise UsageError(
            f"--targets {text}: there are ranks 0 to {n - 1}. Write 0, or 0,2, or 1:3, or all."
        )
    return sorted(set(chosen))


def own_world_size() -> int:
    """The size of the torch.distributed world that this process is in; 0 if it is in none."""
    distributed = sys.modules.get("torch.distributed")
    joined = distributed and distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if distributed and joined else 0


def check_options(args) -> None:
    """Refuse the options of ipyparallel for which the kit has its own way. Raises UsageError."""
    if args.timeout is not None and not args.timeout > 0:
        raise UsageError(f"--timeout {args.timeout:g}: seconds, more than 0.")
    if args.progress_after_seconds not in (None, -1):
        raise UsageError(
            "--progress-after: the kit has no bar of its own; "
            "it shows what the ranks print and publish. Leave it out."
        )
    if args.signal_on_interrupt not in (None, "SIGINT", "2"):
        raise UsageError(
            "--signal-on-interrupt: the stop button sends SIGINT, "
            "and a rank that does not react is replaced. Leave it out."
        )


timeout_arg = argument(
    "--timeout",
    type=float,
    help="seconds that ranks may wait for each other before the cell is ended (30)",
)


merge_arg = argument(
    "--merge",
    action="store_const",
    dest="groupby",
    const=EQUAL,
    help="show lines and pictures that are equal on several ranks once, at the end: [0-3] 6",
)


class RankMagics(ParallelMagics):
    """ipyparallel parses the options; the cluster runs the cells. Targets are MPI ranks."""

    shell: Any  # IPython's, and the view's settings: traitlets allow None
    view: Any
    timeout = TIMEOUT
    # (cell, ranks, time-out, order of the output) that was sent with --noblock, not yet waited for
    _unwatched = None

    def __init__(
        self, shell, cluster: MPICluster, ranks: list[int] | None = None, suffix: str = ""
    ):
        # ipyparallel keeps the defaults of %pxconfig in a view. targets None: all ranks.
        super().__init__(shell, SimpleNamespace(targets=ranks, block=True), suffix)
        self.cluster = cluster
        self.hooks = (
            self.keep_magics,
            self.warn_of_missing_px,
            self.warn_of_own_world,
            self.explain_missing_name,
        )
        self._own_world_size = own_world_size()
        self._announced: weakref.WeakSet[ParallelMagics] = weakref.WeakSet()
        self.magics["line"]["%px" + suffix] = self.below_the_first_line

    def forget(self) -> None:
        """Let IPython forget these magics: they would keep a former cluster's client and
        results."""
        self.shell.configurables.remove(self)
        for hook in () if self.suffix else self.hooks:
            self.shell.events.unregister("post_run_cell", hook)

    def keep_magics(self, _) -> None:
        """After each cell: has ipyparallel's `activate()` replaced the kit's magics by its own?

        A view of the kit's ranks gets magics that watch. If another cluster has `%%px` now, say so
        once."""
        for magic in list(self.shell.magics_manager.magics["cell"].values()):
            other = getattr(magic, "__self__", None)
            if type(other) is not ParallelMagics or other in self._announced:
                continue
            if ranks := self.cluster.ranks_of(other.view):
                register(self.shell, self.cluster, ranks, other.suffix)
            elif self.cluster.runs() and not other.suffix:
                self._announced.add(other)
                print(
                    "%%px runs on another cluster now, without the kit's watch. "
                    "cluster.activate() brings it back to the kit's ranks."
                )

    def warn_of_missing_px(self, result) -> None:
        """After each cell: does it define here what the ranks have, too? `%%px` may be missing."""
        if result.info.cell_id == LOCAL_CELL_ID:
            return
        here = set(definitions(result.info.raw_cell or ""))  # quick; those of the ranks take longer
        if here and self.cluster.runs() and (both := sorted(here & self.cluster.definitions)):
            print(
                f"This cell defined {' and '.join(both)} in the notebook's own process. "
                "The ranks keep their own. Is %%px missing?"
            )

    def warn_of_own_world(self, _) -> None:
        """After each cell: did it join a world here, which was meant for the ranks?"""
        had_own_world, self._own_world_size = self._own_world_size, own_world_size()
        if self._own_world_size and not had_own_world and self.cluster.runs():
            print(
                f"This cell joined a torch.distributed world of {self._own_world_size} in the "
                "notebook's own process. The ranks are not in it. Is %%px missing?"
            )

    def explain_missing_name(self, result) -> None:
        """After each cell: has it failed because a name is on the ranks only?"""
        error = result.error_in_exec
        if error is not None and not isinstance(error, RankError):
            if sentence := explain_here(error, self.cluster):
                print(sentence)

    def below_the_first_line(self, line):
        """A `%%px` that does not begin its cell: IPython takes it for a line magic `%px`."""
        raise UsageError(
            "%%px has to stand in the first line of its cell, above comments and code too. "
            "Move it there."
        )

    def _eval_target_str(self, ts):
        return parse_targets(ts, self.cluster.n)

    @magic_arguments("%pxconfig")
    @exec_args
    @timeout_arg
    def pxconfig(self, line):
        """Set what `%px` and `%%px` do without options, until the next `pi2zero.start`."""
        args = parse_argstring(self.pxconfig, line)
        check_options(args)
        if args.targets:
            self.view.targets = self._eval_target_str(args.targets)
        if args.block is not None:
            self.view.block = args.block
        for name, value in {
            "verbose": args.set_verbose,
            "stream_output": args.stream,
            "timeout": args.timeout,
        }.items():
            if value is not None:
                setattr(self, name, value)

    @magic_arguments("%%px")
    @exec_args
    @output_args
    @merge_arg
    @timeout_arg
    @argument(
        "--local",
        action="store_true",
        help="run the cell in the notebook's own process too, afterwards",
    )
    def cell_px(self, line="", cell=None):
        """Run the cell on the MPI ranks, watched. `--targets`: ranks, such as 0, or 0,2, or 1:3."""
        args = parse_argstring(self.cell_px, line)
        check_options(args)
        if args.stream and args.groupby != "type":
            raise UsageError(
                "--stream shows output as it comes; --merge, -r, -e and --group-outputs show it at "
                "the end. Choose one."
            )
        grouped = args.groupby if args.groupby != "type" or args.stream is False else None
        ranks = self._eval_target_str(args.targets) if args.targets else None
        result = self.parallel_execute(
            cell,
            args.block,
            grouped,
            args.save_name,
            args.stream,
            ranks,
            args.timeout,
            args.set_verbose,
        )
        if args.local:
            self.shell.run_cell(cell, cell_id=LOCAL_CELL_ID).raise_error()
        return result

    def parallel_execute(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        cell,
        block=None,
        groupby=None,
        save_name=None,
        stream_output=None,
        ranks=None,
        timeout=None,
        verbose=None,
    ):
        """What `%px`, `%%px` and `%autopx` call. groupby: see `MPICluster.run`."""
        ranks = ranks or self.view.targets or list(range(self.cluster.n))
        installs, cell = split_installs(cell)
        if installs:
            self._install_once(installs, ranks)
            if not statements(cell):
                return None
        block = self.view.block if block is None else block
        if stream_output is None and not self.stream_output:
            groupby = groupby or "type"
        if self.verbose if verbose is None else verbose:
            print(f"{'Parallel' if block else 'Async parallel'} execution on {name_ranks(ranks)}")
        if not block:
            self._save_result(self.cluster.send(cell, ranks), save_name)
            self._unwatched = cell, ranks, timeout or self.timeout, groupby
            print(
                "Sent. %pxresult waits for it, watched; "
                "an AsyncResult's own get() waits without the watch."
            )
            return self.last_result
        self._watch(cell, ranks, timeout or self.timeout, groupby, save_name)

    def _install_once(self, installs: str, ranks: list[int]) -> None:
        """Let one rank of each host run a cell's lines such as `!pip install`."""
        first_ranks = {self.cluster.info[rank]["host"]: rank for rank in reversed(ranks)}
        self.cluster.run_aside(installs, sorted(first_ranks.values()))
        print("Installed once: the notebook and the ranks share their packages.")

    def pxrun_nodes(self, *args, **options):
        """What a cell does under `%autopx`. One that begins with `%%px` has its own options."""
        first, _, rest = self._px_cell.lstrip().partition("\n")
        if not re.match(r"%%px(\s|$)", first):
            return super().pxrun_nodes(*args, **options)
        try:
            self.cell_px(first.removeprefix("%%px").strip(), rest)
        except Exception:
            self.shell.showtraceback()
            return True
        return False

    def _watch(self, cell, ranks, timeout, groupby, save_name=None, sent=None) -> None:
        self._unwatched, self._last_ranks = None, ranks
        try:
            self.cluster.run(cell, ranks, timeout, groupby, sent)
        finally:
            self._save_result(self.cluster.last_result, save_name)

    def _save_result(self, result, name) -> None:
        self.last_result = result
        if name:
            self.shell.user_ns[name] = result

    @magic_arguments("%pxresult")
    @output_args
    @merge_arg
    def result(self, line=""):
        """Show the result of the last `%px` or `%%px`; after `--noblock`, wait for it, watched."""
        args = parse_argstring(self.result, line)
        if self.last_result is None:
            raise UsageError(NO_LAST_RESULT)
        if args.save_name:
            self.shell.user_ns[args.save_name] = self.last_result
        elif self._unwatched:
            cell, ranks, timeout, groupby = self._unwatched
            self._watch(cell, ranks, timeout, groupby or args.groupby, sent=self.last_result)
        else:
            records = dict(zip(self._last_ranks, self.last_result.metadata, strict=True))
            show_grouped(records, args.groupby)
            self.last_result.get()
