"""A profile applied to a snapshot: what plug-ins look things up in. It knows no plug-in."""

from __future__ import annotations

from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.storage import CSINode
from kscale.scheduling.facts import HOSTNAME, NodeFacts
from kscale.scheduling.profile import SchedulerProfile
from kscale.snapshot.informers import Informers
from kscale.snapshot.memo import Memo
from kscale.snapshot.snapshot import Snapshot

__all__ = ["Context"]


class Context:
    """``memo``: what plug-ins worked out of this context; ``snapshot.memo`` has what depends on nothing but the
    snapshot."""

    def __init__(self, snapshot: Snapshot, profile: SchedulerProfile) -> None:
        self.snapshot = snapshot
        self.profile = profile
        self.informers: Informers = snapshot.informers
        self.dra = snapshot.dra
        self.csi = snapshot.csi
        self.now = snapshot.now
        self.memo = Memo()

    def csi_node(self, name: str) -> CSINode | None:
        """The CSINode of an existing node."""
        return self.informers.csi_nodes.get(name)

    def node(self, n: int) -> NodeFacts:
        """The facts of an existing node by number."""
        node = self.snapshot.columns.objects[n]
        return NodeFacts.of(node, self.csi_node(node.metadata.name))

    def copy_facts(self, template: NodeTemplate, name: str) -> NodeFacts:
        """The facts of a copy of a template under this name."""
        facts = NodeFacts.of(template.node, template.csi_node if self.csi else None)
        facts.name = name
        facts.labels = {**facts.labels, HOSTNAME: name}
        return facts

    def namespace_labels(self, namespace: str) -> dict[str, str]:
        """Labels of a namespace; one without object has none."""
        return self.informers.namespaces.get(namespace) or {}
