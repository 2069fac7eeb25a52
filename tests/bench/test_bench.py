"""The benchmark's bookkeeping; nothing here asserts a time."""

import json

import pytest
import torch

from tests.bench import bench
from tests.bench.bench import OWN, Row, bare_grad_cam, compare


def test_comparison_runs_both_equally_often_in_turns_after_one_run_of_each():
    calls = []
    compare(lambda: calls.append(0), lambda: calls.append(1), rounds=4)
    assert calls == [0, 1, 1, 0, 0, 1, 1, 0, 0, 1]


@pytest.mark.slow
def test_lower_limits_compute_the_same_maps_as_the_package():
    """A lower limit that computed something else would be a limit of nothing."""
    from torchvision.models import resnet18

    from course_utils.vision.networks import load_picture_net
    from course_utils.vision.saliency import grad_cam

    torch.manual_seed(0)
    model, images = resnet18(weights=None).eval(), torch.rand(1, 3, 64, 64)
    torch.testing.assert_close(bare_grad_cam(model, images, 7), grad_cam(model, images, "layer4", 7))
    net = load_picture_net().eval()
    torch.testing.assert_close(bare_grad_cam(net, images, 3), grad_cam(net, images, OWN, 3))


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
