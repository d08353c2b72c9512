"""Keep strangers from ports that Open MPI, torch and gloo open without asking who connects.

Open MPI's prterun listens on all addresses for its daemons on other hosts, and takes whoever
connects for one, without a key: any user of the host or the network could end the job or worse.
PRRTE 3 has no setting against it (open-mpi/ompi issue 14441). So the kit attaches a packet filter
to the listening sockets. Delete this file once an Open MPI can listen on loopback alone.
"""

import contextlib
import ctypes
import os
import socket
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil

# The system call that borrows another process's socket; Python has no name for it
PIDFD_GETFD = 438
SO_ATTACH_FILTER = 26
# Instructions of the packet filter, linux/filter.h
LOAD_BYTE, LOAD_WORD, SHIFT_RIGHT, JUMP_EQUAL, RETURN = 0x30, 0x20, 0x74, 0x15, 0x06
IP_HEADER = 0xFFF00000  # where it begins in the packet: SKF_NET_OFF as an unsigned number
ESTABLISHED = "01"  # in /proc/net/tcp
IPV4_IN_IPV6 = f"{0:016X}FFFF0000"  # in /proc/net/tcp6, before an IPv4 address


def restrict_listeners(pid: int, allowed: Sequence[str] = (), loopback: bool = False) -> int:
    """Let only `allowed` IPv4 addresses connect to the ports of a process; returns how many ports.

    loopback: also restrict ports on 127.0.0.1, which every user of this host reaches. Returns 0
    where the system does not lend sockets (before Linux 5.6, in some containers).
    """
    if sys.platform != "linux":
        return 0
    code = filter_program(allowed)
    buffer = ctypes.create_string_buffer(code)
    program = struct.pack("HP", len(code) // 8, ctypes.addressof(buffer))
    count = 0
    for listener in listening_sockets(pid, loopback):
        # One may be closed meanwhile.
        with contextlib.suppress(OSError), _borrowed_socket(pid, listener.fd) as borrowed:
            borrowed.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
            count += 1
    return count


def foreign_peer_uids() -> set[int]:
    """The ids of other users who have connected to a port of this process (by /proc/net).

    gloo takes whoever comes first for a rank. Root is left out: it could be anybody, and before
    Linux 6.17 a connection that was not accepted yet is root's.
    """
    connections = _tcp_connections(psutil.Process())
    ports = {c.laddr.port for c in connections if c.status == psutil.CONN_LISTEN}
    far_ends = {
        (_as_in_proc(c.raddr), _as_in_proc(c.laddr))
        for c in connections
        if c.raddr and c.status == psutil.CONN_ESTABLISHED and c.laddr.port in ports
    }
    uids = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for row in Path("/proc/net", table).read_text().splitlines()[1:]:
                _, local, remote, state, *_, uid, _, _ = row.split()[:10]
                ends = local.removeprefix(IPV4_IN_IPV6), remote.removeprefix(IPV4_IN_IPV6)
                if state == ESTABLISHED and ends in far_ends:
                    uids.add(int(uid))
    return uids - {0, os.getuid()}


def _as_in_proc(address) -> str:
    """127.0.0.1, port 80 -> 0100007F:0050."""
    family = socket.AF_INET6 if ":" in address.ip else socket.AF_INET
    words = memoryview(socket.inet_pton(family, address.ip)).cast("I")
    text = "".join(f"{word:08X}" for word in words) + f":{address.port:04X}"
    return text.removeprefix(IPV4_IN_IPV6)


def filter_program(allowed: Sequence[str]) -> bytes:
    """A classic BPF program that keeps IPv4 packets from the allowed addresses and drops others."""

    def instruction(code: int, if_true: int, if_false: int, value: int) -> bytes:
        return struct.pack("HBBI", code, if_true, if_false, value)

    keep, drop = instruction(RETURN, 0, 0, 0xFFFFFFFF), instruction(RETURN, 0, 0, 0)
    if not allowed:
        return drop
    code = instruction(LOAD_BYTE, 0, 0, IP_HEADER) + instruction(SHIFT_RIGHT, 0, 0, 4)
    code += instruction(JUMP_EQUAL, 0, len(allowed) + 1, 4)  # not version 4: to the drop
    code += instruction(LOAD_WORD, 0, 0, IP_HEADER + 12)  # the source address
    for at, address in enumerate(allowed):
        (value,) = struct.unpack("!I", socket.inet_aton(address))
        code += instruction(JUMP_EQUAL, len(allowed) - at, 0, value)
    return code + drop + keep


def listening_sockets(pid: int, loopback: bool = False) -> list:
    """The listening sockets of a process; none if it has ended."""
    connections = []
    with contextlib.suppress(psutil.Error):
        connections = _tcp_connections(psutil.Process(pid))
    return [
        c
        for c in connections
        if c.status == psutil.CONN_LISTEN
        and (loopback or not (c.laddr.ip.startswith("127.") or c.laddr.ip == "::1"))
    ]


def _tcp_connections(process: psutil.Process) -> list:
    if hasattr(process, "net_connections"):
        return process.net_connections("tcp")
    return process.connections("tcp")  # psutil before 6, which Google Colab has


def _borrowed_socket(pid: int, descriptor: int) -> socket.socket:
    process = os.pidfd_open(pid)
    try:
        borrowed = ctypes.CDLL(None, use_errno=True).syscall(PIDFD_GETFD, process, descriptor, 0)
        if borrowed < 0:
            raise OSError(ctypes.get_errno(), "pidfd_getfd")
    finally:
        os.close(process)
    return socket.socket(fileno=borrowed)
