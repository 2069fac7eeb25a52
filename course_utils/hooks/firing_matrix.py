"""Which hook fires in which situation: a table made by running, with a short program for each of its cells.

    print(write_proof("forward hook", "under no_grad"))     # a program that anybody can run
    run_cell("forward hook", "under no_grad")               # what it does with the installed torch: "once"
    load_matrix().outcome("forward hook", "under no_grad")  # what the stored table says

A table is stored for each version of torch that it was made with. To make one with the installed torch, in minutes:
python -m course_utils.hooks.firing_matrix
"""

import dataclasses
import functools
import html
import itertools
import json
import linecache
import re
import sys
import types
import warnings
from collections.abc import Iterable

import torch
from torch.nn.modules import module as torch_module

from course_utils.root import ASSETS, CourseError

START = """\
import torch
from torch import nn
from torch.nn.modules import module as every_module

runs = []


def hook(*seen):
    runs.append(1)


def hook_of_linear(module, *seen):
    if isinstance(module, nn.Linear):
        runs.append(1)


model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
layer, weight = model[0], model[0].weight
x = torch.ones(2, 3, requires_grad=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""

_ON_OUTPUT = "handle = layer.register_forward_hook(lambda module, args, output: {})"

_OPTIMIZERS = (
    "from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook\n\n"
)
_NUMBERS = itertools.count()  # the compiler remembers modules by name, so every proof has its own

_SAVING = """\
handle = torch.autograd.graph.saved_tensors_hooks(lambda tensor: {}, lambda tensor: {})
handle.__enter__()  # a context manager for the whole program"""

HOOKS = {  # what registers each of them
    "forward pre-hook": "handle = layer.register_forward_pre_hook(hook)",
    "forward hook": "handle = layer.register_forward_hook(hook)",
    "forward hook, always called": "handle = layer.register_forward_hook(hook, always_call=True)",
    "full backward pre-hook": "handle = layer.register_full_backward_pre_hook(hook)",
    "full backward hook": "handle = layer.register_full_backward_hook(hook)",
    "legacy backward hook": "handle = layer.register_backward_hook(hook)",
    "global forward pre-hook": "handle = every_module.register_module_forward_pre_hook(hook_of_linear)",
    "global forward hook": "handle = every_module.register_module_forward_hook(hook_of_linear)",
    "global full backward pre-hook": "handle = every_module.register_module_full_backward_pre_hook(hook_of_linear)",
    "global full backward hook": "handle = every_module.register_module_full_backward_hook(hook_of_linear)",
    "global legacy backward hook": "handle = every_module.register_module_backward_hook(hook_of_linear)",
    "tensor hook on the input": "handle = x.register_hook(hook)",
    "tensor hook on a parameter": "handle = weight.register_hook(hook)",
    "tensor hook on the output": _ON_OUTPUT.format("output.register_hook(hook) and None"),
    "post-accumulate-grad hook": "handle = weight.register_post_accumulate_grad_hook(hook)",
    "multi-grad hook": "handle = torch.autograd.graph.register_multi_grad_hook(tuple(layer.parameters()), hook)",
    "node hook on the output": _ON_OUTPUT.format("output.grad_fn.register_hook(hook) and None"),
    "node pre-hook on the output": _ON_OUTPUT.format("output.grad_fn.register_prehook(hook) and None"),
    "saved-tensors hook, pack": _SAVING.format("hook(tensor) or tensor", "tensor"),
    "saved-tensors hook, unpack": _SAVING.format("tensor", "hook(tensor) or tensor"),
    "step pre-hook": "handle = optimizer.register_step_pre_hook(hook)",
    "step post-hook": "handle = optimizer.register_step_post_hook(hook)",
    "global step pre-hook": _OPTIMIZERS + "handle = register_optimizer_step_pre_hook(hook)",
    "global step post-hook": _OPTIMIZERS + "handle = register_optimizer_step_post_hook(hook)",
    "state-dict pre-hook": "handle = layer.register_state_dict_pre_hook(hook)",
    "state-dict post-hook": "handle = layer.register_state_dict_post_hook(hook)",
    "private state-dict hook": "handle = layer._register_state_dict_hook(hook)",
    "private load-state-dict pre-hook": "handle = layer._register_load_state_dict_pre_hook(hook)",
    "load-state-dict pre-hook": "handle = layer.register_load_state_dict_pre_hook(hook)",
    "load-state-dict post-hook": "handle = layer.register_load_state_dict_post_hook(hook)",
    "optimizer state-dict pre-hook": "handle = optimizer.register_state_dict_pre_hook(hook)",
    "optimizer state-dict post-hook": "handle = optimizer.register_state_dict_post_hook(hook)",
    "optimizer load-state-dict pre-hook": "handle = optimizer.register_load_state_dict_pre_hook(hook)",
    "optimizer load-state-dict post-hook": "handle = optimizer.register_load_state_dict_post_hook(hook)",
    "global module registration hook": "handle = every_module.register_module_module_registration_hook(hook)",
    "global parameter registration hook": "handle = every_module.register_module_parameter_registration_hook(hook)",
    "global buffer registration hook": "handle = every_module.register_module_buffer_registration_hook(hook)",
}

_ALONE = 'torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)\n'


@dataclasses.dataclass(frozen=True)
class Situation:
    """What runs `before` the hook is registered and `after`; a `slow` one needs a compiler or a group of processes."""

    after: str
    before: str = ""
    slow: bool = False


SITUATIONS = {
    "forward and backward": Situation("model(x).sum().backward()"),
    "input requires no gradient": Situation("model(x.detach()).sum().backward()"),
    "everything frozen": Situation("model.requires_grad_(False)\nmodel(x.detach())"),
    "under no_grad": Situation("with torch.no_grad():\n    model(x)"),
    "under inference_mode": Situation("with torch.inference_mode():\n    model(x)"),
    "under autocast": Situation('with torch.autocast("cpu"):\n    output = model(x)\noutput.float().sum().backward()'),
    "layer.forward called": Situation("model[1](layer.forward(x)).sum().backward()"),
    "called twice": Situation("model(model(x)).sum().backward()"),
    "in-place ReLU after it": Situation("model[1].inplace = True\nmodel(x).sum().backward()"),
    "forward raises": Situation(
        "try:\n    model(torch.ones(2, 9))\nexcept RuntimeError:\n    print('the shapes do not fit')"
    ),
    "backward twice": Situation("loss = model(x).sum()\nloss.backward(retain_graph=True)\nloss.backward()"),
    "gradient of a gradient": Situation(
        "(slope,) = torch.autograd.grad(model(x).pow(2).sum(), x, create_graph=True)\nslope.sum().backward()"
    ),
    "backward(inputs=[x])": Situation("model(x).sum().backward(inputs=[x])"),
    "autograd.grad to x": Situation("torch.autograd.grad(model(x).sum(), x)"),
    "checkpoint": Situation(
        "from torch.utils.checkpoint import checkpoint\ncheckpoint(model, x, use_reentrant=False).sum().backward()"
    ),
    "reentrant checkpoint": Situation(
        "from torch.utils.checkpoint import checkpoint\ncheckpoint(model, x, use_reentrant=True).sum().backward()"
    ),
    "torch.func.vmap": Situation("torch.func.vmap(model)(x).sum().backward()"),
    "torch.func.grad": Situation(
        "torch.func.grad(lambda w: torch.func.functional_call(model, w, x).sum())(dict(model.named_parameters()))"
    ),
    "on the copy of deepcopy": Situation("import copy\n\ntwin = copy.deepcopy(model)\ntwin(x).sum().backward()"),
    "on the copy of pickle": Situation(
        "import pickle\n\ntwin = pickle.loads(pickle.dumps(model))\ntwin(x).sum().backward()"
    ),
    "optimizer step": Situation("model(x.detach()).sum()\noptimizer.step()"),
    "saving and loading": Situation(
        "model.load_state_dict(model.state_dict())\noptimizer.load_state_dict(optimizer.state_dict())"
    ),
    "a layer is added": Situation("model.append(nn.BatchNorm1d(3))"),
    "DataParallel without a GPU": Situation("nn.DataParallel(model)(x).sum().backward()"),
    "hook, then torch.compile": Situation(
        'fast = torch.compile(model, backend="aot_eager")\nfast(x).sum().backward()', slow=True
    ),
    "torch.compile, then hook": Situation(
        "fast(x).sum().backward()", 'fast = torch.compile(model, backend="aot_eager")\nfast(x)', slow=True
    ),
    "hook, then torch.export": Situation(
        "program = torch.export.export(model, (x,)).module()\nruns.clear()\nprogram(x).sum().backward()", slow=True
    ),
    "hook, then jit.trace": Situation(
        "traced = torch.jit.trace(model, x)\nruns.clear()\ntraced(x).sum().backward()", slow=True
    ),
    "hook, then jit.script": Situation("scripted = torch.jit.script(model)\nscripted(x).sum().backward()", slow=True),
    "hook, then DistributedDataParallel": Situation(
        f"{_ALONE}nn.parallel.DistributedDataParallel(model)(x).sum().backward()", slow=True
    ),
    "fully_shard, then hook": Situation(
        "model(x).sum().backward()",
        f"{_ALONE}mesh = torch.distributed.init_device_mesh('cpu', (1,))\n"
        "torch.distributed.fsdp.fully_shard(model, mesh=mesh)\nweight = layer.weight",
        slow=True,
    ),
}


def write_proof(hook: str, situation: str) -> str:
    """Return the program of a cell: it prints how often the hook ran.

    Raises `CourseError` for an unknown hook or situation.
    """
    if hook not in HOOKS or situation not in SITUATIONS:
        raise CourseError(f"there is no cell for {hook!r} and {situation!r}; choose from HOOKS and SITUATIONS")
    chosen = SITUATIONS[situation]
    parts = [START, chosen.before, HOOKS[hook], chosen.after, "print(len(runs))"]
    return "\n".join(part for part in parts if part) + "\n"


def run_cell(hook: str, situation: str) -> str:
    """Run the program of a cell; return "no", "once", "twice", "3 times", … or "raises" with the exception's name."""
    source, name = write_proof(hook, situation), f"proof_{next(_NUMBERS)}"
    proof = types.ModuleType(name)
    said: list[int] = []
    proof.print = said.append
    sys.modules[name] = proof  # so that a hook can be pickled, and its source be found
    linecache.cache[f"{name}.py"] = (len(source), None, source.splitlines(keepends=True), f"{name}.py")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(source, f"{name}.py", "exec"), vars(proof))
    except Exception as error:
        return f"raises {type(error).__name__}"
    finally:
        del sys.modules[name], linecache.cache[f"{name}.py"]
        _clean_up(vars(proof))
    return {0: "no", 1: "once", 2: "twice"}.get(said[-1], f"{said[-1]} times")


def _clean_up(names: dict[str, object]) -> None:
    if "handle" in names:
        names["handle"].__exit__(None, None, None)
    torch_module._global_is_full_backward_hook = None  # torch remembers the kind after the last such hook is gone
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()


def measure_matrix(situations: Iterable[str] = SITUATIONS) -> dict[str, dict[str, str]]:
    """Run every cell of the situations and return the outcomes, by hook and then by situation: minutes for all."""
    columns = list(situations)
    return {hook: {situation: run_cell(hook, situation) for situation in columns} for hook in HOOKS}


@dataclasses.dataclass(frozen=True)
class Matrix:
    """A stored table: the version of `torch` that it was made with, and its `outcomes` by hook and situation."""

    torch: str
    outcomes: dict[str, dict[str, str]]

    def outcome(self, hook: str, situation: str) -> str:
        """Return what a cell says, as `run_cell` does."""
        return self.outcomes[hook][situation]

    def differs(self, hook: str, situation: str) -> bool:
        """Whether the hook does something else than in the plain situation, the first one."""
        return self.outcome(hook, situation) != self.outcome(hook, next(iter(SITUATIONS)))


@functools.cache
def load_matrices() -> tuple[Matrix, ...]:
    """Return the stored tables, the newest torch first."""
    stored = json.loads((ASSETS / "firing_matrix.json").read_text(encoding="utf-8"))
    return tuple(Matrix(version, outcomes) for version, outcomes in stored.items())


def load_matrix() -> Matrix:
    """Return the stored table of the newest torch."""
    return load_matrices()[0]


def store_matrix() -> None:
    """Run all cells with the installed torch, and store them in front of the tables of other versions."""
    file = ASSETS / "firing_matrix.json"
    others = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    version = torch.__version__.partition("+")[0]
    others.pop(version, None)
    tables = {version: measure_matrix(), **others}
    written = []
    for version, outcomes in tables.items():
        rows = [f"  {json.dumps(hook)}: {json.dumps(row)}" for hook, row in outcomes.items()]
        written.append(f" {json.dumps(version)}: {{\n" + ",\n".join(rows) + "\n }")
    file.write_text("{\n" + ",\n".join(written) + "\n}\n", encoding="utf-8")


def list_changes(new: Matrix, old: Matrix) -> list[tuple[str, str, str, str]]:
    """Return (hook, situation, old outcome, new outcome) of each cell that two versions of torch fill differently."""
    return [
        (hook, situation, old.outcomes[hook][situation], outcome)
        for hook, row in new.outcomes.items()
        for situation, outcome in row.items()
        if old.outcomes.get(hook, {}).get(situation, outcome) != outcome
    ]


def render_matrix(matrix: Matrix, situations: Iterable[str] = SITUATIONS, page: str | None = None) -> str:
    """Return a table as accessible HTML: a caption, headers for rows and columns, and words in every cell.

    Cells that differ from the plain situation are in bold type. With `page`, an address in which "{}" stands for
    `slug_of(hook)`, each cell is a link to its program there; `render_proofs` makes what the page holds.
    """
    columns = list(situations)
    heads = "".join(f'<th scope="col">{html.escape(each)}</th>' for each in columns)
    caption = f"How often each hook runs, with torch {matrix.torch}. Bold type: not as in the first situation."
    lines = ["<table>", f"<caption>{html.escape(caption)}</caption>"]
    lines += [f'<thead><tr><th scope="col">hook</th>{heads}</tr></thead>', "<tbody>"]
    for hook in matrix.outcomes:
        cells = "".join(f"<td>{_render_cell(matrix, hook, each, page)}</td>" for each in columns)
        lines.append(f'<tr><th scope="row">{html.escape(hook)}</th>{cells}</tr>')
    return "\n".join([*lines, "</tbody>", "</table>"])


def _render_cell(matrix: Matrix, hook: str, situation: str, page: str | None) -> str:
    words = html.escape(matrix.outcome(hook, situation))
    if matrix.differs(hook, situation):
        words = f"<strong>{words}</strong>"
    if page is None:
        return words
    name = html.escape(f"{hook}, {situation}: its program", quote=True)
    return f'<a href="{page.format(slug_of(hook))}#{slug_of(situation)}" title="{name}">{words}</a>'


def slug_of(name: str) -> str:
    """Return the name of a hook or a situation as it stands in an address: small letters, numbers and hyphens."""
    return re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")


def render_proofs(hook: str, matrix: Matrix) -> str:
    """Return the programs of all cells of a hook as Markdown, each below a heading with the anchor of its situation."""
    parts = [f"# {hook[0].upper()}{hook[1:]}", "Each program starts with these lines:", f"```python\n{START}```"]
    for situation in SITUATIONS:
        program = write_proof(hook, situation).removeprefix(START).lstrip("\n")
        parts += [f'<a id="{slug_of(situation)}"></a>', f"## {situation}: {matrix.outcome(hook, situation)}"]
        parts.append(f"```python\n{program}```")
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    store_matrix()
