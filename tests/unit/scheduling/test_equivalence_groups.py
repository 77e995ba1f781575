"""Groups of pods, held against going through them one by one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kscale.scheduling.equivalent_pods import MAX_SHAPES, _renumber, equivalence_groups

PODS = st.lists(st.tuples(st.integers(-1, 2), st.integers(0, 14)), max_size=60)


def one_by_one(controllers: list[int], shapes: list[int]) -> list[list[int]]:
    """As upstream has it: a controller's groups are looked through, and there are never more than it remembers."""
    groups: list[list[int]] = []
    known: dict[int, list[tuple[int, list[int]]]] = {}
    for pod, (controller, shape) in enumerate(zip(controllers, shapes, strict=True)):
        remembered = known.setdefault(controller, []) if controller >= 0 else []
        found = next((group for of, group in remembered if of == shape), None)
        if found is not None:
            found.append(pod)
            continue
        groups.append([pod])
        if len(remembered) < MAX_SHAPES:
            remembered.append((shape, groups[-1]))
    return groups


@given(PODS)
def test_groups_are_those_found_one_by_one(pods: list[tuple[int, int]]) -> None:
    controllers = [controller for controller, _ in pods]
    shapes = [controller * 15 + shape if controller >= 0 else -1 for controller, shape in pods]
    of_controller, of_shape = (_renumber(np.array(each, dtype=np.int32)) for each in (controllers, shapes))
    members, starts = equivalence_groups(of_controller, of_shape)
    found = [members[a:b].tolist() for a, b in pairwise(starts)]
    assert found == one_by_one(controllers, shapes)


@given(st.lists(st.one_of(st.integers(-1, 30), st.integers(0, 1 << 20)), max_size=40))
def test_numbers_from_0_on(numbers: list[int]) -> None:
    order = sorted(set(numbers) - {-1})
    expected = [-1 if each < 0 else order.index(each) for each in numbers]
    assert _renumber(np.array(numbers, dtype=np.int32)).tolist() == expected
