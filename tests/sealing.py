"""Whether a lesson keeps its predictions sealed: what stands where, and which words give an answer away."""

import re

from course_utils.authoring.source import called_with, tags_of

CHAPTER = re.compile(r"^##? ", re.M)
SENTENCE_WORDS = 6  # fewer may stand anywhere by chance
COMMON = {"a", "an", "and", "all", "any", "as", "at", "be", "both", "by", "for", "in", "is", "it", "its", "no", "none"}
COMMON |= {"not", "of", "on", "only", "or", "that", "the", "those", "to", "yes"}


def words(text):
    """The words and numbers of a text in small letters; those of a name like `clippedTooLate` or `too_late` too."""
    return re.findall(r"-?\d+(?:[.,]\d+)*|[^\W\d]\w*", re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", text).lower())


def secrets(prediction):
    """The sentences that nobody may meet before the commit, each as its words: of `why`, and the replies to options."""
    texts = [prediction.why, *prediction.options.values()]
    parts = (part for text in texts for part in re.split(r"(?<=[.:?!])\s|\n\s*(?:\n|[-|])", text))
    found = (words(part) for part in parts)
    long = (each for each in found if sum(word[0].isalpha() for word in each) >= SENTENCE_WORDS)
    return list(dict.fromkeys(map(" ".join, long)))


def find_told(text, prediction):
    """The sentences of `prediction` that `text` says."""
    said = f" {' '.join(words(text))} "
    return [secret for secret in secrets(prediction) if f" {secret} " in said]


def seal_problems(cells, predictions):
    """What breaks a seal in the learner's `cells` of a lesson. predictions: by their names."""
    yield from tag_problems(cells)
    chapter = []  # the cells since the last heading of level 2
    for cell in [*cells, None]:
        if cell is None or (cell.cell_type == "markdown" and CHAPTER.search(cell.source)):
            yield from chapter_problems(chapter, predictions)
            chapter = []
        chapter.append(cell)
    everything = "\n".join(cell.source for cell in cells)
    for name, asked in predictions.items():
        if not asked.why:
            yield f"{name} has no explanation: why="
        yield from (f"{name} is given away by the lesson's text: {each}" for each in find_told(everything, asked))


def tag_problems(cells):
    for cell in [cell for cell in cells if cell.cell_type == "code"]:
        for kind in ("predict", "why"):
            if (called_with(cell.source, kind) is None) is (kind in tags_of(cell)):
                yield f"{cell.id}: a cell is tagged `{kind}` where it calls {kind}(…), and nowhere else"


def chapter_problems(chapter, predictions):
    """Each prediction is followed by a cell that shows its answer, then by what explains it, in the same chapter."""
    asked, shown = {}, set()
    for number, cell in enumerate(chapter):
        tags = set(tags_of(cell))
        if "predict" in tags:
            asked[called_with(cell.source, "predict")] = number
        elif "why" in tags:
            name = called_with(cell.source, "why")
            if name not in shown:
                yield f'why("{name}") stands where no cell since predict("{name}") shows the answer'
            if asked.pop(name, None) is not None and name in predictions:
                text = "\n\n".join(each.source for each in chapter[: number + 1])
                text = re.split(r"(?m)^(?=##? )", text, maxsplit=1)[-1]
                yield from (f"{name} is given away by: {each}" for each in find_hints(text, predictions[name]))
        elif cell.cell_type == "code" and not tags & {"answer", "check", "setup"}:
            shown |= asked.keys()
    yield from (f"{name} has no why(…) before the next chapter" for name in asked)


def find_hints(text, prediction):
    """The lines or sentences of `text` that have all the own words of the right option, where no other's are seen.

    An option's own words are those that the question has not, without `COMMON` ones. Letters and digits are everywhere.
    """
    lines = {line.strip(): set(words(line)) for line in re.split(r"(?<=[.:?!])\s|\n\s*\n|\n(?!# )", text)}
    asked = COMMON | set(words(prediction.question))
    own = {option: set(words(option)) - asked for option in prediction.options}
    right = own.pop(prediction.answer)
    if not right or max(map(len, right)) < 2:
        return []
    if any(other <= line for other in own.values() for line in lines.values()):
        return []
    return [line for line, said in lines.items() if right <= said]
