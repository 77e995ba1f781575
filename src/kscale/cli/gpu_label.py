"""The option that says by which node label types of GPUs go."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import typer

from kscale.cli.options import OptionGroup
from kscale.cli.terminal import Terminal
from kscale.objects.core import Node
from kscale.objects.nodegroup import NodeGroup

__all__ = ["GpuLabel"]


@dataclass
class GpuLabel(OptionGroup):
    """The option; without it the label of a cloud, if nodes or groups carry one."""

    gpu_label: Annotated[
        str | None,
        typer.Option(
            "--gpu-label",
            metavar="KEY",
            help="The node label that names the type of GPU. Default: that of GKE, EKS, AKS or Cluster API, if "
            "the nodes have one.",
        ),
    ] = None

    def key(self, nodes: Iterable[Node], groups: Iterable[NodeGroup], terminal: Terminal) -> str:
        """The label."""
        from kscale.ca.gpu import DEFAULT_GPU_LABEL, recognised_gpu_labels

        if self.gpu_label:
            return self.gpu_label
        labels = [node.metadata.labels or {} for node in nodes]
        for group in groups:
            labels.append(group.labels or {})
            if group.template is not None:
                labels.append(group.template.node.metadata.labels or {})
        found = recognised_gpu_labels(labels)
        if len(found) == 1:
            terminal.note(f"types of GPUs by the label {found[0]} (--gpu-label)")
            return found[0]
        if found:
            terminal.warn(f"nodes have labels of several clouds for GPUs: {', '.join(found)}; say which (--gpu-label)")
        return DEFAULT_GPU_LABEL
