"""Translate the bindings to C++ in one process: ``python transpile.py OUTPUT``.

Start it in the folder that contains the package ``kscale``; the C++ names its sources relative to that folder.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path

PACKAGE = "kscale._native"
SHARED = "_cyutility"  # memoryview support, compiled once for all bindings


def main(output: Path) -> None:
    """Translate the bindings that are older than their sources. Exits with status 1 if one has an error."""
    from Cython.Compiler.Main import main as cython

    def translate(target: Path, sources: list[Path], *options: str) -> None:
        if not target.exists() or target.stat().st_mtime < max(path.stat().st_mtime for path in sources):
            sys.argv[1:] = ["--cplus", *options]
            cython(command_line=1)

    folder = Path(*PACKAGE.split("."))
    output.mkdir(parents=True, exist_ok=True)
    script = Path(__file__)
    shared = output / f"{SHARED}.cxx"
    translate(shared, [script], f"--generate-shared={shared}")
    declarations = [script, *folder.glob("*.px[di]")]
    for source in sorted(folder.glob("*.pyx")):
        target = output / f"{source.stem}.cxx"
        module = f"{PACKAGE}.{source.stem}"
        options = ["-3", "--module-name", module, f"--shared={PACKAGE}.{SHARED}", "-o", str(target), str(source)]
        translate(target, [source, *declarations], *options)


if __name__ == "__main__":
    gc.disable()  # Cython keeps its trees until the end: searching them for garbage takes a quarter of the time
    main(Path(sys.argv[1]).resolve())
