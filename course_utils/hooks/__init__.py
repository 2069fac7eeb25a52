"""Look at the hooks of any model, also outside this course: the names to begin with.

from course_utils.hooks import explain_hook, list_hooks, record, trace

with record(model, "layer4") as seen: ...            # what goes through a layer, in forward and in backward
print(trace(model, x))                               # one call and its backward pass as a timeline
list_hooks(model)                                    # every hook that PyTorch keeps on a model or a tensor
with explain_hook(model, hook) as story: ...         # what happened to this hook, or why it did not run
"""

from typing import Any

from course_utils.hooks.inventory import HooksLeftError, count_hooks, list_hooks, no_hooks_left
from course_utils.hooks.record import find_layers, record
from course_utils.hooks.trace import trace, tracing

__all__ = [
    "HooksLeftError",
    "count_hooks",
    "explain_hook",
    "find_layers",
    "list_hooks",
    "no_hooks_left",
    "record",
    "trace",
    "tracing",
]


def __getattr__(name: str) -> Any:
    if name == "explain_hook":  # its module takes longer to import than all the others
        from course_utils.hooks.explain import explain_hook

        return explain_hook
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
