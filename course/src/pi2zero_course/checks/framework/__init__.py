"""What all checks share: how an answer is called, on one rank or on all, and what a check says."""

# Frames of this package wait for other ranks, as pi2zero.cluster.blocking_calls reads here. So does
# a call of `Waiting.until`, whatever it asks meanwhile.
__pi2zero_waits__ = ("until",)
