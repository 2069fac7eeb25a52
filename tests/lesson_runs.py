"""Run lessons as tests need it: under nbval with pictures compared, and twice in one kernel."""

import copy
import json
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

from course_utils.authoring import build, source


@dataclass(frozen=True)
class NbvalResult:
    """What `pytest --nbval` said: how many cells it compared with success, and its words on the others."""

    passed: int
    others: int
    report: str


def run_nbval(path: Path, folder: Path, environment: dict[str, str] | None = None) -> NbvalResult:
    """Run nbval on a copy of the notebook `path` in the empty `folder`, comparing every output, pictures included."""
    (folder / "pytest.ini").write_text("[pytest]\n")  # no configuration of the course's or the user's applies
    (folder / "lesson").mkdir()
    notebook = folder / "lesson" / path.name
    notebook.write_bytes(path.read_bytes())
    results = folder / "results.xml"
    environment = {**build.kernel_environment(folder), **(environment or {})}
    environment |= {
        "PYTHONPATH": str(Path(__file__).parent),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_ADDOPTS": "",
    }
    plugins = ["-p", "nbval.plugin", "-p", "nbval_pictures", "-p", "no:cacheprovider"]
    options = ["--nbval", "--nbval-current-env", f"--nbval-cell-timeout={build.CELL_SECONDS}", "--color=no", "-q"]
    command = [sys.executable, "-m", "pytest", *plugins, *options, f"--junitxml={results}", str(notebook)]
    process = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if not results.exists():
        raise RuntimeError(f"nbval did not run on {path.name}:\n{process.stdout}\n{process.stderr}")
    suite = ElementTree.parse(results).getroot().find("testsuite")
    others = sum(int(suite.get(kind)) for kind in ("failures", "errors", "skipped"))
    return NbvalResult(int(suite.get("tests")) - others, others, process.stdout)


@dataclass(frozen=True)
class TwoRuns:
    """A lesson run twice in one kernel: both outcomes, tidied, and the state of torch before, between and after."""

    first: NotebookNode
    second: NotebookNode
    states: tuple[dict[str, Any], dict[str, Any], dict[str, Any]]
    seconds: float  # of the first run


def run_twice(lesson: NotebookNode, folder: Path) -> TwoRuns:
    """Run every code cell of `lesson`, and then all of them again in the same kernel, in the empty `folder`."""
    client = NotebookClient(
        copy.deepcopy(lesson),
        kernel_name=source.KERNELSPEC["name"],
        timeout=build.CELL_SECONDS,
        resources={"metadata": {"path": str(folder)}},
        extra_arguments=["--IPKernelApp.log_level=40"],
    )
    client.reset_execution_trackers()
    with client.setup_kernel(env=build.kernel_environment(folder)):
        start = time.perf_counter()  # before torch is imported: that is a part of what the reader waits for
        states = [_torch_state(client)]
        first = _run_all(client, lesson)
        seconds = time.perf_counter() - start
        states.append(_torch_state(client))
        second = _run_all(client, lesson)
        states.append(_torch_state(client))
    return TwoRuns(first, second, tuple(states), seconds)


def _run_all(client: NotebookClient, lesson: NotebookNode) -> NotebookNode:
    client.nb = copy.deepcopy(lesson)
    for index, cell in enumerate(client.nb.cells):
        client.execute_cell(cell, index)
    client.set_widgets_metadata()
    return build.tidy(client.nb, lesson)


def find_leftovers(runs: TwoRuns) -> list[str]:
    """What two runs left in torch or added the second time, in words; none if a lesson cleans up after itself."""
    before, between, after = runs.states
    leftovers = [f"left behind: {name} hooks" for name in after["global hooks"]]
    for name, value in before["settings"].items():
        if after["settings"][name] != value:
            leftovers.append(f"changed: {name} was {value} and is {after['settings'][name]}")
    for kind in ("hooks on modules", "hooks on tensors"):
        if after[kind] != between[kind]:
            leftovers.append(f"{kind}: {between[kind]} after the first run, {after[kind]} after the second")
    return leftovers


def _torch_state(client: NotebookClient) -> dict[str, Any]:
    """The state of torch in the kernel. IPython's cache of results is emptied first: it keeps old objects alive."""
    cell = nbformat.v4.new_code_cell(_PROBE)
    client.nb = nbformat.v4.new_notebook(cells=[cell])
    client.execute_cell(cell, 0, store_history=False)
    return json.loads(cell.outputs[0].text)


_PROBE = """
def __probe():
    import gc
    import json

    import torch
    from torch.nn.modules import module

    get_ipython().displayhook.flush()
    gc.collect()

    def hooks_on(owner):
        return sum(len(value) for name, value in vars(owner).items() if "hook" in name and isinstance(value, dict))

    def hooks_on_tensor(tensor):
        return len(tensor._backward_hooks or ()) + len(getattr(tensor, "_post_accumulate_grad_hooks", None) or ())

    modules = [each for each in gc.get_objects() if issubclass(type(each), torch.nn.Module)]
    tensors = [each for each in get_ipython().user_ns.values() if isinstance(each, torch.Tensor)]
    global_hooks = {name: value for name, value in vars(module).items() if name.startswith("_global")}
    print(json.dumps({
        "global hooks": sorted(name for name, value in global_hooks.items() if isinstance(value, dict) and value),
        "hooks on modules": sum(map(hooks_on, modules)),
        "hooks on tensors": sum(map(hooks_on_tensor, tensors)),
        "settings": {
            "default dtype": str(torch.get_default_dtype()),
            "default device": str(torch.get_default_device()),
            "grad mode": torch.is_grad_enabled(),
            "inference mode": torch.is_inference_mode_enabled(),
            "anomaly mode": torch.is_anomaly_enabled(),
            "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
            "threads": torch.get_num_threads(),
            "active function modes": torch._C._len_torch_function_stack(),
            "hooks on saved tensors": torch._C._autograd._top_saved_tensors_default_hooks(True) is not None,
        },
    }))


__probe()
del __probe
"""


def find_output_differences(one: NotebookNode, other: NotebookNode) -> list[str]:
    """Which cells' outputs are not the same in two notebooks, with both values."""
    differences = []
    for number, (first, second) in enumerate(zip(one.cells, other.cells, strict=True), start=1):
        if first.get("outputs") != second.get("outputs"):
            differences.append(f"cell {number} ({first.id}): {first.outputs} became {second.outputs}")
    return differences
