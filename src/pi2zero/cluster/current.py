"""The cluster that this kernel runs: one at a time."""

_cluster = None


def current():
    """The MPICluster that `%%px` runs on in this kernel, also when it is stopped; None before the first `start`."""
    return _cluster


def take(cluster):
    """From now on this one. Gives it back."""
    global _cluster
    _cluster = cluster
    return cluster
