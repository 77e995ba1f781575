"""Dividing nodes among similar groups: upstream's table, and what must hold for any input."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale import ca

_FOUR = {"ng1": (1, 10), "ng2": (3, 10), "ng3": (5, 10), "ng4": (5, 10)}


def _groups(sizes: dict[str, tuple[int, int]]) -> list[ca.GroupSize]:
    return [ca.GroupSize(id=name, target=size, max=limit) for name, (size, limit) in sizes.items()]


@pytest.mark.parametrize(
    ("sizes", "new_nodes", "expected"),
    [
        ({"ng1": (1, 10)}, 1, {"ng1": 2}),
        ({"ng1": (1, 10)}, 4, {"ng1": 5}),
        ({"ng1": (1, 10)}, -4, {}),
        ({"ng1": (1, 2**62)}, 2**61, {"ng1": 2**61 + 1}),
        (_FOUR, 1, {"ng1": 2}),
        (_FOUR, 2, {"ng1": 3}),
        (_FOUR, 4, {"ng1": 4, "ng2": 4}),
        (_FOUR, 5, {"ng1": 5, "ng2": 4}),
        (_FOUR, 10, {"ng1": 6, "ng2": 6, "ng3": 6, "ng4": 6}),
        ({"ng1": (1, 1)}, 1, {}),
        ({"ng1": (1, 1), "ng2": (1, 3)}, 1, {"ng2": 2}),
        ({"ng1": (1, 1), "ng2": (1, 3)}, 5, {"ng2": 3}),
        ({"ng2": (1, 3), "ng3": (3, 10)}, 4, {"ng2": 3, "ng3": 5}),
        ({"ng2": (1, 3), "ng3": (3, 10), "ng4": (5, 7)}, 9, {"ng2": 3, "ng3": 8, "ng4": 7}),
        ({"ng2": (1, 3), "ng3": (3, 10), "ng4": (5, 7)}, 900, {"ng2": 3, "ng4": 7, "ng3": 10}),
        ({"ng2": (1, 3), "ng5": (6, 3)}, 1, {"ng2": 2}),
        ({"a": (2, 10), "b": (2, 10), "c": (2, 10)}, 4, {"a": 4, "b": 3, "c": 3}),
        ({"a": (1, 2), "b": (1, 10), "c": (1, 10)}, 7, {"a": 2, "b": 4, "c": 4}),
        ({"a": (0, 5), "b": (0, 1), "c": (0, 5)}, 6, {"b": 1, "a": 3, "c": 2}),
    ],
)
def test_upstream_table(sizes: dict[str, tuple[int, int]], new_nodes: int, expected: dict[str, int]) -> None:
    plan = ca.balance_scale_up_between_groups(_groups(sizes), new_nodes)
    assert [(info.group, info.new) for info in plan] == list(expected.items())


def test_more_groups_than_small_numbers() -> None:
    groups = [ca.GroupSize(id=str(number), max=2) for number in range(300)]
    plan = ca.balance_scale_up_between_groups(groups, 450)
    assert [info.new for info in plan] == [2] * 150 + [1] * 150
    assert {info.current for info in plan} == {0}  # who tells no size has none


def test_errors() -> None:
    with pytest.raises(ca.AutoscalerError, match="Can't balance scale up between 0 groups") as none:
        ca.balance_scale_up_between_groups([], 1)
    assert none.value.type == "internalError"
    with pytest.raises(ca.AutoscalerError, match="failed to get node group size: down") as failed:
        ca.balance_scale_up_between_groups([ca.GroupSize(id="a", target_error="down")], 1)
    assert failed.value.type == "cloudProviderError"


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=20), st.integers(0, 60))
def test_no_group_overtakes_another_that_has_room(sizes: list[tuple[int, int]], new_nodes: int) -> None:
    groups = [ca.GroupSize(id=str(i), target=size, max=limit) for i, (size, limit) in enumerate(sizes)]
    plan = {info.group: info for info in ca.balance_scale_up_between_groups(groups, new_nodes)}
    room = sum(max(0, limit - size) for size, limit in sizes)
    assert sum(info.new - info.current for info in plan.values()) == min(new_nodes, room)
    final = {group.id: plan[group.id].new if group.id in plan else group.target for group in groups}
    for info in plan.values():
        assert info.current < info.new <= info.max
        assert all(info.new <= final[group.id] + 1 for group in groups if final[group.id] < group.max)
