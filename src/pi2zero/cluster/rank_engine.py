"""`python -m pi2zero.cluster.rank_engine`: ipyparallel's engine, started in half of the time.

Next to each engine runs its nanny, a process that passes signals on and reports the engine's end.
ipyparallel starts it as another Python, which imports everything once more while the engine waits.
Here the engine forks it after the imports, before there is any thread, socket or MPI.
"""

import os
import signal
import traceback
from multiprocessing.connection import Pipe
from typing import Any

import mpi4py  # noqa: F401 (a file of that name may lie next to a notebook)
from ipyparallel.engine import app
from ipyparallel.engine.nanny import KernelNanny

from pi2zero.cluster import engine_setup  # noqa: F401 (the kit's first call on each rank)


def fork_nanny():
    """Fork the nanny, which waits for its engine; returns what ipyparallel calls to start one."""
    (received, orders), (url_out, url_in) = Pipe(duplex=False), os.pipe()
    if not os.fork():
        orders.close()
        os.close(url_out)
        become_nanny(received, url_in)
    received.close()
    os.close(url_in)

    def start_nanny(**options):
        orders.send(options | {"pid": os.getpid()})
        orders.close()
        pipe = os.fdopen(url_out)
        # The nanny ends when this pipe is closed: the engine keeps it open.
        return pipe.readline().strip(), pipe

    return start_nanny


def become_nanny(orders: Any, url: int) -> None:
    """Run the nanny here, once the engine has registered. Does not return.

    orders: the end of a pipe that receives; url: the descriptor that takes the address.
    """
    os.setsid()  # the terminal's signals are not meant for it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):  # those of mpirun belong to the rank
        os.dup2(nothing, descriptor)
    try:
        KernelNanny.main(pipe=os.fdopen(url, "w", buffering=1), **orders.recv())
    except EOFError:  # the engine ended before
        pass
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(0)  # none of the engine's clean-up


if __name__ == "__main__":
    app.start_nanny = fork_nanny()
    app.main()
