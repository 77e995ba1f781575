"""Damaged input gives an answer or a named error at every entry point; the fuzzer looks further (``nox -s fuzz``)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kscale
from examples import examples
from fuzz.targets import SEEDS, TARGETS


@st.composite
def damaged(draw: st.DrawFn, seeds: list[bytes]) -> bytes:
    """A seed in which some stretches are replaced by other bytes, by parts of itself, or by nothing."""
    data = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(1, 3))):
        start, length = draw(st.integers(0, len(data))), draw(st.integers(0, 8))
        other = draw(st.integers(0, len(data)))
        put = draw(st.one_of(st.binary(max_size=6), st.just(data[other : other + 12]), st.sampled_from(NASTY)))
        data = data[:start] + put + data[start + length :]
    return data


NASTY = [b"", b"null", b"-1", b"1e309", b"9223372036854775808", b"\x00", b"\xff\xfe", b'"', b"{", b"[" * 40]


@pytest.mark.parametrize("name", list(TARGETS))
def test_seeds_are_read(name: str) -> None:
    for seed in SEEDS[name]:
        TARGETS[name](seed)


@pytest.fixture(scope="module", autouse=True)
def libraries() -> None:
    """cel-python changes the recursion limit when it is first used, which Hypothesis does not like in a test."""
    TARGETS["cel"](SEEDS["cel"][0])


@pytest.mark.parametrize("name", list(TARGETS))
@settings(max_examples=examples(1 / 2))
@given(data=st.data())
def test_damage_has_a_name(name: str, data: st.DataObject) -> None:
    TARGETS[name](data.draw(damaged(SEEDS[name])))


def test_duplicate_key_is_named_beside_invalid_utf8() -> None:
    pod = b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p"},"spec":{"x":"\xff","nodeName":"a","nodeName":"b"}}'
    result = kscale.Cluster().watched(b'{"type":"ADDED","object":' + pod + b"}\n")
    assert [each.message for each in result.problems] == ["the key nodeName comes twice"]
