"""Data-parallel training at scale: step time from computing, latency and bandwidth; published points."""

__all__ = []
