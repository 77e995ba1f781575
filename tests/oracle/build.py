"""Finds the versions that the oracle can be built for, and builds it."""

from __future__ import annotations

from pathlib import Path

from go_programs import BuildError, build_program, required_version

__all__ = ["KUBERNETES", "VPA", "build_kubernetes", "build_vpa", "default_version", "versions"]

HERE = Path(__file__).parent
KUBERNETES = HERE / "kubernetes"
VPA = HERE / "vpa"
_MODULE = "k8s.io/kubernetes"


def default_version() -> str:
    """Return the Kubernetes version of ``kubernetes/go.mod``."""
    return required_version(KUBERNETES / "go.mod", _MODULE)


def versions() -> dict[str, Path]:
    """Return the module file of every Kubernetes version that the oracle can be built for."""
    files = [KUBERNETES / "go.mod", *sorted((KUBERNETES / "minors").glob("*.mod"))]
    return {required_version(file, _MODULE): file for file in files}


def build_kubernetes(version: str = "") -> Path:
    """Return the program that links k8s.io/kubernetes of a version (default: that of ``go.mod``).

    Build tags say which minor version it is, such as ``kubernetes1.34``, where an API differs.
    """
    version = version or default_version()
    known = versions()
    if version not in known:
        raise BuildError(f"no module file for Kubernetes {version}; there are {', '.join(sorted(known))}")
    minor = version.removeprefix("v").rpartition(".")[0]
    modfile = known[version]
    other = None if modfile.name == "go.mod" else modfile
    return build_program(KUBERNETES, f"oracle-kubernetes-{version}", modfile=other, flags=[f"-tags=kubernetes{minor}"])


def build_vpa() -> Path:
    """Return the program that links the Vertical Pod Autoscaler."""
    return build_program(VPA, "oracle-vpa")
