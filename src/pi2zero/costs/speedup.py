"""Speed-up, efficiency, and the laws that bound them. No result has a unit."""

import numpy as np

from pi2zero.costs import valid

__all__ = ["amdahl", "efficiency", "gustafson", "karp_flatt", "speedup", "weak_efficiency"]


def speedup(one_rank_seconds, seconds):
    """Time on one rank / time on p ranks, for the same work. Both in s, above 0."""
    return valid.positive("one_rank_seconds", one_rank_seconds) / valid.positive("seconds", seconds)


def efficiency(one_rank_seconds, seconds, ranks):
    """Speed-up per rank, for the same work on all numbers of ranks (strong scaling). 1 is ideal."""
    return speedup(one_rank_seconds, seconds) / valid.ranks(ranks)


def weak_efficiency(one_rank_seconds, seconds):
    """Time on one rank / time on p ranks with p times the work (weak scaling). 1 is ideal."""
    return speedup(one_rank_seconds, seconds)


def amdahl(serial_fraction, ranks):
    """Amdahl's speed-up of a fixed amount of work: 1 / (s + (1 - s) / p); at most 1 / s.

    serial_fraction: s in 0..1, the share of the *one-rank* time that only one rank can do.
    ranks: p, 1 or more. Source: G. M. Amdahl, AFIPS 1967, doi:10.1145/1465482.1465560.
    """
    s = valid.fraction("serial_fraction", serial_fraction)
    return 1.0 / (s + (1.0 - s) / valid.ranks(ranks))


def gustafson(serial_fraction, ranks):
    """Gustafson's scaled speed-up, where the work grows with the ranks: s + (1 - s) p.

    serial_fraction: s in 0..1, the share of the *p-rank* time spent in the serial part.
    Source: J. L. Gustafson, Communications of the ACM 31(5), 1988, doi:10.1145/42411.42415.
    """
    s = valid.fraction("serial_fraction", serial_fraction)
    return s + (1.0 - s) * valid.ranks(ranks)


def karp_flatt(measured_speedup, ranks):
    """The serial fraction with which Amdahl's law gives a speed-up S: (1/S - 1/p) / (1 - 1/p).

    ranks: p, 2 or more. Below 0 if the speed-up is above p. If it grows with p, something other
    than serial work costs time: communication, or more ranks than cores.
    Source: A. H. Karp and H. P. Flatt, Communications of the ACM 33(5), 1990,
    doi:10.1145/78607.78614.
    """
    p = valid.ranks(ranks)
    if np.any(p < 2):
        raise ValueError(f"ranks: one rank has no parallel part; give 2 or more, not {ranks!r}.")
    return (1.0 / valid.positive("measured_speedup", measured_speedup) - 1.0 / p) / (1.0 - 1.0 / p)
