"""firing_matrix.py: each cell is what its program prints, the stored table is that of the installed torch."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from types import FunctionType

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import graph
from torch.nn.modules import module as torch_module

from course_utils.hooks.firing_matrix import (
    list_changes,
    load_matrices,
    load_matrix,
    measure_matrix,
    read_programs,
    render_matrix,
    render_proofs,
    run_cell,
    slug_of,
    write_proof,
)
from course_utils.root import CourseError

START, HOOKS, SITUATIONS = read_programs()
INSTALLED = torch.__version__.partition("+")[0]
STORED = {matrix.torch: matrix for matrix in load_matrices()}
torch_optimizer = sys.modules[torch.optim.Optimizer.__module__]


def compare_with_the_installed_torch(situations):
    if INSTALLED not in STORED:
        pytest.skip(f"no table is stored for torch {INSTALLED}: run python -m course_utils.hooks.firing_matrix")
    measured = measure_matrix(situations)
    stored = {hook: {each: row[each] for each in situations} for hook, row in STORED[INSTALLED].outcomes.items()}
    assert measured == stored


def test_the_quick_columns_are_those_of_the_installed_torch():
    compare_with_the_installed_torch([name for name, situation in SITUATIONS.items() if not situation.slow])


@pytest.mark.slow
def test_the_slow_columns_are_those_of_the_installed_torch():
    compare_with_the_installed_torch([name for name, situation in SITUATIONS.items() if situation.slow])


def test_tables_are_whole():
    for matrix in STORED.values():
        assert list(matrix.outcomes) == list(HOOKS)
        assert all(list(row) == list(SITUATIONS) for row in matrix.outcomes.values())
        said = {outcome for row in matrix.outcomes.values() for outcome in row.values()}
        assert all(re.fullmatch(r"no|once|twice|\d+ times|raises [A-Za-z]+", outcome) for outcome in said)


@pytest.mark.parametrize(
    ("hook", "situation", "outcome"),
    [  # known from torch's documentation
        ("forward hook", "forward and backward", "once"),
        ("forward hook", "layer.forward called", "no"),
        ("forward hook", "forward raises", "no"),
        ("forward hook, always called", "forward raises", "once"),
        ("forward pre-hook", "checkpoint", "twice"),
        ("full backward hook", "input requires no gradient", "once"),
        ("full backward hook", "under no_grad", "no"),
        ("full backward hook", "in-place ReLU after it", "raises RuntimeError"),
        ("legacy backward hook", "in-place ReLU after it", "once"),
        ("tensor hook on a parameter", "backward(inputs=[x])", "no"),
        ("post-accumulate-grad hook", "backward twice", "twice"),
        ("saved-tensors hook, pack", "under no_grad", "no"),
        ("step post-hook", "optimizer step", "once"),
        ("global buffer registration hook", "a layer is added", "3 times"),
        ("forward hook", "torch.compile, then hook", "no"),
    ],
)
def test_a_cell_says_what_the_documentation_says(hook, situation, outcome):
    assert load_matrix().outcome(hook, situation) == outcome
    assert load_matrix().differs(hook, situation) == (outcome != load_matrix().outcome(hook, "forward and backward"))


@pytest.mark.slow
def test_a_proof_is_a_program_that_prints_the_same(tmp_path):
    """Pickle finds a hook by the name of its module, which is another one in a program."""
    file = tmp_path / "proof.py"
    file.write_text(write_proof("forward hook", "on the copy of pickle"), encoding="utf-8")
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, check=True)
    number = {"no": 0, "once": 1, "twice": 2}[load_matrix().outcome("forward hook", "on the copy of pickle")]
    assert int(done.stdout) == number


def test_a_proof_is_short_and_a_wrong_name_is_refused():
    lengths = [write_proof(hook, each).removeprefix(START).count("\n") for hook in HOOKS for each in SITUATIONS]
    assert max(lengths) <= 10
    with pytest.raises(CourseError, match="'forward hok'"):
        write_proof("forward hok", "checkpoint")


def test_running_a_cell_leaves_nothing_behind():
    tables = [vars(torch_module)[name] for name in vars(torch_module) if re.fullmatch("_global_.*hooks", name)]
    for hook in HOOKS:
        run_cell(hook, "forward and backward")
    assert [len(table) for table in tables] == [0] * len(tables)
    assert not [name for name in sys.modules if name.startswith("proof_")]


def test_every_function_of_torch_that_registers_a_hook_has_a_row():
    """What registers makes a handle that can remove the hook; names are not asked."""
    homes = (nn.Module, Tensor, torch.optim.Optimizer, torch_module, torch_optimizer, graph)
    found = {
        name
        for home in homes
        for name, function in vars(home).items()
        if isinstance(function, FunctionType) and "RemovableHandle" in function.__code__.co_names
    }
    inherited = {name for name in dir(graph.Node) if name.startswith("register_")}
    code = " ".join(HOOKS.values())
    assert len(found | inherited) > 25
    assert {name for name in found | inherited if name not in code} == set()


def test_the_table_has_headers_a_caption_and_a_link_for_each_cell():
    columns = ["forward and backward", "checkpoint"]
    table = ET.fromstring(render_matrix(load_matrix(), columns, page="hooks/{}.html"))
    scopes = [header.get("scope") for header in table.iter("th")]
    assert (scopes.count("row"), scopes.count("col"), len(scopes)) == (len(HOOKS), 3, len(HOOKS) + 3)
    assert len([*table.iter("td")]) == len([*table.iter("a")]) == len(HOOKS) * 2
    assert f"torch {load_matrix().torch}" in table.find("caption").text
    (cell,) = table.iterfind(".//a[@href='hooks/forward-pre-hook.html#checkpoint']")
    assert cell.find("strong").text == "twice"
    assert "href" not in render_matrix(load_matrix(), columns)


def test_the_proofs_of_a_hook_hold_the_anchor_of_each_cell():
    page = render_proofs("forward hook", load_matrix())
    anchors = re.findall('<a id="([^"]+)"', page)
    assert anchors == [slug_of(each) for each in SITUATIONS]
    assert len(set(anchors)) == len(anchors)
    assert "## checkpoint: twice" in page
    assert page.count("print(len(runs))") == len(SITUATIONS)


def test_what_changed_between_two_versions():
    new, old = load_matrix(), load_matrices()[-1]
    assert list_changes(new, new) == []
    for hook, situation, before, after in list_changes(new, old):
        assert old.outcome(hook, situation) == before
        assert new.outcome(hook, situation) == after != before
