"""Run lessons as tests need it: under nbval with pictures compared, and twice in one kernel."""

import copy
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from course_utils.authoring import build, source


def run_nbval(path: Path, folder: Path) -> tuple[int, str]:
    """Run nbval on a copy of the notebook `path` in the empty `folder`, comparing every output, pictures included.

    Returns how many cells it compared with success, and its words on the others.
    """
    (folder / "pytest.ini").write_text("[pytest]\n")  # no configuration of the course's or the user's applies
    (folder / "lesson").mkdir()
    (folder / "lesson" / path.name).write_bytes(path.read_bytes())
    environment = build.kernel_environment(folder) | {"PYTHONPATH": str(Path(__file__).parent)}
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    command = [sys.executable, "-m", "pytest", "-p", "nbval.plugin", "-p", "nbval_pictures", "-p", "no:cacheprovider"]
    command += ["--nbval", "--nbval-current-env", f"--nbval-cell-timeout={build.CELL_SECONDS}", "--color=no", "-q"]
    command += [str(folder / "lesson" / path.name)]
    process = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    passed = re.search(r"(\d+) passed.* in [\d.]+s.*$", process.stdout)
    return int(passed[1]) if passed else 0, process.stdout + process.stderr


def run_python(course: Path, *arguments: object, cwd: Path | None = None, **environment: object) -> str:
    """What Python prints with the folder `course` as its course, and nothing of another one."""
    environment = {name: str(value) for name, value in environment.items()} | {"PYTHONPATH": str(course)}
    environment = build.kernel_environment(cwd or course.parent) | {"OMP_NUM_THREADS": "1"} | environment
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_twice(lesson: nbformat.NotebookNode, folder: Path) -> list[str]:
    """Run all of `lesson` twice in one kernel, in the empty `folder`; what that reveals, in words.

    That is what the runs left behind in torch, and what a cell shows the second time that it did not show the first.
    """
    options = {"kernel_name": source.KERNELSPEC["name"], "timeout": build.CELL_SECONDS}
    options |= {"resources": {"metadata": {"path": str(folder)}}, "extra_arguments": ["--IPKernelApp.log_level=40"]}
    client = NotebookClient(copy.deepcopy(lesson), **options)

    def run(notebook: nbformat.NotebookNode, **options) -> nbformat.NotebookNode:
        client.nb = copy.deepcopy(notebook)
        for index, cell in enumerate(client.nb.cells):
            client.execute_cell(cell, index, **options)
        return client.nb

    code = f"{inspect.getsource(_torch_state)}\n\nprint(__import__('json').dumps(_torch_state()))\ndel _torch_state"
    probe = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])

    def look() -> dict:
        return json.loads(run(probe, store_history=False).cells[0].outputs[0].text)

    client.reset_execution_trackers()
    with client.setup_kernel(env=build.kernel_environment(folder)):
        before, one = look(), build.tidy(run(lesson), lesson)
        between, other = look(), build.tidy(run(lesson), lesson)
        after = look()
    start = before | {what: count for what, count in between.items() if what.startswith("count")}
    kept = [(what, start[what], after[what]) for what in after]
    kept += [(a.id, a.get("outputs"), b.get("outputs")) for a, b in zip(one.cells, other.cells, strict=True)]
    return [f"{what}: {first} became {second}" for what, first, second in kept if first != second]


def _torch_state() -> dict:
    """The state of torch, in the kernel. IPython's cache of results is emptied first: it keeps old objects alive."""
    import gc

    import torch

    from course_utils.exercises.evidence import WORLD

    get_ipython().displayhook.flush()  # noqa: F821  IPython's own
    gc.collect()
    modules = [each for each in gc.get_objects() if issubclass(type(each), torch.nn.Module)]
    tensors = [each for each in get_ipython().user_ns.values() if isinstance(each, torch.Tensor)]  # noqa: F821
    held = [(name, value) for each in modules for name, value in vars(each).items()]
    on_modules = [value for name, value in held if "hook" in name and isinstance(value, dict)]
    on_tensors = [getattr(each, f"_{kind}_hooks") for each in tensors for kind in ("backward", "post_accumulate_grad")]
    return {f"{name} ({number})": str(read()) for number, (name, read, _) in enumerate(WORLD)} | {
        "count of hooks on modules": sum(map(len, on_modules)),
        "count of hooks on tensors": sum(len(each) for each in on_tensors if each),
        "inference mode": torch.is_inference_mode_enabled(),
        "active function modes": torch._C._len_torch_function_stack(),
    }
