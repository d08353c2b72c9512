"""What mpirun's messages say of a world that has ended: which rank was the first, and how it
ended."""

import re
import signal

ABORTED = "it called MPI_Abort"
CAUSES = {
    "SIGKILL": " (killed from outside, often because memory ran out)",
    "SIGSEGV": " (segmentation fault)",
    "SIGABRT": " (the program aborted itself)",
}


def exit_reasons(output: str) -> dict[int, str]:
    """{rank: how it ended}, of the ranks that mpirun names. (MPICH's names those of MPI_Abort
    alone.)"""
    text = re.sub(r"\s+", " ", output)
    node = r"process rank (\d+) with PID \d+ on node \S+"
    reasons = {}
    for rank, number in re.findall(rf"{node} exited on signal (\d+)", text):
        reasons[int(rank)] = f"signal {signal_name(int(number))}"
    for rank in re.findall(rf'{node} calling "abort"', text):
        reasons[int(rank)] = ABORTED  # the line with the error code, below, is lost at times
    for rank, code in re.findall(
        r"MPI_ABORT was invoked on rank (\d+) .*?[Ee]rrorcode:? (\d+)", text
    ):
        reasons[int(rank)] = f"{ABORTED} with error code {code}"
    mpich = r"Abort\((\d+)\) on node \d+ \(rank (\d+) in comm 0\): application called MPI_Abort"
    for code, rank in re.findall(mpich, text):
        reasons[int(rank)] = f"{ABORTED} with error code {code}"
    for rank, code in re.findall(r"Process name: \[[^\],]*[,@](\d+)\] Exit code: (\d+)", text):
        reasons[int(rank)] = f"its process ended with exit code {code}"
    return {
        rank: why for rank, why in reasons.items() if rank not in ranks_that_lost_a_peer(output)
    }


def ranks_that_lost_a_peer(output: str) -> set[int]:
    """Ranks that aborted because a rank on another host was gone: mpirun may name only these."""
    closed = r"An error occurred in Socket closed \S+ \*\*\* reported by process \[\d+,(\d+)\]"
    return {int(rank) for rank in re.findall(closed, re.sub(r"\s+", " ", output))}


def signal_name(number: int) -> str:
    """SIGKILL and the like, with the usual cause in words."""
    name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
    return name + CAUSES.get(name, "")
