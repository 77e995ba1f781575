"""How texts stand in the status document."""

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

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
