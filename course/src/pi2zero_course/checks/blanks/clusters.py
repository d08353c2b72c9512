"""The checks of the blanks in notebook 12 that stay in the notebook's kernel."""

from pi2zero_course.checks.blanks import blank
from pi2zero_course.checks.blanks.compare import compare


@blank
def payload_rate(function):
    """payload_rate(bits, frame, payload) -> bytes of payload a second over a wire of so many bits a second."""
    mistakes = [
        (lambda bits, frame, payload: bits * payload / frame, "A byte has 8 bits."),
        (lambda bits, frame, payload: bits / 8, "Not all of a frame is payload."),
        (
            lambda bits, frame, payload: bits / 8 * frame / payload,
            "The other way round: payload is a part of the frame.",
        ),
        (lambda bits, frame, payload: bits * 8 * payload / frame, "A byte has 8 bits: divide."),
    ]
    cases = [(1e9, 1514, 1448), (1e10, 9014, 8948)]
    compare(function, lambda bits, frame, payload: bits / 8 * payload / frame, cases, mistakes)
    return "Of 1 Gbit/s, 119.6 MB/s are payload."


@blank
def on_the_wire(function):
    """on_the_wire(order, nbytes, per_host=2) -> bytes that the busiest host sends to others, in a ring in this order of ranks."""

    def leaving(order, per_host=2, closed=True):
        hosts = [rank // per_host for rank in order]
        behind = [*hosts[1:], hosts[0] if closed else hosts[-1]]
        return [host for host, following in zip(hosts, behind, strict=True) if host != following]

    def busiest(order, per_host=2, **options):
        links = leaving(order, per_host, **options)
        return max((links.count(host) for host in links), default=0)

    def of(count, halves=2):
        return lambda order, nbytes, per_host=2: (
            count(order, per_host) * halves * (len(order) - 1) / len(order) * nbytes
        )

    mistakes = [
        (
            of(lambda order, per_host: busiest(order, per_host, closed=False)),
            "The ring closes: the last rank sends to the first.",
        ),
        (
            of(lambda order, per_host: len(leaving(order, per_host))),
            "That is what all hosts send together; each has a wire of its own.",
        ),
        (
            of(
                lambda order, per_host: (
                    len(leaving(order, per_host)) / len({rank // per_host for rank in order})
                )
            ),
            "That is the mean over the hosts; the busiest one has more.",
        ),
        (
            of(lambda order, per_host: len(order)),
            "A link between two ranks of one host is no wire.",
        ),
        (
            of(busiest, halves=1),
            "A ring all-reduce has two halves: each link carries 2 (p - 1)/p of n.",
        ),
        (
            lambda order, nbytes, per_host=2: busiest(order, per_host) * nbytes,
            "A link carries 2 (p - 1)/p of n, in both halves of the all-reduce together.",
        ),
    ]
    cases = [
        ([0, 1, 2, 3], 16e6),
        ([0, 2, 1, 3], 16e6),
        ([0, 1, 2, 3, 4, 5], 6e6, 3),
        ([0, 1], 8e6),
        ([0, 2, 4, 3], 3e6),
    ]
    compare(function, of(busiest), cases, mistakes)
    return "In the hosts' order one link leaves each host; dealt out by node all of them do."
