"""What to do about errors of MPI and torch whose own words name no cause."""

import os
import re

import psutil

_NO_INTERFACE = re.compile(r"Unable to find (?:address|interface) for: (\S+)")
_TOO_LONG = re.compile(r"MPI_ERR_(?:ARG|COUNT)\b")
LONGEST = 2**31 - 1  # elements: MPI's older interface counts them in 32 bits


def advice_for(message: str) -> list[str]:
    """Sentences that explain an error's message; none for most."""
    if _TOO_LONG.search(message):
        return [
            f"One cause of this error: a message of more than {LONGEST:,} elements (2^31 - 1) is "
            "too long for one call of MPI. Send it in parts."
        ]
    if not (match := _NO_INTERFACE.search(message)):
        return []
    name = match[1].rstrip(".,;")
    have = [each for each, state in psutil.net_if_stats().items() if state.isup]
    setting = f"GLOO_SOCKET_IFNAME={os.environ.get('GLOO_SOCKET_IFNAME', name)}"
    return [
        f"{setting} asks for the network interface {name}, and this machine has none of that name. "
        f"It has {', '.join(sorted(have))}. Set GLOO_SOCKET_IFNAME to one of these, or unset it, "
        "and start the ranks again."
    ]
