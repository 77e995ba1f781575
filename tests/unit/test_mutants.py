"""What `nox -s mutants` draws, which tests it chooses, and which surviving mutants it does not list."""

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
        ("*,", "/,", False),
    ],
)
def test_mutants_that_mean_the_same(mutants: ModuleType, was: str, is_now: str, same: bool) -> None:
    head = "--- mutation diff ---\n--- a//folder/module.py\n+++ b//folder/module.py\n@@ -1,3 +1,3 @@\n"
    difference = f"{head}     before\n-    {was}\n+    {is_now}\n     after\n"
    assert mutants.means_the_same(difference, [["if a == b:", "if a >= b:"]]) is same


def test_a_difference_of_several_lines_is_listed(mutants: ModuleType) -> None:
    assert not mutants.means_the_same("-*,\n-b\n+/,\n", [])
    assert not mutants.means_the_same("-@property\n", [])


def test_packages_have_mutants_in_proportion_but_ten_at_least(mutants: ModuleType) -> None:
    quotas = mutants.quotas({"large": 6000, "middle": 3000, "small": 40, "tiny": 4}, 104)
    assert quotas == {"large": 60, "middle": 30, "small": 10, "tiny": 4}


def test_quotas_add_up_to_the_sample(mutants: ModuleType) -> None:
    sizes = {"a": 12587, "b": 9538, "c": 5169, "d": 297, "e": 686, "f": 8811}
    assert sum(mutants.quotas(sizes, 100).values()) == 100


@pytest.mark.parametrize(
    ("module", "package"), [("ca/quota.py", "ca"), ("estimate.py", "top"), ("_native/__init__.py", "top")]
)
def test_package_of_a_module(mutants: ModuleType, module: str, package: str) -> None:
    assert mutants.package_of(module) == package


def test_the_nearest_tests_of_a_mutant_come_first(mutants: ModuleType, tmp_path: Path) -> None:
    files = {
        "src/kscale/__init__.py": "",
        "src/kscale/ca/__init__.py": "",
        "src/kscale/ca/quota.py": "def room() -> int:\n    return 1\n",
        "src/kscale/ca/loop.py": "from kscale.ca.quota import room\n",
        "tests/unit/ca/test_quota.py": "from kscale.ca.quota import room\n",
        "tests/unit/ca/test_loop.py": "from kscale.ca import loop\n",
        "tests/unit/hpa/test_policy.py": "import json\n",
        "tests/golden/test_golden.py": "",
        "tests/golden/adapters/quota.py": "from kscale.ca.loop import room\n",
        "tests/golden/vectors/quota.jsonl.gz": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    choice = mutants.Choice(tmp_path)
    tests = choice.tests("ca/quota.py", "room")
    assert tests == ["tests/unit/ca/test_quota.py", "--golden-kind=quota", "tests/unit/ca/test_loop.py"]
