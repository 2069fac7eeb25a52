"""The budgets of speed and memory, measured: one table, and the same as JSON.

    make bench                              everything: the graders and the notebooks take half an hour
    make bench ARGS=--quick                 without the notebooks, fewer rounds, ten submissions for the graders
    make bench ARGS="--only grading"        one part: saliency, explorers, sliders, imports, lessons or grading

Machines differ and are shared, so most rows are *ratios* of two things that run in turns, one thread each. The ratio is
the median over the rounds of CPU time against CPU time; wall time stands beside it. Where a row compares with a library
that is not installed, the table says so.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

LIBRARIES = {"captum": "captum", "torch-cam": "torchcam", "pytorch-grad-cam": "pytorch_grad_cam"}
LAYER, OWN = "layer4", "features.16"  # the last maps of resnet, and of the course's own network
CLASSES = [0, 7, 99, 281, 500]


@dataclass(frozen=True)
class Row:
    """One line of the table. `measured` and `wall` are ratios, milliseconds or bytes, as `unit` says."""

    what: str
    measured: float | None
    limit: float | None
    unit: str
    wall: float | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        """Whether the limit holds: "ok", "over", or "" where there is none or nothing was measured."""
        if self.measured is None or self.limit is None:
            return ""
        return "ok" if self.measured <= self.limit else "over"


@contextmanager
def one_thread() -> Iterator[None]:
    """torch on one thread, so that CPU time means something."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def compare(ours: Callable[[], object], other: Callable[[], object], rounds: int = 15) -> tuple[float, float]:
    """Run both in turns and return the median ratio ours / other, of CPU time and of wall time.

    The order inside a round alternates, so that neither always finds the caches warm.
    """
    ours(), other()  # not measured: the first call of anything is slow
    cpu, wall = [], []
    for index in range(rounds):
        pair = (ours, other) if index % 2 else (other, ours)
        seconds = {function: time_once(function) for function in pair}
        cpu.append(seconds[ours][0] / seconds[other][0])
        wall.append(seconds[ours][1] / seconds[other][1])
    return statistics.median(cpu), statistics.median(wall)


def time_once(function: Callable[[], object]) -> tuple[float, float]:
    """The seconds of one call, of CPU time and of wall time."""
    start, start_cpu = time.perf_counter(), time.process_time()
    function()
    return time.process_time() - start_cpu, time.perf_counter() - start


def time_call(function: Callable[[], object], rounds: int = 25) -> tuple[float, float]:
    """The median milliseconds of a call, of CPU time and of wall time."""
    function()
    cpu, wall = zip(*(time_once(function) for _ in range(rounds)), strict=True)
    return 1000 * statistics.median(cpu), 1000 * statistics.median(wall)


# --- saliency ---------------------------------------------------------------------------------------------------------


def run_to_layer3(model: nn.Module, images: Tensor) -> Tensor:
    """What resnet's `layer3` returns, without a graph."""
    with torch.no_grad():
        x = model.maxpool(model.relu(model.bn1(model.conv1(images))))
        return model.layer3(model.layer2(model.layer1(x)))


def bare_grad_cam(model: nn.Module, images: Tensor, target: int) -> Tensor:
    """The least that Grad-CAM of the last maps can cost: a prefix without a graph, one gradient, one sum.

    The model is a resnet, or the course's own network.
    """
    own = hasattr(model, "features")
    with torch.no_grad():
        leaf = model.features((images - 0.5) / 0.25) if own else model.layer4(run_to_layer3(model, images))
    head = model.classifier if own else model.fc
    logits = head(model.avgpool(leaf.requires_grad_()).flatten(1))
    (gradient,) = torch.autograd.grad(logits[:, target].sum(), leaf)
    return torch.einsum("nk,nkhw->nhw", gradient.mean((-2, -1)), leaf.detach())


def measure_saliency(rounds: int) -> list[Row]:
    """Grad-CAM against the lower limit, five classes against one, memory, and the libraries."""
    from torchvision.models import get_model

    from course_utils.vision.networks import load_picture_net
    from course_utils.vision.saliency import grad_cam

    torch.manual_seed(0)
    model, images = get_model("resnet18", weights=None).eval(), torch.rand(1, 3, 224, 224)
    rows = []
    cpu, wall = compare(lambda: grad_cam(model, images, LAYER, 7), lambda: bare_grad_cam(model, images, 7), rounds)
    rows.append(Row("Grad-CAM, resnet18 at 224, against the bare lower limit", cpu, 1.05, "x", wall))

    net, scene = load_picture_net().eval(), torch.rand(1, 3, 112, 112)
    cpu, wall = compare(lambda: grad_cam(net, scene, OWN, 3), lambda: bare_grad_cam(net, scene, 3), 3 * rounds)
    rows.append(Row("Grad-CAM, the course's own network, against the bare lower limit", cpu, 1.10, "x", wall))

    rows += compare_classes_and_rules("resnet18", model, LAYER, images, rounds)
    for name, layer in (("alexnet", "features.10"), ("squeezenet1_1", "features.12")):
        rows += compare_classes_and_rules(name, get_model(name, weights=None).eval(), layer, images, rounds)
    rows += compare_classes_and_rules("the course's own", net, OWN, scene, 3 * rounds)
    rows.append(measure_saved_bytes(model, images))
    for name, module in LIBRARIES.items():
        rows += compare_with_library(name, module, model, images, rounds)
    return rows


def compare_classes_and_rules(name: str, model: nn.Module, layer: str, images: Tensor, rounds: int) -> list[Row]:
    """Five classes against one, and Guided Backprop against the plain gradient."""
    from course_utils.vision.saliency import explain, grad_cam, guided_backprop, input_gradient

    classes = [each % model(images).shape[1] for each in CLASSES]

    def five() -> Tensor:
        with explain(model, images, layer) as run:
            return run.grad_cams(classes)

    many = compare(five, lambda: grad_cam(model, images, layer, 7), rounds)
    rules = compare(lambda: guided_backprop(model, images, 7), lambda: input_gradient(model, images, 7), rounds)
    return [
        Row(f"Grad-CAM of five classes, against one: {name}", many[0], 1.4, "x", many[1]),
        Row(f"Guided Backprop, against the plain gradient: {name}", rules[0], 1.15, "x", rules[1]),
    ]


def measure_saved_bytes(model: nn.Module, images: Tensor) -> Row:
    """What autograd keeps during `explain`, against what the layers after the target need by themselves."""
    from course_utils.vision.saliency import explain

    def count(run: Callable[[], object]) -> int:
        sizes: dict[int, int] = {}

        def pack(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            kept = run()
        total = sum(sizes.values())
        del kept
        return total

    leaf = run_to_layer3(model, images).requires_grad_()
    model.requires_grad_(False)
    alone = count(lambda: model.fc(model.avgpool(model.layer4(leaf)).flatten(1)))
    ours = count(lambda: explain(model, images, "layer3"))
    model.requires_grad_(True)
    return Row("bytes saved for backward, layer3, against the layers after it alone", ours / alone, 1.0, "x")


def compare_with_library(name: str, module: str, model: nn.Module, images: Tensor, rounds: int) -> list[Row]:
    """Ours against one library: one class, then five."""
    from course_utils.vision.saliency import explain, grad_cam

    titles = [f"Grad-CAM of one class, against {name}", f"Grad-CAM of five classes, against {name}"]
    if importlib.util.find_spec(module) is None:
        note = f"{name} is not installed: pip install -e .[parity]"
        return [Row(title, None, 1.0, "x", note=note) for title in titles]

    def five() -> Tensor:
        with explain(model, images, LAYER) as run:
            return run.grad_cams(CLASSES)

    theirs = {"captum": _with_captum, "torch-cam": _with_torchcam, "pytorch-grad-cam": _with_pytorch_grad_cam}[name]
    with theirs(model, images) as library:
        one = compare(lambda: grad_cam(model, images, LAYER, 7), lambda: library([7]), rounds)
        many = compare(five, lambda: library(CLASSES), rounds)
    return [Row(titles[0], one[0], 1.0, "x", one[1]), Row(titles[1], many[0], 1.0, "x", many[1])]


@contextmanager
def _with_captum(model: nn.Module, images: Tensor) -> Iterator[Callable[[Sequence[int]], object]]:
    from captum.attr import LayerGradCam

    method = LayerGradCam(model, model.layer4)
    yield lambda targets: [method.attribute(images, target=target) for target in targets]


@contextmanager
def _with_torchcam(model: nn.Module, images: Tensor) -> Iterator[Callable[[Sequence[int]], object]]:
    from torchcam.methods import GradCAM

    with GradCAM(model, target_layer=LAYER) as extractor:

        def run(targets: Sequence[int]) -> list:
            scores = model(images)
            return [extractor(target, scores, retain_graph=True) for target in targets]

        yield run


@contextmanager
def _with_pytorch_grad_cam(model: nn.Module, images: Tensor) -> Iterator[Callable[[Sequence[int]], object]]:
    from pytorch_grad_cam import GradCAM
    from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget

    with GradCAM(model=model, target_layers=[model.layer4]) as method:
        yield lambda targets: [method(input_tensor=images, targets=[ClassifierOutputTarget(t)]) for t in targets]


# --- explorers, imports, notebooks ------------------------------------------------------------------------------------


def measure_explorers() -> list[Row]:
    """A cached move of a slider, and what a new picture costs beyond the network's own forward pass."""
    from ipywidgets import FloatSlider, IntSlider

    from course_utils import explorers
    from tests.panels import controls

    rows = []
    for name in ("GradientFlow", "ModelHooks", "LifeOfACall", "FeatureMaps", "GuidedBackprop", "GradCam"):
        explorer = getattr(explorers, name)()
        sliders = [each for each in controls(explorer, (IntSlider, FloatSlider)) if each.max > each.min]
        if not sliders:
            rows.append(Row(f"{name}: a slider move", None, 50, "ms", note="it has no slider"))
            continue
        slowest = max((_time_moves(slider) for slider in sliders), key=lambda pair: pair[0])
        rows.append(Row(f"{name}: a cached slider move", slowest[0], 50, "ms", slowest[1]))
    return rows


def _time_moves(slider: object) -> tuple[float, float]:
    """Move a slider to and fro; the first visit of each place is not measured."""
    places = [slider.min, min(slider.max, slider.min + slider.step)]

    def move() -> None:
        slider.value = places[1] if slider.value == places[0] else places[0]

    move(), move()
    return time_call(move, rounds=20)


def measure_imports(rounds: int = 7) -> list[Row]:
    """What `import course_utils` costs beyond torch, in a fresh interpreter each time."""
    code = "import torch, time; t = time.perf_counter(); import course_utils; print(1000 * (time.perf_counter() - t))"
    times = [float(subprocess.check_output([sys.executable, "-c", code], text=True)) for _ in range(rounds)]
    return [Row("import course_utils, beyond torch", statistics.median(times), 20, "ms")]


def measure_lessons() -> list[Row]:
    """All lessons under nbval, against their code cells run as scripts, both in processes of their own."""
    from course_utils.authoring.source import FOLDER, learner, sources

    environment = {**os.environ, "COURSE_PROGRESS": "off", "MPLBACKEND": "agg"}
    scripts, wall = 0.0, 0.0
    for source in sources():
        cells = [cell.source for cell in learner(source).cells if cell.cell_type == "code"]
        start = time.perf_counter()
        script = "\n\n".join(cells).encode()
        subprocess.run([sys.executable, "-"], input=script, check=True, env=environment, capture_output=True)
        scripts += time.perf_counter() - start
        start = time.perf_counter()
        notebook = FOLDER / f"{source.stem}.ipynb"
        nbval = [sys.executable, "-m", "pytest", "-q", "--nbval", "-p", "no:cacheprovider", notebook]
        subprocess.run(nbval, env=environment, stdout=subprocess.DEVNULL)
        wall += time.perf_counter() - start
    return [Row("all lessons under nbval, against their code as scripts (wall)", wall / scripts, 1.5, "x")]


def measure_sliders(moves: int) -> list[Row]:
    """From a key on a slider to the new picture, in JupyterLab in a real browser: 95 % of the moves are faster."""
    from tests.browser import lab_page

    what = "slider move to new picture in the page, p95"
    if missing := lab_page.say_what_is_missing():
        return [Row(what, None, None, "ms", note=missing)]
    return [
        Row(f"{name}: {what}", _percentile_95(times), 100, "ms")
        for name, times in lab_page.slider_latencies(moves).items()
    ]


def _percentile_95(times: Sequence[float]) -> float:
    """The smallest of `times` that is not below 95 % of them."""
    return sorted(times)[math.ceil(0.95 * len(times)) - 1]


# --- grading ----------------------------------------------------------------------------------------------------------

NBGRADER_SHARE = {10: 0.1, 100: 0.04}  # of nbgrader's time, by the number of submissions


def measure_grading(sizes: Sequence[int], ours_only: Sequence[int]) -> list[Row]:
    """The grader beside `pytest --nbval`, nbgrader and otter-grader, and how it grows; all in wall clock."""
    from tests.bench.graders import line, measure_all, measure_child

    rows = []
    own: dict[int, float] = {}
    for one in measure_all(sizes, ours_only):
        print(f"\r{line(one)}", file=sys.stderr, flush=True)
        if one.tool == "ours":
            own[one.submissions] = one.per_submission
        else:
            limit = NBGRADER_SHARE.get(one.submissions) if one.tool == "nbgrader" else None
            share = one.ours / one.seconds if one.seconds and one.ours else None
            rows.append(Row(f"grading {one.submissions}, against {one.tool}", share, limit, "x", note=one.skipped))
    rows += [Row(f"grading {count}: each submission", seconds, None, "s") for count, seconds in own.items()]
    if len(own) > 1:
        *_, last, most = sorted(own)
        rows.append(Row(f"grading {most}: time for each, against {last}", own[most] / own[last], 1.0, "x"))
    child = measure_child() if sys.platform == "linux" else None
    note = "" if child else "only root can see it, on Linux"
    return [*rows, Row("memory that a sandboxed answer has to itself", child, 20.0, "MB", note=note)]


# --- the table --------------------------------------------------------------------------------------------------------


def table(rows: Sequence[Row]) -> str:
    """The rows as text: what, measured, limit, wall, verdict."""
    wide = max(len(row.what) for row in rows)
    lines = [f"{'what':<{wide}}{'CPU':>12}{'wall':>12}{'limit':>12}"]
    for row in rows:
        cells = ["-" if value is None else f"{value:.2f} {row.unit}" for value in (row.measured, row.wall, row.limit)]
        numbers = "".join(f"{cell:>12}" for cell in cells)
        lines.append(f"{row.what:<{wide}}{numbers}  {row.verdict or row.note}".rstrip())
    return "\n".join(lines)


# By name, what measures a part of the table; the argument is whether to be quick.
PARTS: dict[str, Callable[[bool], list[Row]]] = {
    "saliency": lambda quick: measure_saliency(5 if quick else 15),
    "explorers": lambda quick: measure_explorers(),
    "sliders": lambda quick: measure_sliders(5 if quick else 20),
    "imports": lambda quick: measure_imports(),
    "lessons": lambda quick: measure_lessons(),
    "grading": lambda quick: measure_grading([10], []) if quick else measure_grading([10, 100], [1000]),
}


def main(argv: Sequence[str] | None = None) -> int:
    """`make bench ARGS="[--quick] [--only PART …] [--json FILE]"`; returns 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="leave the notebooks out, and measure fewer rounds")
    parser.add_argument("--json", type=Path, help="write the rows to this file as well")
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=f"some of {', '.join(PARTS)}")
    options = parser.parse_args(argv)
    left_out = {"lessons"} if options.quick and not options.only else set()
    rows: list[Row] = []
    with one_thread():
        for name in options.only or [part for part in PARTS if part not in left_out]:
            print(f"{len(rows)} rows measured; now {name}", file=sys.stderr, flush=True)
            rows += PARTS[name](options.quick)
    print(table(rows))
    if options.json:
        options.json.write_text(json.dumps([asdict(row) | {"verdict": row.verdict} for row in rows], indent=1) + "\n")
    return 1 if any(row.verdict == "over" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
