"""The class that learns together: `join` is what a learner calls; `make class` starts `server`."""

from course_utils.live.member import join

__all__ = ["join"]
