"""What a running program writes to stderr: one line for each thing, as text or as JSON."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any, Final, TextIO

from kscale.cli.terminal import on_one_line
from kscale.effects import to_text

__all__ = ["set_up_logs"]

_DETAILED: Final = 4
_LEVELS: Final = {10: "D", 20: "I", 30: "W", 40: "E", 50: "F"}
_PLAIN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def set_up_logs(verbosity: int, format_: str, *, least: int = 0, stream: TextIO | None = None) -> None:
    """From here on what kscale logs is written. ``verbosity`` as klog's: from 4 on, details, too; ``format_``: ``text``
    or ``json``; ``least``: less important levels of Python's logging are left out. Values given as ``extra`` are keys
    of their own in JSON, and follow the message in text."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Json() if format_ == "json" else _Text())
    handler.setLevel(least)
    log = logging.getLogger("kscale")
    log.handlers = [handler]
    log.propagate = False
    log.setLevel(logging.DEBUG if verbosity >= _DETAILED else logging.INFO)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        more = "".join(f" {key}={json.dumps(value, default=str)}" for key, value in _extra(record).items())
        line = f"{_LEVELS.get(record.levelno, 'I')} {_at(record)} {record.name}: {record.getMessage()}{more}"
        return on_one_line(line) + _trace(self, record, "\n")


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "ts": _at(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
            **_extra(record),
        }
        if trace := _trace(self, record):
            line["trace"] = trace
        return json.dumps(line, default=str)


def _at(record: logging.LogRecord) -> str:
    return to_text(int(record.created * 1e6) * 1000, fraction=True) or ""


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _PLAIN}


def _trace(formatter: logging.Formatter, record: logging.LogRecord, before: str = "") -> str:
    return before + formatter.formatException(record.exc_info) if record.exc_info else ""
