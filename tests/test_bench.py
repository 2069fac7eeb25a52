"""The benchmark's bookkeeping; nothing here asserts a time."""

import json

import pytest
import torch

from course_utils import bench
from course_utils.bench import Row, bare_grad_cam, bare_tiny_grad_cam, compare, one_thread, table, time_call


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


def test_timed_function_runs_once_more_than_it_is_measured():
    calls = []
    cpu, wall = time_call(lambda: calls.append(1), rounds=5)
    assert len(calls) == 6
    assert cpu >= 0
    assert wall >= 0


def test_threads_are_put_back():
    before = torch.get_num_threads()
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_lower_limits_compute_the_same_maps_as_the_package():
    """A lower limit that computed something else would be a limit of nothing."""
    from torchvision.models import resnet18

    from course_utils.networks import load_picture_net
    from course_utils.saliency import grad_cam

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
    for part in ("measure_saliency", "measure_explorers", "measure_imports"):
        monkeypatch.setattr(bench, part, lambda *_, part=part: rows if part == "measure_saliency" else [])
    status = bench.main(["--quick", "--json", str(tmp_path / "bench.json")])
    assert status == 1, "a limit is exceeded"
    stored = json.loads((tmp_path / "bench.json").read_text())
    assert [row["verdict"] for row in stored] == ["ok", "over"]
    printed = capsys.readouterr().out
    assert "first" in printed
    assert "over" in printed
