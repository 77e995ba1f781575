"""`node-selector`: a NodeSelector against nodes. Left out: the path of a field in front of an error."""

from __future__ import annotations

from typing import Any

from kscale.objects.api.core import NodeSelector
from kscale.objects.decode import from_dict
from kscale.objects.node_selectors import compile_node_selector


def check(case: dict[str, Any]) -> None:
    inputs, want = case["input"], case["want"]
    selector = compile_node_selector(from_dict(inputs["selector"], NodeSelector))
    got = [selector.matches(node.get("labels"), node["name"]) for node in inputs["nodes"]]
    assert got == [node["ok"] for node in want["nodes"]]
    malformed = any(term.error for term in selector.terms)
    assert malformed or not any(node["error"] for node in want["nodes"])
