"""Time and bytes of collective communication: the alpha-beta model, bus bandwidth."""

__all__ = []
