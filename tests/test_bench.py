"""The benchmark's bookkeeping; nothing here asserts a time."""

import json

import pytest
import torch

from tests.bench import bench
from tests.bench import graders as graders_module
from tests.bench.bench import Row, bare_grad_cam, bare_tiny_grad_cam, compare
from tests.bench.graders import Measured


def test_comparison_runs_both_equally_often_in_turns():
    calls = []
    compare(lambda: calls.append("ours"), lambda: calls.append("other"), rounds=4)
    assert calls[:2] == ["ours", "other"], "one run of each is not measured"
    assert calls[2:] == ["other", "ours", "ours", "other", "other", "ours", "ours", "other"]


def test_lower_limits_compute_the_same_maps_as_the_package():
    """A lower limit that computed something else would be a limit of nothing."""
    from torchvision.models import resnet18

    from course_utils.vision.networks import load_picture_net
    from course_utils.vision.saliency import grad_cam

    torch.manual_seed(0)
    model, images = resnet18(weights=None).eval(), torch.rand(1, 3, 64, 64)
    torch.testing.assert_close(bare_grad_cam(model, images, 7), grad_cam(model, images, "layer4", 7))
    net = load_picture_net().eval()
    torch.testing.assert_close(bare_tiny_grad_cam(net, images, 3), grad_cam(net, images, "features.16", 3))


def test_table_and_json_hold_the_same_rows_and_a_limit_that_is_exceeded_is_a_failure(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(bench.importlib.util, "find_spec", lambda name: None)
    rows = bench.compare_with_library("captum", "captum", torch.nn.Identity(), torch.rand(1), 1)
    assert all("captum is not installed" in row.note for row in rows)
    rows = [Row("first", 1.05, 1.05, "x", 0.6), Row("second", 1.06, 1.05, "ms"), rows[0]]
    for part in bench.PARTS:
        monkeypatch.setitem(bench.PARTS, part, lambda quick, part=part: rows if part == "saliency" else [])
    assert bench.main(["--quick", "--json", str(tmp_path / "bench.json")]) == 1
    assert [row["verdict"] for row in json.loads((tmp_path / "bench.json").read_text())] == ["ok", "over", ""]
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("first", "over", "captum is not installed"))


def test_each_grader_is_measured_right_after_ours_and_held_to_its_budget(monkeypatch):
    """Graders that only say they ran: 1 s, and half a second for each submission; nbgrader for ten times that."""
    seconds = {"ours": 1, "nbval": 1, "nbgrader": 10}

    def run(tool, count):
        if tool == "otter":
            return Measured(tool, count, skipped="otter-grader cannot be installed here")
        return Measured(tool, count, (1 + count / 2) * seconds[tool], 100)

    for tool in graders_module.TOOLS:
        monkeypatch.setitem(graders_module.RUNNERS, tool, lambda count, folder, tool=tool: run(tool, count))
    monkeypatch.setattr(graders_module, "measure_child", lambda: 11.0)
    found = list(graders_module.measure_all([10], [1000]))
    tools = ["ours", "nbval", "ours", "nbgrader", "ours", "otter"]
    assert [(one.tool, one.submissions) for one in found] == [*((tool, 10) for tool in tools), ("ours", 1000)]
    rows = {row.what: row for row in bench.measure_grading([10, 100], [1000])}
    assert rows["grading 10, against nbgrader"].verdict == "ok"
    assert rows["grading 100, against nbgrader"].verdict == "over", "at 100 it has to be 25 times as fast"
    assert rows["grading 10, against otter"].note == "otter-grader cannot be installed here"
    assert rows["grading 1000: time for each, against 100"].measured == pytest.approx(0.501 / 0.51)
