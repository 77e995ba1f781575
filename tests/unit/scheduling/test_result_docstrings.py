"""What docstrings of results say of their arrays is so."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kscale

NODE = {
    "kind": "Node",
    "apiVersion": "v1",
    "metadata": {"name": "n"},
    "status": {"allocatable": {"cpu": "4", "pods": "9"}},
}
PODS = [
    {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": f"p{i}", "namespace": "d"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]},
    }
    for i in range(3)
]
CLUSTER = kscale.Cluster([NODE, *PODS])
RESULTS: dict[str, Any] = {
    type(result).__name__: result
    for result in (
        kscale.place(CLUSTER),
        kscale.fit(CLUSTER),
        kscale.estimate(CLUSTER, template=NODE),
        kscale.node_scores(CLUSTER, "d/p0"),
        CLUSTER.snapshot(),
    )
}
TYPES = r"u?int(?:8|16|32|64)|float64|bool"


def claims(result: Any) -> Iterator[tuple[str, str]]:
    """Attribute and the dtype that a docstring gives it."""
    text = inspect.getdoc(type(result)) or ""
    yield from re.findall(rf"``(\w+)``:? ({TYPES})\[", text)
    yield from re.findall(rf"^(\w+) : ndarray of ({TYPES})", text, re.MULTILINE)
    for name, member in inspect.getmembers(type(result)):
        doc = inspect.getdoc(member) or ""
        if not name.startswith("_") and not callable(member) and (match := re.match(rf"(?:Return )?({TYPES})\[", doc)):
            yield name, match[1]


@pytest.mark.parametrize("name", RESULTS)
def test_arrays_have_the_type_that_is_documented(name: str) -> None:
    result = RESULTS[name]
    for attribute, dtype in claims(result):
        value = getattr(result, attribute)
        assert isinstance(value, np.ndarray), f"{attribute} is documented as {dtype}[], and is a {type(value).__name__}"
        assert value.dtype == np.dtype(dtype), attribute


@pytest.mark.parametrize("name", RESULTS)
def test_documented_attributes_exist(name: str) -> None:
    text = inspect.getdoc(type(RESULTS[name])) or ""
    for attribute in re.findall(r"^(\w+) : ", text, re.MULTILINE):
        assert hasattr(RESULTS[name], attribute)


def test_some_arrays_are_documented() -> None:
    assert {attribute for result in RESULTS.values() for attribute, _ in claims(result)} > {"pod_of", "node", "ok"}
