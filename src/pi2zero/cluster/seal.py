"""Open MPI's prterun listens on all addresses, for daemons on other hosts; on one host nobody may come.

What connects there is taken for a daemon of the job, without a key: any user of the host, or of the network, could end
the job or worse. PRRTE 3 has no setting against it. So the kit attaches a filter to the listening sockets that drops
every packet. (Open MPI's later releases can listen on loopback alone: open-mpi/ompi issue 14441.)
"""

import contextlib
import ctypes
import os
import socket
import struct
import sys

import psutil

PIDFD_GETFD = 438  # the system call that lends another process's socket, Linux 5.6; Python has no name for it
SO_ATTACH_FILTER = 26
EVERYWHERE = ("0.0.0.0", "::")


def seal(pid: int) -> int:
    """Let nobody connect to the ports on which a process listens for everybody; how many these were.

    The process notices nothing. Where the system does not lend sockets (before Linux 5.6, in some containers): 0.
    """
    if sys.platform != "linux":
        return 0
    drop = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))  # a BPF program: keep 0 bytes of each packet
    program = struct.pack("HP", 1, ctypes.addressof(drop))
    sealed = 0
    with contextlib.suppress(OSError, psutil.Error):
        for listener in open_ports(pid):
            with _lent(pid, listener.fd) as lent:
                lent.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
            sealed += 1
    return sealed


def open_ports(pid: int) -> list:
    """The sockets on which a process listens for everybody."""
    found = psutil.Process(pid).net_connections("tcp")
    return [c for c in found if c.status == psutil.CONN_LISTEN and c.laddr.ip in EVERYWHERE]


def _lent(pid: int, descriptor: int) -> socket.socket:
    process = os.pidfd_open(pid)
    try:
        lent = ctypes.CDLL(None, use_errno=True).syscall(PIDFD_GETFD, process, descriptor, 0)
        if lent < 0:
            raise OSError(ctypes.get_errno(), "pidfd_getfd")
    finally:
        os.close(process)
    return socket.socket(fileno=lent)
