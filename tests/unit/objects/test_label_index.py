"""The index of labels and selectors against trying all."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kscale.objects.selectors import NOTHING, LabelIndex, SelectorIndex, parse_selector

NAMESPACES = st.sampled_from(["a", "b"])
LABELS = st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["x", "y"]))
SELECTORS = st.sampled_from(
    [NOTHING, *map(parse_selector, ("", "app=x", "app=y,tier=x", "tier in (x,y)", "app!=x", "!tier"))]
)
WHICH = st.integers(0, 7)


def steps(what: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple[int, str, Any]]]:
    """Items come, or go where they are there already."""
    return st.lists(st.tuples(WHICH, NAMESPACES, what))


def filled(index: Any, given_steps: list[tuple[int, str, Any]]) -> dict[int, tuple[str, Any]]:
    there: dict[int, tuple[str, Any]] = {}
    for item, namespace, what in given_steps:
        if item in there:
            index.remove(*there.pop(item), item)
        else:
            there[item] = namespace, what
            index.add(namespace, what, item)
    return there


@given(steps(SELECTORS), NAMESPACES, LABELS)
def test_selectors_are_found_by_labels(given_steps: Any, namespace: str, labels: dict[str, str]) -> None:
    index: SelectorIndex[int] = SelectorIndex()
    there = filled(index, given_steps)
    expected = [item for item, (where, each) in there.items() if where == namespace and each.matches(labels)]
    assert sorted(index.matching(namespace, labels)) == sorted(expected)
    assert (namespace in index) == any(where == namespace for where, _ in there.values())


@given(steps(LABELS), NAMESPACES, SELECTORS)
def test_labels_are_found_by_selector(given_steps: Any, namespace: str, selector: Any) -> None:
    index: LabelIndex[int] = LabelIndex()
    there = filled(index, given_steps)
    expected = [item for item, (where, each) in there.items() if where == namespace and selector.matches(each)]
    assert list(index.matching(namespace, selector)) == expected


def test_matches_may_be_removed_while_iterating() -> None:
    index: SelectorIndex[int] = SelectorIndex()
    selector = parse_selector("app=x")
    for item in range(3):
        index.add("a", selector, item)
    for item in index.matching("a", {"app": "x"}):
        index.remove("a", selector, item)
    assert "a" not in index
