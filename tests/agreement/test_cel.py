"""CEL selectors of devices: kscale's rules on cel-python, and the reference's own evaluator."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kscale.objects.api.resource import Device
from kscale.objects.decode import from_dict
from kscale.scheduling.devices.cel import SelectorError, selects
from oracle.drawing_devices import DEVICE_DRIVER, draw_attributes, draw_expression
from reference import cel

Json = dict[str, Any]
CAPACITIES = ("2", "4", "4", "4500m", "4Gi")


def evaluate(expression: str, device: Json) -> bool | str:
    try:
        return selects(expression, DEVICE_DRIVER, from_dict(device, Device))
    except SelectorError as error:
        return str(error)


def evaluate_by_reference(expression: str, device: Json) -> bool | str:
    try:
        return cel.selects(expression, DEVICE_DRIVER, device)
    except cel.CelError as error:
        return str(error)


@pytest.mark.parametrize("seed", range(4))
def test_drawn_expressions_have_the_result_or_error_of_the_reference(seed: int) -> None:
    random = Random(seed)
    for _ in range(50):
        expression = draw_expression(random)
        device: Json = {"name": "d", "attributes": draw_attributes(random)}
        if random.random() < 0.8:
            device["capacity"] = {"memory": {"value": random.choice(CAPACITIES)}}
        assert evaluate(expression, device) == evaluate_by_reference(expression, device), (expression, device)


@pytest.mark.parametrize(
    "expression",
    [
        "b'x' == b'x'",
        "1u == 1u",
        "device.driver.format([]) == ''",
        "device.missing == 1",
        "[1].existsOne(x, x == 1)",
        "{'a': 1, 'b': 2}.all(key, true)",
        "{1: 1, true: 2}.size() == 1",
        "semver('1.2.3') in {'x': 1}",
        "semver('1.2') == semver('1.2')",
        "device.capacity['d'].?memory",
        "size('a',) == 1",
        "has(device.attributes['d'])",
        "'a'.matches('\\\\d')",
        "1 +",
        "(1 == 1",
        "1 == 1 1",
    ],
)
def test_reference_rejects_unknown_expressions(expression: str) -> None:
    with pytest.raises(NotImplementedError):
        cel.selects(expression, DEVICE_DRIVER, {"name": "d"})
