"""Reviews of pods that are read in one pass: the same result as through plain data, whatever is wrong with them."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale.objects.api.core import Pod
from kscale.vpa.admission.review import PodReview, read_review

module = sys.modules["kscale.vpa.admission.review"]  # the package has a function of this name
_MOST = 10**6
"""A limit of containers that no review reaches: with a limit reviews are read through plain data."""
_KIND = {"group": "", "version": "v1", "kind": "Pod"}
_OWNER = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "u", "controller": True}
_CONTAINER = {
    "name": "c", "image": "x", "env": [{"name": "A", "value": "b"}], "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": 1}},
}  # fmt: skip
_REVIEW: dict[str, Any] = {
    "kind": "AdmissionReview",
    "apiVersion": "admission.k8s.io/v1",
    "request": {
        "uid": "u", "kind": _KIND, "resource": {"group": "", "version": "v1", "resource": "pods"}, "namespace": "n",
        "operation": "CREATE", "oldObject": None, "dryRun": False,
        "object": {
            "kind": "Pod", "apiVersion": "v1",
            "metadata": {"generateName": "web-", "labels": {"app": "web"}, "annotations": {"a": "b"},
                         "ownerReferences": [_OWNER], "creationTimestamp": None},
            "spec": {"containers": [_CONTAINER], "initContainers": [_CONTAINER], "priority": 7,
                     "volumes": [{"name": "v", "emptyDir": {}}], "nodeSelector": {"a": "b"}},
            "status": {"phase": "Pending"},
        },
    },
}  # fmt: skip


def _places(value: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value within a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from _places(item, *path, key)


_PLACES = list(_places(_REVIEW))


def read_both_ways(body: bytes) -> PodReview | None:
    """Check that a review is read as through plain data, and return what was read in one pass (None: nothing)."""
    assert read_review(body) == read_review(body, max_containers=_MOST)
    usual: PodReview | None = module._read_usual(body)
    return usual


def test_a_usual_review_is_read_in_one_pass() -> None:
    usual = read_both_ways(json.dumps(_REVIEW).encode())
    assert usual is not None
    assert isinstance(usual.pod, Pod)
    assert (usual.pod.name, usual.pod.namespace) == ("web-%", "n")


@pytest.mark.parametrize("value", [None, "", "x", 0, 1.5, -(2**70), True, [], {}, [None], {"a": None}, "\u00e4"])
def test_any_value_in_any_place(value: Any) -> None:
    for path in _PLACES:
        changed = copy.deepcopy(_REVIEW)
        at = changed
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value
        read_both_ways(json.dumps(changed).encode())
        del at[path[-1]]
        read_both_ways(json.dumps(changed).encode())


@given(st.integers(0, 10**4), st.integers(0, 10**4), st.binary(max_size=3))
def test_bytes_that_are_replaced(start: int, size: int, by: bytes) -> None:
    body = msgspec.json.encode(_REVIEW)
    start %= len(body)
    read_both_ways(body[:start] + by + body[start + size % 8 :])


@pytest.mark.parametrize("place", ["object", "oldObject", "unknown"])
def test_a_review_that_is_nested_too_deeply(place: str) -> None:
    text = json.dumps(_REVIEW)[:-2] + f', "{place}": {"[" * 20000}{"]" * 20000}}}}}'
    assert read_both_ways(text.encode()) is None
