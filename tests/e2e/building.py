"""Builds the control plane (Go), once for each state of its sources, outside of the tree."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

__all__ = ["BuildError", "control_plane"]

SOURCES = Path(__file__).with_name("controlplane")
_FLAGS = ("-buildvcs=false",)


class BuildError(RuntimeError):
    """There is no Go, or it does not build."""


def control_plane() -> Path:
    """The program. Built if it is not there: that takes minutes the first time."""
    go = shutil.which("go")
    if go is None:
        raise BuildError("the end-to-end tests need Go on the path: they build a control plane")
    version = subprocess.run([go, "version"], capture_output=True, text=True, check=True, cwd=SOURCES).stdout
    digest = hashlib.sha256(version.encode())
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.read_bytes())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kscale"
    cache.mkdir(parents=True, exist_ok=True)
    program = cache / f"controlplane-{digest.hexdigest()[:16]}"
    with (cache / "controlplane.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            _build(go, program)
    return program


def _build(go: str, program: Path) -> None:
    found = re.search(r"k8s\.io/kubernetes v(\d+)\.(\d+)\.(\d+)", (SOURCES / "go.mod").read_text())
    assert found is not None
    major, minor, _ = found.groups()
    version = "v" + ".".join(found.groups())
    said = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    settings = " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in said.items())
    new = program.with_suffix(".new")
    command = [go, "build", *_FLAGS, "-ldflags", f"-s -w {settings}", "-o", str(new), "."]
    result = subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, check=False)
    if result.returncode:
        raise BuildError(f"{' '.join(command)}\n{result.stderr}")
    new.rename(program)
