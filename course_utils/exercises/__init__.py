"""The exercises: `check`, `hint`, `replay`, `solution`, `predict`, `why` and `progress` are what a lesson imports.

They are imported when they are first asked for: the modules beside them that need no torch can be had without it.
"""

__all__ = ["check", "hint", "predict", "progress", "replay", "solution", "why"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from course_utils.exercises import classroom

    return getattr(classroom, name)
