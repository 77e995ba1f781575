"""Base classes of results: plain data, JSON with ``apiVersion`` and ``kind``, JSON Schema, Arrow tables, HTML."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import index
from types import NoneType
from typing import Any, ClassVar, Final, NamedTuple, get_args

import msgspec

from kscale.errors import ArgumentError, InputError, show_value
from kscale.imports import lazy_pattern, library

__all__ = [
    "API_VERSION",
    "Record",
    "Result",
    "Rows",
    "components_of",
    "nulls_last",
    "schema_of",
]

API_VERSION = "kscale.dev/v1alpha1"
_HEAD_FIELDS = frozenset(("apiVersion", "kind"))
_MAX_INDENT = 64
"""Spaces of an indented JSON document."""


class Rows(NamedTuple):
    """A result as one table: the type of each column by its name, and the rows."""

    columns: Mapping[str, type]
    rows: Sequence[Sequence[Any]]


class Result:
    """Base class of results: plain data, JSON, an Arrow table and HTML for notebooks.

    pandas, polars and DuckDB read a result directly, by the Arrow PyCapsule interface:
    ``polars.DataFrame(kscale.place(snapshot))``. Subclasses implement :meth:`table_rows`.
    """

    __slots__ = ()

    def table_rows(self) -> Rows:
        """Return the result as one table, whose columns have the types str, int, float, bool or list (of texts).

        Subclasses implement this.
        """
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain dicts and lists: ``apiVersion``, ``kind`` and the table's ``rows`` as dicts."""
        columns, rows = self.table_rows()
        return {
            "apiVersion": API_VERSION,
            "kind": type(self).__name__,
            "rows": [dict(zip(columns, row, strict=True)) for row in rows],
        }

    def to_json(self, *, indent: int = 0) -> bytes:
        """Encode the result as JSON: one line, or indented by ``indent`` spaces.

        Raises InputError if ``indent`` is not a whole number from 0 to 64.
        """
        try:
            width = index(indent)
        except TypeError:
            raise ArgumentError("indent", show_value(indent), "a whole number", type(indent).__name__) from None
        if not 0 <= width <= _MAX_INDENT:
            raise InputError(f"indent is {show_value(width)}, not between 0 and {_MAX_INDENT}")
        text = self._encode()
        return msgspec.json.format(text, indent=width) if width else text

    def _encode(self) -> bytes:
        """Encode :meth:`to_dict` as JSON in one line."""
        return msgspec.json.encode(self.to_dict())

    def to_arrow(self) -> Any:
        """Return the table of the result as a ``pyarrow.Table``.

        Raises
        ------
        MissingExtraError
            If pyarrow is not installed (the extra ``data``).

        InputError
            If the result is not a table.
        """
        pa = library("pyarrow", "an Arrow table")
        arrow_types = {
            str: pa.string(),
            int: pa.int64(),
            float: pa.float64(),
            bool: pa.bool_(),
            list: pa.list_(pa.string()),
        }
        columns, rows = self.table_rows()
        values = zip(*rows, strict=True) if rows else ([] for _ in columns)
        arrays = [pa.array(column, arrow_types[kind]) for kind, column in zip(columns.values(), values, strict=True)]
        return pa.Table.from_arrays(arrays, names=list(columns))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the table as an Arrow stream (Arrow PyCapsule interface).

        Raises InputError if the result is not a table or does not fit ``requested_schema``, and MissingExtraError
        without pyarrow.
        """
        try:
            return self.to_arrow().__arrow_c_stream__(requested_schema)
        except (TypeError, ValueError) as error:
            if isinstance(error, InputError) or requested_schema is None:
                raise
            raise InputError(f"requested_schema is {show_value(requested_schema)}: {error}") from None

    def describe_inputs(self) -> str:
        """Return from which cluster the result was computed, in a few words; empty if the result has no snapshot."""
        snapshot = getattr(self, "snapshot", None)
        if snapshot is None:
            return ""
        return f"{len(snapshot.nodes):,} nodes, {len(snapshot.pods):,} pods on them, {len(snapshot.pending):,} pending"

    def _repr_html_(self) -> str:
        """Return an HTML view of the result, for notebooks."""
        from kscale.html import markup

        columns, rows = self.table_rows()
        return markup.listing(
            repr(self),
            list(columns),
            [["" if cell is None else cell for cell in row] for row in rows],
            markup.origin(self.describe_inputs()),
        )


class Record(Result, msgspec.Struct, kw_only=True, omit_defaults=False, rename="camel", frozen=True):
    """A result whose fields are its JSON document. Subclasses set ``KIND``; fields are camelCase in JSON.

    Subclasses also set ``ROWS``, the field with the list that is the table of the result, unless they have none.
    Texts are formatted when the document is created, not when the decision is made: a decision object may keep columns
    and build its record on request.
    """

    KIND: ClassVar[str] = ""
    ROWS: ClassVar[str] = ""

    def summary(self) -> str:
        """Return the record in one line, which ``repr`` shows: numbers, texts, booleans, and sizes of lists and maps.

        Empty lists and maps, nested records and None are left out.
        """
        parts = []
        for field in msgspec.structs.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, str | bool | int | float):
                parts.append(f"{field.name}={value!r}")
            elif isinstance(value, Sequence | Mapping) and value:
                parts.append(f"{len(value):,} {field.name}")
        return ", ".join(parts)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.summary()}>"

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain dicts and lists, with ``apiVersion`` and ``kind`` first."""
        return {"apiVersion": API_VERSION, "kind": self.KIND, **msgspec.to_builtins(self)}

    def _encode(self) -> bytes:
        """Encode the record as JSON in one line, with ``apiVersion`` and ``kind`` first."""
        if type(self).to_dict is not Record.to_dict or not _HEAD_FIELDS.isdisjoint(self.__struct_encode_fields__):
            return super()._encode()
        head = msgspec.json.encode({"apiVersion": API_VERSION, "kind": self.KIND})
        fields = msgspec.json.encode(self)  # without plain data in between, which takes as long as encoding
        return head if fields == b"{}" else b"".join((head[:-1], b",", memoryview(fields)[1:]))

    def table_rows(self) -> Rows:
        """Return the list of the field ``ROWS``, one row per item.

        Columns are the fields of the items. The fields of a nested object are columns ``object.field``; maps and lists
        of objects are JSON texts. Raises InputError if the record is not a table.
        """
        if not self.ROWS:
            raise InputError(f"{type(self).__name__} is not a table: use to_dict()")
        (annotation,) = (field.type for field in msgspec.structs.fields(self) if field.name == self.ROWS)
        columns = dict(_columns_of(get_args(annotation)[0]))
        rows = [
            [_cell(value, kind) for value, kind in zip(_values_of(item, columns), columns.values(), strict=True)]
            for item in getattr(self, self.ROWS)
        ]
        return Rows(columns, rows)

    def explain(self, name: str) -> str:
        """Return what the record says about an object, in one line: its row of the table.

        The row's name and empty fields are left out. ``name``: the first field of the row; in a table with namespaces
        and names, the name or ``namespace/name``. The first row with this name counts. Raises InputError if no row has
        it, or the record is not a table.
        """
        columns, rows = self.table_rows()
        by_namespace = {"namespace", "name"} <= columns.keys()
        keys = ["namespace", "name"] if by_namespace else list(columns)[:1]
        for row in rows:
            values = dict(zip(columns, row, strict=True))
            if name in (str(values[keys[-1]]), "/".join(str(values[key]) for key in keys)):
                return ", ".join(
                    f"{column} {_format_value(value)}"
                    for column, value in values.items()
                    if column not in keys and value not in (None, "", "[]", "{}", [])
                )
        raise InputError(f"no {self.ROWS} entry {name!r} in this {type(self).__name__}")

    def _repr_html_(self) -> str:
        """Return an HTML view of the record, for notebooks."""
        from kscale.html import markup

        return markup.document(
            f"{self.KIND}: {self.summary()}", msgspec.to_builtins(self), markup.origin(self.describe_inputs())
        )


def _columns_of(struct: type[msgspec.Struct], prefix: str = "") -> Iterator[tuple[str, type]]:
    """Yield name and type of each column; the fields of a nested object are columns ``object.field``.

    The type is str, int, float, bool, list (of texts), or str for all that becomes JSON text.
    """
    for field in msgspec.structs.fields(struct):
        name = prefix + field.encode_name
        alternatives = [each for each in get_args(field.type) if each is not NoneType]
        kind = alternatives[0] if len(alternatives) == 1 and NoneType in get_args(field.type) else field.type
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            yield from _columns_of(kind, f"{name}.")
        elif kind in (str, int, float, bool):
            yield name, kind
        else:
            yield name, list if get_args(kind) == (str,) else str


def _values_of(item: Any, columns: Mapping[str, type]) -> list[Any]:
    """Return the item's value in each column; None if the field is None or an object that contains it is absent."""
    document = msgspec.to_builtins(item)
    values = []
    for name in columns:
        value = document
        for part in name.split("."):
            value = None if value is None else value.get(part)
        values.append(value)
    return values


def _cell(value: Any, kind: type) -> Any:
    """Return a value of a record as a cell of a table column of type ``kind`` (str, int, float or bool).

    None stays None. Lists, mappings and records become JSON text.
    """
    if value is None or isinstance(value, kind):
        return value
    if kind is float:
        return float(value)
    return msgspec.json.encode(value).decode()


def _format_value(value: Any) -> str:
    """Format a value of a row as text.

    Booleans: yes or no; numbers: thousands separators, floats with four digits; lists: items with commas.
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}"
    return ", ".join(value) if isinstance(value, list) else str(value)


def components_of(kind: Any, schema_hook: Callable[[Any], Any] | None = None) -> tuple[str, dict[str, Any]]:
    """Return the JSON Schema of a type as (name of its definition, definitions by name).

    The definitions are those of the type and of all types that it refers to. Descriptions come from the docstrings of
    classes; those of fields from the section *Attributes*. The result does not depend on msgspec's version.

    ``kind``: the type. ``schema_hook``: returns the schema of a type that msgspec does not know, like msgspec's
    parameter of that name.
    """
    (ref,), components = msgspec.json.schema_components([kind], schema_hook=schema_hook, ref_template="#/$defs/{name}")
    json_names: dict[str, dict[str, str]] = {}
    _collect_json_names(msgspec.inspect.type_info(kind), json_names)
    for name, component in components.items():
        _add_descriptions(component, json_names.get(name, {}))
    return ref["$ref"].rsplit("/", 1)[-1], nulls_last(components)


def _collect_json_names(info: Any, result: dict[str, dict[str, str]]) -> None:
    """Add the JSON names of the fields of each struct in a type to ``result``: class name -> Python name -> JSON name.

    ``info``: msgspec's description of the type.
    """
    if isinstance(info, msgspec.inspect.StructType):
        if info.cls.__name__ in result:
            return
        result[info.cls.__name__] = {field.name: field.encode_name for field in info.fields}
        parts: list[Any] = [field.type for field in info.fields]
    else:
        parts = [getattr(info, name, None) for name in ("item_type", "key_type", "value_type")]
        parts += [*getattr(info, "item_types", ()), *getattr(info, "types", ())]
    for part in parts:
        if isinstance(part, msgspec.inspect.Type):
            _collect_json_names(part, result)


_SECTION: Final = lazy_pattern(r"^Attributes\n-+\n", re.MULTILINE)
_ATTRIBUTE: Final = lazy_pattern(r"^(\w[\w, ]*?)(?: : .*)?\n((?: {4}.*\n?|\n)*)", re.MULTILINE)
_CODE: Final = lazy_pattern(r"``([^`]*)``")
_JSON_CODE: Final = lazy_pattern(r"(`[^`]*`)")
_WORD: Final = lazy_pattern(r"\b(?:None|True|False)\b")
_JSON_WORDS: Final = {"None": "null", "True": "true", "False": "false"}
_ROLE: Final = lazy_pattern(r":\w+:`~?(?:[\w.]*\.)?(\w+)`")


def _add_descriptions(component: dict[str, Any], json_names: Mapping[str, str]) -> None:
    """Set the descriptions of an object and of its fields, in place, from msgspec's copy of the class's docstring.

    ``json_names``: the JSON name of each field by its Python name.
    """
    if "description" not in component:
        return
    summary, *sections = _SECTION.split(inspect.cleandoc(component["description"]), maxsplit=1)
    component["description"] = _describe_in_json(summary, json_names)
    for section in sections:
        for names, text in _ATTRIBUTE.findall(section):
            for name in names.split(", "):
                field = component["properties"][json_names[name]]
                field["description"] = _describe_in_json(text, json_names)


def _describe_in_json(text: str, json_names: Mapping[str, str]) -> str:
    """Return the text of a docstring in one line, with names of Python (fields, None, True) replaced by JSON's."""
    text = _ROLE.sub(r"`\1`", text)
    text = _CODE.sub(lambda match: f"`{json_names.get(match[1], match[1])}`", text)
    parts = _JSON_CODE.split(text)  # code, such as the status `True` of a condition, stays as it is
    parts[::2] = [_WORD.sub(lambda match: _JSON_WORDS[match[0]], part) for part in parts[::2]]
    return " ".join("".join(parts).split())


def nulls_last(schema: Any) -> Any:
    """Return a copy of a schema in which ``null`` is the last alternative of every ``anyOf``.

    Its position differs between versions of msgspec.
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
