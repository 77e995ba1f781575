"""`selector-text`: a selector written as text against sets of labels. Every field of ``want`` is compared."""

from __future__ import annotations

from typing import Any

from kscale.objects.selectors import SelectorError, parse_selector


def check(case: dict[str, Any]) -> None:
    inputs, want = case["input"], case["want"]
    try:
        selector = parse_selector(inputs["text"])
    except SelectorError as error:
        got: dict[str, Any] = {"error": str(error)}
    else:
        matches = [selector.matches(each) for each in inputs["labels"]]
        got = {"error": None, "text": str(selector), "empty": selector.empty, "matches": matches}
    assert got == want
