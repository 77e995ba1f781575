"""The account of a program as ``kscale manifests`` prints it: with its ClusterRole and its Role, and no other."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from e2e.control_plane import ControlPlane
from kscale.world.kubernetes.kubeconfig import Access
from unit.cli.support import kscale

__all__ = ["installed"]


def installed(plane: ControlPlane, program: str, *flags: str, name: str = "", words: Sequence[str] = ()) -> Access:
    """Makes it, and a token of it. ``flags`` of ``kscale run PROGRAM``, ``words`` of ``kscale manifests PROGRAM``;
    ``name``: another than the account's own."""
    image = () if program == "reader" else ("--image", "example.org/kscale:1")
    result = kscale("manifests", program, *image, *words, *(f"--flag={flag}" for flag in flags))
    assert result.code == 0, result.stderr
    return plane.install([*yaml.safe_load_all(result.stdout)], name)
