"""Pictures of training: loss curves, and what each rank did over time."""

__all__ = []
