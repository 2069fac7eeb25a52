"""The case of lessons 00 to 10: a network that answers right for a reason to be found, and the clues that one keeps.

picture, network = open_case()
keep_clue("01", "19% of the gradient falls on the fish.", {"the fish": close_up(picture.image)})
CasePage()                                    # all clues so far, with the learner's own words
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import ipywidgets as widgets
import torch
from markupsafe import Markup
from torch import Tensor, nn

from course_utils.exercises import saved_progress
from course_utils.explorers.markup import make_picture
from course_utils.explorers.panel import Explorer, View, make_choice
from course_utils.scenes.drawing import Sprite
from course_utils.scenes.scene import KINDS, SIZE, Scene, scene
from course_utils.show import page_templates
from course_utils.vision.networks import PictureNet, load_picture_net
from course_utils.vision.patching import cells_of
from course_utils.vision.pictures import Picture, draw_heat, grid, png, resize_maps
from course_utils.vision.saliency import scale_to_unit

FISH = KINDS.index("fish")
THINGS = ("fish", "boat", "buoy")
VIEWS = {  # by the words on the button: what is painted, where, and what there is to see
    "the picture": (THINGS, "water", "The picture of the case: a fish, a boat and a buoy at sea."),
    "without the fish": (("boat", "buoy"), "water", "The same picture without the fish."),
    "the fish alone": (("fish",), "grass", "The same fish on a meadow, without the sea and what was in it."),
}
QUESTIONS = {  # by the name of the lesson's notebook
    "01_tensor_hooks": "Where does its gradient go?",
    "02_retain_grad_or_hook": "What is worth keeping of the gradient?",
    "03_module_hooks": "What if a hook covers the fish?",
    "04_inside_call": "Can the call itself be trusted?",
    "05_feature_maps": "Where do its channels respond?",
    "06_guided_backprop": "What does a sharp drawing prove?",
    "07_cam_and_grad_cam": "Where does it look?",
    "08_hooks_in_practice": "Which part of a layer is enough?",
    "10_where_next": "The verdict: what does it take for a fish?",
}
WIDE = 260  # pixels of each picture of a clue, about


# --- the picture and the network --------------------------------------------------------------------------------------


def open_case() -> tuple[Scene, PictureNet]:
    """Return the picture of the case, with the masks of the fish and the boat, and a fresh copy of the network."""
    return draw_case(), load_picture_net(misled=True)


@functools.cache
def draw_case(kept: Sequence[str] = THINGS, background: str = "water", size: int = SIZE) -> Scene:
    """Draw the picture of the case, with those of its `THINGS` that are kept: all else in it stays as it is."""

    def choose(painted: dict[str, Sprite]) -> dict[str, Sprite]:
        return {name: painted[name] for name in kept}

    return scene("fish", "boat", seed=40, size=size, background=background, cue="buoy", edit=choose)


@torch.no_grad()
def ask_for_fish(network: nn.Module, image: Tensor) -> float:
    """Return the network's probability, from 0 to 1, that a picture (3, H, W) shows a fish."""
    return network(image[None])[0, FISH].sigmoid().item()


def find_among(networks: Mapping[str, nn.Module]) -> str:
    """Return the name of that network which answers as the network of the case does, to all of the `VIEWS`."""
    _, network = open_case()
    images = [draw_case(kept, background).image for kept, background, _ in VIEWS.values()]

    def differ(name: str) -> float:
        return max(abs(ask_for_fish(networks[name], each) - ask_for_fish(network, each)) for each in images)

    return min(networks, key=differ)


def close_up(image: Tensor) -> Tensor:
    """Cut the fish out of a picture or a map (..., 112, 112) of the case, with six pixels around it."""
    rows, columns = draw_case().masks[0].nonzero().T
    (top, bottom), (left, right) = ((each.min() - 6, each.max() + 7) for each in (rows, columns))
    return image[..., top:bottom, left:right]


def enlarge(maps: Tensor) -> Tensor:
    """Stretch maps of a layer (N, h, w) over the picture of the case: (N, 112, 112)."""
    return resize_maps(maps, draw_case().image.shape[1:])


def find_cells(mask: Tensor, side: int) -> Tensor:
    """Return which cells of a layer with maps of side x side have a pixel of the mask (112, 112): (side, side) bool."""
    return cells_of(mask[None], (side, side))[0]


# --- what is shown ----------------------------------------------------------------------------------------------------


def draw_view(view: str) -> View:
    """Return what `TheCase` shows: a picture, and what the network answers to it."""
    _, network = open_case()
    kept, background, words = VIEWS[view]
    share = ask_for_fish(network, draw_case(kept, background).image)
    answer = "yes" if share > 0.5 else "no"
    verdict = "right" if (share > 0.5) == ("fish" in kept) else "wrong"
    sentence = f"{words} Is there a fish? The network answers {answer} ({share:.0%}), and it is {verdict}."
    fine = draw_case(kept, background, size=4 * SIZE).image  # what a person sees; the network gets 112 x 112 pixels
    return View(grid([fine], labels=[f"Is there a fish? {answer}, {share:.0%}"]), sentence, sentence, facts=[share])


class TheCase(Explorer):
    """The picture of the case, or a changed one, and the network's answer. view: one of `VIEWS`."""

    look = staticmethod(draw_view)

    def __init__(self, view: str = "the picture") -> None:
        choice = make_choice(widgets.ToggleButtons, "Show", [*VIEWS], view, width=150)
        super().__init__({"view": choice}, ["view", "sentence", "picture"])


class Clue(Explorer):
    """A clue of one lesson, with its picture, and a line for what the learner makes of it."""

    def __init__(self, lesson: str, found: str, sheet: Tensor, alt: str) -> None:
        self._lesson, self._shown = lesson, View(sheet, f"Clue {lesson}: {found}", alt)
        look = {"layout": {"width": "min(100%, 720px)"}, "style": {"description_width": "initial"}}
        words = widgets.Text(
            description="What do you make of it?",
            placeholder="In your own words: Enter keeps them on your case page",
            value=find_clues().get(lesson, {}).get("words", ""),
            continuous_update=False,
            **look,
        )
        super().__init__({"words": words}, ["picture", "sentence", "words"])

    def look(self, words: str) -> View:
        return self._shown

    def use_words(self) -> None:
        _save(self._lesson, words=self.values["words"])


def keep_clue(lesson: str, found: str, tiles: Mapping[str, Tensor]) -> Clue:
    """Put what was found on the case page, and show it with its pictures.

    lesson: its number, such as "01". found: one or two sentences with the measured numbers.
    tiles: equally large ones, by their labels: pictures (3, H, W) with values in [0, 1], or maps (H, W) of any values
        from 0 on, of which the root is shown, so that weak ones are seen.
    """
    _save(lesson, found=found)
    pictures = [each if each.dim() == 3 else scale_to_unit(each).sqrt().expand(3, -1, -1) for each in tiles.values()]
    scale = max(round(WIDE / pictures[0].shape[-1]), 1)
    sheet = grid([draw_heat(each, scale=scale) for each in pictures], columns=len(pictures), labels=[*tiles])
    return Clue(lesson, found, sheet, f"Side by side: {'; '.join(tiles)}. {found}")


# --- the case page ----------------------------------------------------------------------------------------------------


def find_clues() -> dict[str, dict[str, str]]:
    """What was kept, by the number of the lesson: what was "found", and the learner's own "words"."""
    kept = saved_progress.load()["clues"]
    return {lesson: clue for lesson, clue in kept.items() if _is_clue(clue)}


def _is_clue(clue: object) -> bool:
    return isinstance(clue, dict) and all(isinstance(each, str) for each in clue.values())  # the file may be anything


def _save(lesson: str, **parts: str) -> None:
    saved_progress.save("clues", lesson, find_clues().get(lesson, {}) | parts)


class CasePage:
    """The case and its clues so far: a table of the lessons, as HTML with the picture, and as plain text."""

    def __init__(self) -> None:
        clues = find_clues()
        self.rows = [(name, question, clues.get(name[:2], {})) for name, question in QUESTIONS.items()]

    def __repr__(self) -> str:
        lines = ["The case: why does this network see a fish?"]
        for name, question, clue in self.rows:
            lines.append(f"{name[:2]}  {question}  {clue.get('found', 'no clue yet')}")
            lines += [f"    You: {clue['words']}"] if clue.get("words") else []
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        data = png(draw_case(size=2 * SIZE).image, jpeg=True, small=True)
        picture = Picture(data, "A fish above the sea, and in the water a buoy beside a boat.")
        page = page_templates().get_template("case.html.j2")
        return page.render(rows=self.rows, picture=Markup(make_picture(picture, 2 * SIZE)))
