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
from pathlib import Path

import psutil

PIDFD_GETFD = (
    438  # the system call that lends another process's socket, Linux 5.6; Python has no name for it
)
SO_ATTACH_FILTER = 26
# Words of the packet filter, linux/filter.h: load a byte or a word of the packet, shift, compare and jump, return.
LOAD_BYTE, LOAD_WORD, SHIFT_RIGHT, JUMP_EQUAL, RETURN = 0x30, 0x20, 0x74, 0x15, 0x06
ESTABLISHED = "01"  # of /proc/net/tcp: a connection that is being closed is nobody's there (uid 0)
NETWORK = 0xFFF00000  # where the packet's IP header begins (SKF_NET_OFF, as an unsigned number)


def seal(pid: int, friends: list[str] = (), loopback: bool = False) -> int:
    """Let nobody but friends (IPv4 addresses) connect to the ports on which a process listens; how many these were.

    loopback: also to those on 127.0.0.1, where every user of this host may come. The process notices nothing. Where the system
    does not lend sockets (before Linux 5.6, in some containers): 0.
    """
    if sys.platform != "linux":
        return 0
    code = filter_for(friends)
    buffer = ctypes.create_string_buffer(code)
    program = struct.pack("HP", len(code) // 8, ctypes.addressof(buffer))
    sealed = 0
    for listener in ports_of(pid, loopback):
        with (
            contextlib.suppress(OSError),
            _lent(pid, listener.fd) as lent,
        ):  # one may be closed meanwhile
            lent.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
            sealed += 1
    return sealed


def strangers() -> set[int]:
    """The ids of other users who have connected to a port on which this process listens, as Linux's /proc/net tells them.

    gloo takes whoever comes first for a rank: it asks nobody who they are. Root is no stranger: it could be anybody, and before
    Linux 6.17 a connection that was not taken yet is root's.
    """
    connections = psutil.Process().net_connections("tcp")
    ports = {one.laddr.port for one in connections if one.status == psutil.CONN_LISTEN}
    come = [
        one
        for one in connections
        if one.raddr and one.status == psutil.CONN_ESTABLISHED and one.laddr.port in ports
    ]
    far_ends = {(_as_linux_writes(one.raddr), _as_linux_writes(one.laddr)) for one in come}
    found = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            rows = [row.split() for row in Path("/proc/net", table).read_text().splitlines()[1:]]
            found |= {
                int(row[7])
                for row in rows
                if row[3] == ESTABLISHED and (_short(row[1]), _short(row[2])) in far_ends
            }
    return found - {0, os.getuid()}


def _as_linux_writes(address) -> str:
    """127.0.0.1, port 80 -> 0100007F:0050."""
    family = socket.AF_INET6 if ":" in address.ip else socket.AF_INET
    words = memoryview(socket.inet_pton(family, address.ip)).cast("I")
    return _short("".join(f"{word:08X}" for word in words) + f":{address.port:04X}")


def _short(address: str) -> str:
    """A caller by IPv4 to a socket for both: the two ends write it differently."""
    return address.removeprefix(f"{0:016X}FFFF0000")


def filter_for(friends: list[str]) -> bytes:
    """A program for Linux's packet filter (classic BPF): keep the packets of IPv4 that come from friends, drop all others."""
    keep, drop = struct.pack("HBBI", RETURN, 0, 0, 0xFFFFFFFF), struct.pack("HBBI", RETURN, 0, 0, 0)
    if not friends:
        return drop
    code = struct.pack("HBBI", LOAD_BYTE, 0, 0, NETWORK) + struct.pack("HBBI", SHIFT_RIGHT, 0, 0, 4)
    code += struct.pack("HBBI", JUMP_EQUAL, 0, len(friends) + 1, 4)  # not version 4: to the drop
    code += struct.pack("HBBI", LOAD_WORD, 0, 0, NETWORK + 12)  # where it comes from
    for at, friend in enumerate(friends):
        (address,) = struct.unpack("!I", socket.inet_aton(friend))
        code += struct.pack("HBBI", JUMP_EQUAL, len(friends) - at, 0, address)
    return code + drop + keep


def ports_of(pid: int, loopback: bool = False) -> list:
    """The sockets on which a process listens; none if it has ended. loopback: also those on this host alone."""
    found = []
    with contextlib.suppress(psutil.Error):
        found = [
            c for c in psutil.Process(pid).net_connections("tcp") if c.status == psutil.CONN_LISTEN
        ]
    return [
        c for c in found if loopback or not (c.laddr.ip.startswith("127.") or c.laddr.ip == "::1")
    ]


def _lent(pid: int, descriptor: int) -> socket.socket:
    process = os.pidfd_open(pid)
    try:
        lent = ctypes.CDLL(None, use_errno=True).syscall(PIDFD_GETFD, process, descriptor, 0)
        if lent < 0:
            raise OSError(ctypes.get_errno(), "pidfd_getfd")
    finally:
        os.close(process)
    return socket.socket(fileno=lent)
