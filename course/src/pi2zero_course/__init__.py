"""What the workshop's notebooks and labs share: checks, stories to summarize, the dashboard."""

from pi2zero_course.dashboard.notes import join_room, leave_room

__all__ = ["join_room", "leave_room"]
