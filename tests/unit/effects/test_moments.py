"""What counts as a time in public functions."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from kscale.effects import SECOND, ZERO_TIME, duration, from_text, later, moment, timedelta_of, to_datetime, to_text
from kscale.errors import InputError


def test_an_aware_datetime_and_nanoseconds_are_the_same_moment() -> None:
    noon = datetime(2026, 11, 22, 12, tzinfo=UTC)
    assert moment(noon) == moment(1_795_348_800 * SECOND) == 1_795_348_800 * SECOND
    assert moment(noon.astimezone(timezone(timedelta(hours=5, minutes=30)))) == moment(noon)
    assert to_datetime(moment(noon) + 999) == noon


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (datetime(2026, 1, 1), "2026-01-01T00:00:00 has no time zone"),  # noqa: DTZ001  # a time without a zone is refused
        (datetime(9999, 1, 1, tzinfo=UTC), "9999-01-01T00:00:00+00:00 is no moment: nanoseconds in 64 bits reach from"),
        (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00+00:00 is no moment"),
        ("2026-01-01T00:00:00Z", "'2026-01-01T00:00:00Z' is a str"),
        (1.5e9, "1500000000.0 is a float"),
        (True, "True is a bool"),
        (None, "None is a NoneType"),
        (2**63, "9223372036854775808 nanoseconds are more than 64 bits hold"),
    ],
)
def test_anything_else_is_refused_by_name(value: object, message: str) -> None:
    with pytest.raises(InputError, match=r"^since: ") as caught:
        moment(value, "since")
    assert message in str(caught.value)
    assert caught.value.problems[0].field == "since"


def test_texts_are_those_of_the_api() -> None:
    assert to_text(ZERO_TIME) is None
    assert to_text(1_795_348_800 * SECOND + 5) == "2026-11-22T12:00:00Z"
    assert to_text(1_795_348_800 * SECOND + 5, fraction=True) == "2026-11-22T12:00:00.000000005Z"
    assert to_text(-1) == "1969-12-31T23:59:59Z"


def test_texts_are_read_as_the_api_writes_them() -> None:
    assert from_text("2026-11-22T12:00:00.000000005+01:00") == 1_795_345_200 * SECOND + 5
    assert from_text(None) == from_text("") == from_text("0001-01-01T00:00:00Z") == ZERO_TIME
    assert from_text("1677-01-01T00:00:00Z") == ZERO_TIME
    assert from_text("2300-01-01T00:00:00Z") == 2**63 - 1
    with pytest.raises(ValueError, match="is not an RFC 3339 time"):
        from_text("yesterday")


def test_durations_are_whole_microseconds() -> None:
    assert duration(timedelta(seconds=1.5)) == 1_500_000_000
    assert timedelta_of(1_500_000_999) == timedelta(seconds=1.5)


def test_a_moment_after_all_others_is_the_last_there_is() -> None:
    assert later(5, 7) == 12
    assert later(ZERO_TIME, 0) == ZERO_TIME
    assert later(1, 2**63 - 1) == later(2**62, 2**62) == 2**63 - 1


def test_a_text_with_a_null_character_is_no_time() -> None:
    with pytest.raises(ValueError, match="is not an RFC 3339 time"):
        from_text("\0")
