"""Names and times as the API server has them, told the slow way."""

from __future__ import annotations

import string
from datetime import UTC, datetime, timedelta

__all__ = ["ABSENT", "ODD", "is_plain_name", "printed_moment", "printed_number"]

ABSENT, ODD = -(2**63), 1 - 2**63
_ENDS = set(string.ascii_lowercase + string.digits)


def is_plain_name(text: bytes) -> bool:
    """RFC 1123: a DNS subdomain."""
    labels = text.decode("latin-1").split(".")
    return len(text) <= 253 and all(
        label and label[0] in _ENDS and label[-1] in _ENDS and set(label) <= _ENDS | {"-"} for label in labels
    )


def printed_moment(text: bytes) -> int:
    """Nanoseconds since 1970 of ``2006-01-02T15:04:05Z``, with a fraction or without, from 1678 to 2261; else ODD."""
    full_seconds, dot, fraction = text.removesuffix(b"Z").partition(b".")
    if not text.endswith(b"Z") or (dot and (not fraction or set(fraction) - set(b"0123456789"))):
        return ODD
    try:
        moment = datetime.strptime(full_seconds.decode("ascii"), "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        return ODD
    printed = (
        f"{moment.year:04}-{moment.month:02}-{moment.day:02}T{moment.hour:02}:{moment.minute:02}:{moment.second:02}"
    )
    if full_seconds != printed.encode() or not 1678 <= moment.year <= 2261:
        return ODD
    seconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
    return seconds * 10**9 + int(fraction[:9].ljust(9, b"0"))


def printed_number(text: bytes) -> int:
    """A whole number of at most 18 digits without a sign and without zeros in front; else -2."""
    if not text or set(text) - set(b"0123456789") or len(text) > 18 or str(int(text)) != text.decode():
        return -2
    return int(text)
