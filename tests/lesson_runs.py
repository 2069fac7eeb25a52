"""Run lessons as tests need it: under nbval, twice in one kernel, with pictures compared."""

import copy
import inspect
import re
import subprocess
import sys
from pathlib import Path

import nbformat

from course_utils.authoring import build, source
from course_utils.language import find_missing


def run_nbval(notebook: nbformat.NotebookNode, folder: Path) -> tuple[int, str]:
    """Run nbval on the notebook in the empty `folder`, comparing every output, pictures included.

    Returns how many cells it compared with success, and its words on the others.
    """
    (folder / "pytest.ini").write_text("[pytest]\n")  # no configuration of the course's or the user's applies
    build.write(notebook, folder / "lesson" / "lesson.ipynb")
    environment = build.kernel_environment(folder) | {"PYTHONPATH": str(Path(__file__).parent)}
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    command = [sys.executable, "-m", "pytest", "-p", "nbval_pictures", "-p", "nbval.plugin", "-p", "no:cacheprovider"]
    command += ["--nbval", "--nbval-current-env", f"--nbval-cell-timeout={build.CELL_SECONDS}", "--color=no", "-q"]
    command += [str(folder / "lesson" / "lesson.ipynb")]
    process = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    passed = re.search(r"(\d+) passed.* in [\d.]+s.*$", process.stdout)
    return int(passed[1]) if passed else 0, process.stdout + process.stderr


def twice(built: nbformat.NotebookNode, answered: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """A lesson with its outputs, and behind it the same with answers in its cells, for one kernel.

    The second time, each check has to pass, and what uses no answer has to show what it shows the first time. Cells
    between them fail where the second run leaves something in torch.
    """
    first, again = copy.deepcopy(built), copy.deepcopy(answered)
    uses_answers = re.compile(rf"\b(?:{'|'.join(['progress', *source.answer_cells(answered)])})\b")
    for cell, other in zip(again.cells, first.cells, strict=True):
        cell.id = f"again-{cell.id}"
        if "check" in source.tags_of(cell):
            cell.source = f"assert {cell.source}.passed"
        elif uses_answers.search(cell.source):
            cell.metadata.tags = ["nbval-ignore-output"]
        elif cell.cell_type == "code":
            cell |= {name: other[name] for name in ("outputs", "execution_count")}
    if find_missing():  # a network with random weights stands in: other outputs than those of the built notebook
        for cell in first.cells + again.cells:
            if "pretrained" in source.tags_of(cell):
                cell.metadata.tags = [*source.tags_of(cell), "nbval-ignore-output"]
    looks = f"{inspect.getsource(_torch_state)}\n_start = _torch_state()", _BETWEEN, _AFTER
    before, between, after = map(nbformat.v4.new_code_cell, looks)
    first.cells = [before, *first.cells, between, *again.cells, after]
    return first


_BETWEEN = "_start |= {what: count for what, count in _torch_state().items() if what.startswith('count')}"
_AFTER = """\
left = [f"{what}: {_start[what]} became {now}" for what, now in _torch_state().items() if now != _start[what]]
assert not left, left"""


def run_python(course: Path, *arguments: object, cwd: Path | None = None, **environment: object) -> str:
    """What Python prints with the folder `course` as its course, and nothing of another one."""
    environment = {name: str(value) for name, value in environment.items()} | {"PYTHONPATH": str(course)}
    environment = build.kernel_environment(cwd or course.parent) | {"OMP_NUM_THREADS": "1"} | environment
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _torch_state() -> dict:
    """The state of torch, in the kernel. IPython's cache of results is emptied first: it keeps old objects alive."""
    import gc

    import torch

    from course_utils.exercises.world import TORCH

    get_ipython().displayhook.flush()  # noqa: F821  IPython's own
    gc.collect()
    modules = [each for each in gc.get_objects() if issubclass(type(each), torch.nn.Module)]
    tensors = [each for each in get_ipython().user_ns.values() if isinstance(each, torch.Tensor)]  # noqa: F821
    held = [(name, value) for each in modules for name, value in vars(each).items()]
    on_modules = [value for name, value in held if "hook" in name and isinstance(value, dict)]
    on_tensors = [getattr(each, f"_{kind}_hooks") for each in tensors for kind in ("backward", "post_accumulate_grad")]
    return {f"{name} ({number})": str(read()) for number, (name, read, _) in enumerate(TORCH) if name} | {
        "count of hooks on modules": sum(map(len, on_modules)),
        "count of hooks on tensors": sum(len(each) for each in on_tensors if each),
    }
