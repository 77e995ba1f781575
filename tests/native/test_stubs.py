"""Stubs of the compiled modules have the names of the modules, and the package tells of every module."""

from __future__ import annotations

import ast
import inspect
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import kscale._native

HERE = Path(inspect.getfile(kscale._native)).parent
STUBS = {path.stem: path for path in sorted(HERE.glob("*.pyi")) if path.stem != "__init__"}


def stub_names(path: Path) -> dict[str, set[str]]:
    """Public names of a stub: of the module under "", of each class under its name."""

    def names(body: list[ast.stmt]) -> set[str]:
        result = set()
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                result.add(node.name)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is None:
                result.add(node.target.id)
        return {name for name in result if not name.startswith("_")}

    tree = ast.parse(path.read_text(encoding="utf-8"))
    classes = {node.name: names(node.body) for node in tree.body if isinstance(node, ast.ClassDef)}
    shapes = {  # of arguments and answers; they exist for the type checker only
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        and any(isinstance(b, ast.Name) and b.id in ("Protocol", "TypedDict") for b in node.bases)
    }
    return {"": names(tree.body) - shapes, **{name: body for name, body in classes.items() if not name.startswith("_")}}


@pytest.mark.parametrize("name", STUBS)
def test_stub_has_the_names_of_the_module(name: str) -> None:
    module = import_module(f"kscale._native.{name}")
    stub = stub_names(STUBS[name])

    def own(value: Any) -> bool:
        return not inspect.ismodule(value) and getattr(value, "__module__", module.__name__) == module.__name__

    public = {name for name, value in vars(module).items() if not name.startswith("_") and own(value)}
    assert stub[""] == public
    for each in public:
        value = getattr(module, each)
        if inspect.isclass(value):
            assert stub[each] == {member for member in vars(value) if not member.startswith("_")}, each


def test_every_compiled_module_is_documented() -> None:
    modules = [line.split()[0] for line in (kscale._native.__doc__ or "").splitlines() if line.startswith("_")]
    assert sorted(modules) == sorted(STUBS)
