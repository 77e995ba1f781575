"""Names and times as the API server has them, told the slow way."""

from __future__ import annotations

import string
from datetime import datetime

__all__ = ["is_plain_name", "is_printed_time"]

_ENDS = set(string.ascii_lowercase + string.digits)


def is_plain_name(text: bytes) -> bool:
    """RFC 1123: a DNS subdomain."""
    labels = text.decode("latin-1").split(".")
    return len(text) <= 253 and all(
        label and label[0] in _ENDS and label[-1] in _ENDS and set(label) <= _ENDS | {"-"} for label in labels
    )


def is_printed_time(text: bytes) -> bool:
    """``2006-01-02T15:04:05Z``, of a day that every year has."""
    try:
        made = datetime.strptime(text.decode("ascii"), "%Y-%m-%dT%H:%M:%SZ")  # noqa: DTZ007  (only whether it is one)
    except ValueError:
        return False
    printed = f"{made.year:04}-{made.month:02}-{made.day:02}T{made.hour:02}:{made.minute:02}:{made.second:02}Z"
    return text == printed.encode() and (made.month, made.day) != (2, 29)
