"""Taints and tolerations: upstream's table (spec 8.3, TT-1 to TT-13, and the comparing operators)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale.objects.api.core import Taint, Toleration
from kscale.objects.taints import first_untolerated, tolerates, tolerates_all

NO_SCHEDULE, NO_EXECUTE, PREFER = "NoSchedule", "NoExecute", "PreferNoSchedule"


def t(key: str, value: str = "", effect: str = NO_SCHEDULE) -> Taint:
    return Taint(key=key, value=value, effect=effect)


def tol(key: str = "", operator: str = "", value: str = "", effect: str = NO_SCHEDULE) -> Toleration:
    return Toleration(key=key, operator=operator, value=value, effect=effect)


USER1 = t("dedicated", "user1")
TWO = [t("a", "", NO_EXECUTE), t("b", "1")]


@pytest.mark.parametrize(
    ("tolerations", "taints", "first"),
    [
        pytest.param([], [USER1], USER1, id="TT-1"),
        pytest.param([tol("dedicated", "Equal", "user1")], [USER1], None, id="TT-2"),
        pytest.param([tol("dedicated", "Equal", "user2")], [USER1], USER1, id="TT-3"),
        pytest.param([tol("foo", "Exists")], [t("foo", "bar")], None, id="TT-4"),
        pytest.param(
            [tol("dedicated", "Equal", "user2"), tol("foo", "Exists")],
            [t("dedicated", "user2"), t("foo", "bar")],
            None,
            id="TT-5",
        ),
        pytest.param([tol("foo", "Equal", "bar", PREFER)], [t("foo", "bar")], t("foo", "bar"), id="TT-6"),
        pytest.param([tol("foo", "Equal", "bar", "")], [t("foo", "bar")], None, id="TT-7"),
        pytest.param([tol("dedicated", "Equal", "user2")], [t("dedicated", "user1", PREFER)], None, id="TT-8"),
        pytest.param([], [t("dedicated", "user1", PREFER)], None, id="TT-9"),
        pytest.param([], TWO, TWO[0], id="TT-10"),
        pytest.param([tol("a", "Exists", effect="")], TWO, TWO[1], id="TT-11"),
        pytest.param([tol("", "Exists", effect="")], TWO, None, id="TT-12"),
        pytest.param([tol("", "Exists")], [t("x", "", NO_EXECUTE)], t("x", "", NO_EXECUTE), id="TT-13"),
    ],
)
def test_filtering(tolerations: list[Toleration], taints: list[Taint], first: Taint | None) -> None:
    assert first_untolerated(tolerations, taints) == first
    assert tolerates_all(tolerations, taints) is (first is None)


def test_empty_key_with_equal_covers_any_key_of_that_value() -> None:
    assert tolerates(tol("", "Equal", "user1"), USER1)
    assert not tolerates(tol("", "Equal", "user2"), USER1)


COMPARISONS = [
    ("Gt", "950", "800", False), ("Gt", "750", "950", True), ("Lt", "800", "950", False), ("Lt", "950", "800", True),
    ("Gt", "5", "5", False), ("Lt", "5", "5", False), ("Gt", "high", "5", False), ("Gt", "-100", "-200", False),
    ("Lt", "-100", "-200", True), ("Lt", "0100", "5", False), ("Lt", "+100", "5", False), ("Lt", "100.5", "5", False),
    ("Lt", "-", "5", False), ("Lt", "", "5", False), ("Lt", "-0", "-5", False),
    ("Lt", "9223372036854775807", "-9223372036854775808", True), ("Lt", "9223372036854775808", "5", False),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "bound", "value", "want"), COMPARISONS)
def test_comparing_operators(operator: str, bound: str, value: str, want: bool) -> None:
    toleration, taint = tol("k", operator, bound), t("k", value)
    assert tolerates(toleration, taint, comparison_operators=True) is want
    assert not tolerates(toleration, taint)


_WORDS = st.sampled_from(["", "a", "b"])
_EFFECTS = st.sampled_from(["", "NoSchedule", "NoExecute", "PreferNoSchedule"])
_VALUES = st.sampled_from(["", "1", "2", "05", "x"])
_MANY_TOLERATIONS = st.lists(
    st.builds(
        Toleration,
        key=_WORDS,
        operator=st.sampled_from(["", "Equal", "Exists", "Lt", "Gt", "other"]),
        value=_VALUES,
        effect=_EFFECTS,
    ),
    min_size=9,
    max_size=20,
)
_MANY_TAINTS = st.lists(st.builds(Taint, key=_WORDS, value=_VALUES, effect=_EFFECTS), min_size=9, max_size=20)


@given(_MANY_TOLERATIONS, _MANY_TAINTS, st.booleans())
def test_many_of_both_are_compared_as_few_are(
    tolerations: list[Toleration], taints: list[Taint], compare: bool
) -> None:
    one_by_one = (
        taint
        for taint in taints
        if taint.effect in ("NoSchedule", "NoExecute")
        and not any(tolerates(item, taint, comparison_operators=compare) for item in tolerations)
    )
    assert first_untolerated(tolerations, taints, comparison_operators=compare) == next(one_by_one, None)


def test_hundred_thousand_of_both_are_no_product() -> None:
    """One by one these would be five thousand million comparisons."""
    names = [str(number) for number in range(100_000)]
    tolerations = [Toleration(key=name, operator="Exists") for name in reversed(names)]
    taints = [Taint(key=name, effect="NoSchedule") for name in names]
    assert tolerates_all(tolerations, taints)
    assert first_untolerated(tolerations[1:], taints) == taints[-1]
