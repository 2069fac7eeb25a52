"""Run lessons as tests need it: under nbval with pictures compared, and twice in one kernel."""

import copy
import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

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
    assert results.exists(), f"nbval did not run on {path.name}:\n{process.stdout}\n{process.stderr}"
    suite = ElementTree.parse(results).getroot().find("testsuite")
    others = sum(int(suite.get(kind)) for kind in ("failures", "errors", "skipped"))
    return NbvalResult(int(suite.get("tests")) - others, others, process.stdout)


def run_twice(lesson: NotebookNode, folder: Path) -> list[str]:
    """Run all of `lesson` twice in one kernel, in the empty `folder`; what that reveals, in words.

    That is what the runs left behind in torch, and what a cell shows the second time that it did not show the first.
    """
    client = NotebookClient(
        copy.deepcopy(lesson),
        kernel_name=source.KERNELSPEC["name"],
        timeout=build.CELL_SECONDS,
        resources={"metadata": {"path": str(folder)}},
        extra_arguments=["--IPKernelApp.log_level=40"],
    )
    client.reset_execution_trackers()
    with client.setup_kernel(env=build.kernel_environment(folder)):
        before, one = _torch_state(client), _run_all(client, lesson)
        between, other = _torch_state(client), _run_all(client, lesson)
        after = _torch_state(client)
    found = [f"left behind: {name} hooks" for name in after["global hooks"]]
    for name, value in before["settings"].items():
        if after["settings"][name] != value:
            found.append(f"changed: {name} was {value} and is {after['settings'][name]}")
    for kind in ("hooks on modules", "hooks on tensors"):
        if after[kind] != between[kind]:
            found.append(f"{kind}: {between[kind]} after the first run, {after[kind]} after the second")
    for number, (first, second) in enumerate(zip(one.cells, other.cells, strict=True), start=1):
        if first.get("outputs") != second.get("outputs"):
            found.append(f"cell {number} ({first.id}): {first.outputs} became {second.outputs}")
    return found


def _run_all(client: NotebookClient, lesson: NotebookNode) -> NotebookNode:
    client.nb = copy.deepcopy(lesson)
    for index, cell in enumerate(client.nb.cells):
        client.execute_cell(cell, index)
    return build.tidy(client.nb, lesson)


def _torch_state(client: NotebookClient) -> dict:
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
