"""Photographs, the learner's own and some that are here: the one place where explorers take them in.

The course's small networks know drawn pictures only, so whatever comes from here goes to the real network.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import ipywidgets as widgets
import traitlets
from torch import Tensor, nn

from course_utils.explorers.markup import make_label
from course_utils.explorers.panel import WRAPPED, Explorer, View, begin, make_choice, make_slider
from course_utils.explorers.pointing import follow_pointer
from course_utils.hooks.record import record
from course_utils.root import CourseError
from course_utils.scenes.scene import KINDS, Scene
from course_utils.vision import real
from course_utils.vision.kept_picture import find_kept, keep_picture
from course_utils.vision.networks import Classifier, load_classifier
from course_utils.vision.pictures import draw_strokes, put_on_white, read_picture
from course_utils.vision.saliency import Run, explain

COURSE, OWN = "the course's pictures", "your own picture"
PAD = 180  # pixels: the side of the square to draw on
Chosen = int | str | Tensor  # what an explorer opens at: a numbered picture, a photograph by its name, one's own
KeptRun = tuple[Run, dict[str, Tensor]]  # from the picture to the logits, and what layers gave, in the graph of the run


@dataclass(frozen=True, eq=False)  # each is a key for what was made of it
class Subject:
    """What a network is shown: a picture of the course, or the square in the middle of a photograph.

    title: what is on it, in words. image: (3, H, W) float32 in [0, 1].
    masks: for each thing, by its name, where it is: (H, W) bool; empty for a photograph, of which no truth is known.
    """

    title: str
    image: Tensor = field(repr=False)
    masks: Mapping[str, Tensor] = field(default_factory=dict, repr=False)


def read_scene(scene: Scene) -> Subject:
    """Make a subject of a scene, with its cue as one of the things."""
    masks = dict(zip(scene.labels, scene.masks, strict=True))
    if scene.cue:
        masks[scene.cue] = scene.cue_mask
    return Subject(str(scene), scene.image, masks)


@functools.cache
def find_photo(name: str) -> Subject:
    """Read one of `real.PHOTOGRAPHS`, once. Raises `CourseError` for a name that there is not."""
    image = real.photograph(name)
    title, *_ = real.PHOTOGRAPHS[name]
    return Subject(title, image)


def read_kept() -> Subject | None:
    """Read the picture that the learner chose in this lesson or an earlier one; None where there is none."""
    file = find_kept()
    return Subject(OWN, read_picture(file, size=real.SIZE)) if file else None


@functools.cache
def load_real() -> Classifier:
    """Load the real network, once."""
    return load_classifier(real.REAL)


def keep_run(model: nn.Module, image: Tensor, layers: Sequence[str]) -> KeptRun:
    """Run a network on a picture as it takes it, (3, H, W), once: all else is parts of this run, see `Run.part`."""
    with record(model, *layers, detach=False) as seen:
        run = explain(model, image[None], watch_relus=True)
    return run, {layer: seen[layer].output for layer in layers}


@functools.lru_cache(maxsize=2)  # the graph of a run has 60 MB
def run_real(photo: Subject) -> KeptRun:
    """Run the real network on a photograph, once for the last two."""
    return keep_run(load_real().model, load_real().transform(photo.image), real.LAYERS)


def find_likeliest(photo: Subject) -> dict[str, float]:
    """The real network's five likeliest classes of a photograph with their probabilities, the likeliest first."""
    run, _ = run_real(photo)
    return dict(load_real().best(run.logits[0], 5))


def tell_likeliest(photo: Subject) -> str:
    """What is on the photograph and what the real network says about it, in two sentences."""
    said = ", ".join(f"{name} {share:.0%}" for name, share in find_likeliest(photo).items())
    return f"{begin(photo.title)}. EfficientNet-Lite0 says: {said}."


class OwnPicture(widgets.HBox):
    """A choice of photographs, and buttons to upload or draw a picture.

    value: the `Subject`; None for the course's own pictures. problem: what was wrong with the last try, in words.
    choice: the list of photographs, "" for the course's own pictures. pad: where the `DrawingPad` appears.
    """

    value = traitlets.Any(None)
    problem = traitlets.Unicode()

    def __init__(self, picture: object = None, *, drawing: bool = False) -> None:
        tooltip = "Draw with the mouse or a finger"
        names = {COURSE: "", **{title: name for name, (title, *_) in real.PHOTOGRAPHS.items()}, OWN: OWN}
        self.choice = make_choice(widgets.Dropdown, "Photograph", names, "", width=270, indent=80)
        upload = widgets.FileUpload(description="Your own picture", accept="image/*", multiple=False)
        upload.layout.width = "170px"
        draw = widgets.Button(description="Draw one", tooltip=tooltip, layout={"width": "90px"})
        super().__init__([self.choice, upload, draw] if drawing else [self.choice, upload], layout=WRAPPED)
        self.pad, self._own = widgets.HBox(), None
        self.choice.observe(lambda change: self._try(self._choose, change["new"]), "value")
        upload.observe(lambda change: self._try(self._read, upload), "value")
        draw.on_click(lambda _: self._try(self._open_pad))
        if isinstance(picture, Tensor):
            self._take(picture)
        elif isinstance(picture, str):
            find_photo(picture)
            self.choice.value = picture

    def _try(self, action: Callable[..., None], *given: object) -> None:
        self.problem = ""
        try:
            action(*given)
        except CourseError as error:
            self.problem = str(error)

    def _choose(self, name: str) -> None:
        if name != OWN:
            self.pad.children = []
        if name == OWN:
            self.value = self._own = self._own or read_kept()
        else:
            self.value = find_photo(name) if name else None
        if name == OWN and self._own is None:
            raise CourseError("Upload a picture first.")

    def _take(self, picture: Tensor) -> None:
        from torchvision.transforms.v2.functional import center_crop  # its import takes seconds

        if picture.dim() != 3 or len(picture) != 3:
            raise CourseError(f"a picture of your own is (3, H, W), got {tuple(picture.shape)}: see read_picture(file)")
        self._own = Subject(OWN, center_crop(picture, min(picture.shape[1:])))
        self.choice.value, self.value = OWN, self._own

    def _read(self, upload: widgets.FileUpload) -> None:
        files, upload.value = upload.value, ()  # else the file would be saved with the notebook
        if files:
            self._keep(read_picture(files[-1]["content"], size=real.SIZE))
            self.pad.children = []

    def _keep(self, picture: Tensor) -> None:
        self._take(picture)
        keep_picture(picture)

    def _open_pad(self) -> None:
        self.pad.children = [DrawingPad(self._draw)]

    def _draw(self, lines: list) -> None:
        use = self._keep if lines else self._take  # an empty square is nothing to keep
        use(put_on_white(draw_strokes(lines, real.SIZE)))


class PhotoExplorer(Explorer):
    """An explorer of the course's networks on the course's pictures, and of the real network on photographs.

    A subclass has `rows`; `draw`, which takes the number of a picture, from 1 to `count`, then a class and the values
    of its own controls; `draw_photo`, which takes a photograph instead, and no values of the controls `only_course`,
    which are hidden then; and `place`, the name of the control, with the words on it, that chooses one of `layers`:
    first the course's network's, then the real one's.
    """

    only_course: Sequence[str] = ("number",)
    lines = 5

    def __init__(self, picture: Chosen, kind: str, layer: str, **controls: widgets.Widget) -> None:
        own, self._kind = OwnPicture(picture), kind
        number = make_slider("Picture", 1, self.count, 1 if own.value else picture, width=250)
        controls |= {"number": number, "own": own, self.place[0]: self._choose_layer(own.value, layer)}
        super().__init__(controls | make_class_controls(own.value, kind), self.rows)

    def _choose_layer(self, photo: Subject | None, layer: str) -> widgets.SelectionSlider:
        layers = self.layers[photo is not None]
        return make_choice(widgets.SelectionSlider, self.place[1], layers, layer or layers[-1])

    def fit(self, name: str) -> None:
        photo, place = self.controls["own"].value, self.place[0]
        if name == "own":
            for each, control in make_class_controls(photo, self._kind).items():
                self.put(each, control)
            layer = self.controls[place].value
            self.put(place, self._choose_layer(photo, layer if layer in self.layers[photo is not None] else ""))
        elif name == "kind":
            self.controls["other"].value = ""
        if photo is None:
            self._kind = self.controls["kind"].value  # to find it again after a photograph
        for each in self.only_course:
            self.controls[each].layout.visibility = "visible" if photo is None else "hidden"  # and keeps its room

    def look(self, number: int, own: Subject | None, kind: str, other: str, **values: object) -> View:
        """Draw what is chosen: a photograph comes before the number, and a class of one's own before the listed one."""
        if own is None:
            return self.draw(number, kind, **values)
        values = {name: value for name, value in values.items() if name not in self.only_course}
        return self.draw_photo(own, other or kind, **values)


def make_class_controls(photo: Subject | None, kind: str = KINDS[0]) -> dict[str, widgets.Widget]:
    """The choice of a class: of the course's, or of the five likeliest of a photograph, and beside it a free one."""
    other = widgets.Combobox(description="or", layout={"display": "none"}, style={"description_width": "60px"})
    if photo is None:
        return {"kind": make_choice(widgets.ToggleButtons, "Class", KINDS, kind, width=74), "other": other}
    likeliest = {f"{name} ({share:.0%})": name for name, share in find_likeliest(photo).items()}
    other.options, other.layout = load_real().classes, {"width": "370px"}
    other.placeholder, other.continuous_update = "any class, or: one rather than another", False
    choice = make_choice(widgets.Dropdown, "Class", likeliest, next(iter(likeliest.values())), width=300)
    return {"kind": choice, "other": other}


class DrawingPad(widgets.VBox):
    """A white square to draw on in black, with the mouse or a finger, by the package ipycanvas.

    `on_change(strokes)` is called at the start, at the end of each stroke and when the square was wiped, with rows of
    points as `pictures.draw_strokes` takes them.
    """

    def __init__(self, on_change: Callable[[list], None]) -> None:
        from ipycanvas import Canvas  # a notebook that only uploads need not wait for it

        self._on_change = on_change
        self._strokes: list[list[tuple[float, float]]] = []
        self._stroke: list[tuple[float, float]] = []  # the one that is being drawn, in pixels
        look = {"border": "1px solid gray", "width": "150px", "height": "150px"}
        self._canvas = canvas = Canvas(width=PAD, height=PAD, layout=look)
        canvas.line_width, canvas.line_cap, canvas.fill_style = PAD / 40, "round", "white"
        wipe = widgets.Button(description="Wipe", tooltip="Begin with an empty square", layout={"width": "110px"})
        super().__init__([canvas, make_label("Draw here."), wipe], layout={"margin": "0 0 0 10px"})
        follow_pointer(canvas, lambda *point: self._stroke.append(point), self._go_on, self._end)
        wipe.on_click(lambda _: self._empty())
        self._empty()

    def _go_on(self, x: float, y: float) -> None:
        if self._stroke:
            self._canvas.stroke_line(*self._stroke[-1], x, y)
            self._stroke.append((x, y))

    def _end(self) -> None:
        if self._stroke:
            self._strokes.append([(100 * x / PAD, 100 * y / PAD) for x, y in self._stroke])
            self._stroke.clear()
            self._on_change(self._strokes)

    def _empty(self) -> None:
        self._strokes.clear()
        self._canvas.fill_rect(0, 0, PAD, PAD)
        self._on_change(self._strokes)
