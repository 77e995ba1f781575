"""The published schemas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from json_schemas import validate
from kscale.records import components_of
from kscale.schemas import DOCUMENTS, INPUTS, SchemaList, record_type, schema, schema_files, schema_text
from unit.cli.support import kscale

PUBLISHED = Path(__file__).parents[3] / "docs" / "schemas"


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_the_published_schema_is_current(kind: str) -> None:
    assert kind == record_type(kind).KIND
    jsonschema.Draft202012Validator.check_schema(schema(kind))
    assert (PUBLISHED / f"{kind}.json").read_text(encoding="utf-8") == schema_text(kind), (
        "run: kscale schema --directory docs/schemas"
    )


def test_nothing_else_is_published() -> None:
    # *.schema.json describe what kscale reads; the tests of their readers hold them.
    written = (path for path in PUBLISHED.glob("*.json") if not path.name.endswith(".schema.json"))
    assert {path.stem for path in written} == set(DOCUMENTS)


def test_records_validate_against_their_schema() -> None:
    validate(SchemaList(kinds=["A"], inputs=[]).to_dict(), schema("SchemaList"))


def test_the_command_prints_one_or_lists_all(tmp_path: Path) -> None:
    assert json.loads(kscale("schema", "schemalist").stdout) == schema("SchemaList")
    assert json.loads(kscale("schema", "groups").stdout)["title"] == "kscale groups file"
    assert kscale("schema", "-o", "name").stdout.split() == [*sorted(DOCUMENTS), *sorted(INPUTS)]
    assert kscale("schema", "--directory", tmp_path / "out").code == 0
    assert len(list((tmp_path / "out").iterdir())) == len(schema_files())


_DOCUMENTED_ELSEWHERE = {"GroupTemplate", "ObjectReference"}
"""Objects with fields of the Kubernetes API, which its documentation describes."""


@pytest.mark.parametrize("file", sorted(schema_files()))
def test_every_field_has_a_description(file: str) -> None:
    document: dict[str, Any] = json.loads(schema_files()[file])
    for name, struct in {file: document, **document.get("$defs", {})}.items():
        for field, field_schema in struct.get("properties", {}).items():
            if name in _DOCUMENTED_ELSEWHERE or "const" in field_schema:
                continue
            if name == "groups.schema.json":
                continue  # the object form of the list
            assert field_schema.get("description"), f"{name}.{field}: add it to the section Attributes of the class"


def test_descriptions_use_the_words_of_json() -> None:
    class Example(msgspec.Struct, rename={"from_node": "from", "max_size": "maxSize"}):
        """An example, as :class:`~kscale.records.Record` with ``from_node``.

        Attributes
        ----------
        from_node : str or None
            Name of a node. None: ``max_size`` is
            not used.
        max_size, other : int
            The status ``True`` is not True.
        """

        from_node: str | None = None
        max_size: int = 0
        other: int = 0

    name, components = components_of(Example)
    assert components[name]["description"] == "An example, as `Record` with `from`."
    fields = {field: schema["description"] for field, schema in components[name]["properties"].items()}
    assert fields["from"] == "Name of a node. null: `maxSize` is not used."
    assert fields["maxSize"] == fields["other"] == "The status `True` is not true."


def test_a_description_of_an_unknown_field_is_an_error() -> None:
    class Renamed(msgspec.Struct):
        """An example.

        Attributes
        ----------
        old : int
            A number.
        """

        new: int = 0

    with pytest.raises(KeyError, match="old"):
        components_of(Renamed)
