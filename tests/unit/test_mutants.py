"""Which surviving mutants `nox -s mutants` does not list, because no test can notice them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).parents[2] / ".ci" / "mutants.py"


@pytest.fixture(scope="module")
def mutants() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutants", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("was", "is_now", "same"),
    [
        ("if a == b:", "if a >= b:", True),
        ("if a == b:", "if a <= b:", False),
        ("if a == c:", "if a >= c:", False),
        ("for x, y in zip(a, b, strict=True)", "for x, y in zip(a, b, strict=False)", True),
        ("for x, y in zip(a, b + 1, strict=True)", "for x, y in zip(a, b - 1, strict=True)", False),
        ("class A(msgspec.Struct, kw_only=True):", "class A(msgspec.Struct, kw_only=False):", True),
        ("class A(msgspec.Struct, frozen=True):", "class A(msgspec.Struct, frozen=False):", False),
        ("*,", "/,", True),
        ("a * b,", "a / b,", False),
    ],
)
def test_mutants_that_mean_the_same(mutants: ModuleType, was: str, is_now: str, same: bool) -> None:
    head = "--- mutation diff ---\n--- a//folder/module.py\n+++ b//folder/module.py\n@@ -1,3 +1,3 @@\n"
    difference = f"{head}     before\n-    {was}\n+    {is_now}\n     after\n"
    assert mutants.means_the_same(difference, {"same": [["if a == b:", "if a >= b:"]]}) is same


def test_a_difference_of_several_lines_is_listed(mutants: ModuleType) -> None:
    assert not mutants.means_the_same("-*,\n-b\n+/,\n", {"tests": []})
    assert not mutants.means_the_same("-@property\n", {"tests": []})
