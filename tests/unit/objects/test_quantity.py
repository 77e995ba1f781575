"""Quantities: upstream's tables (spec 4.1.4 and 8.2) and an obvious reference."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale import Quantity
from kscale.objects.quantity import QuantityError
from reference import quantity as reference

WRONG_FORMAT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
WRONG_SUFFIX = "unable to parse quantity's suffix"

READINGS = [
    ("0.5", 1, 500), ("100.5m", 1, 101), ("1n", 1, 1), ("0.1m", 1, 1), ("1.0005", 2, 1001),
    ("0.1Gi", 107374183, 107374182400), ("1.5Gi", 1610612736, 1610612736000), ("100.035Ki", 102436, 102435840),
    ("1e-10", 1, 1), ("-1500m", -2, -1500), ("1Pi", 1125899906842624, 1125899906842624000),
    ("1Ei", 1152921504606846976, -9223372036854775808), ("8Ei", 2**63 - 1, -1000), ("16Ei", 2**63 - 1, -1000),
    ("9E", 9 * 10**18, 0), ("10E", 0, 0), ("9.3E", 0, 0), ("1e19", 0, 0), ("1e100", 0, 0), ("1E", 10**18, 0),
    ("9P", 9 * 10**15, 9 * 10**18), ("10P", 10**16, 0), ("9223372036854775808", -(2**63), 0),
    ("9223372036854776", 9223372036854776, -9223372036854775616),
    ("9223372036854776k", -9223372036854775616, 192000),
    ("12345678901234567", 12345678901234567, -6101065172474984616),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value", "milli"), READINGS)
def test_readings(text: str, value: int, milli: int) -> None:
    assert (Quantity(text).value(), Quantity(text).milli_value()) == (value, milli)


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.3Gi", 322122548), ("-1.5Gi", -1610612736), ("-0.3Gi", -322122546), ("18446744073709551616", 0),
     ("-0.0001Ki", 1), ("-10000.0Gi", -1413189100)],
)  # fmt: skip
def test_values(text: str, value: int) -> None:
    assert Quantity(text).value() == value


@pytest.mark.parametrize(
    ("text", "printed"),
    [("1.5", "1500m"), ("0.5Gi", "512Mi"), (".001Ki", "1024m"), ("1024Mi", "1Gi"), ("100.5m", "100500u"),
     ("0.1Gi", "107374182400m"), ("1E3", "1E3"), ("-1.5Gi", "-1536Mi"), ("1000000", "1M"), ("0100", "0100")],
)  # fmt: skip
def test_printing(text: str, printed: str) -> None:
    assert str(Quantity(text)) == printed


@pytest.mark.parametrize(
    ("text", "message"),
    [*((text, WRONG_FORMAT) for text in ["", "1.1.M", "1+1.0M", "aoeu", " 1", "1 ", "1_000", "1MB", "1gi"]),
     *((text, WRONG_SUFFIX) for text in ["0.1mi", ".5i", "1i", "-3.01i", "-3.01e-", "1K", "1ki", "1e", "--1"]),
     ("0.1am", WRONG_FORMAT), ("1e99999999999999999999", WRONG_SUFFIX),
      ("e-30", "unable to parse numeric part of quantity")],
)  # fmt: skip
def test_errors(text: str, message: str) -> None:
    with pytest.raises(QuantityError) as caught:
        Quantity(text)
    assert str(caught.value) == message


@pytest.mark.parametrize("text", ["0", ".", "-", "+", "+.", "-.", "0n", "0Ki", "0.0"])
def test_zeros(text: str) -> None:
    assert Quantity(text).is_zero
    assert Quantity(text).sign == 0
    assert not Quantity(text)


def test_comparison() -> None:
    assert Quantity("1000m") == Quantity("1")
    assert hash(Quantity("1000m")) == hash(Quantity("1"))
    assert Quantity("1Ki") == Quantity("1024")
    assert Quantity("1k") < Quantity("1Ki")
    assert Quantity("0.5") >= Quantity("500m")
    assert Quantity("1e3") == Quantity("1k")
    assert Quantity("1e2000000000") > Quantity("9E") > Quantity("-1e2000000000")
    assert Quantity("1") != 1


def test_sum_then_round() -> None:
    half = Quantity("0.5m")
    assert (half + half).milli_value() == 1
    assert Quantity.sum([]).format == ""
    assert Quantity.sum([Quantity("1Gi"), Quantity("1G")]).format == "BinarySI"
    assert (Quantity("0") - Quantity("1Gi")).format == "BinarySI"


def test_immutable_and_shared() -> None:
    quantity = Quantity("100m")
    assert Quantity("100m") is quantity
    assert copy.deepcopy(quantity) is quantity
    assert pickle.loads(pickle.dumps(Quantity("0100"))).__str__() == "0100"
    with pytest.raises(AttributeError):
        quantity.format = "BinarySI"


@pytest.mark.parametrize(
    ("raw", "printed"),
    [("null", "0"), ('"1.50"', "1500m"), ("1.5", "1500m"), (" 1e3 ", "1e3"), ('" 1 "', "1"), ("0.1", "100m")],
)
def test_from_json(raw: str, printed: str) -> None:
    assert str(Quantity.from_json(raw)) == printed


@pytest.mark.parametrize(
    ("raw", "message"),
    [("true", WRONG_FORMAT), ("{}", WRONG_FORMAT), ('"a"', WRONG_FORMAT), ("", "unexpected end of JSON input"),
     ("01", "invalid character '1' after top-level value"),
     ("01.", "invalid character '1' after top-level value"), ("01e", "invalid character '1' after top-level value"),
     ("nul", "invalid character ' ' in literal null (expecting 'l')"),
     ("1.", "invalid character ' ' after decimal point in numeric literal"),
     ("-", "invalid character ' ' in numeric literal"), ("1e", "invalid character ' ' in exponent of numeric literal"),
     (".5", "invalid character '.' looking for beginning of value"), ("-a", "invalid character 'a' in numeric literal"),
     ("1.x", "invalid character 'x' after decimal point in numeric literal"), ('"a', "unexpected end of JSON input"),
     ("1ex", "invalid character 'x' in exponent of numeric literal"),
     ("nulx", "invalid character 'x' in literal null (expecting 'l')"),
     ('"\\x"', "invalid character 'x' in string escape code")],
)  # fmt: skip
def test_from_json_errors(raw: str, message: str) -> None:
    with pytest.raises(QuantityError) as caught:
        Quantity.from_json(raw)
    assert str(caught.value) == message


@pytest.mark.parametrize("raw", ["[" * 100_000, "[" * 100_000 + "]" * 100_000, '{"a":' * 100_000])
def test_deeply_nested_json_is_no_quantity(raw: str) -> None:
    with pytest.raises(QuantityError):
        Quantity.from_json(raw)


def test_huge_exponents_do_not_hang() -> None:
    assert Quantity("1e999999999").value() == 0
    assert Quantity("1e-2147483648").value() == 1
    with pytest.raises(QuantityError):
        Quantity("1e999999999") + Quantity("1")
    with pytest.raises(QuantityError):
        Quantity("9" * 5000)


SUFFIX = st.sampled_from([*reference.SUFFIXES]) | st.integers(-12, 20).map("e{}".format)
DIGITS = st.from_regex(r"[0-9]{1,12}(\.[0-9]{1,10})?|\.[0-9]{1,10}", fullmatch=True)
PARTS = st.tuples(st.sampled_from(["", "-", "+"]), DIGITS, SUFFIX)


@given(PARTS)
def test_value_against_reference(parts: tuple[str, str, str]) -> None:
    exact = reference.value(*parts)
    quantity = Quantity("".join(parts))
    assert quantity.as_fraction() == exact
    if exact >= 0 and exact * 1000 < 2**63 - 1000:
        assert quantity.value() == reference.rounded(exact)
        assert quantity.milli_value() == reference.rounded(exact, 1000)
    if exact < 10**21:  # above, a decimal loses its suffix in print, as upstream's does
        assert Quantity(str(quantity)).as_fraction() == exact


@given(PARTS, PARTS)
def test_arithmetic_against_reference(first: tuple[str, str, str], right: tuple[str, str, str]) -> None:
    a, b = Quantity("".join(first)), Quantity("".join(right))
    exact_a, exact_b = reference.value(*first), reference.value(*right)
    assert (a + b).as_fraction() == exact_a + exact_b
    assert (a - b).as_fraction() == exact_a - exact_b
    assert (-a).as_fraction() == -exact_a
    assert (a < b, a == b) == (exact_a < exact_b, exact_a == exact_b)
    assert a.approximate_float() == pytest.approx(float(exact_a), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(
    ("text", "scale", "is_whole"),
    [("100m", -3, True), ("100m", 0, False), ("1500m", -2, True), ("100.5m", -3, False), ("2", 0, True),
     ("1Gi", 0, True), ("0.1Ki", 0, False), ("0", 5, True), ("1e3", 3, True), ("1e3", 4, False)],
)  # fmt: skip
def test_whole_numbers_of_a_unit(text: str, scale: int, is_whole: bool) -> None:
    assert Quantity(text).is_whole(scale) is is_whole


@pytest.mark.parametrize("value", [1, 0.5, None, b"1"])
def test_a_quantity_is_a_text(value: object) -> None:
    with pytest.raises(QuantityError, match='a quantity is a text, as "500m" or "1Gi"'):
        Quantity(value)
