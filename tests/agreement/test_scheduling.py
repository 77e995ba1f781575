"""`kscale.fit`, `kscale.estimate` and placing, against the reference, through the adapters of the recorded answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from golden_support import adapter
from reference_golden import recorded
from strategies import clusters

Json = dict[str, Any]
FEATURES = [
    ("plain",),
    ("plain", "ports"),
    ("plain", "hostile"),
    ("plain", "spread", "profile"),
    ("affinity",),
    ("spread",),
    ("volumes",),
    ("dra",),
    ("plain", "dra"),
    ("plain", "ports", "affinity", "spread", "volumes"),
    clusters.FEATURES,
]

# Each example is a whole cluster, and there are many combinations.
fewer = settings(max_examples=examples(1 / 2))


def agree(kind: str, problem: Json, answer: Callable[[Json], Json]) -> None:
    """The adapter compares kscale's answer with the reference's as if that had been recorded."""
    module = adapter(kind)
    assert module is not None
    module.check({"name": "generated", "kind": kind, "tags": [], "input": problem, "want": answer(problem)})


@pytest.mark.parametrize("features", FEATURES, ids="-".join)
@fewer
@given(data=st.data())
def test_fit(data: st.DataObject, features: clusters.Features) -> None:
    agree("fit", data.draw(clusters.fit_problems(features)), recorded.fit)


@pytest.mark.parametrize("features", FEATURES, ids="-".join)
@fewer
@given(data=st.data())
def test_estimate(data: st.DataObject, features: clusters.Features) -> None:
    agree("estimate", data.draw(clusters.estimate_problems(features)), recorded.estimates)


@pytest.mark.parametrize("features", FEATURES, ids="-".join)
@fewer
@given(data=st.data())
def test_filter_schedulable(data: st.DataObject, features: clusters.Features) -> None:
    agree("filter-schedulable", data.draw(clusters.filter_problems(features)), recorded.filter_rounds)
