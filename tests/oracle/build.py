"""Finds the versions that the oracle can be built for, and builds it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from go_programs import BuildError, build_program, required_version

__all__ = ["KARPENTER", "KUBERNETES", "VPA", "build_programs", "default_version", "upstream_of", "versions"]

HERE = Path(__file__).parent
KUBERNETES = HERE / "kubernetes"
VPA = HERE / "vpa"
KARPENTER = HERE / "karpenter"
HARNESS = HERE / "harness"
"""The Go module that the programs share."""
_MODULE = "k8s.io/kubernetes"
_VPA_MODULE = "k8s.io/autoscaler/vertical-pod-autoscaler"
_KARPENTER_MODULE = "sigs.k8s.io/karpenter"


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
    name, tag = f"oracle-kubernetes-{version}", f"-tags=kubernetes{minor}"
    return build_program(KUBERNETES, name, modfile=other, flags=[tag], modules=[HARNESS])


def build_vpa() -> Path:
    """Return the program that links the Vertical Pod Autoscaler."""
    return build_program(VPA, "oracle-vpa", modules=[HARNESS])


def build_karpenter() -> Path:
    """Return the program that links Karpenter."""
    return build_program(KARPENTER, "oracle-karpenter", modules=[HARNESS])


def build_programs(names: Collection[str], version: str = "") -> dict[str, Path]:
    """Return the oracle programs ``kubernetes``, ``vpa`` and ``karpenter``, built if they are not there."""
    builders = {"kubernetes": lambda: build_kubernetes(version), "vpa": build_vpa, "karpenter": build_karpenter}
    return {name: builders[name]() for name in sorted(names)}


def upstream_of(program: str, version: str = "") -> str:
    """Return what an oracle program links, as recorded answers name it."""
    if program == "kubernetes":
        return f"kubernetes {version or default_version()}"
    if program == "karpenter":
        return f"karpenter {required_version(KARPENTER / 'go.mod', _KARPENTER_MODULE)}"
    return f"vertical-pod-autoscaler {required_version(VPA / 'go.mod', _VPA_MODULE)}"
