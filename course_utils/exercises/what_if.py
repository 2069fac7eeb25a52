"""Questions about a learner's answer with one line changed: what happens then, and which input goes wrong.

The changed answer is run, and the other options are what further changes do. `explain` runs it once more and says what
happened first.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from functools import partial
from typing import Any, NamedTuple

from course_utils.exercises.changes import SMALLEST, Change
from course_utils.exercises.comparing import RETURNED, Fact, alike, differing_part, facts
from course_utils.exercises.divergence import SIDES, find_divergence, show_apart, times
from course_utils.exercises.engine import Exercise
from course_utils.exercises.events import Event, record_run
from course_utils.exercises.evidence import TimeIsUp
from course_utils.exercises.outcome import IN_WORDS, Stage
from course_utils.exercises.plain import Evidence, Plain, name_type, raised_type, show
from course_utils.exercises.question import FEWEST_OPTIONS, MOST_OPTIONS, Question, Subject, shuffle
from course_utils.exercises.recorded import VISIBLE_SEED
from course_utils.exercises.timelines import tell_event

CASES_ASKED = 2  # in which changes are tried
SECONDS_TO_EXPLAIN = 2.0  # that a run has for a case when it is recorded
ENOUGH_IN_VAIN = 8  # changes after which a case is left that shows none of them
LONGEST = 90  # characters of an option
LONGEST_REASON = 400
LONGEST_INPUT = 120  # of the words for a case that is an option
AS_NOW = "Nothing changes, as far as `check` can see."
OTHER_VALUES = "as now, but with other values"
OTHER_ORDER = "as now, but in another order"
TRIVIAL = {"NameError", "UnboundLocalError", TimeIsUp.__name__, "SyntaxError", "RecursionError"}
INTEGERS = re.compile(r"\[\d+(, \d+)*\]|returns \d+\.$")
SOME_NUMBER = re.compile(r"-?\d+\.\d*(e[+-]\d+)?|(?<=[\[( ])-?\d+(?=[\]),])")  # a float; an int in a list or shape
PARTIAL = re.compile(r"\b(abs|relu|clamp|maximum|minimum)\b|\[1:\]|\[:1\]|\[0\]")
NUMBERS = re.compile(r"= \[*-?\d+\.")  # a tensor or a number of a case, written out
CALLABLE = {"a function": "something that can be called"}  # a class and a node of the graph are no functions
LOOK_ALIKE = [{"tensor", other} for other in ("int", "float", "bool", "list", "tuple")]  # when they are written
PRESENT = {"changed": "changes", "left": "leaves", "removed": "removes", "gave": "gives", "did": "does"}


class Said(NamedTuple):
    """Something that a run shows and the learner's own does not: in words, about what, and how that is now."""

    words: str
    about: str
    value: Plain
    now: str = ""


class Tried(NamedTuple):
    """A change, all that is different when it is run, and all that is seen then, by the words for what it is.

    Where an error came, the run `is_cut`: what was true before the error is not known.
    """

    change: Change
    said: list[Said]
    seen: list[tuple[str, Plain]]
    is_cut: bool

    def shows(self, said: Said) -> bool:
        """Whether something is seen, perhaps at another moment: two things may have the same name."""
        return any(words == said.about and alike(value, said.value) for words, value in self.seen)


# --- what happens then? -----------------------------------------------------------------------------------------------


def ask_outcome(subject: Subject) -> Question | None:
    """What happens in a case when a line is changed. Other changes make the wrong options."""
    for at in subject.cases[:CASES_ASKED]:
        tried = _try_changes(subject, at)
        for candidate in sorted(tried, key=_how_obvious):
            has_numbers = _can_be_computed(subject.own[at])
            options = _find_options(candidate, tried, has_numbers)
            if not has_numbers and _depends_on_numbers(candidate.change):
                continue
            if ".clone()" in candidate.change.key and "in place" not in subject.own[at]["given"]:
                continue  # nobody can know that a tensor is changed later
            if options and candidate.change.key not in subject.asked and _is_sure(subject, candidate, at):
                return _word_outcome(subject, candidate.change, options, at)
    return None


def _can_be_computed(case: Evidence) -> bool:
    """Whether a reader can work out new numbers: the case shows its own, and no module computes with others."""
    has_module = any("training" in each for each in case["inputs"].values())
    return bool(NUMBERS.search(case["given"])) and not has_module and "that begins with" not in case["given"]


def _depends_on_numbers(change: Change) -> bool:
    """Whether only who sees the numbers can know if a change does anything: a small one, or one to some of them."""
    before, _, after = change.key.partition("\nto ")
    return change.rank == SMALLEST or PARTIAL.findall(before) != PARTIAL.findall(after)


def _is_sure(subject: Subject, candidate: Tried, at: int) -> bool:
    """Whether a change does the same when it is run again."""
    again = differences(subject.run(candidate.change, at), subject.own[at])
    return [each.words for each in again] == [each.words for each in candidate.said]


def _word_outcome(subject: Subject, change: Change, options: Sequence[Said], at: int) -> Question:
    now = "; ".join(dict.fromkeys(each.now for each in options if each.now))
    as_it_is = f"\nWith your code as it is: {now.rstrip('.')}." if now else ""
    text = f"{change.words}\nWhat happens then in this case: {subject.tell_case(at)}?{as_it_is}"
    texts = [*shuffle([each.words for each in options], text), AS_NOW]
    return _question(subject, change, change.key, text, texts, options[0].words, at)


def _try_changes(subject: Subject, at: int) -> list[Tried]:
    tried = []
    for change in subject.changes(share=0.6):
        got = subject.run(change, at)
        if raised_type(got) not in TRIVIAL:
            seen = [(fact.words, fact.mine) for fact in facts(got, subject.own[at])]
            tried.append(Tried(change, differences(got, subject.own[at]), seen, bool(got["raised"])))
        if len(tried) == ENOUGH_IN_VAIN and not any(each.said for each in tried):
            break
    return tried


def _how_obvious(tried: Tried) -> tuple[bool, int]:
    """An error is easier to foresee than another value, so it comes later."""
    return bool(tried.said) and tried.said[0].about == "raised", tried.change.rank


def _find_options(candidate: Tried, tried: Sequence[Tried], has_numbers: bool) -> list[Said] | None:
    """What a change does, and then what others do and it does not; None where too few can be told apart.

    Of a case that does not show its numbers, no two options differ in numbers alone.
    """
    if not candidate.said or not _can_be_told(candidate.said[0]):
        return None
    truth = candidate.said[0]
    if not has_numbers and INTEGERS.search(truth.words) and _same_but_numbers(truth.words, truth.now):
        return None  # such as other places: whether they change, nobody can know
    firsts = [each.said[0] for each in tried if each.said and _can_be_told(each.said[0])]
    firsts = [each for each in firsts if each.about == RETURNED or not candidate.is_cut]
    options = [truth]
    for other in sorted(firsts, key=lambda each: each.about != truth.about):
        may_be_true = candidate.shows(other) or any(_clash(other, each) for each in (*candidate.said, *options))
        is_of_a_part = _part_told(other) not in ("", _part_told(truth))  # it may be true of that part
        looks_alike = not has_numbers and any(_same_but_numbers(other.words, one.words) for one in options)
        if not (may_be_true or is_of_a_part or looks_alike) and len(options) < MOST_OPTIONS - 1:
            options.append(other)
    return options if len(options) >= FEWEST_OPTIONS - 1 else None


def _can_be_told(said: Said) -> bool:
    return 0 < len(said.words) <= LONGEST and len(said.now) <= LONGEST + 20


def _same_but_numbers(one: str, other: str) -> bool:
    """Whether two texts are the same with one number in the place of each list of numbers."""
    one, other = (re.sub(r"0\.(, 0\.)+", "0.", SOME_NUMBER.sub("0.", each)) for each in (one, other))
    return one.rstrip(".").lower() == other.rstrip(".").lower()


def _part_told(said: Said) -> str:
    """Where the part is of which alone something is said; empty if it is said of the whole."""
    found = re.search(r" at (\S+), not ", said.words)
    return found[1] if found else ""


def _clash(one: Said, other: Said) -> bool:
    """Whether two options could both be true, or look it."""
    if one.words == other.words:
        return True
    if one.about != other.about:
        return False
    is_vague = OTHER_VALUES in one.words + other.words and name_type(one.value) == name_type(other.value)
    return one.about == "raised" or is_vague or alike(one.value, other.value)


# --- what a run shows, in words ---------------------------------------------------------------------------------------


def differences(got: Evidence, own: Evidence) -> list[Said]:
    """All that a run shows and the learner's own run does not, in the order in which it is judged.

    Where an error came, only that was seen, and before it what was returned, where that may be why the error came: it
    is of another kind.
    """
    different = [fact for fact in facts(got, own) if not fact.agrees]
    if got["raised"]:
        has_returned = got["raised"]["during"] != "call"
        returned = [each for each in different if each.words == RETURNED and has_returned]
        returned = [each for each in returned if each.mine["type"] != each.expected["type"]]
        different = [*returned, *(each for each in different if each.stage is Stage.RAISED)]
    return [_say(fact, got) for fact in different]


def _say(fact: Fact, got: Evidence) -> Said:
    if fact.stage is Stage.RAISED:
        error = got["raised"]
        if error and error["during"] != "call" and not error["line"]:
            return Said("", "raised", fact.mine)  # in a line of the case, which nobody sees
        words = f"An error stops the run: {error['type']}: {error['message']}" if error else "No error is raised."
        return Said(_cut(words), "raised", fact.mine)
    if ("requires_grad" in fact.words and fact.mine["type"] == "None") or "still in memory" in fact.words:
        return Said("", fact.words, fact.mine)  # nothing was returned; what a graph keeps depends on the layers
    if re.match(IN_WORDS, fact.words) or re.search(r"\b(call|case) before\b", fact.words):
        return Said("", fact.words, fact.mine)
    if fact.stage:
        words = re.sub(rf"\b({'|'.join(PRESENT)})\b", lambda found: PRESENT[found[0]], fact.words.partition(":")[0])
        return Said(_sentence(words), fact.words, fact.mine)
    return Said(_sentence(_say_value(fact)), fact.words, fact.mine, _say_now(fact))


def _cut(words: str) -> str:
    words = re.split(r"(?<=\w)[.;] ", words)[0]
    return _sentence(words) if len(words) < LONGEST else f"{words[: LONGEST - 3].rsplit(' ', 1)[0]} …"


def _sentence(words: str) -> str:
    """Words with a full stop, and with a capital where they do not begin with a name in code."""
    begins_with_a_word = re.match(r"[a-z]{3,} ", words)
    return f"{words[0].upper() if begins_with_a_word else words[:1]}{words[1:]}".rstrip(".") + "." if words else ""


def _say_value(fact: Fact) -> str:
    """The new value; where it is long or looks like the old one, in what it differs."""
    mine, subject = show(fact.mine), _subject(fact)
    mine = CALLABLE.get(mine, mine)
    stage, path, part, expected = differing_part(fact.mine, fact.expected)
    if stage is Stage.WRONG_DTYPE:
        return f"{subject} a tensor of dtype {part['dtype']}{_at(path)}, not {expected['dtype']}"
    if stage is Stage.WRONG_SHAPE:
        return f"{subject} a tensor of shape {tuple(part['shape'])}{_at(path)}, not of shape {tuple(expected['shape'])}"
    looks_alike = {part["type"], expected["type"]} in LOOK_ALIKE and not path
    looks_alike = looks_alike or mine.rstrip(".") == show(fact.expected).rstrip(".")  # 0 and 0.
    is_short = " that begins with " not in mine and len(f"{subject} {mine}") <= LONGEST
    if is_short and not looks_alike:
        return f"{subject} {mine}"
    names = [CALLABLE.get(name, name) for name in (name_type(fact.mine), name_type(fact.expected))]
    if names[0] != names[1]:
        return f"{subject} {names[0]}, not {names[1]}"
    if name_type(part) != name_type(expected):
        return f"{subject} {name_type(part)}{_at(path)}, not {name_type(expected)}"
    if mine == show(fact.expected):
        return ""
    return f"{subject} {names[0]} {OTHER_ORDER if _is_reordered(fact) else OTHER_VALUES}"


def _is_reordered(fact: Fact) -> bool:
    """Whether a list or a tuple has the same items as before, in another order."""
    if not {fact.mine["type"], fact.expected["type"]} <= {"list", "tuple"}:
        return False
    mine, expected = (sorted(map(show, value["items"])) for value in (fact.mine, fact.expected))
    return len(mine) > 1 and mine == expected


def _at(path: str) -> str:
    return f" at {path}" if path else ""


def _subject(fact: Fact) -> str:
    name, _, verb = re.sub("^(in )?yours[:,] ", "", fact.words).rpartition(" ")
    if verb == "returned":
        return "your function returns"
    if re.match("(whether|how|who|what|which|at|above|below|with|in|for) ", name):
        return f"{name}:"
    is_plural = verb == "were" or re.match(r"(the )?(?!bias|class|loss)\w+[^s]s (of|on|in|that|left) ", name)
    name = f"`{name}`" if re.fullmatch(r"[\w.]+", name) else name
    return f"{name} {'are' if is_plural else 'is'}"


def _say_now(fact: Fact) -> str:
    now = show(fact.expected)
    now = CALLABLE.get(now, now)
    return "" if " that begins with " in now or len(now) > LONGEST else f"{_subject(fact)} {now}"


# --- which of these inputs does it get wrong? -------------------------------------------------------------------------


def ask_input(subject: Subject) -> Question | None:
    """Which of some inputs the answer gets wrong when a line is changed; it gets the others right."""
    texts = [subject.tell_case(at) for at in range(len(subject.own))]
    told = [text for text in dict.fromkeys(texts) if len(text) <= LONGEST_INPUT and " = " in text]  # something to see
    if len(told) < FEWEST_OPTIONS:
        return None
    for change in subject.changes(share=0.5):
        key = f"{change.key}, which input"
        wrong = _find_wrong(subject, change) if key not in subject.asked else []
        failing = [text for text in told if text in [texts[at] for at in wrong]]
        right = [text for text in told if text not in failing]
        if len(failing) != 1 or len(right) < FEWEST_OPTIONS - 1 or _find_wrong(subject, change) != wrong:
            continue
        text = f"{change.words}\nYour function would then get one of these inputs wrong. Which one?"
        at = next(at for at in wrong if texts[at] == failing[0])
        return _question(subject, change, key, text, shuffle([*failing, *right], text), failing[0], at)
    return None


def _find_wrong(subject: Subject, change: Change) -> list[int]:
    """The numbers of the cases in which a changed answer does something else; none where that would be no question."""
    got = subject.run_all(change)
    if len(got) < len(subject.own) or any(raised_type(case) in TRIVIAL for case in got):
        return []
    return [at for at, pair in enumerate(zip(got, subject.own, strict=True)) if differences(*pair)]


def _question(
    subject: Subject, change: Change, key: str, text: str, options: Sequence[str], answer: str, at: int
) -> Question:
    find_reason = partial(explain, subject.exercise, subject.answer, change, at)
    return Question(subject.exercise.name, key, text, tuple(options), answer, find_reason)


# --- why --------------------------------------------------------------------------------------------------------------


STEPS = ("computes", "returns")  # of which nobody knows whether they are the same step of both runs
VAGUE = re.compile(r"\banother (tensor|module|object)\b|an object of type")  # which of them, a reader cannot know
VOICES = {  # what is said of an answer and of right ones, when both are the learner's
    "the course's right answers register": "your own code registers",
    "the course's right answers do not": "your own code does not",
    "none of the course's does": "your own code does not",
    "in none of the course's right runs": "not in your own run",
    "Your line": "Line",
    "your answer": "the changed code",
    "Your answer": "The changed code",
    "a right run": "your own run",
    "a right answer": "your own code",
    "a right one": "your own code",
    "yours does not": "the changed code does not",
    "what you returned": "what is returned",
}


def explain(exercise: Exercise, answer: Callable, change: Change, at: int) -> str:
    """Why a changed answer does something else in a case, in a sentence, from the record of events of both runs.

    Where no event and no line differs, what was observed in the end.
    """
    seen, own = record_run(exercise.make_cases, answer, VISIBLE_SEED, SECONDS_TO_EXPLAIN, at)
    evidence, run = record_run(exercise.make_cases, change.function, VISIBLE_SEED, SECONDS_TO_EXPLAIN, at)
    if evidence["raised"]:
        observed = "" if evidence["raised"]["line"] else _tell_observed(differences(evidence, seen))
        return observed or _tell_error(evidence["raised"])  # one in the case tells nothing of the answer
    found = find_divergence(run, [own], evidence)
    said = found.sentence if found and not (found.mine and found.mine["what"] in STEPS) else ""
    for words, others in VOICES.items():
        said = said.replace(words, others)
    if 0 < len(said) <= LONGEST_REASON and not VAGUE.search(said) and not _look_equal(found.mine, found.other):
        return said
    events = run["events"], own["events"]
    return _tell_first_difference(*events) or _tell_first_line(*events) or _tell_observed(differences(evidence, seen))


def _look_equal(mine: Event | None, other: Event | None) -> bool:
    """Whether two events that differ show the same values: the difference is in what is not shown."""
    sides = [side for side in SIDES if mine and other and side in mine and side in other]
    return bool(sides) and all(show(mine[side]) == show(other[side]) for side in sides)


def _tell_first_difference(events: Sequence[Event], own: Sequence[Event]) -> str:
    """What happens only in one of two runs, whichever is first; nothing where all that can be told is the same."""
    events, own = ([event for event in each if _can_be_read(event)] for each in (events, own))
    told, told_own = ([tell_event(event) for event in each] for each in (events, own))
    for kind, start, _, start_own, _ in SequenceMatcher(None, told, told_own, autojunk=False).get_opcodes():
        if kind == "replace" and own[start_own]["what"] == events[start]["what"]:
            return f"With the change, {_name(told[start])}; in your own run, {_name(told_own[start_own])}."
        words = told[start] if kind == "delete" else told_own[start_own] if kind != "equal" else ""
        now, before = (_happens(each.count(words)) for each in (told, told_own))
        if now != before:  # else it comes at another moment
            return f"This {before} in your own run, and {now} with the change: {_name(words)}."
    return ""


def _name(words: str) -> str:
    """The words for an event with an article, where they begin with a hook."""
    return re.sub(r"^(?=[\w -]+ hooks? on )", "the ", words)


def _happens(number: int) -> str:
    return f"happens {times(number)}" if number else "never happens"


def _can_be_read(event: Event) -> bool:
    """Whether it is about a thing with a name, and short enough to be told to its end."""
    words = tell_event(event)
    return event["what"] not in STEPS and not VAGUE.search(words) and not words.endswith("…")


def _tell_observed(found: Sequence[Said]) -> str:
    """What a run shows in the end, and the learner's own run, of what can be told of both."""
    for said in (each for each in found if each.now):
        return f"{said.words} In your own run, {said.now.rstrip('.')}."
    return next((each.words for each in found), "")


def _tell_first_line(events: Sequence[Event], own: Sequence[Event]) -> str:
    """The first step that comes to another value, in a line with as many steps in both runs; empty if none does."""
    mine, before = map(_values_of_lines, (events, own))
    for line, values in before.items():
        pairs = zip(mine[line], values, strict=True) if len(mine[line]) == len(values) else ()
        for (of, now), (of_before, then) in pairs:
            if of != of_before:  # it is another step
                break
            if not alike(now, then):
                said = "A step in line {} then makes {}; in your own run, {}".format(line, *show_apart(now, then))
                return f"{said.rstrip('.')}."
    return ""


def _values_of_lines(events: Sequence[Event]) -> dict[int, list[tuple[list[Plain], Plain]]]:
    """The steps of each line, one after the other: what it was made of, and what it came to."""
    values: dict[int, list[tuple[list[Plain], Plain]]] = defaultdict(list)
    for event in events:
        if event["what"] == "computes":
            values[event["line"]] += [(event["got"], value) for value in event["gave"][-1:]]
    return values


def _tell_error(error: dict[str, Any]) -> str:
    said = f"{error['type']}: {error['message']}"
    if not error["line"]:
        return f"The run then ends with {said}."
    after = "; torch called it as a hook, after your function had returned" if error["during"] == "hook" else ""
    return f"Your line {error['line']} then raises {said}{after}."
