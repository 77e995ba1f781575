"""Which tests `nox -s test -- --changed` runs, and how it brings an installed package up to date."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).parents[2] / ".ci" / "changed.py"
FILES = {
    "src/kscale/__init__.py": "",
    "src/kscale/ca/__init__.py": "",
    "src/kscale/ca/quota.py": "def room() -> int:\n    return 1\n",
    "src/kscale/ca/loop.py": "from kscale.ca.quota import room\n",
    "src/kscale/hpa/__init__.py": "",
    "src/kscale/hpa/policy.py": "",
    "src/kscale/_native/src/fit.cpp": "",
    "tests/native/test_fit.py": "",
    "tests/unit/ca/test_quota.py": "from kscale.ca.quota import room\n",
    "tests/unit/ca/test_loop.py": "from kscale.ca import loop\nfrom unit.ca.worlds import small\n",
    "tests/unit/ca/test_fit_kernel.py": "",
    "tests/unit/ca/worlds.py": "",
    "tests/unit/hpa/test_policy.py": "from kscale.hpa import policy\n",
    "tests/unit/test_docs.py": "",
    "tests/golden/test_golden.py": "",
    "tests/golden/adapters/quota.py": "from kscale.ca.loop import room\n",
    "tests/golden/vectors/quota.jsonl.gz": "",
    "docs/quota.md": "```python\n1\n```\n",
    "Containerfile": "",
}


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FILE.parent))
    spec = importlib.util.spec_from_file_location("changed", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("files", "arguments"),
    [
        (
            ["src/kscale/ca/quota.py"],
            ["tests/unit/ca/test_quota.py", "tests/unit/ca/test_loop.py", "tests/golden", "--golden-kind=quota"],
        ),
        (["src/kscale/hpa/policy.py"], ["tests/unit/hpa/test_policy.py"]),
        (["src/kscale/_native/src/fit.cpp"], ["tests/native", "tests/unit/ca/test_fit_kernel.py"]),
        (["tests/unit/hpa/test_policy.py"], ["tests/unit/hpa/test_policy.py"]),
        (["tests/unit/ca/worlds.py"], ["tests/unit/ca/test_loop.py"]),
        (["tests/unit/ca/test_deleted.py"], []),
        (["tests/golden/adapters/quota.py"], ["tests/golden", "--golden-kind=quota"]),
        (["tests/golden/vectors/quota.jsonl.gz"], ["tests/golden", "--golden-kind=quota"]),
        (["docs/quota.md"], ["tests/unit/test_docs.py::test_examples[docs/quota.md]"]),
        (["Containerfile"], []),
        (
            ["src/kscale/hpa/policy.py", "tests/unit/hpa/test_policy.py", "docs/quota.md", "tests/unit/test_docs.py"],
            ["tests/unit/hpa/test_policy.py", "tests/unit/test_docs.py"],
        ),
    ],
    ids=" ".join,
)
def test_tests_of_a_change(changed: ModuleType, tree: Path, files: list[str], arguments: list[str]) -> None:
    choice = changed.Choice(tree)
    tests = [test for file in files for test in changed.tests_of(file, choice, tree)]
    assert changed.arguments(tests, tree) == arguments


def test_changed_files_are_those_of_git_and_untracked_ones(changed: ModuleType, tree: Path) -> None:
    def git(*words: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *identity, *words], cwd=tree, check=True, capture_output=True)

    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    assert changed.changed_files(tree, "HEAD") == []
    (tree / "src/kscale/ca/quota.py").write_text("")
    (tree / "tests/unit/ca/test new.py").write_text("")
    (tree / "tests/unit/ca/worlds.py").unlink()
    files = ["src/kscale/ca/quota.py", "tests/unit/ca/test new.py", "tests/unit/ca/worlds.py"]
    assert changed.changed_files(tree, "HEAD") == files
    git("add", ".")
    git("commit", "-q", "-m", "second")
    assert changed.changed_files(tree, "HEAD") == []
    assert changed.changed_files(tree, "HEAD~1") == files


def test_an_installed_package_gets_the_files_of_the_tree(changed: ModuleType, tree: Path, tmp_path: Path) -> None:
    package = tmp_path / "installed"
    for name in ("old.py", "ca/quota.py", "_native/fit.so", "examples/program.py"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text("before")
    changed.copy_sources(tree, package)
    files = {path.relative_to(package).as_posix(): path.read_text() for path in package.rglob("*") if path.is_file()}
    assert files == {
        **{
            name.removeprefix("src/kscale/"): text
            for name, text in FILES.items()
            if name.startswith("src/") and name.endswith(".py")
        },
        "_native/fit.so": "before",
        "examples/program.py": "before",
    }
