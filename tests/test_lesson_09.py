"""Lesson 09 names every hook of the installed torch, its numbers are right by a pencil, and its sheet is made of it."""

import ast
import contextlib
import inspect
import io
import pkgutil
import re
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
import torch
from bs4 import BeautifulSoup
from lesson_pages import LessonPage
from torch.utils.checkpoint import checkpoint

from course_utils.authoring import cheatsheet
from course_utils.authoring.source import sources, tags_of
from course_utils.exercises.engine import predictions_of
from course_utils.hooks.firing_matrix import load_matrix
from course_utils.lessons import two_processes
from course_utils.lessons.side_by_side import SideBySide, check

PAGE = LessonPage("09_every_hook")
shows = PAGE.shows
REGISTERS = re.compile(r"_?register_\w*hooks?")
ENGINE, KINDS = {"RemovableHandle", "_push_saved_tensors_default_hooks", "queue_callback"}, {"saved_tensors_hooks"}
NODE = type((torch.ones(1, requires_grad=True) * 2).grad_fn)
FIELDS = ["Call", "Runs", "Returns", "Trap"]


def public_modules() -> Iterator[ast.Module]:
    """The files of the installed torch, but for those of its tests and those whose names begin with an underscore."""
    folder = Path(torch.__file__).parent
    for path in folder.rglob("*.py"):
        parts = path.relative_to(folder).with_suffix("").parts
        if not any(part == "testing" or re.match(r"_(?!_init__$)", part) for part in parts):
            yield ast.parse(path.read_text(encoding="utf-8"))


def works_with_hooks(node: ast.FunctionDef | ast.ClassDef) -> bool:
    """Whether it registers hooks, makes their handles or is a kind of hooks; of a class, its private methods count."""
    bodies, bases = [node], set()
    if isinstance(node, ast.ClassDef):
        bodies = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name.startswith("_")]
        bases = {last_name(base) for base in node.bases}
    called = {last_name(each.func) for body in bodies for each in ast.walk(body) if isinstance(each, ast.Call)}
    return bool(bases & KINDS or called & ENGINE or any(map(REGISTERS.fullmatch, {*called, node.name})))


def last_name(expression: ast.expr) -> str:
    return ast.unparse(expression).rpartition(".")[2]


def hooks_of_torch() -> set[str]:
    """The public functions, classes and methods of the installed torch that work with hooks, found by what they do."""
    found = set()
    for module in public_modules():
        classes = [each for each in module.body if isinstance(each, ast.ClassDef) and not each.name.startswith("_")]
        for owner in (module, *classes):
            title = f"{owner.name}." if owner in classes else ""
            for node in owner.body:
                public = isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
                if public and works_with_hooks(node):
                    found.add(node.name if "hook" in node.name else f"{title}{node.name}")
    made_in_c = (torch.Tensor, NODE, torch._C._autograd.SavedTensor)
    found |= {name for owner in made_in_c for name in dir(owner) if REGISTERS.fullmatch(name)}
    return found | {name for name in torch.autograd.graph.__all__ if "hook" in name}


def missing(hooks: set[str], code: str, prose: str) -> set[str]:
    """The hooks that no cell runs or prints, and that are not among those of which the prose says why."""
    return {name for name in hooks if not re.search(rf"\b{re.escape(name)}\b", code) and f"`{name}`" not in prose}


@pytest.mark.slow  # it reads all of torch
def test_every_hook_of_the_installed_torch_is_run_or_said_to_need_more_than_this_computer():
    hooks = hooks_of_torch()
    assert len(hooks) > 55
    assert {"ModuleTracker", "save_on_cpu", "weight_norm"} < hooks, "found by what they do"
    texts = [cell.source for cell in PAGE.cells if cell.cell_type == "markdown"]
    code = "\n".join([PAGE.printed, *(cell.source for cell in PAGE.code)])
    words = "".join(
        text for text in texts if re.search("^##+ (Hooks that are not run|What registers hooks)", text, re.M)
    )
    assert missing(hooks, code, words) == set()
    assert missing({"register_new_hook"}, code, words) == {"register_new_hook"}


@pytest.mark.skipif(
    not torch.__version__.startswith(load_matrix().torch), reason="the page was built with another torch"
)
def test_the_index_has_each_entry_with_its_signature_and_leads_there():
    (table,) = [cell.source for cell in PAGE.cells if cell.source.startswith("### All entries")]
    rows = re.findall(r"^\| \[(.+)\]\(#(.+)\) \| `(.+)` \| (.+) \|$", table, re.M)
    entries = [cell.source for cell in PAGE.cells if "**Call:**" in cell.source]
    titles = [re.findall(r"^### (.+)$", text.partition("- **Call:**")[0], re.M)[-1] for text in entries]
    assert list(dict.fromkeys(title for title, *_ in rows)) == sorted(titles, key=[row[0] for row in rows].index)
    tasks = PAGE.prose.partition("### All entries")[0]
    assert [title for title, anchor, *_ in rows if f"(#{anchor})" not in tasks] == []
    for title, anchor, written, since in rows:
        assert anchor == title.replace(" ", "-")
        assert re.match(r"\d\.\d+", since)
        path, _, parameters = written.partition("(")
        if path != "SavedTensor.register_hooks":  # made in C: it has no signature
            assert parameters == signature_of(pkgutil.resolve_name(path)), path


def signature_of(function) -> str:
    """The public parameters of a function as they are written, without types; long defaults as three dots."""
    signature = inspect.signature(function)
    kept = [each for each in signature.parameters.values() if each.name != "self" and not each.name.startswith("_")]
    short = [
        each.replace(default=...) if len(repr(each.default)) > 12 and each.default is not each.empty else each
        for each in kept
    ]
    bare = signature.replace(
        parameters=[each.replace(annotation=each.empty) for each in short], return_annotation=signature.empty
    )
    return str(bare).removeprefix("(").replace("Ellipsis", "...")


def test_every_entry_says_four_things_and_a_cell_runs_it():
    entries = 0
    for cell, after in zip(PAGE.cells, PAGE.cells[1:], strict=False):
        said = re.findall(r"^- \*\*(\w+):\*\*", cell.source, re.M) if cell.cell_type == "markdown" else []
        if said:
            assert (said, after.cell_type) == (FIELDS, "code"), cell.source
            entries += 1
    assert entries >= 24


@pytest.mark.slow
def test_a_cell_of_the_reference_needs_only_the_setup():
    def run(source, names):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(RuntimeError, OSError):
            exec(source, names)

    def tagged(cell, *tags):
        return set(tags) & set(tags_of(cell))

    setup, chained = "\n\n".join(cell.source for cell in PAGE.code if tagged(cell, "setup")), []
    for cell in PAGE.code:
        if not tagged(cell, "setup", "answer", "check", "predict", "why"):
            run(setup, names := {"__name__": "__main__"})
            try:
                run(cell.source, names)
            except NameError:
                chained.append(cell.source)
    parts = ("late_calls(", "run_two_processes", "keep_local")  # of the cells that go on from the one before
    assert len(chained) == len(parts)
    assert all(part in source for part, source in zip(parts, chained, strict=True))


def test_numbers_by_a_pencil():
    assert shows(f"x.grad = [{3 * 10.0}, {3 * 10.0}]")
    weights = 2 - 0.25 * 2  # each weight's gradient is the other's value, before any step
    assert shows(f"weights: [{weights}, {weights}] gradients: [None, None]")
    mean = (2 + 6) / 2
    for process, local in enumerate((2.0, 6.0)):
        seen = f"process {process}: {{'tensor hook': {local}, 'post-accumulate hook': {local}, '.grad afterwards': "
        assert shows(f"{seen}{mean}}}")
        assert shows(f"{seen}{local}}}")


def test_the_legacy_hook_shows_the_inputs_of_the_last_operation():
    bias, x, weight = torch.ones(1), torch.tensor([[7.0, 0, 27, 0]]), torch.tensor([[1.0], [2], [3], [4]])
    inputs = [each.requires_grad_() for each in (bias, x, weight)]
    entries = [grad.tolist() for grad in torch.autograd.grad(torch.addmm(*inputs), inputs)]
    for owner in ("fc2:", "the model:", "the node: AddmmBackward0"):
        assert shows(owner, *map(str, entries))


def test_predictions_come_out_as_their_cells_do():
    assert [each.answer for each in predictions_of(9)] == ["yes", "3"]
    assert shows("hooks on the layer and on its copy: 0 1")
    assert shows("Linear: entries [(3,), (5, 2), (2, 3)]")  # bias, input, and the weight transposed


def test_the_order_of_a_call_is_that_of_the_rules():
    (text,) = [cell.outputs[0].text for cell in PAGE.code if cell.id == "the-order-of-a-call"]
    order = [line.split(maxsplit=1)[1] for line in text.splitlines()]
    for kind in ("forward_pre_hook", "forward_hook", "full_backward_pre_hook", "full_backward_hook"):
        place = order.index(f"{kind} of all modules")
        assert order[place + 1] == f"{kind} of the module"
    rules = ["forward_pre_hook", "forward", "forward_hook", "tensor hook on the module's output"]
    rules += ["full_backward_pre_hook", "tensor hook on what forward", "pre-hook on the node", "hook on the node"]
    rules += ["post-accumulate", "full_backward_hook", "tensor hook on the input", "step_pre_hook", "step_post_hook"]
    places = [next(number for number, what in enumerate(order) if what.startswith(rule)) for rule in rules]
    assert places == [0, *sorted(order.index(order[place]) for place in places[1:])]


def test_two_processes_that_fail_say_why(monkeypatch):
    monkeypatch.setattr(two_processes, "__name__", "no_such_module")
    with pytest.raises(RuntimeError, match="No module named no_such_module"):
        two_processes.run_two_processes()


def test_the_rules_to_break_stand_in_the_lessons():
    texts = [path.read_text(encoding="utf-8") for path in sources()[:-1]]
    course = " ".join(" ".join(texts).replace("\n# ", " ").split())
    rules = re.findall(r"^> (.+)$", "\n".join(cell.source for cell in PAGE.cells), re.M)
    assert len(rules) == 5
    assert [rule for rule in rules if rule not in course] == []


def make_twelve(w):
    return w.register_hook(lambda grad: 12 * grad)


def test_what_was_wanted_and_what_came_stand_side_by_side():
    outcome = check(make_twelve)
    assert isinstance(outcome, SideBySide)
    (given,) = re.findall(r"x\.grad +(\[.+?\]) +\1$", str(outcome), re.M)  # which is right
    (row,) = re.findall(r"^ +w\.grad +\[12\., 12\.\] +(\[.+\]) +differs$", str(outcome), re.M)
    assert ast.literal_eval(row) != ast.literal_eval(given)
    table = BeautifulSoup(outcome._repr_html_(), "html.parser").table
    assert [cell.get_text() for cell in table.find_all("tr")[0]] == ["", "wanted", "yours", ""]
    first = next(line for line in table.find_all("tr") if line.th.get_text() == "w.grad")
    wanted, yours, mark = first.find_all("td")
    assert [box.get_text() for box in wanted.find_all("span")] == ["12.", "12."]
    assert [box.get_text() for box in yours.find_all("span")] == re.findall(r"[\d.]+", row)
    assert mark.get_text() == "≠ differs"


def test_nothing_is_drawn_where_nothing_can_be_compared():
    def halve_output(layer):
        return layer.register_forward_hook(lambda output: output / 2)

    def forget_gradient(leaf):
        return leaf.register_post_accumulate_grad_hook(lambda leaf: setattr(leaf, "grad", None))

    outcomes = [check(halve_output), check(forget_gradient), check(None)]
    assert [str(each.stage) for each in outcomes] == ["raised", "passed", "not an exercise"]
    assert not any(isinstance(each, SideBySide) for each in outcomes)


@pytest.fixture(scope="module")
def sheet():
    return BeautifulSoup(cheatsheet.make_page(nbformat.read(PAGE.path, as_version=4)), "html.parser")


def test_the_sheet_has_each_entry_of_the_core_the_order_and_five_traps_and_nothing_else(sheet):
    prose = " ".join(PAGE.prose.replace("`", "").replace("*", "").split())
    cells = [" ".join(cell.get_text().split()) for cell in sheet.find_all("td")]
    core, _, _ = PAGE.prose.partition(" ## More: ")
    assert len(cells) == 3 * core.count("**Call:**") > 70
    lists = (part.find_all("li") for part in sheet.find_all("ol"))
    order, traps = ([" ".join(each.get_text().split()) for each in items] for items in lists)
    assert [text for text in (*cells, *traps) if text not in prose] == []
    assert shows(*(f"{number} {step}" for number, step in enumerate(order, start=1)))
    assert len(traps) == 5


@pytest.mark.slow
def test_the_sheet_is_one_page_of_pdf_where_a_browser_is_there(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(cheatsheet, "read_built", lambda lesson: nbformat.read(PAGE.path, as_version=4))
    browser = any(map(shutil.which, cheatsheet.BROWSERS))
    assert cheatsheet.write_cheatsheet(tmp_path) == 0
    assert (tmp_path / "hooks.html").exists()
    assert (tmp_path / "hooks.pdf").exists() is browser
    if browser:
        assert len(re.findall(rb"/Type\s*/Page\b", (tmp_path / "hooks.pdf").read_bytes())) == 1
    monkeypatch.setattr(cheatsheet, "BROWSERS", ())
    cheatsheet.write_cheatsheet(tmp_path / "other")
    assert "print the page from your browser" in capsys.readouterr().out
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["hooks.html"]


# What the reference says without a cell that shows it.


@pytest.mark.parametrize(("fused", "ran"), [(False, []), (True, ["pre", "post"])])
def test_a_scaler_leaves_out_a_step_but_not_that_of_a_fused_optimizer(fused, ran):
    w, seen = torch.ones(1, requires_grad=True), []
    optimizer = torch.optim.Adam([w], lr=0.5, fused=fused)
    optimizer.register_step_pre_hook(lambda *_: seen.append("pre"))
    optimizer.register_step_post_hook(lambda *_: seen.append("post"))
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(w * torch.inf).backward()
    scaler.step(optimizer)
    assert (seen, w.item()) == (ran, 1)


def test_a_load_pre_hook_gets_the_entries_of_its_own_module():
    seen, net = [], torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Linear(1, 1))
    net[1].register_load_state_dict_pre_hook(lambda module, state, *_: seen.extend(state))
    net.load_state_dict(net.state_dict())
    assert seen == ["1.weight", "1.bias"]


def test_a_reentrant_checkpoint_is_not_built_on_saved_tensor_hooks():
    with torch.autograd.graph.disable_saved_tensors_hooks("none here"):
        checkpoint(torch.tanh, torch.ones(1, requires_grad=True), use_reentrant=True).backward()


def test_an_in_place_operation_before_a_module_with_a_full_hook_works():
    layer, ran = torch.nn.Linear(1, 1), []
    layer.register_full_backward_hook(lambda *_: ran.append("hook"))
    layer((2 * torch.ones(1, 1, requires_grad=True)).relu_()).backward()
    assert ran == ["hook"]


def test_a_backward_that_makes_a_graph_makes_nodes():
    x, names = torch.ones(1, requires_grad=True), []
    y = x.exp()
    with torch.autograd.graph.node_creation_hook(lambda node: names.append(node.name())):
        torch.autograd.grad(y, x, create_graph=True)
    assert names == ["MulBackward0"]


def test_hooks_on_the_weight_of_the_old_and_of_todays_weight_norm():
    for make, left, after in (
        (torch.nn.utils.weight_norm, ["bias", "weight_g", "weight_v"], ["after the call"]),
        (
            torch.nn.utils.parametrizations.weight_norm,
            ["bias", "parametrizations.weight.original0", "parametrizations.weight.original1"],
            [],
        ),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # the old one is deprecated
            layer, ran = make(torch.nn.Linear(1, 1)), []
        assert [name for name, _ in layer.named_parameters()] == left
        layer.weight.register_hook(lambda _, ran=ran: ran.append("before the call"))
        output = layer(torch.ones(1, 1))
        layer.weight.register_hook(lambda _, ran=ran: ran.append("after the call"))
        output.backward()
        assert ran == after


def test_a_traced_network_keeps_the_hooks_of_torchs_own_layers_only():
    class Own(torch.nn.Module):
        def forward(self, x):
            return 2 * x

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.own = torch.nn.Linear(1, 1), Own()

        def forward(self, x):
            return self.own(self.linear(x))

    net, ran = Net(), []
    net.linear.register_forward_hook(lambda *_: ran.append("linear"))
    net.own.register_forward_hook(lambda *_: ran.append("own"))
    traced = torch.fx.symbolic_trace(net)
    assert ran == ["own"]
    ran.clear()
    traced(torch.ones(1))
    assert ran == ["linear"]


def test_the_legacy_hook_does_not_warn_for_one_operation_on_a_result():
    def warned(layer, x):
        with warnings.catch_warnings(record=True) as caught, layer.register_backward_hook(lambda *_: None):
            warnings.simplefilter("always")
            layer(x).sum().backward()
        return bool(caught)

    leaf = torch.ones(1, 2, requires_grad=True)
    assert [warned(torch.nn.ReLU(), x) for x in (leaf, 2 * leaf)] == [True, False]
    assert [warned(torch.nn.Linear(2, 2), x) for x in (leaf, 2 * leaf)] == [True, True]


@pytest.mark.slow
def test_compiled_code_can_be_told_to_look_for_new_hooks():
    """The matrix has what it does otherwise."""
    dynamo = pytest.importorskip("torch._dynamo")
    net, ran = torch.nn.Sequential(torch.nn.Linear(1, 1)), []
    try:
        with dynamo.config.patch(skip_nnmodule_hook_guards=False):
            compiled = torch.compile(net, backend="eager")
            compiled(torch.ones(1))
            net[0].register_forward_hook(lambda *_: ran.append("late"))
            compiled(torch.ones(1))
    finally:
        torch.compiler.reset()
    assert ran == ["late"]


def test_a_tensor_hook_is_registered_inside_grad_and_not_inside_vmap():
    def hooked(x):
        h = 2 * x
        h.register_hook(lambda grad: seen.append(tuple(grad.shape)))
        return h

    seen = []
    torch.func.grad(lambda x: hooked(x).sum())(torch.ones(1))
    assert seen == [(1,)]
    with pytest.raises(RuntimeError, match="cannot register a hook"):
        torch.func.vmap(hooked)(torch.ones(3, 1, requires_grad=True))
