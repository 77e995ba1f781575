"""The documents kscale writes, and their published JSON Schemas (``docs/schemas/*.json``, ``kscale schema``)."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import msgspec

from kscale.records import Record, schema_of

__all__ = ["DOCUMENTS", "record_type", "schema", "schema_text"]

# kind -> the module that defines its record. One line per document; a test holds docs/schemas/ to this list.
DOCUMENTS: dict[str, str] = {
    "EstimateReport": "kscale.capacity.records",
    "Explanation": "kscale.capacity.records",
    "FitReport": "kscale.capacity.records",
    "SchemaList": "kscale.schemas",
    "Validation": "kscale.capacity.validation",
}


class SchemaList(Record, frozen=True):
    """The kinds of documents whose schemas are published."""

    KIND = "SchemaList"
    kinds: list[str]


def record_type(kind: str) -> type[Record]:
    """The record type of a published kind; ``KeyError`` for an unknown one."""
    found: type[Record] = getattr(import_module(DOCUMENTS[kind]), kind)
    return found


def schema(kind: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a published kind."""
    tidy: dict[str, Any] = _tidy(schema_of(record_type(kind)))
    return tidy


def _tidy(value: Any) -> Any:
    """Descriptions come from docstrings: without their line breaks."""
    if isinstance(value, dict):
        return {
            key: " ".join(item.replace("``", "`").split()) if key == "description" else _tidy(item)
            for key, item in value.items()
        }
    return [_tidy(item) for item in value] if isinstance(value, list) else value


def schema_text(kind: str) -> str:
    """The schema as it is published: indented JSON with a final line feed."""
    return msgspec.json.format(msgspec.json.encode(schema(kind)), indent=2).decode() + "\n"
