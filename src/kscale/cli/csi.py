"""The option for a CSI-node-aware simulation, under the name of the Cluster Autoscaler's flag."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from kscale.cli.options import OptionGroup

if TYPE_CHECKING:
    from kscale.snapshot.snapshot import Snapshot

__all__ = ["CSIOption"]


@dataclass(eq=False, repr=False)
class CSIOption(OptionGroup):
    """Whether new nodes have the CSINode of their template: its drivers, and how many volumes each takes."""

    enable_csi_node_aware_scheduling: Annotated[
        bool,
        typer.Option(
            "--enable-csi-node-aware-scheduling",
            help="Judge new nodes by the CSINode of their template (drivers, attach limits), as the Cluster Autoscaler "
            "with this flag. Every node needs a CSINode then.",
        ),
    ] = False

    def applied(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot as the option asks for it. Raises AutoscalerError for a node without CSINode."""
        if not self.enable_csi_node_aware_scheduling:
            return snapshot
        from kscale.ca.simulated import check_csi_nodes

        aware = snapshot.csi_aware()
        check_csi_nodes(aware)
        return aware

    def words(self) -> list[str]:
        """The option as it would be typed again."""
        return ["--enable-csi-node-aware-scheduling"] if self.enable_csi_node_aware_scheduling else []
