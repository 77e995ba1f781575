"""Which changes of the public API ``nox -s api`` reports as breaking."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from kscale.errors import InputError

FILE = Path(__file__).parents[2] / ".ci" / "api.py"


@pytest.fixture(scope="module")
def api() -> ModuleType:
    spec = importlib.util.spec_from_file_location("api", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("then", "now", "problem"),
    [
        ("a, b=...", "a, b=..., c=...", None),
        ("a, *, b=...", "a, b=...", None),
        ("a, b", "a, b=...", None),
        ("a, b=...", "a, **more", "takes b no more as argument 2"),
        ("a, *, b=...", "a, **more", None),
        ("a, b=...", "a, *, b=...", "takes b no more as argument 2"),
        ("a, b", "b, a", "takes a no more as argument 1"),
        ("a, *, b=...", "a, *, b", "needs b now"),
        ("a, *, b=...", "a", "has no parameter b any more"),
        ("a", "a, *, b", "needs b now"),
        ("*items", "items=...", "takes no *items any more"),
        ("item, key=..., /", "item, key=..., /, uid=...", None),
    ],
)
def test_calls(api: ModuleType, then: str, now: str, problem: str | None) -> None:
    assert api.narrower(then, now) == problem


def test_names_and_fields(api: ModuleType) -> None:
    then = {
        "names": {"m.gone": "a", "m.kept": "a", "m.Kind.size": "attribute"},
        "documents": {"R#.n": "1", "R#.m": "1"},
    }
    now = {"names": {"m.kept": "a, b=...", "m.new": "x", "m.Kind.size": "self"}, "documents": {"R#.n": "2"}}
    assert api.breaks(then, now) == [
        "m.gone: gone",
        "m.Kind.size: 'attribute' is 'self' now",
        "R#.n: 1 is 2 now",
        "R#.m: gone",
    ]


def test_class_is_described_by_its_call_and_own_members(api: ModuleType) -> None:
    assert dict(api.described("k.InputError", InputError)) == {"k.InputError": "problems, *, total=..."}


def test_fields_of_a_document(api: ModuleType) -> None:
    inner = {"properties": {"n": {"type": "integer", "description": "How many."}}}
    schema = {"properties": {"rows": {"type": "array", "items": {"$ref": "#/$defs/Row"}}}, "$defs": {"Row": inner}}
    assert dict(api.fields("R", schema)) == {
        "R#.rows": '{"items": {"$ref": "#/$defs/Row"}, "type": "array"}',
        "R#Row.n": '{"type": "integer"}',
    }
