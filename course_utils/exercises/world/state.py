"""One thing that is the same for everyone, and how some attributes become one."""

import operator
from collections.abc import Callable
from typing import Any, NamedTuple


class State(NamedTuple):
    """One thing that is the same for everyone: its name, how it is read and set, and when two readings differ.

    `imports_too`: importing a module may change it as well. What has no name is put back without a word.
    """

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]
    differ: Callable[[Any, Any], bool] = operator.ne  # of what is read now and what was read before
    imports_too: bool = False

    def is_changed(self, before: Any) -> bool:
        """Whether it is not as it was `before`."""
        try:
            return self.differ(self.read(), before)
        except Exception:  # what stands there now can be anything
            return True


def watch_attributes(name: str, values: dict[str, Any], *attributes: str) -> State:
    """Some of the attributes of a module or an object, which are its `values`."""

    def read() -> list[Any]:
        return [values[each] for each in attributes]

    return State(name, read, lambda before: values.update(zip(attributes, before, strict=True)))


def refill(table: dict[Any, Any], before: dict[Any, Any]) -> None:
    """Let a table have the content of another one. It is never empty meanwhile: other threads may need it."""
    for key in table.keys() - before.keys():
        del table[key]
    table.update(before)
