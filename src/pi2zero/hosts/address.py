"""`python -m pi2zero.hosts.address OTHERS...`: this host's address, where a launcher's ranks meet.

It is that of the interface which GLOO_SOCKET_IFNAME or the site file names; else the one on the way
to the other hosts of the job.
"""

import os
import sys

import psutil

from pi2zero.hosts import site
from pi2zero.hosts.place import Place, PlaceError


def main(others: list[str]) -> str:
    """This host's address on the way to the others; 127.0.0.1 if none. Raises PlaceError."""
    interface = os.environ.get("GLOO_SOCKET_IFNAME")
    if not interface:
        # The site file names the login node's interface: a compute node may have none of that name.
        interface = site.load().interface
        interface = interface if interface in psutil.net_if_addrs() else ""
    return Place(dict.fromkeys(others, 1), interface=interface).address() or "127.0.0.1"


if __name__ == "__main__":
    try:
        print(main(sys.argv[1:]))
    except PlaceError as error:
        sys.exit(str(error))
