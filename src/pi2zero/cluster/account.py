"""mpirun's account of a world that ended: which rank was the first, and how it ended."""

import re
import signal


def exit_reasons(output: str) -> dict[int, str]:
    """Read mpirun's account: which rank ended first, and how. (MPICH's tells it of MPI_Abort alone.)"""
    text = re.sub(r"\s+", " ", output)
    notes = {}
    for match in re.finditer(
        r"process rank (\d+) with PID \d+ on node \S+ exited on signal (\d+)", text
    ):
        notes[int(match[1])] = f"signal {signal_name(int(match[2]))}"
    for match in re.finditer(r'process rank (\d+) with PID \d+ on node \S+ calling "abort"', text):
        notes[int(match[1])] = (
            "it called MPI_Abort"  # the rank's own words, below, are lost at times
        )
    for match in re.finditer(r"MPI_ABORT was invoked on rank (\d+) .*?[Ee]rrorcode:? (\d+)", text):
        notes[int(match[1])] = f"it called MPI_Abort with error code {match[2]}"
    for match in re.finditer(
        r"Abort\((\d+)\) on node \d+ \(rank (\d+) in comm 0\): application called MPI_Abort", text
    ):
        notes[int(match[2])] = f"it called MPI_Abort with error code {match[1]}"
    for match in re.finditer(r"Process name: \[[^\],]*[,@](\d+)\] Exit code: (\d+)", text):
        notes[int(match[1])] = f"its process ended with exit code {match[2]}"
    return {rank: why for rank, why in notes.items() if rank not in cut_off(output)}


def cut_off(output: str) -> set[int]:
    """Ranks that aborted because a rank on another host had gone: mpirun may name one of these in place of that one."""
    closed = r"An error occurred in Socket closed \S+ \*\*\* reported by process \[\d+,(\d+)\]"
    return {int(rank) for rank in re.findall(closed, re.sub(r"\s+", " ", output))}


def signal_name(number: int) -> str:
    """SIGKILL and its like, with the usual cause in words."""
    causes = {
        "SIGKILL": " (killed from outside, often because memory ran out)",
        "SIGSEGV": " (segmentation fault)",
        "SIGABRT": " (the program aborted itself)",
    }
    name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
    return name + causes.get(name, "")
