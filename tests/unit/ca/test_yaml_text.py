"""How texts stand in the status document."""

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from kscale.ca.expander.priority import _format_scalar, _resolve_scalar
from kscale.ca.status_config_map import format_yaml_scalar

AS_GO_WRITES: list[tuple[object, str]] = [
    ("Running", "Running"),
    ("NoActivity", "NoActivity"),
    ("fake:///small-1", "fake:///small-1"),
    ("", '""'),
    ("yes", '"yes"'),
    ("y", '"y"'),
    ("12", '"12"'),
    ("1_000", '"1_000"'),
    ("0x1f", '"0x1f"'),
    ("017", '"017"'),
    ("1e3", '"1e3"'),
    (".5", '".5"'),
    ("1:30", '"1:30"'),
    ("1.2.3", "1.2.3"),
    ("2026-11-22T22:50:07Z", '"2026-11-22T22:50:07Z"'),
    ("2026-11-22", '"2026-11-22"'),
    ("2026-13-22", "2026-13-22"),
    ("2026-11-22 22:50:07.052026126 +0000 UTC", "2026-11-22 22:50:07.052026126 +0000 UTC"),
    ("rpc error: code = Unknown desc = it's full", "'rpc error: code = Unknown desc = it''s full'"),
    ("no: ", "'no: '"),
    ("a #b", "'a #b'"),
    ("a#b", "a#b"),
    ("- x", "'- x'"),
    ("-x", "-x"),
    ("[x", "'[x'"),
    ("x[", "x["),
    (" x", "' x'"),
    ("a\tb", '"a\\tb"'),
    ("one\ntwo", "|-\n    one\n    two"),
    ("one\n\ntwo\n", "|\n    one\n\n    two"),
    ("ärger", "ärger"),
    (None, "null"),
    (7, "7"),
]


@pytest.mark.parametrize(("value", "text"), AS_GO_WRITES)
def test_as_upstream_writes_them(value: str | int | None, text: str) -> None:
    assert format_yaml_scalar(value, "  ") == text


@given(st.text(max_size=12) | st.text("0123456789-+.:_ eExob'\"#[]{}\nyn~", max_size=8))
@example("\x85")
def test_written_scalar_is_read_back_unchanged(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    written = f"key: {format_yaml_scalar(text)}\n"
    if "\x85" in text or "\u2028" in text or "\u2029" in text:
        return  # Go and PyYAML do not agree on what ends a line
    assert yaml.safe_load(written) == {"key": text}


@pytest.mark.parametrize(
    ("text", "value", "shown"),
    [
        ("1000000.0", 1000000.0, "1e+06"),
        ("1000000.5", 1000000.5, "1.0000005e+06"),
        ("16777217.0", 16777217.0, "1.6777216e+07"),
        ("100000.25", 100000.25, "100000.25"),
        ("0.00001", 0.00001, "1e-05"),
        ("1e39", 1e39, "+Inf"),
        ("-1e39", -1e39, "-Inf"),
        ("1e400", "1e400", "1e400"),
        ("18446744073709551615", 2**64 - 1, "18446744073709551615"),
        ("18446744073709551616", 2.0**64, "1.8446744e+19"),
        ("9" * 5000, "9" * 5000, "9" * 5000),
        ("0x1ffffffffffffffff", "0x1ffffffffffffffff", "0x1ffffffffffffffff"),
    ],
)
def test_numbers_in_a_list_of_texts_are_written_as_go_does(text: str, value: str | float, shown: str) -> None:
    """As ``strconv.FormatFloat(number, 'g', -1, 32)`` of ``sigs.k8s.io/yaml``, whose integers have 64 bits."""
    node = yaml.compose(text)
    assert _resolve_scalar(node) == value
    assert _format_scalar(_resolve_scalar(node)) == shown
