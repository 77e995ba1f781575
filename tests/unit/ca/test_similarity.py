"""When two node templates are alike: upstream's tables."""

from __future__ import annotations

from typing import Any

import pytest

from builders import GPU, node, pod, template
from kscale import ca
from kscale.ca.node_group_set import find_differences
from kscale.errors import InputError
from kscale.objects.api.core import Node
from kscale.objects.quantity import Quantity


def _node(cpu_m: int = 1000, memory: int | str = 2000, **labels: str) -> Node:
    return node("n", cpu_m, memory, labels={"ready": "yes", **labels})


def _allocatable(cpu_m: int) -> Node:
    changed = _node()
    assert changed.status.allocatable is not None
    changed.status.allocatable["cpu"] = Quantity(f"{cpu_m}m")
    return changed


def _with_gpu() -> Node:
    changed = _node()
    for amounts in (changed.status.capacity, changed.status.allocatable):
        assert amounts is not None
        amounts[GPU] = Quantity("1")
    return changed


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (template(_node()), template(_node()), True),
        (template(_node()), template(_node(cpu_m=1001)), False),
        (template(_node()), template(_allocatable(999)), True),
        (template(_node()), template(_allocatable(500)), False),
        (template(_node()), template(_with_gpu()), False),
        (template(_allocatable(500)), template(_node(), pod("p", 500)), False),
        (template(_node(), pod("p", 500, 1000)), template(_node(), pod("p", 500, 1000)), True),
        (template(_allocatable(999), pod("p", 501, 1001)), template(_node(), pod("q", 500, 1000)), True),
        (template(_node(memory=1000)), template(_node(memory=986)), True),
        (template(_node(memory=1000)), template(_node(memory=984)), False),
        (template(_node(memory="16116152Ki")), template(_node(memory="15944120Ki")), True),
        (template(_node(memory="16116152Ki")), template(_node(memory="16438475Ki")), False),
        (template(_node(memory="259970052Ki")), template(_node(memory="257217528Ki")), True),
        (template(_node(memory="259970052Ki")), template(_node(memory="265169453Ki")), False),
        (template(_node()), template(_node(character="thing")), False),
        (template(_node(character="x")), template(_node(character="y")), False),
    ],
)
def test_generic(one: Any, other: Any, expected: bool) -> None:
    assert ca.compare_templates(one, other).similar is expected
    assert ca.compare_templates(other, one).similar is expected


@pytest.mark.parametrize(
    "label",
    [
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/zone",
        "beta.kubernetes.io/fluentd-ds-ready",
        "custom/extra",
    ],
)
def test_ignored_labels(label: str) -> None:
    comparator = ca.Comparator(ignored_labels=("custom/extra",))
    other = template(node("b", 1000, 2000, labels={"x": "1", label: "two"}))
    for labels in ({"x": "1", label: "one"}, {"x": "1"}):
        assert ca.compare_templates(template(node("a", 1000, 2000, labels=labels)), other, comparator).similar


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ({"type": "m5", "arch": "arm", "z": "1"}, {"type": "m5", "arch": "arm", "z": "2"}, True),
        ({"type": "m5", "arch": "arm"}, {"type": "m5", "arch": "amd"}, False),
        ({}, {}, False),
        ({"type": "m5"}, {"type": "m5", "arch": "arm"}, False),
        ({"type": "m5", "arch": "arm"}, {"type": "m5"}, False),
        ({"type": "", "arch": ""}, {"type": "", "arch": ""}, True),
    ],
)
def test_label_comparator(one: dict[str, str], other: dict[str, str], expected: bool) -> None:
    comparator = ca.Comparator(kind="label", labels=("type", "arch"))
    small, large = template(node("a", 1, 1, labels=one)), template(node("b", 9999, 9, labels=other))
    assert ca.compare_templates(small, large, comparator).similar is expected


@pytest.mark.parametrize(
    ("one", "other", "kind", "details"),
    [
        (_node(a="x"), _node(a="y", b="z"), "generic", ["label a: x and y", "label b: absent and z"]),
        (_node(1000), _node(2000), "generic", ["capacity cpu: 1 and 2"]),
        (_node(memory=1000), _node(memory=1020), "generic", ["capacity memory: 1000 and 1020, more than 1.5% apart"]),
        (_node(a="x"), _node(a="x"), "generic", []),
        (_node(a="x"), _node(), "label", ["label a: x and absent"]),
        (_node(), _node(), "label", ["label a: absent"]),
    ],
)
def test_differences_are_named(one: Node, other: Node, kind: str, details: list[str]) -> None:
    comparator = ca.Comparator(kind=kind, labels=("a",) if kind == "label" else ())
    assert find_differences(template(one), template(other), comparator) == details


def test_over_committed_templates_are_not_even_like_themselves() -> None:
    crowded = template(_node(), pod("p", 2000))
    assert ca.compare_templates(crowded, crowded).reasons == ["free resources not within tolerance"]


def test_find_similar() -> None:
    templates = {
        "ng1": template(node("n1", 1000, 1000)),
        "ng2": template(node("n2", 1000, 1000)),
        "ng3": template(node("n3", 2000, 2000)),
    }
    order = ["ng0", "ng1", "ng2", "ng3"]
    assert ca.find_similar_node_groups("ng1", order, templates) == ["ng2"]
    assert ca.find_similar_node_groups("ng2", order, templates) == ["ng1"]
    assert ca.find_similar_node_groups("ng3", order, templates) == []
    with pytest.raises(ca.AutoscalerError, match="failed to find template node for node group ng0"):
        ca.find_similar_node_groups("ng0", order, templates)


def test_flags_reach_only_some_builds() -> None:
    options = ca.AutoscalingOptions(memory_difference_ratio=0.5, balancing_ignore_label=["x"])
    assert ca.Comparator.from_options(options) == ca.Comparator()
    assert ca.Comparator.from_options(options, "aws").ratios.memory_difference_ratio == 0.5
    assert ca.Comparator.from_options(ca.AutoscalingOptions(balancing_label=["y"]), "aws").labels == ("y",)


def test_unknown_comparator_kind_is_refused() -> None:
    with pytest.raises(InputError, match="Comparator: no kind 'genericx'; there are generic, aws"):
        ca.Comparator(kind="genericx")
