"""What an API server does with patches."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kscale.world.simulated.api_server import PatchError, json_patch

LIST: list[Any] = [1, {"a": 1}]
OTHER = {"x": 1}
DOCUMENT: dict[str, Any] = {"spec": {"list": LIST, "other": OTHER}, "a/b": {"~": 0}}


def listed(items: list[Any]) -> dict[str, Any]:
    """With another list."""
    return DOCUMENT | {"spec": {"other": OTHER, "list": items}}


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([{"op": "add", "path": "/status", "value": {"y": 1}}], {**DOCUMENT, "status": {"y": 1}}),
        ([{"op": "add", "path": "/spec/list/1", "value": 2}], listed([1, 2, {"a": 1}])),
        ([{"op": "add", "path": "/spec/list/-", "value": 2}], listed([1, {"a": 1}, 2])),
        ([{"op": "replace", "path": "/spec/list/1/a", "value": 5}], listed([1, {"a": 5}])),
        ([{"op": "remove", "path": "/a~1b/~0"}], {**DOCUMENT, "a/b": {}}),
        (
            [{"op": "add", "path": "/new", "value": {"in": {}}}, {"op": "add", "path": "/new/in/it", "value": 1}],
            {**DOCUMENT, "new": {"in": {"it": 1}}},
        ),
        ([{"op": "test", "path": "/spec/other/x", "value": 1}], DOCUMENT),
    ],
)
def test_json_patches_change_nothing_that_was_given(operations: list[dict[str, Any]], expected: Any) -> None:
    before, patch = copy.deepcopy(DOCUMENT), copy.deepcopy(operations)
    assert json_patch(DOCUMENT, operations) == expected
    assert (before, patch) == (DOCUMENT, operations)
    assert json_patch(DOCUMENT, operations[:0]) is DOCUMENT


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        ({"op": "add", "path": "/nothing/x", "value": 1}, "missing path: /nothing/x"),
        ({"op": "remove", "path": "/spec/y"}, "missing key: /spec/y"),
        ({"op": "replace", "path": "/spec/y", "value": 1}, "missing key: /spec/y"),
        ({"op": "test", "path": "/spec/other/x", "value": 2}, "testing value /spec/other/x failed"),
    ],
)
def test_json_patches_that_do_not_apply(operation: dict[str, Any], why: str) -> None:
    with pytest.raises(PatchError, match=why):
        json_patch(DOCUMENT, [operation])
