"""Builds the control plane (Go), once for each state of its sources, outside of the tree."""

from __future__ import annotations

from pathlib import Path

from go_programs import BuildError, build_program, required_version

__all__ = ["BuildError", "control_plane"]

SOURCES = Path(__file__).with_name("controlplane")


def control_plane() -> Path:
    """The program. Built if it is not there: that takes minutes the first time."""
    version = required_version(SOURCES / "go.mod", "k8s.io/kubernetes")
    major, minor, _ = version.removeprefix("v").split(".")
    version_fields = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    settings = " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in version_fields.items())
    return build_program(SOURCES, "controlplane", flags=["-ldflags", f"-s -w {settings}"])
