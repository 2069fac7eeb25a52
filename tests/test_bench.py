"""The benchmark's bookkeeping; nothing here asserts a time."""

import json

import pytest
import torch

from tests.bench import bench
from tests.bench import graders as graders_module
from tests.bench.bench import Row, bare_grad_cam, bare_tiny_grad_cam, compare, table
from tests.bench.graders import Measured


@pytest.mark.parametrize(
    ("measured", "limit", "verdict"), [(1.0, 1.05, "ok"), (1.05, 1.05, "ok"), (1.06, 1.05, "over"), (None, 1.0, "")]
)
def test_a_limit_holds_or_is_exceeded(measured, limit, verdict):
    assert Row("what", measured, limit, "x").verdict == verdict


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
    net, scene = load_picture_net().eval(), torch.rand(1, 3, 64, 64)
    torch.testing.assert_close(bare_tiny_grad_cam(net, scene, 3), grad_cam(net, scene, "features.16", 3))


def test_a_library_that_is_missing_is_a_row_that_says_so(monkeypatch):
    monkeypatch.setattr(bench.importlib.util, "find_spec", lambda name: None)
    rows = bench.compare_with_library("captum", "captum", torch.nn.Identity(), torch.rand(1), 1)
    assert [row.measured for row in rows] == [None, None]
    assert all("captum is not installed" in row.note for row in rows)
    assert "captum is not installed" in table(rows)


def test_table_and_json_hold_the_same_rows(monkeypatch, tmp_path, capsys):
    rows = [Row("first", 0.5, 1.0, "x", 0.6), Row("second", 3.0, 2.0, "ms")]
    for part in bench.PARTS:
        monkeypatch.setitem(bench.PARTS, part, lambda quick, part=part: rows if part == "saliency" else [])
    status = bench.main(["--quick", "--json", str(tmp_path / "bench.json")])
    assert status == 1, "a limit is exceeded"
    stored = json.loads((tmp_path / "bench.json").read_text())
    assert [row["verdict"] for row in stored] == ["ok", "over"]
    printed = capsys.readouterr().out
    assert "first" in printed
    assert "over" in printed


@pytest.fixture
def graders(monkeypatch):
    """Graders that only say they ran: for 1 s, and half a second for each submission; nbgrader for ten times that."""

    def run(tool, count):
        if tool == "otter":
            return Measured(tool, count, skipped="otter-grader cannot be installed here")
        return Measured(tool, count, (1 + count / 2) * (10 if tool == "nbgrader" else 1), 100)

    for tool in graders_module.TOOLS:
        monkeypatch.setitem(graders_module.RUNNERS, tool, lambda count, folder, tool=tool: run(tool, count))
    monkeypatch.setattr(graders_module, "measure_child", lambda: 11.0)


def test_each_grader_is_measured_right_after_ours(graders):
    found = list(graders_module.measure_all([10], [1000]))
    assert [(one.tool, one.submissions) for one in found] == [
        *[("ours", 10), ("nbval", 10), ("ours", 10), ("nbgrader", 10), ("ours", 10), ("otter", 10)],
        ("ours", 1000),
    ]
    assert [one.ours for one in found] == [0.0, 6.0, 0.0, 6.0, 0.0, 6.0, 0.0]
    assert "not measured: otter-grader cannot" in graders_module.line(found[5])
    assert graders_module.line(found[3]).endswith(" 10.0")


def test_rows_of_the_graders_have_the_budgets(graders):
    rows = {row.what: row for row in bench.measure_grading([10, 100], [1000])}
    assert rows["grading 10, against nbgrader"].verdict == "ok"
    assert rows["grading 100, against nbgrader"].verdict == "over", "at 100 it has to be 25 times as fast"
    assert rows["grading 10, against otter"].note == "otter-grader cannot be installed here"
    assert rows["grading 1000: time for each, against 100"].measured == pytest.approx(0.501 / 0.51)
    assert rows["memory that a sandboxed answer has to itself"].measured == 11.0


def test_right_answers_that_did_not_pass_are_no_measurement(tmp_path):
    row = {"exercise": graders_module.NAMES[0], "stage": "passed", "look_by_hand": False}
    (tmp_path / "scores.json").write_text(json.dumps({"scores": [row, row | {"stage": "raised"}]}))
    found = graders_module._check_scores(Measured("ours", 1, 1.0), tmp_path)
    assert found.skipped == "2 right answers did not pass"
