"""The first event in which an answer's run differs from a right one, and that event in a sentence.

There are several right answers, so an event counts only where all right runs that went the same way until then agree.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from course_utils.exercises.comparing import alike, close, differing_part
from course_utils.exercises.events import ORDINALS, Event, Run, shorten
from course_utils.exercises.plain import MAX_SHOWN, Evidence, Plain, find_place, name_type, number_text, show

Key = tuple[str, str, str]  # what happened, of which kind, on what
SIDES = ("got", "gave")
TIMES = {0: "never", 1: "once", 2: "twice"}
MOST_STEPS = 300
LONGEST = 48  # characters of a tensor in a sentence; of a longer one, its shape


class Divergence(NamedTuple):
    """The first event that differs: a sentence, the right run, and in which part which event of the two runs it is.

    An event is None where a run lacks it.
    """

    sentence: str
    right: Run
    part: int
    mine: Event | None
    other: Event | None


class Cell(NamedTuple):
    """The events of one part with one key, in the answer's run and in a right one."""

    key: Key
    mine: Sequence[Event]
    right: Sequence[Event]

    @property
    def agrees(self) -> bool:
        """Whether the same happened in both."""
        return len(self.mine) == len(self.right) and self.first_pair is None

    @property
    def first_pair(self) -> tuple[int, Event, Event] | None:
        """The first two events that belong together and differ, after their number."""
        for number, (one, other) in enumerate(zip(self.mine, self.right, strict=False)):
            if not all(alike(one[name], other[name]) for name in COMPARED[one["what"]].compared):
                return number, one, other
        return None


def find_divergence(mine: Run, rights: Sequence[Run], evidence: Evidence) -> Divergence | None:
    """The first event in which a run differs from the right runs that went the same way until then.

    None where nothing is sure. `evidence` is that of the answer in the case.
    """
    ways = list(rights)
    for part, words in enumerate(mine["parts"]):
        ways = [run for run in ways if run["parts"][part : part + 1] == [words]]
        if not ways:
            return None
        keys = dict.fromkeys(_key(event) for run in (mine, *ways) for event in _events(run, part))
        if missing := _find_missing_hook(mine, ways, part):
            return _tell(missing, mine, ways[0], part, evidence)
        own_passes = False  # who runs a model once more may have a reason, and then its hooks run otherwise, too
        for key in keys:
            cells = [Cell(key, _events(mine, part, key), _events(run, part, key)) for run in ways]
            if any(cell.agrees for cell in cells):
                ways = [run for run, cell in zip(ways, cells, strict=True) if cell.agrees]
            elif all(Cell(key, cells[0].right, cell.right).agrees for cell in cells) and not _are_several(cells[0]):
                own_passes = own_passes or (key[0] == "calls" and _runs_otherwise(cells[0]))
                if own_passes and key[0] in ("calls", "runs"):
                    continue
                step = find_wrong_step(mine, rights, evidence) if key[0] == "holds" else None
                return step or _tell(cells[0], mine, ways[0], part, evidence)
    return find_wrong_step(mine, rights, evidence)


def _are_several(cell: Cell) -> bool:
    """Whether hooks ran on things without a name: perhaps on several, and then nobody knows which belong together."""
    what, _, on = cell.key
    return what == "runs" and on.startswith("another ") and max(len(cell.mine), len(cell.right)) > 1


def _runs_otherwise(cell: Cell) -> bool:
    """Whether a module runs more or fewer times than in a right run, but runs."""
    return cell.key[1] == "module" and bool(cell.mine) and len(cell.mine) != len(cell.right)


def _find_missing_hook(mine: Run, ways: Sequence[Run], part: int) -> Cell | None:
    """The first hook of a right run, where each right run registers one in a part, of any kind, and this one none."""
    registered = [[each for each in _events(run, part) if each["what"] == "registers"] for run in (mine, *ways)]
    if registered[0] or not all(registered[1:]):
        return None
    key = _key(registered[1][0])
    return Cell(key, [], _events(ways[0], part, key))


def _key(event: Event) -> Key:
    return event["what"], event["kind"], event["on"]


def _events(run: Run, part: int, key: Key | None = None) -> list[Event]:
    """The events of a part that are compared; with `key`, those of them that have it."""
    found = [event for event in run["events"] if event["part"] == part and event["what"] in COMPARED]
    return [event for event in found if key in (None, _key(event))]


def _tell(cell: Cell, mine: Run, right: Run, part: int, evidence: Evidence) -> Divergence | None:
    if evidence["raised"] and len(cell.mine) < len(cell.right):
        return None  # what is missing would have come after the error
    words, said = mine["parts"][part], COMPARED[cell.key[0]].tell(cell, (mine, right), part)
    if not said:
        return None
    sentence = f"{words[0].upper()}{words[1:]} {said}".rstrip(".") + "."
    number = cell.first_pair[0] if cell.first_pair else min(len(cell.mine), len(cell.right))
    events = (found[number] if number < len(found) else None for found in (cell.mine, cell.right))
    return Divergence(sentence, right, part, *events)


# --- in words ---------------------------------------------------------------------------------------------------------


def _tell_registering(cell: Cell, runs: Sequence[Run], part: int) -> str:
    _, kind, on = cell.key
    if cell.mine and cell.right:
        more = "s" if len(cell.mine) > 1 else ""
        mine = f"your answer registers {len(cell.mine)} {kind}{more} on {on}"
        return f"{mine}; the course's right answers register {len(cell.right)}"
    mine, right = (Counter(map(_key, _events(run, part))) for run in runs)
    more, missing = _list_hooks(mine - right), _list_hooks(right - mine)
    if not more:
        return f"the course's right answers register {missing}; yours does not"
    return f"your answer registers {more}; the course's right answers " + (
        f"register {missing}" if missing else "do not"
    )


def _list_hooks(keys: Counter[Key]) -> str:
    counts = [(number, kind, on) for (what, kind, on), number in sorted(keys.items()) if what == "registers"]
    words = [f"a {kind} on {on}" if number == 1 else f"{number} {kind}s on {on}" for number, kind, on in counts]
    return " and ".join(words if len(words) < 3 else [", ".join(words[:2]), f"{len(words) - 2} more"])


def _tell_run(cell: Cell, runs: Sequence[Run], part: int) -> str:
    _, kind, on = cell.key
    hook = f"your {kind} on {on}"
    registered = [each for each in runs[0]["events"] if _key(each) == ("registers", kind, on)]
    if len(cell.mine) != len(cell.right):
        are_several = len(registered) > 1
        return _tell_counts(cell, f"your {kind}s on {on}" if are_several else hook, are_several)
    number, one, other = cell.first_pair
    if 0 < number < len(ORDINALS):
        hook = f"{hook}, when it runs for the {ORDINALS[number]} time,"
        if len(registered) > 1:
            hook = f"the {ORDINALS[number]} of your {kind}s on {on} that runs"
    got, right_got = show_apart(one["got"], other["got"])
    if not alike(one["got"], other["got"]):
        return f"{hook} receives {got}; in a right run it receives {right_got}"
    if one["ended"] == "raised":
        return ""  # the outcome says so
    if kind == "post-accumulate-grad hook":
        states = (" and the gradient ".join(map(_say, event["gave"]["items"])) for event in (one, other))
        return f"{hook} leaves the values {'; in a right run it leaves the values '.join(states)}"
    gave, right = show_apart(one["gave"], other["gave"])
    changes = ", changes it in place and" if one["changed"]["value"] else " and"
    returns = f"returns {gave}" if one["ended"] == "returned" else f"returns nothing, so {gave} goes on"
    there = "what it received stays as it was" if alike(one["gave"], other["gave"]) else f"{right} goes on"
    return f"{hook} receives {got}{changes} {returns}; in a right run {there}"


def _tell_left(cell: Cell, runs: Sequence[Run], part: int) -> str:
    _, kind, on = cell.key
    mine, right = (_count_left(run, part, cell.key) for run in runs)
    if mine and right:
        return f"your answer leaves {mine} of the kind {kind} on {on}; a right one leaves {right}"
    if mine:
        return f"your {kind} on {on} is not removed; in a right run it is"
    return f"your {kind} on {on} is removed; in a right run it stays"


def _count_left(run: Run, part: int, key: Key) -> int:
    counts = [event["gave"]["value"] for event in run["events"] if event["part"] <= part and _key(event) == key]
    return counts[-1] if counts else 0


def _tell_call(cell: Cell, *_: Any) -> str:
    on = cell.key[2]
    if len(cell.mine) != len(cell.right):
        return _tell_counts(cell, on.replace("a function in", "functions in"), on.startswith("a function in"))
    number, one, other = cell.first_pair
    mine, right = show_apart(*(without_brackets(event["got"]) for event in (one, other)))
    return f"{on} is called with {mine} (call number {number + 1}); in a right run with {right}"


def without_brackets(arguments: Plain) -> Plain:
    """The one argument among those of a call; if there are several, the tuple of them."""
    items = arguments.get("items", ())
    return items[0] if len(items) == 1 else arguments


def _tell_backward(cell: Cell, *_: Any) -> str:
    mine, right = (_count("runs a backward", len(events)) for events in (cell.mine, cell.right))
    return f"your answer {mine}; a right one {right}"


def times(number: int) -> str:
    """How often: "never", "once", "7 times"."""
    return TIMES.get(number, f"{number} times")


def _tell_counts(cell: Cell, what: str, are_several: bool) -> str:
    """Say how often one thing, or several things together, ran in each of the two runs."""
    mine, right = len(cell.mine), len(cell.right)
    if are_several:
        mine, right = (f"run {times(number)} in all" if number else "never run" for number in (mine, right))
        return f"{what} {mine}; in a right run they {right}"
    return f"{what} {_count('runs', mine)}; in a right run it {_count('runs', right)}"


def _count(doing: str, number: int) -> str:
    """What is done, and how often: "runs twice", "does not run"."""
    if number:
        return f"{doing} {times(number)}"
    verb, _, rest = doing.partition(" ")
    return f"does not {verb.removesuffix('s')} {rest}".rstrip()


def _tell_attribute(cell: Cell, *_: Any) -> str:
    what, attribute, on = cell.key
    doing = f"changes {on} in place" if what == "changes" else f"{what} `{attribute}` of {on}"
    if not cell.mine:
        seen = ", where autograd sees it" if what == "changes" else ""
        return "" if what == "reads" else f"a right answer {doing}{seen}; yours does not"
    if not cell.right:
        value = f", which is {_say(cell.mine[0]['gave'])} then" if what == "reads" else ""
        return f"your answer {doing}{value} ({_line(cell.mine[0])}); the course's right answers do not"
    if not cell.first_pair or (what == "sets" and max(len(cell.mine), len(cell.right)) > 1):
        return ""  # who sets it several times has it as it was last
    mine, right = show_apart(*(event["gave"] for event in cell.first_pair[1:]))
    if what == "reads":
        return f"`{attribute}` of {on} is {mine} when your answer reads it; in a right run it is {right}"
    return f"your answer {doing}, to {mine}; a right one to {right}"


def _tell_holding(cell: Cell, *_: Any) -> str:
    ends = [events[-1]["gave"] for events in (cell.mine, cell.right) if events]
    if len(ends) == 2 and not alike(*ends):
        mine, right = show_apart(*ends)
        return f"what you returned comes to hold {mine}; in a right run it holds {right}"
    if cell.first_pair:
        mine, right = show_apart(*(event["gave"] for event in cell.first_pair[1:]))
        return f"what you returned comes to hold {mine} at first; in a right run it holds {right} then"
    if len(cell.mine) > len(cell.right):
        return f"what you returned comes to hold {_say(ends[0])}; in a right run it stays as it was"
    return f"what you returned stays as it was; in a right run it comes to hold {_say(ends[-1])}"


class Compared(NamedTuple):
    """What is compared of the events in which one thing happens, and what tells how two runs differ in them."""

    compared: tuple[str, ...]
    tell: Callable[..., str]


COMPARED = {  # by what happens; in other events right answers may differ
    "registers": Compared((), _tell_registering),
    "runs": Compared(("got", "gave", "changed"), _tell_run),
    "calls": Compared(("got",), _tell_call),
    "backward": Compared((), _tell_backward),
    "changes": Compared(("gave",), _tell_attribute),
    "sets": Compared(("gave",), _tell_attribute),
    "reads": Compared(("gave",), _tell_attribute),
    "left": Compared(("gave",), _tell_left),
    "released": Compared((), lambda *_: ""),  # what a case does with a handle follows from what was returned
    "holds": Compared(("gave",), _tell_holding),
}


def _line(event: Event) -> str:
    return f"your line {event['line']}, `{event['text']}`" if event["text"] else f"your line {event['line']}"


# --- what is computed -------------------------------------------------------------------------------------------------


def find_wrong_step(mine: Run, rights: Sequence[Run], evidence: Evidence) -> Divergence | None:
    """The first step that makes, of values that right runs have too, one that none has, and that ends in the result.

    Not where a value of a right run comes of it later: then the answer only takes another way. Shapes and dtypes count
    only where all numbers are those of a right run.
    """
    steps = [event for event in mine["events"] if event["what"] == "computes"][:MOST_STEPS]
    others = [event for event in mine["events"] if event["what"] != "computes"]
    for view in (_numbers_alone, _with_shape):
        known = [view(value) for run in rights for event in run["events"] for value in _numbers(event)]
        ends = [view(shorten(value)) for value in _numbers([evidence["returned"], evidence["seen"], others])]
        for number, step in enumerate(steps):
            new = [value for value in step["gave"] if not _among(view(value), known)]
            strange = [place for place, value in enumerate(step["got"]) if not _among(view(value), known)]
            if (
                not new
                or _is_mask(step)
                or _only_joins(step)
                or not step["got"]
                or (strange and (strange != [0] or not step["on"]))
            ):
                continue
            reaches = _reaches([*map(view, new)], steps[number + 1 :], known, ends, view)
            if reaches and (found := _tell_step(step, new[0], view is _with_shape, bool(strange), rights)):
                return found
    return _find_next_step(evidence["returned"], mine, rights)


def _is_mask(step: Event) -> bool:
    """Whether a step makes a yes and no of each number: right answers ask other questions, or the opposite ones."""
    return all(value.get("dtype") == "bool" for value in step["gave"])


def _only_joins(step: Event) -> bool:
    """Whether a step puts several values together and computes nothing, as `stack` does."""
    came, made = (sorted(str(number) for value in step[side] for number in value.get("values", ())) for side in SIDES)
    return len(step["got"]) > 1 and came == made


def _numbers_alone(value: Plain) -> Plain:
    """The numbers of a tensor, or a number as a tensor, whatever its shape and dtype."""
    if value["type"] == "float":
        return {"type": "tensor", "dtype": "", "shape": [1], "values": [value["value"]]}
    if value["type"] != "tensor":
        return value
    numbers = [number if isinstance(number, str) else float(number) for number in value["values"]]
    return value | {"shape": [len(numbers)], "dtype": "", "values": numbers}


def _with_shape(value: Plain) -> Plain:
    """A tensor with its shape and dtype; a number is the same as a tensor without dimensions."""
    return shorten(value) if value.get("shape") else _numbers_alone(value)


def _reaches(
    new: Sequence[Plain],
    steps: Sequence[Event],
    known: Sequence[Plain],
    ends: Sequence[Plain],
    view: Callable[[Plain], Plain],
) -> bool:
    """Whether what comes of new values in further steps ends in the result, and never is a value of a right run.

    What is only asked for a yes or no does not count.
    """
    came = list(new)
    for step in steps:
        if not _is_mask(step) and any(_among(view(value), came) for value in step["got"]):
            made = [*map(view, step["gave"])]
            if all(_among(value, known) and not _may_be_chance(value, step["got"]) for value in made):
                return False
            came += made
    return any(_among(value, came) for value in ends)


def _may_be_chance(value: Plain, sources: Sequence[Plain]) -> bool:
    """Whether a value may be one of a right run by chance: a mask, or one number that was picked, as the largest is."""
    numbers = {*value.get("values", ())}
    return numbers <= {0, 1} or (len(numbers) == 1 and any(numbers <= {*each.get("values", ())} for each in sources))


def _numbers(value: Any) -> Iterator[Plain]:
    """The tensors and the numbers with a point in plain data."""
    if isinstance(value, dict) and value.get("type") in ("tensor", "float"):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _numbers(each)


def _among(value: Plain, values: Sequence[Plain]) -> bool:
    return any(_equal(value, each) for each in values)


def _equal(one: Plain, other: Plain) -> bool:
    """Whether two values are equal, also where all numbers in them are small: 1e-18 for 1e-13 is another way."""
    if not alike(one, other):
        return False
    pairs = [(a, b) for a, b in zip(one.get("values", ()), other.get("values", ()), strict=False) if a != b]
    largest = max((abs(each) for each in one.get("values", ()) if type(each) is float), default=0)
    return all(math.isclose(a, b, rel_tol=1e-5, abs_tol=min(1e-9, 1e-6 * largest)) for a, b in pairs)


def _find_next_step(returned: Plain, mine: Run, rights: Sequence[Run]) -> Divergence | None:
    """What the right runs make of the value with which the answer ends, where they all make the same."""
    value = shorten(returned)
    if value["type"] != "tensor" or any(_ends_with(run, value) for run in rights):
        return None
    found = [(run, event) for run in rights for event in run["events"] if _uses(event, value)]
    made = [each for _, event in found for each in event["gave"]]
    if not made or not all(_equal(made[0], each) for each in made):
        return None
    if _equal(_numbers_alone(made[0]), _numbers_alone(value)):  # only the same numbers, as a list perhaps
        return None
    (run, event), (words, there) = found[0], show_apart(value, made[0])
    last = next((each for each in reversed(mine["events"]) if each["what"] == "returns"), None)
    said = f"Your answer ends with {words}; a right run goes on, and makes {there} of it."
    return Divergence(said, run, 0, last, event)


def _ends_with(run: Run, value: Plain) -> bool:
    return any(event["what"] == "returns" and alike(event["gave"], value) for event in run["events"])


def _uses(event: Event, value: Plain) -> bool:
    """Whether an event computes something else of a value."""
    is_step = event["what"] == "computes" and _among(value, event["got"])
    return is_step and not _among(value, event["gave"])


def _tell_step(step: Event, new: Plain, as_numbers: bool, strange: bool, rights: Sequence[Run]) -> Divergence | None:
    """`as_numbers`: whether the new value is one of a right run but for its shape or its dtype.

    None of places and counts that no right run has: there are many ways to count.
    """
    source = " and ".join(dict.fromkeys(map(_say_source, step["got"][:2])))
    line = _line(step).replace("your", "Your", 1) + ("," if step["text"] else "")
    beside = [(run, event) for run in rights for event in run["events"] if _is_beside(event, step)]
    made = [value for _, event in beside for value in event["gave"]]
    if any(_are_of_another_kind(new, value, step["got"]) for value in made):
        made = []
    if strange:
        said = f"{line} computes with the values of {step['on']}; none of the course's does."
    elif made and all(_equal(made[0], value) for value in made):
        (run, event), (words, there) = beside[0], show_apart(new, made[0])
        said = f"{line} makes {words} from {source}; a right run makes {there} from it."
        return Divergence(said, run, step["part"], step, event)
    elif "int" in new.get("dtype", ""):
        return None
    else:
        words = f"{_say(new)}, of dtype {new['dtype']}," if as_numbers and new.get("dtype") else _say(new)
        said = f"{line} makes {words} from {source}; that is in none of the course's right runs."
    return Divergence(said, rights[0], step["part"], step, None)


def _are_of_another_kind(new: Plain, made: Plain, sources: Sequence[Plain]) -> bool:
    """Whether two values tell nothing of each other: a mask and numbers, or one number for each and fewer of them."""
    is_mask, was_mask = (value.get("dtype") == "bool" for value in (new, made))
    shapes = [source.get("shape") for source in sources]
    return is_mask != was_mask or (new.get("shape") in shapes and made.get("shape") not in shapes)


def _is_beside(event: Event, step: Event) -> bool:
    """Whether an event of a right run computes something new of the same values as a step."""
    if event["what"] != "computes" or len(event["got"]) != len(step["got"]):
        return False
    made = [_numbers_alone(value) for value in event["gave"]]
    if all(len({*value.get("values", ())}) == 1 < len(value["values"]) for value in made if "values" in value):
        return False  # such as zeros of that shape
    came_in = [_numbers_alone(value) for value in step["got"]]
    return all(map(_equal, event["got"], step["got"])) and not all(_among(value, came_in) for value in made)


def _say(value: Plain) -> str:
    """A value in words that are read at a glance: of a long tensor the shape, and the numbers with which it begins."""
    words = show(value)
    if not words.startswith("[") or value["type"] != "tensor" or len(words) <= LONGEST or len(value["values"]) <= 4:
        return words
    first = words.replace("[", "").replace("]", "").split(", ")[:3]
    return f"{name_type(value)} that begins with {', '.join(first)}"


def _say_source(value: Plain) -> str:
    """Of what something is made: the numbers only where they are few."""
    words = show(value)
    return words if value["type"] != "tensor" or len(words) <= LONGEST else name_type(value)


def show_apart(one: Plain, other: Plain) -> tuple[str, str]:
    """Two values in words; where these are the same for values that differ, with what does differ."""
    part = differing_part(one, other)
    if one.get("shape") and other.get("shape") and one["shape"] != other["shape"]:
        return name_type(one), name_type(other)
    words = _say(one), _say(other)
    if part is None or words[0] != words[1]:
        return words
    mine, right = part.mine, part.expected
    if mine["type"] != right["type"]:
        return f"{words[0]} ({_kind(mine)})", f"{words[1]} ({_kind(right)})"
    if mine.get("dtype") != right.get("dtype"):
        return f"{words[0]} ({mine['dtype']})", f"{words[1]} ({right['dtype']})"
    pairs = list(zip(mine["values"], right["values"], strict=True))[: MAX_SHOWN + 1]
    place = next((place for place, pair in enumerate(pairs) if not close(*pair)), None)
    if place is None:
        return words[0], "a tensor like that, but for numbers further on"
    now, then = map(number_text, pairs[place])
    return f"{words[0]}, with {now} at {find_place(place, mine['shape'])}", f"one with {then} there"


def _kind(value: Plain) -> str:
    return {"tensor": "a tensor", "int": "a plain number", "float": "a plain number"}.get(value["type"], value["type"])
