"""Outputs that wait: what the cells between `predict` and `why` show is kept back until the prediction is open.

JupyterLab and Notebook 7 tell the kernel the id of the cell that they run, so that it knows such a cell. A note stands
in the place of its output, and the commit sends the output to the places that were left for it. Any other front end
(VS Code, Colab), and what runs a notebook without one (papermill, nbval, nbconvert), shows all at once. An error is
never kept back.
"""

import contextlib
import io
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from course_utils.exercises.declaration import Prediction
from course_utils.show import Note, running_cell

Output = tuple[dict[str, Any], dict[str, Any]]  # the data by their kinds, and the metadata
NOTHING: Output = ({"text/plain": "", "text/html": ""}, {})


@dataclass(frozen=True)
class Kept:
    """What a cell showed, and the display ids of the places left for it: one for a note, then one for each output."""

    places: list[str]
    outputs: list[Output]


class WaitingOutputs:
    """The outputs that are kept back in this kernel.

    reason: why the output of a cell for this prediction waits, as a note; None where it does not.
    guess: what is shown above the output when it comes: the learner's choice.
    """

    def __init__(
        self, shell: Any, reason: Callable[[Prediction], Note | None], guess: Callable[[Prediction], Note]
    ) -> None:
        self._shell, self._reason, self._guess = shell, reason, guess
        self._asked: dict[str, dict[str, Prediction]] = {}  # by cell, and by name
        self._kept: dict[str, Kept] = {}  # by cell
        self._keeping = contextlib.ExitStack()
        self._running: tuple[str, list[Output]] | None = None  # the cell that runs now, if its output is kept
        shell.events.register("pre_run_cell", self._begin)
        shell.events.register("post_run_cell", self._end)

    def expect(self, predictions: Iterable[Prediction]) -> None:
        """Keep back what the cells show that answer one of these."""
        for prediction in predictions:
            for cell in prediction.waits:
                self._asked.setdefault(cell, {})[prediction.name] = prediction

    def play(self) -> bool:
        """Show what need not wait any more, below the learner's guess; the others say anew why they wait.

        Returns whether there was anything to show.
        """
        told: set[str] = set()  # the predictions whose guess stands there
        before = len(self._kept)
        for cell, kept in list(self._kept.items()):
            if note := self._find_reason(cell):
                self._update(kept.places[0], _show(note))
                continue
            del self._kept[cell]
            prediction = next(iter(self._asked[cell].values()))
            guess = NOTHING if prediction.name in told else _show(self._guess(prediction))
            told.add(prediction.name)
            for place, output in zip(kept.places, [guess, *kept.outputs], strict=True):
                self._update(place, output)
        return len(self._kept) < before

    def _find_reason(self, cell: str) -> Note | None:
        reasons = (self._reason(prediction) for prediction in self._asked.get(cell, {}).values())
        return next((reason for reason in reasons if reason), None)

    def _begin(self, _: object) -> None:
        self._keeping.close()  # of a cell that never came to its end
        self._running = None
        cell = running_cell()
        self._kept.pop(cell, None)
        if self._find_reason(cell):
            self._running = cell, self._keeping.enter_context(_keep_outputs(self._shell))

    def _end(self, _: object) -> None:
        self._keeping.close()
        if self._running is None:
            return
        (cell, outputs), self._running = self._running, None
        reason = self._find_reason(cell)
        if not outputs or reason is None:  # the cell itself may have committed to its prediction
            for output in outputs:
                self._publish(output)
            return
        kept = self._kept[cell] = Kept([uuid.uuid4().hex for _ in range(len(outputs) + 1)], outputs)
        for place, output in zip(kept.places, [_show(reason), *[NOTHING] * len(outputs)], strict=True):
            self._publish(output, transient={"display_id": place})

    def _publish(self, output: Output, **more: Any) -> None:
        self._shell.display_pub.publish(*output, **more)

    def _update(self, place: str, output: Output) -> None:
        self._publish(output, transient={"display_id": place}, update=True)


@contextlib.contextmanager
def _keep_outputs(shell: Any) -> Iterator[list[Output]]:
    """While this is open, what is printed, displayed or the value of the cell comes into a list, and is not sent."""
    outputs: list[Output] = []

    def keep(message: dict[str, Any]) -> dict[str, Any] | None:
        content = message["content"]
        if message["header"]["msg_type"] == "update_display_data":
            return message
        if "data" in content:
            outputs.append((content["data"], content["metadata"]))
        else:  # clear_output
            outputs.clear()
        return None

    def keep_value(value: object) -> None:
        if value is None or shell.displayhook.quiet():
            return
        shell.displayhook.update_user_ns(value)
        data, metadata = shell.display_formatter.format(value)
        if data:
            outputs.append((data, metadata))

    printed, usual = _Printed(outputs), shell.display_trap.hook
    shell.display_trap.hook = keep_value
    shell.display_pub.register_hook(keep)
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            yield outputs
    finally:
        shell.display_pub.unregister_hook(keep)
        shell.display_trap.hook = usual


class _Printed(io.TextIOBase):
    """In the place of `sys.stdout`: what is written becomes an output, in order with the others."""

    def __init__(self, outputs: list[Output]) -> None:
        self._outputs, self._text = outputs, {"text/plain": ""}

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not self._outputs or self._outputs[-1][0] is not self._text:
            self._text = {"text/plain": ""}
            self._outputs.append((self._text, {}))
        self._text["text/plain"] += text
        return len(text)


def _show(note: Note) -> Output:
    return {"text/plain": str(note), "text/html": note._repr_html_()}, {}
