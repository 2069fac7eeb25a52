"""The lessons for who teaches them: with answers and notes, or as a handout, with another network or picture too.

The notes are the cells tagged `instructor` of a lesson's source. What the exercises declare (reference answers, usual
mistakes) and the predictions (each option with its reason) is taken from there, so that it is never out of date.
"""

import re
import time
from collections.abc import Callable
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course_utils.authoring import build, page, source
from course_utils.authoring.source import choose, learner, number_of, put_answers, read_source, tags_of
from course_utils.exercises.engine import Exercise, Prediction, exercises_of, predictions_of
from course_utils.root import ROOT, CourseError, write_whole

BUILD = ROOT / "build"
APPENDIX = """## For the teacher: what your students will answer

Made from the lesson's predictions and exercises. The words are those with which `why` and `check` answer."""


def read_built(path: Path, folder: Path = source.FOLDER) -> NotebookNode:
    """The learner's notebook of the lesson `path`, as it was built. Raises `CourseError` where it is out of date."""
    built = folder / f"{path.stem}.ipynb"
    if differences := build.find_differences(path, built):
        raise CourseError(f"{differences[0]}. Build it first:  make notebooks ARGS={path.stem[:2]}")
    return nbformat.read(built, as_version=4)


def write_and_say(path: Path, text: str, what: str) -> None:
    """Write `text` to `path`, and print what was written where, seen from here if it is below."""
    write_whole(path, text)
    print(f"{path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}: {what}", flush=True)


def write_each(lesson: str | None, target: Path, make: Callable[[Path], str], what: str) -> int:
    """Write what `make` makes of a lesson (`07`), or of all, to `target` with its name for `NAME`; returns 0."""
    for path in choose([lesson] if lesson else []):
        print(f"{path.stem} …", flush=True)
        start, text = time.perf_counter(), make(path)
        said = f"{what} ({time.perf_counter() - start:.0f} s)."
        write_and_say(target.with_name(target.name.replace("NAME", path.stem)), text, said)
    return 0


def write_instructor(lesson: str | None = None, folder: Path = BUILD / "instructor") -> int:
    """Run the instructor's edition of a lesson (`07`), or of all, into `folder`; `CourseError` where a cell fails."""
    target, what = folder / "NAME.ipynb", "the lesson with answers and notes for the teacher"
    return write_each(lesson, target, lambda path: nbformat.writes(build.run(compose(path), path.stem)), what)


def compose(path: Path) -> NotebookNode:
    """The lesson `path` with its reference answers, its notes and an appendix; not run."""
    notebook = put_answers(read_source(path), {each.name: each.source for each in exercises_of(number_of(path))})
    for cell in notebook.cells:
        if "instructor" in tags_of(cell):
            cell.source = f"---\n**For the teacher**\n\n{cell.source}\n\n---"
    text, metadata = write_appendix(number_of(path)), {"tags": ["instructor"]}
    notebook.cells.append(nbformat.v4.new_markdown_cell(text, id="appendix-for-the-teacher", metadata=metadata))
    return notebook


def write_appendix(number: int) -> str:
    """Markdown: all predictions of lesson `number` with their answers, all exercises with the mistakes to expect."""
    parts = [APPENDIX]
    if predictions := predictions_of(number):
        parts += ["### The predictions", *map(describe_answers, predictions)]
    parts.append("### Mistakes your students will make")
    for each in exercises_of(number):
        parts.append(f"**{each.name}** ({each.points} point{'s'[: each.points > 1]})\n\n{describe_mistakes(each)}")
    return "\n\n".join(parts)


def describe_answers(prediction: Prediction) -> str:
    """Markdown: the right option of a prediction, for each wrong one what to say and to ask who chose it, and why."""
    why = {option: _plain(reason) for option, reason in prediction.options.items()}
    lines = [f"**{prediction.question}**\n\n- Right: **{prediction.answer}**. {why.pop(prediction.answer)}"]
    wrong = [f"- Who says {option}: {said} **Ask:** {_plain(prediction.ask[option])}" for option, said in why.items()]
    return "\n".join([*lines, *wrong, "", prediction.why]).rstrip()


def describe_mistakes(exercise: Exercise) -> str:
    """Markdown: the usual mistakes of an exercise, in the words that its check answers them with."""
    return "\n".join(f"- {_plain(mistake.message)}" for mistake in exercise.mistakes)


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("$", r"\$")  # one line in which nothing is taken for a formula


def write_handout(
    lesson: str, network: str = "", image: str = "", layer: str = "", chosen: str = "", folder: Path = BUILD / "handout"
) -> int:
    """Write a lesson (`07`) as one HTML file into `folder`; returns 0.

    Without network, image (a file), layer and chosen (a class, or one "rather than" another) it is the lesson as it was
    built. With one of them, the lesson is run again, and its section "Your network, your picture" shows what that
    network makes of that picture. Raises `CourseError` for an unknown network or class, a picture that cannot be read,
    damaged weights, a layer without maps; nothing is written then.
    """
    (path,) = choose([lesson])
    choices = network, Path(image).name, layer, chosen  # the picture lies in the folder of the run
    parameters = {name: value for name, value in zip(source.PARAMETERS.values(), choices, strict=True) if value}
    if parameters:
        about = _look_first(network, image, layer, chosen, source.parameters_of(path)["own_network"])
        notebook = build.run(learner(path), path.stem, parameters, [Path(image)] if image else [])
        said = f"the lesson, run with your choice. See {page.SECTION!r} in it. {about}".strip()
    else:
        notebook, about, said = read_built(path), "", "the lesson as a page, as it was built."
    named = "".join("-" + re.sub(r"[^\w.]+", "_", part) for part in (network, Path(image).stem, layer, chosen) if part)
    write_and_say(folder / f"{path.stem}{named}.html", page.export(page.flatten_outputs(notebook), about=about), said)
    return 0


def _look_first(network: str, image: str, layer: str, chosen: str, usual: str) -> str:
    """Look once, in seconds, before the lesson is run, which takes a minute; returns what there is to say of it."""
    from course_utils.lessons.own import look_at
    from course_utils.scenes.scene import scene
    from course_utils.vision.networks import load_classifier
    from course_utils.vision.pictures import read_picture

    option, reason = f"IMAGE={image}", ""
    try:
        if image:
            read_picture(image)
        option = f"NETWORK={network}" if network else f"LAYER={layer}" if layer else f"CLASS={chosen}"
        try:
            if network:
                load_classifier(network)
        except (ValueError, RuntimeError) as error:  # without weights it goes on with random ones
            reason = f" ({error})"
        look = look_at(network or usual, image or scene("cat", seed=1).image, layer, chosen)
    except (ValueError, RuntimeError, LookupError) as error:
        raise CourseError(f"{option}: {error}" + "." * (str(error)[-1:] not in ".?")) from None
    picture = f" The picture is {Path(image).name}." if image else ""
    return f"{look.network.note}{reason}{picture}" if network or image else ""
