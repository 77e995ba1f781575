"""Builds Go programs of the tests, once for each state of their sources, outside of the tree."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

__all__ = ["BuildError", "build_program", "required_version"]


class BuildError(RuntimeError):
    """Go is missing, or a program does not build."""


def build_program(sources: Path, name: str, *, modfile: Path | None = None, flags: Sequence[str] = ()) -> Path:
    """Return the path of a program, building it unless it was built from the same sources before.

    The first build takes minutes. Programs are cached below ``$XDG_CACHE_HOME/kscale``.

    Parameters
    ----------
    sources
        Folder of a ``main`` package with its ``go.mod``.
    name
        Name of the program.
    modfile
        Module file used instead of ``go.mod``; its ``.sum`` file stands beside it.
    flags
        Further flags of ``go build``.

    Raises
    ------
    BuildError
        If Go is not on the path, or the build fails; the message holds the compiler's output.
    """
    go = shutil.which("go")
    if go is None:
        raise BuildError(f"Go is not on the path: {name} is built from source")
    modules = modfile or sources / "go.mod"
    version = subprocess.run([go, "version"], capture_output=True, text=True, check=True, cwd=sources).stdout
    digest = hashlib.sha256(f"{version}{flags}".encode())
    for path in [*sorted(sources.glob("*.go")), modules, modules.with_suffix(".sum")]:
        digest.update(path.read_bytes())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kscale"
    cache.mkdir(parents=True, exist_ok=True)
    program = cache / f"{name}-{digest.hexdigest()[:16]}"
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            new = program.with_suffix(".new")
            command = [go, "build", "-buildvcs=false", *flags, "-o", str(new), "."]
            if modfile is not None:
                command[2:2] = [f"-modfile={modfile}"]
            result = subprocess.run(command, cwd=sources, capture_output=True, text=True, check=False)
            if result.returncode:
                raise BuildError(f"{' '.join(command)}\n{result.stderr}")
            new.rename(program)
    return program


def required_version(modfile: Path, module: str) -> str:
    """Return the version of a module that a module file requires, such as ``v1.37.2``."""
    match = re.search(rf"^\s*(?:require\s+)?{re.escape(module)} (v\S+)", modfile.read_text(), re.MULTILINE)
    if match is None:
        raise BuildError(f"{modfile} does not require {module}")
    return match[1]
