"""The archive and the manifest by which krew installs ``kubectl kscale`` (``nox -s krew``).

    python .ci/krew.py --homepage URL --uri URL WHEEL...

``WHEEL``: of one version, each for another Python. ``--uri``: where the archive will be fetched from. Both files go to
``dist/krew``. The archive has what ``pip install`` makes of each wheel with its command line, and a launcher.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "packaging" / "krew"
LAUNCHER = "kubectl-kscale"


def install(wheel: Path, minor: str, folder: Path) -> None:
    """Puts a wheel, its command line and what these need into a folder, for ``minor`` (``3.12``)."""
    target = ["--target", str(folder), "--python-version", minor, "--only-binary=:all:"]
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *target, f"{wheel}[cli]"], check=True)


def minor_of(wheel: Path) -> str:
    """``3.12`` of a wheel with the tags ``cp312-cp312``. Raises ValueError for others: one of free threads (``cp314t``)
    does not run on the Python that the launcher finds."""
    python, abi, _ = wheel.stem.split("-")[-3:]
    if python != abi or not re.fullmatch(r"cp3\d+", python):
        raise ValueError(f"{wheel.name}: not for an ordinary CPython")
    return f"{python[2]}.{python[3:]}"


def semantic(version: str) -> str:
    """A version as krew asks for it: ``0.2.0-rc.1`` of ``0.2.0rc1``. Raises ValueError for one that has no such form:
    ``dev`` and ``post`` would be ordered otherwise."""
    match = re.fullmatch(r"(\d+\.\d+\.\d+)(?:(a|b|rc)(\d+))?", version)
    if match is None:
        raise ValueError(f"{version}: not a version that krew can order")
    return f"{match[1]}-{match[2]}.{match[3]}" if match[2] else match[1]


def pack(libraries: Mapping[str, Path], archive: Path) -> str:
    """Writes the archive: ``libraries`` by Python (``3.12``). Returns its SHA-256."""
    with tarfile.open(archive, "w:gz") as out:
        out.add(SOURCES / LAUNCHER, LAUNCHER)
        out.add(ROOT / "LICENSE", "LICENSE")
        for minor, folder in libraries.items():
            out.add(folder, f"lib/python{minor}")
    return hashlib.sha256(archive.read_bytes()).hexdigest()


def manifest(version: str, homepage: str, uri: str, sha256: str, pythons: Sequence[str]) -> str:
    """The manifest with everything filled in."""
    text = Template((SOURCES / "kscale.yaml").read_text()).substitute(
        version=semantic(version), homepage=homepage, uri=uri, sha256=sha256, pythons=", ".join(pythons)
    )
    return text[text.index("apiVersion:") :]  # the words before it are about the template


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--homepage", required=True)
    parser.add_argument("--uri", required=True)
    parser.add_argument("wheels", nargs="+", type=Path, metavar="WHEEL")
    given = parser.parse_args()
    versions = {wheel.stem.split("-")[1] for wheel in given.wheels}
    if len(versions) != 1:
        parser.error(f"wheels of several versions: {', '.join(sorted(versions))}")
    version = versions.pop()
    try:
        semantic(version)
        wheels = {minor_of(wheel): wheel for wheel in sorted(given.wheels)}
    except ValueError as error:
        parser.error(str(error))
    if len(wheels) != len(given.wheels):
        parser.error("two wheels are for the same Python")
    out = ROOT / "dist" / "krew"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as room:
        for minor, wheel in wheels.items():
            install(wheel, minor, Path(room, minor))
        sha256 = pack({minor: Path(room, minor) for minor in wheels}, out / f"{LAUNCHER}-linux-amd64.tar.gz")
    made = manifest(version, given.homepage, given.uri, sha256, list(wheels))
    (out / "kscale.yaml").write_text(made)


if __name__ == "__main__":
    main()
