"""`label-selector`: a LabelSelector against sets of labels. Every field of ``want`` is compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kscale.objects.api.meta import LabelSelector
from kscale.objects.decode import from_dict
from kscale.objects.selectors import Selector, SelectorError, compile_selector


def check(case: dict[str, Any]) -> None:
    inputs, want = case["input"], case["want"]
    selector = inputs["selector"]
    decoded = None if selector is None else from_dict(selector, LabelSelector)
    got = described(lambda: compile_selector(decoded), inputs["labels"])
    assert got == want


def described(compile_it: Callable[[], Selector], labels: list[dict[str, str]]) -> dict[str, Any]:
    try:
        selector = compile_it()
    except SelectorError as error:
        return {"error": str(error)}
    matches = [selector.matches(each) for each in labels]
    return {"error": None, "text": str(selector), "empty": selector.empty, "matches": matches}
