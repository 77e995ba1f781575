"""Deletion budgets: upstream's table, in a small notation.

``R8`` is eight nodes of the ordinary group R, ``A8`` all nodes of the atomic group of target 8, ``A8[0:5]`` some.
"""

from __future__ import annotations

import re

import pytest

from kscale import ca

_BUCKET = re.compile(r"([RSA])(\d+)(?:\[(\d+):(\d+)\])?")


def _nodes(text: str) -> list[ca.NodeInGroup]:
    result = []
    for kind, size, low, high in _BUCKET.findall(text):
        group = f"A{size}" if kind == "A" else kind
        numbers = range(int(low), int(high)) if high else range(int(size))
        result += [ca.NodeInGroup(node=f"{group}-{number}", group=group) for number in numbers]
    return result


def _crop(in_progress: tuple[int, int], empty: str, drain: str, registered: int | None = None) -> tuple[str, str]:
    both = _nodes(empty) + _nodes(drain)
    sizes = {name: sum(item.group == name for item in both) for name in {item.group for item in both}}
    groups = [
        ca.BudgetGroup(
            id=name,
            atomic=name[0] == "A",
            target=int(name[1:]) if name[0] == "A" else 100,
            registered=size if registered is None else registered,
        )
        for name, size in sizes.items()
    ]
    cropped = ca.crop_nodes(
        _nodes(empty),
        _nodes(drain),
        groups,
        in_progress=ca.DeletionsInProgress(empty=in_progress[0], drained=in_progress[1]),
        max_scale_down_parallelism=10,
        max_drain_parallelism=5,
    )
    return _show(cropped.empty), _show(cropped.drain)


def _show(buckets: list[ca.GroupNodes]) -> str:
    return " ".join(f"{bucket.group}:{len(bucket.nodes)}" for bucket in buckets)


def _expected(text: str) -> str:
    counts: dict[str, int] = {}
    for item in _nodes(text):
        counts[item.group] = counts.get(item.group, 0) + 1
    return " ".join(f"{group}:{count}" for group, count in counts.items())


@pytest.mark.parametrize(
    ("in_progress", "empty", "drain", "empty_out", "drain_out"),
    [
        ((0, 0), "R10", "", "R10", ""),
        ((0, 0), "R11", "", "R10", ""),
        ((0, 0), "A11", "", "A11", ""),
        ((0, 0), "R8 A3", "", "A3 R7", ""),
        ((0, 0), "R3 A8 A3", "", "A8 R2", ""),
        ((1, 1), "R8", "", "R8", ""),
        ((1, 1), "R10", "", "R8", ""),
        ((3, 3), "A8", "", "A8", ""),
        ((5, 5), "R10", "", "", ""),
        ((5, 5), "A3", "", "", ""),
        ((50, 50), "R10", "", "", ""),
        ((0, 0), "", "R5", "", "R5"),
        ((0, 0), "", "R6", "", "R5"),
        ((0, 0), "", "R5 S5", "", "R5"),
        ((0, 0), "", "A8", "", "A8"),
        ((0, 0), "", "R3 A3", "", "A3 R2"),
        ((0, 0), "", "R3 A3 A4", "", "A3 R2"),
        ((1, 2), "", "R3", "", "R3"),
        ((1, 2), "", "R5", "", "R3"),
        ((1, 2), "", "A4", "", "A4"),
        ((1, 5), "", "R5", "", ""),
        ((1, 5), "", "A4", "", ""),
        ((7, 1), "", "R4", "", "R2"),
        ((10, 0), "", "R4", "", ""),
        ((50, 0), "", "R4", "", ""),
        ((0, 0), "R5", "S5", "R5", "S5"),
        ((0, 0), "A3", "A4", "A3", "A4"),
        ((0, 0), "R8", "S8", "R8", "S2"),
        ((0, 0), "A8", "A4", "A8", ""),
        ((0, 0), "A8[0:5]", "A8[5:8]", "A8[0:5]", "A8[5:8]"),
        ((0, 0), "A11[0:8]", "A11[8:11]", "A11[0:8]", "A11[8:11]"),
        ((0, 0), "A8[0:2]", "A8[2:8]", "A8[0:2]", "A8[2:8]"),
        ((0, 0), "A4", "A8", "A4", ""),
        ((0, 0), "R5 A3", "A8", "A3 R5", ""),
        ((0, 0), "R5 A11[0:8]", "A11[8:11]", "A11[0:8]", "A11[8:11]"),
        ((0, 0), "R5 A8[0:5] A11[0:8]", "A11[8:11] A8[5:8]", "A8[0:5] R2", "A8[5:8]"),
        ((0, 0), "A3 A4[0:2] A11", "A4[2:4]", "A3 A4[0:2]", "A4[2:4]"),
        ((0, 0), "R5", "A8", "R2", "A8"),
        ((0, 0), "R2", "S8", "R2", "S5"),
        ((10, 0), "R5", "S5", "", ""),
        ((10, 0), "A4", "A3", "", ""),
        ((10, 0), "A8[0:4]", "A8[4:8]", "", ""),
        ((0, 5), "R5", "S5", "R5", ""),
        ((0, 5), "A4", "A3", "A4", ""),
        ((0, 9), "R5", "S5", "R1", ""),
        ((5, 3), "R5", "S2", "R2", ""),
        ((5, 3), "R1", "S2", "R1", "S1"),
        ((1, 3), "R4", "S5", "R4", "S2"),
        ((5, 2), "A4", "A3", "A4", ""),
        ((5, 2), "A3[0:2]", "A3[2:3]", "A3[0:2]", "A3[2:3]"),
        ((5, 2), "A8[0:6]", "A8[6:8]", "A8[0:6]", "A8[6:8]"),
        ((2, 2), "A5[0:1]", "A5[1:5]", "A5[0:1]", "A5[1:5]"),
        ((5, 2), "R4 A4", "S4 A3", "A4", ""),
        ((5, 2), "R4 A4[0:2]", "S4 A4[2:4]", "A4[0:2]", "A4[2:4]"),
        ((2, 2), "R4 A4[0:2]", "S4 A4[2:4]", "A4[0:2] R2", "A4[2:4]"),
    ],
)
def test_upstream_table(in_progress: tuple[int, int], empty: str, drain: str, empty_out: str, drain_out: str) -> None:
    assert _crop(in_progress, empty, drain) == (_expected(empty_out), _expected(drain_out))


def test_atomic_groups_go_whole_or_not_at_all() -> None:
    assert _crop((0, 0), "A8[0:2]", "A8[2:4]", registered=8) == ("", "")
    assert _crop((0, 0), "A8[0:2]", "A8[2:4]", registered=4) == ("A8:2", "A8:2")


def test_groups_that_cannot_be_read() -> None:
    nodes = [ca.NodeInGroup(node="n", group="g"), ca.NodeInGroup(node="loose", group="")]
    for group in (
        ca.BudgetGroup(id="g", options_error="down"),
        ca.BudgetGroup(id="g", atomic=True, target=1, registered=1, target_error="down"),
    ):
        assert ca.crop_nodes(nodes, [], [group]).empty == []
    assert len(ca.crop_nodes(nodes, [], [ca.BudgetGroup(id="g", options_error="not implemented")]).empty) == 1
