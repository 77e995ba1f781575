"""Base class of result records: typed data with ``apiVersion`` and ``kind``, JSON, and a JSON Schema."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

__all__ = ["API_VERSION", "Record", "components_of", "nulls_last", "schema_of", "to_builtins", "to_json"]

API_VERSION = "kscale.dev/v1alpha1"


class Record(msgspec.Struct, kw_only=True, omit_defaults=False, rename="camel", frozen=True):
    """A decision, or a document that describes one. Subclasses set ``KIND``; fields are camelCase in JSON.

    Texts are formatted when the document is created, not when the decision is made: a decision object may keep columns
    and build its record on request.
    """

    KIND: ClassVar[str] = ""

    def _repr_html_(self) -> str:
        """Return an HTML view of the record, for notebooks."""
        from kscale.html import notebook

        return notebook.document(type(self).KIND, msgspec.to_builtins(self))


def to_builtins(record: Record) -> dict[str, Any]:
    """Return the record as plain dicts and lists, with ``apiVersion`` and ``kind`` first."""
    body: dict[str, Any] = msgspec.to_builtins(record)
    return {"apiVersion": API_VERSION, "kind": type(record).KIND, **body}


def to_json(record: Record, *, indent: int = 0) -> bytes:
    """Encode the record as JSON: one line, or indented by ``indent`` spaces."""
    text = msgspec.json.encode(to_builtins(record))
    return msgspec.json.format(text, indent=indent) if indent else text


def components_of(kind: Any, schema_hook: Callable[[Any], Any] | None = None) -> tuple[str, dict[str, Any]]:
    """Return the name of a type among its schema's definitions, and these definitions.

    The result does not depend on msgspec's version. ``kind``: the type; ``schema_hook``: returns the schema of types
    that msgspec does not know, as msgspec's parameter of that name.
    """
    (ref,), components = msgspec.json.schema_components([kind], schema_hook=schema_hook, ref_template="#/$defs/{name}")
    for component in components.values():
        if "description" in component:
            component["description"] = inspect.cleandoc(component["description"])
    return ref["$ref"].rsplit("/", 1)[-1], nulls_last(components)


def nulls_last(schema: Any) -> Any:
    """Return a schema in which ``null`` is the last alternative of any value.

    Versions of msgspec differ in that.
    """
    if isinstance(schema, list):
        return [nulls_last(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: nulls_last(each) for key, each in schema.items()}
    if isinstance(any_of := result.get("anyOf"), list):
        result["anyOf"] = sorted(any_of, key=lambda each: each == {"type": "null"})
    return result


def schema_of(record_type: type[Record]) -> dict[str, Any]:
    """Return the published JSON Schema (2020-12) of a record type."""
    name, components = components_of(record_type)
    own = components.pop(name)
    properties = {
        "apiVersion": {"const": API_VERSION},
        "kind": {"const": record_type.KIND},
        **own.get("properties", {}),
    }
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": record_type.KIND,
        "description": own.get("description", ""),
        "type": "object",
        "properties": properties,
        "required": ["apiVersion", "kind", *own.get("required", [])],
    }
    if components:
        schema["$defs"] = components
    return schema
