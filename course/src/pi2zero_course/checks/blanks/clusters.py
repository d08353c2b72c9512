"""The checks of the blanks in notebook 12 that stay in the notebook's kernel."""

from pi2zero_course.checks.framework.task import Blank

# payload_rate(bits, frame, payload) -> bytes of payload per second over a link of so many bits per
# second
payload_rate = Blank(
    name="payload_rate",
    reference=lambda bits, frame, payload: bits / 8 * payload / frame,
    cases=[(1e9, 1514, 1448), (1e10, 9014, 8948)],
    mistakes={
        "A byte has 8 bits.": 8,
        "Not all of a frame is payload.": lambda bits, frame, payload: bits / 8,
    },
    verified="Of 1 Gbit/s, 119.6 MB/s are payload.",
)


def _leaving(order, per_host=2, closed=True):
    """The host of each link of the ring that leaves its host."""
    hosts = [rank // per_host for rank in order]
    behind = [*hosts[1:], hosts[0] if closed else hosts[-1]]
    return [host for host, following in zip(hosts, behind, strict=True) if host != following]


def _busiest(order, per_host=2, closed=True):
    links = _leaving(order, per_host, closed)
    return max((links.count(host) for host in links), default=0)


def _bytes_of(count_links, halves=2):
    return lambda order, nbytes, per_host=2: (
        count_links(order, per_host) * halves * (len(order) - 1) / len(order) * nbytes
    )


# on_the_wire(order, nbytes, per_host=2) -> bytes that the busiest host sends to others, in a ring
# in this order of ranks
on_the_wire = Blank(
    name="on_the_wire",
    reference=_bytes_of(_busiest),
    cases=[
        ([0, 1, 2, 3], 16e6),
        ([0, 2, 1, 3], 16e6),
        ([0, 1, 2, 3, 4, 5], 6e6, 3),
        ([0, 1], 8e6),
        ([0, 2, 4, 3], 3e6),
    ],
    mistakes={
        "The ring closes: the last rank sends to the first.": _bytes_of(
            lambda order, per_host: _busiest(order, per_host, closed=False)
        ),
        "That is what all hosts send together; each has a wire of its own.": _bytes_of(
            lambda order, per_host: len(_leaving(order, per_host))
        ),
        "That is the mean over the hosts; the busiest one has more.": _bytes_of(
            lambda order, per_host: (
                len(_leaving(order, per_host)) / len({rank // per_host for rank in order})
            )
        ),
        "A link between two ranks of one host is no wire.": _bytes_of(
            lambda order, per_host: len(order)
        ),
        "A ring all-reduce has two halves: each link carries 2 (p - 1)/p of n.": 0.5,
        "A link carries 2 (p - 1)/p of n, in both halves of the all-reduce together.": (
            lambda order, nbytes, per_host=2: _busiest(order, per_host) * nbytes
        ),
    },
    verified="In the hosts' order one link leaves each host; dealt out by node all of them do.",
)
