"""Pictures of scaling studies: throughput, efficiency, models beside published points."""

__all__ = []
