"""The exercises: `check`, `hint`, `solution`, `predict`, `why` and `progress` are what a lesson imports."""

from course_utils.exercises.classroom import check, hint, predict, progress, solution, why

__all__ = ["check", "hint", "predict", "progress", "solution", "why"]
