"""On whatever inputs a task allows, every right answer gives what a second method gives, written without torch."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from course_utils.exercises.engine import find

SIDES = st.integers(1, 4)
BOOLS = st.booleans()


def numbers(draw, *shape, least=-32):
    """An array of multiples of a quarter, so that sums are exact."""
    return draw(arrays(np.float32, shape, elements=st.integers(least, 32).map(lambda number: number / 4)))


def largest(draw):
    tensor = numbers(draw, *draw(st.lists(SIDES, max_size=3)))
    return (tensor,), max(tensor.ravel().tolist())


def pass_relu(draw):
    rule, shape = draw(st.sampled_from(("backprop", "deconvnet", "guided"))), (draw(SIDES), draw(SIDES))
    f, grad = numbers(draw, *shape, least=0), numbers(draw, *shape)
    passes = {"backprop": f > 0, "deconvnet": grad > 0, "guided": (f > 0) & (grad > 0)}
    return (rule, f, grad), np.where(passes[rule], grad, 0)


def channel_weights(draw):
    gradient = numbers(draw, *(draw(SIDES) for _ in range(4)))
    return (gradient,), [[sum(one.ravel().tolist()) / one.size for one in picture] for picture in gradient]


def class_activation_map(draw):
    channels, classes = draw(SIDES), draw(SIDES)
    features, weight = numbers(draw, channels, draw(SIDES), draw(SIDES)), numbers(draw, classes, channels)
    target = draw(st.integers(0, classes - 1))
    return (features, weight, target), sum(each * one for each, one in zip(features, weight[target], strict=True))


def share_on(draw):
    height, width = draw(SIDES), draw(SIDES)
    gradient, mask = numbers(draw, 3, height, width), draw(arrays(bool, (height, width)))
    strength = [float(abs(gradient[:, row, column]).sum()) for row, column in np.ndindex(height, width)]
    on_mask = [each for each, inside in zip(strength, mask.ravel(), strict=True) if inside]
    return (gradient, mask), math.fsum(on_mask) / math.fsum(strength) if any(strength) else 0.0


def share_on_thing(draw):
    height, width, tall, wide = (draw(SIDES) for _ in range(4))
    maps = numbers(draw, draw(SIDES), height, width, least=0)
    mask = draw(arrays(bool, (height * tall, width * wide)))
    large = maps.repeat(tall, 1).repeat(wide, 2)
    totals = [each.sum() for each in large]
    return (maps, mask), [(one * mask).sum() / all_ if all_ else 0 for one, all_ in zip(large, totals, strict=True)]


def tile_maps(draw):
    maps = numbers(draw, *(draw(SIDES) for _ in range(4)))
    spans = [(one.min(), one.max() - one.min()) for one in maps[0]]
    return (maps,), [[(one - low) / span if span else one * 0] for one, (low, span) in zip(maps[0], spans, strict=True)]


@pytest.mark.parametrize(
    "draw_case",
    [largest, pass_relu, channel_weights, class_activation_map, share_on, share_on_thing, tile_maps],
    ids=lambda each: each.__name__,
)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data())
def test_right_answers_give_what_a_second_method_gives(draw_case, data):
    arguments, expected = draw_case(data.draw)
    for answer in find(draw_case.__name__).answers:
        mine = answer.function(*(torch.tensor(each) if isinstance(each, np.ndarray) else each for each in arguments))
        assert np.shape(mine) == np.shape(expected), answer.source
        assert np.allclose(mine, expected, rtol=1e-5, atol=1e-6), answer.source


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    slopes=st.lists(st.lists(st.integers(-9, 9), min_size=3, max_size=3), min_size=1, max_size=4),
    factor=st.integers(-3, 3),
)
def test_hooks_on_a_tensor_do_in_every_backward_what_the_task_says(slopes, factor):
    change = {"scale_gradient": lambda grad: factor * grad, "keep_positive": lambda grad: max(grad, 0)}
    for name, rule in change.items():
        for answer in find(name).answers:
            x = torch.ones(3, requires_grad=True)
            h = 2 * x
            answer.function(h, *([factor] if name == "scale_gradient" else []))
            seen = [find("record_gradient").reference(h), find("record_total_norm").reference([h])]
            for slope in slopes:
                (h * torch.tensor(slope)).sum().backward(retain_graph=True)
            changed = [[rule(number) for number in slope] for slope in slopes]
            assert x.grad.tolist() == [2 * sum(column) for column in zip(*changed, strict=True)], answer.source
            assert [each.tolist() for each in seen[0]] == changed
            assert seen[1] == pytest.approx([math.hypot(*slope) for slope in changed])
