"""The build backend: scikit-build-core's, with C++ in the sdist in place of Cython.

An sdist carries what Cython makes of the bindings (``src/kscale/_native/generated``), so that who builds from it needs
a C++ compiler only; a checkout does not, and needs Cython. CMake takes what is there.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from scikit_build_core import build as backend
from scikit_build_core.build import (
    build_editable,
    build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

ROOT = Path(__file__).parents[1]
NATIVE = ROOT / "src" / "kscale" / "_native"
GENERATED = NATIVE / "generated"

Settings = dict[str, Any] | None


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    return [*backend.get_requires_for_build_wheel(config_settings), *_cython()]


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    return [*backend.get_requires_for_build_editable(config_settings), *_cython()]


def get_requires_for_build_sdist(config_settings: Settings = None) -> list[str]:
    return [*backend.get_requires_for_build_sdist(config_settings), *_cython()]


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """An sdist with the generated sources; the checkout is left as it was."""
    made = not GENERATED.exists()
    if made:
        GENERATED.mkdir()
    try:
        if made:
            _generate()
        return backend.build_sdist(sdist_directory, config_settings)
    finally:
        if made:
            shutil.rmtree(GENERATED)


def _cython() -> list[str]:
    """What turns the bindings into C++, where that is not done yet."""
    if GENERATED.exists():
        return []
    with (ROOT / "pyproject.toml").open("rb") as file:
        groups = tomllib.load(file)["dependency-groups"]
    return [line for line in groups["build"] if line.startswith("cython")]


def _generate() -> None:
    """Translate in a temporary folder: Cython writes the path of a source below the current folder into the C++. A
    build environment may lie there, and two sdists would differ."""
    with TemporaryDirectory() as folder:
        package = Path(folder, NATIVE.relative_to(ROOT / "src"))
        package.mkdir(parents=True)
        for source in [NATIVE.parent / "__init__.py", *NATIVE.glob("*.p[yx]*")]:
            shutil.copy(source, Path(folder, source.relative_to(ROOT / "src")))
        transpile = Path(__file__).with_name("transpile.py")
        subprocess.run([sys.executable, str(transpile), str(GENERATED)], check=True, cwd=folder)
