"""Print pytest's arguments for the tests that a change needs (``nox -s test -- --changed``).

    python .ci/changed.py [--since REF] [--into PACKAGE]

``--into`` also copies the Python files of kscale into an installed package with the same kernels.

The change is what differs from a commit (default: HEAD), and the files that git does not track yet. A changed module
of kscale has its ten nearest files of tests, in the order of ``mutants.py``: by names in common, and by how many
imports lead from the test to the module. All tests still have to pass before a change is merged.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from mutants import NEAREST, Choice

ROOT = Path(__file__).parents[1]
PYTHON = (".py", ".pyi", ".css", ".csv", ".js", ".txt", ".typed", ".yaml")
"""What a package contains beside compiled modules."""
KERNELS = ("src/kscale/_native/src/", "src/kscale/_native/include/")


def changed_files(tree: Path, since: str) -> list[str]:
    """Return the files that differ from a commit, and the untracked ones, as paths below the tree."""
    files: set[str] = set()
    for command in (
        ["diff", "--name-only", "--no-renames", "-z", since],
        ["ls-files", "--others", "--exclude-standard", "-z"],
    ):
        output = subprocess.run(["git", *command], cwd=tree, capture_output=True, check=True, text=True).stdout
        files.update(filter(None, output.split("\0")))
    return sorted(files)


def tests_of(file: str, choice: Choice, tree: Path) -> list[str]:
    """Return the tests of one changed file: paths, and kinds of golden answers as ``--golden-kind=KIND``."""
    path = PurePosixPath(file)
    if file.startswith(KERNELS):
        return ["tests/native", *sorted(str(kernel.relative_to(tree)) for kernel in tree.glob("tests/**/*_kernel.py"))]
    if path.is_relative_to("src/kscale") and path.suffix in (".py", ".pyx", ".pyi", ".pxd"):
        return choice.tests(str(path.relative_to("src/kscale").with_suffix(".py")))[:NEAREST]
    if path.is_relative_to("tests/golden/vectors"):
        return [f"--golden-kind={path.name.removesuffix('.jsonl.gz')}"]
    if path.is_relative_to("tests") and path.suffix == ".py":
        return choice.importers(".".join(path.relative_to("tests").with_suffix("").parts).removesuffix(".__init__"))
    tests = choice.naming(path.name)
    if path.suffix == ".md" and (tree / file).exists() and "```python" in (tree / file).read_text():
        tests.append(f"tests/unit/test_docs.py::test_examples[{file}]")
    return tests


def arguments(tests: Iterable[str], tree: Path) -> list[str]:
    """Return pytest's arguments: each file once, without files that were deleted."""
    unique = list(dict.fromkeys(tests))
    kinds = [test for test in unique if test.startswith("--golden-kind=")]
    paths = [test for test in unique if test not in kinds and (tree / test.partition("::")[0]).exists()]
    covered = [path for path in paths if path.partition("::")[0] not in paths or "::" not in path]
    return [*covered, *(["tests/golden", *kinds] if kinds else [])]


def copy_sources(tree: Path, package: Path) -> None:
    """Make the files of an installed package those of the tree, except for compiled modules and bundled examples."""

    def files_of(folder: Path) -> dict[str, Path]:
        paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
        return {
            name: path for name, path in paths.items() if name.endswith(PYTHON) and not name.startswith("examples/")
        }

    installed = files_of(package)
    for name, source in files_of(tree / "src/kscale").items():
        target = installed.pop(name, package / name)
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    for target in installed.values():
        target.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--since", metavar="REF", default="HEAD", help="compare with this commit instead of HEAD")
    parser.add_argument("--into", metavar="PACKAGE", type=Path, help="copy the Python files into this package first")
    options = parser.parse_args()
    if options.into is not None:
        copy_sources(ROOT, options.into)
    files = changed_files(ROOT, options.since)
    choice = Choice(ROOT)
    tests = [test for file in files for test in tests_of(file, choice, ROOT)]
    sys.stdout.write("\n".join(arguments(tests, ROOT)))


if __name__ == "__main__":
    main()
