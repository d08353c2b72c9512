"""`%%px`: a cell that runs on all ranks, watched."""

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

_cluster = None  # the cluster that %%px runs on


def register(shell, cluster) -> None:
    """Let `%%px` in this shell run on `cluster`."""
    global _cluster
    _cluster = cluster
    shell.register_magics(RankMagics)


def parse_targets(text: str, n: int) -> list[int]:
    """'all', '0', '0,2', '1:3' or '-1' as a list of ranks in 0..n-1. Raises UsageError with what is possible."""
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
        raise UsageError(f"--targets {text}: there are ranks 0 to {n - 1}. Write 0, or 0,2, or 1:3, or all.")
    return sorted(set(chosen))


@magics_class
class RankMagics(Magics):
    """The `%px` and `%%px` magics of the kit."""

    @no_var_expand
    @magic_arguments()
    @argument("-t", "--targets", default="all", help="MPI ranks: 0, or 0,2, or 1:3; default all")
    @argument("--timeout", type=float, default=30.0, help="seconds without any rank moving before the cell is ended")
    @argument("--local", action="store_true", help="run the cell in the notebook's own process too")
    @argument("statement", nargs="*", help="for %%px in one line: the statement")
    def _options(self, line):
        """Run a cell on the MPI ranks."""

    @no_var_expand
    @line_cell_magic
    def px(self, line, cell=None):
        """Run a cell (`%%px`) or a line (`%px`) on the MPI ranks.

        %%px [--targets RANKS] [--timeout SECONDS] [--local]
        """
        if cell is None:
            _cluster.run(line)
            return
        args = parse_argstring(self._options, line)
        if args.statement:
            raise UsageError(f"%%px: unexpected {' '.join(args.statement)!r}. Options: --targets, --timeout, --local.")
        if not args.timeout > 0:
            raise UsageError(f"--timeout {args.timeout:g}: seconds, more than 0.")
        _cluster.run(cell, parse_targets(args.targets, _cluster.n), args.timeout)
        if args.local:
            self.shell.run_cell(cell).raise_error()
