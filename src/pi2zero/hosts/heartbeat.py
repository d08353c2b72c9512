"""`python heartbeat.py COMMAND...`: run a command with this program's input, and a sign of life.

While there is nothing else to send, the command gets a zero byte every five seconds. So an agent on
another host knows that the kernel lives, also while the kernel's Python is busy with one long call;
and it hears of the end when the kernel, its host or the network between is gone. This is a process
of its own, and needs the standard library alone.
"""

import contextlib
import os
import select
import subprocess
import sys

INTERVAL = 5.0  # s
BEAT = b"\0"


def main(command: list[str]) -> int:
    """Feed the command until the input or the command ends. Returns the command's exit status."""
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, bufsize=0)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    assert process.stdin
    # Only the command may hold these, or nobody who reads its output sees its end.
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    with contextlib.suppress(BrokenPipeError):  # the command has ended
        while data := os.read(0, 65536) if select.select([0], [], [], INTERVAL)[0] else BEAT:
            while data:
                data = data[os.write(process.stdin.fileno(), data) :]
    process.stdin.close()
    return process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
