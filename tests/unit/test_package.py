"""The package as a whole: what an import loads, and what the build says of itself."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import reduce
from operator import or_
from pathlib import Path
from types import ModuleType

import pytest

import kscale
from kscale.cli.inputs import Dump
from kscale.errors import MissingExtraError
from kscale.imports import EXTRAS, lazy_pattern, library


def test_import_loads_numpy_and_msgspec_only() -> None:
    code = (
        "import sys, numpy, msgspec; before = set(sys.modules); import kscale; "
        "new = {m.partition('.')[0] for m in set(sys.modules) - before}; "
        "print(*sorted(new - {'kscale'} - set(sys.stdlib_module_names)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [name for name in result.stdout.split() if not name.startswith("_kscale_core_editable")] == []


def test_program_imports_only_its_own_packages() -> None:
    """Each line: a module of a program, and packages that it must not import."""
    programs = [
        ("kscale.drivers.cluster_autoscaler", ["kscale.hpa.", "kscale.vpa.", "kscale.capacity.", "kscale.ca.legacy."]),
        ("kscale.drivers.vpa_admission", ["kscale.hpa.", "kscale.capacity.", "kscale.vpa.recommender."]),
        ("kscale.drivers.vpa_updater", ["kscale.hpa.", "kscale.capacity.", "kscale.vpa.recommender."]),
        ("kscale.drivers.vpa_recommender", ["kscale.hpa.", "kscale.capacity."]),
    ]
    code = (
        "import sys, importlib\n"
        f"for module, absent in {programs!r}:\n"
        "    importlib.import_module(module)\n"
        "    print(*(name for name in sys.modules if name.startswith(tuple(absent))))\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == [""] * len(programs)


LAZY = ("boto3", "dask", "google", "grpc", "highspy", "matplotlib", "numba", "pandas", "polars", "pyarrow", "scipy")
"""Optional libraries that commands import when they use them."""


def test_commands_start_without_optional_libraries() -> None:
    code = f"""
import importlib, pkgutil, sys
sys.modules.update(dict.fromkeys({LAZY!r}))  # an import of one raises ImportError
import kscale.cli.commands as commands
names = [each.name for each in pkgutil.walk_packages(commands.__path__, commands.__name__ + ".")]
for name in names:
    importlib.import_module(name)
print(len(names))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) > 30


@pytest.mark.parametrize("package", ["kscale.hpa", "kscale.vpa", "kscale.vpa.admission", "kscale.ca", "kscale.effects"])
def test_a_public_name_is_that_of_the_package_after_a_module_of_the_same_name_is_imported(package: str) -> None:
    module = importlib.import_module(package)
    for info in pkgutil.iter_modules(module.__path__, f"{package}."):
        name = info.name.rpartition(".")[2]
        if name in module.__all__:
            importlib.import_module(info.name)
    for name in module.__all__:
        value = getattr(module, name)
        assert name in dir(module)
        assert not isinstance(value, ModuleType) or name in {"quota", "templates"}
    with pytest.raises(AttributeError, match="has no attribute 'absent'"):
        _ = module.absent


def test_the_project_has_the_version_of_the_package() -> None:
    pyproject = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert pyproject["project"]["version"] == kscale.__version__


def test_build_info_names_the_compiler() -> None:
    info = kscale.build_info()
    assert info["kscale"] == kscale.__version__
    assert info["compiler"].split()[0] in {"gcc", "clang"}
    assert info["cpu_level"] in {"x86-64-v4", "x86-64-v3", "default"}


def imports_of(root: Path) -> dict[str, set[str]]:
    """Module -> the modules of the package that it imports, wherever in the file."""
    files = {}
    for path in root.rglob("*.py"):
        name = ".".join((root.name, *path.relative_to(root).with_suffix("").parts))
        files[name.removesuffix(".__init__")] = path
    result: dict[str, set[str]] = {}
    for name, path in files.items():
        result[name] = set()
        for node in statements(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                of = (f"{node.module}.{alias.name}" for alias in node.names)
                result[name] |= {each if each in files else node.module for each in of}
            elif isinstance(node, ast.Import):
                result[name] |= {alias.name for alias in node.names}
        result[name] &= files.keys() - {name}
    return result


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """The statements below a node, without the expressions in them."""
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        inner = getattr(node, part, ())
        for each in inner if isinstance(inner, list) else ():
            yield each
            yield from statements(each)


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The groups of nodes that reach each other, largest first."""
    bits = {name: 1 << i for i, name in enumerate(graph)}
    reach = dict(bits)  # sets as bits of an integer
    changed = True
    while changed:
        changed = False
        for name, imported in graph.items():
            more = reduce(or_, (reach[other] for other in imported), reach[name])
            changed = changed or more != reach[name]
            reach[name] = more
    alike: dict[int, list[str]] = {}  # those that reach each other reach the same
    for name in graph:
        alike.setdefault(reach[name], []).append(name)
    groups = [set(names) for names in alike.values()]
    return sorted((group for group in groups if len(group) > 1), key=len, reverse=True)


def test_no_circle_of_files_is_larger_than_two() -> None:
    graph = imports_of(Path(kscale.__file__).parent)
    assert len(graph) > 300
    assert [sorted(circle) for circle in circles(graph) if len(circle) > 2] == []


def test_circles_are_found() -> None:
    graph: dict[str, set[str]] = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set(), "f": {"a"}}
    assert circles(graph) == [{"a", "b", "c"}]


def generators(text: str) -> list[str]:
    """The types of generators that are sent something, as they are written."""
    if "Generator" not in text:
        return []
    subscripts = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Subscript)]
    return [
        ast.unparse(node)
        for node in subscripts
        if isinstance(node.slice, ast.Tuple)
        and len(node.slice.elts) == 3
        and ast.unparse(node.value).endswith("Generator")
        and ast.unparse(node.slice.elts[1]) != "None"
    ]


def test_step_machines_are_typed_by_one_alias() -> None:
    root = Path(kscale.__file__).parent
    result = {str(path.relative_to(root)): generators(path.read_text()) for path in root.rglob("*.py")}
    assert {path: types for path, types in result.items() if types} == {"effects/actions.py": ["Generator[_A, _O, _T]"]}


def test_generators_are_found() -> None:
    assert generators("a: Generator[A, B, None]\nb: Generator[A, None, None]\nc: AsyncGenerator[A, B]") == [
        "Generator[A, B, None]"
    ]


def test_cached_wheel_is_rebuilt_when_its_sources_change() -> None:
    """What CMake installs of the checkout is in it: an example that was changed stayed as it was in every session."""
    root = Path(__file__).parents[2]
    (names,) = re.findall(r"digest_of\(\*map\(Path, \((.*?)\)\)\)", (root / "noxfile.py").read_text())
    installed = re.findall(r"^install\(DIRECTORY (\w+)/", (root / "CMakeLists.txt").read_text(), re.MULTILINE)
    assert {*installed, "src", "pyproject.toml", "CMakeLists.txt"} <= set(re.findall(r'"(.*?)"', names))


def test_sdist_contains_the_wheel_tests() -> None:
    """cibuildwheel builds of an sdist, and finds its tests there: recorded answers were left out of it."""
    root = Path(__file__).parents[2]
    tool = tomllib.loads((root / "pyproject.toml").read_text())["tool"]
    how = tool["cibuildwheel"]
    commands = [each["test-command"] for each in (how, *how["overrides"])]
    tried = {word for command in commands for word in command.split() if word.startswith("tests/")}
    assert {"tests/native", "tests/golden"} <= tried
    required = {*tried, *how["test-sources"]}
    assert [name for name in sorted(required) if not (root / name).exists()] == []
    left_out = tool["scikit-build"]["sdist"]["exclude"]
    assert [
        each
        for each in left_out
        for name in required
        if (f"{each}/".startswith(f"{name}/") and name != "tests") or f"{name}/".startswith(f"{each}/")
    ] == []


def test_every_library_has_its_extra() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert set(EXTRAS.values()) <= project["optional-dependencies"].keys()


@pytest.mark.parametrize("name", EXTRAS)
def test_a_library_that_is_not_there_is_refused_by_its_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=rf"^a test needs the extra \[{EXTRAS[name]}\]: pip install"):
        library(name, "a test")


def test_aiohttp_can_be_imported_without_the_authorities_of_the_system() -> None:
    pytest.importorskip("aiohttp")
    code = (
        "import os; os.environ['SSL_CERT_FILE'] = 'kept'\n"
        "from kscale.imports import import_aiohttp_without_authorities as load; load()\n"
        "from aiohttp import connector\n"
        "print(connector._SSL_CONTEXT_VERIFIED.cert_store_stats()['x509'], os.environ['SSL_CERT_FILE'])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["0", "kept"]


def test_a_lazy_pattern_is_compiled_when_it_is_first_used(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []

    def record(text: str, flags: int = 0) -> re.Pattern[str]:
        compiled.append(text)
        return compile_pattern(text, flags)

    compile_pattern = re.compile
    monkeypatch.setattr(re, "compile", record)
    pattern = lazy_pattern("a+", re.IGNORECASE)
    assert compiled == []
    assert pattern.fullmatch("AA") is not None
    assert pattern.fullmatch("b") is None
    assert compiled == ["a+"]


def test_option_groups_refuse_unknown_options() -> None:
    assert Dump(filename=["a.json"]).filename == ["a.json"]
    assert Dump().filename is not Dump().filename
    with pytest.raises(TypeError, match="Dump has no files"):
        Dump(files=["a.json"])
