"""The published schemas."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from json_schemas import validate
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
