"""What a check sees: the nodes with their pods in order, and what the informers hold."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

SUCCESS, ERROR, UNSCHEDULABLE, UNRESOLVABLE, SKIP = (
    "Success",
    "Error",
    "Unschedulable",
    "UnschedulableAndUnresolvable",
    "Skip",
)


@dataclass(frozen=True)
class Status:
    """A plug-in's verdict; None in its place is success."""

    code: str
    reasons: tuple[str, ...] = ()


def unschedulable(*reasons: str) -> Status:
    return Status(UNSCHEDULABLE, reasons)


def unresolvable(*reasons: str) -> Status:
    return Status(UNRESOLVABLE, reasons)


def error(text: str) -> Status:
    return Status(ERROR, (text,))


SKIPPED = Status(SKIP)


@dataclass
class PreFiltered:
    """What a PreFilter answers: a status, perhaps a set of node names, and what its Filter needs."""

    status: Status | None = None
    node_names: set[str] | None = None
    state: Any = None


@dataclass
class NodeState:
    """One node of the snapshot, with the pods placed on it in order."""

    node: Json
    pods: list[Json] = field(default_factory=list)
    csi_node: Json | None = None
    slices: list[Json] = field(default_factory=list)  # of a node that was simulated into the cluster

    @property
    def name(self) -> str:
        return self.node["metadata"]["name"]

    @property
    def labels(self) -> Json:
        return self.node["metadata"].get("labels") or {}

    def copy(self) -> NodeState:
        return NodeState(self.node, list(self.pods), self.csi_node, self.slices)


@dataclass
class Options:
    """The options of a recorded case, by their recorded names."""

    dra: bool = False
    csi: bool = False
    cursor: int = 0
    added_affinity: Json | None = None
    default_constraints: list[Json] = field(default_factory=list)
    ignored_resources: list[str] = field(default_factory=list)
    ignored_resource_groups: list[str] = field(default_factory=list)
    disabled_filters: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, raw: Json | None) -> Options:
        return cls(**(raw or {}))


class Cluster:
    """A snapshot: nodes in order, informer objects by kind and name, the cursor of the round-robin search."""

    def __init__(self, objects: list[Json], options: Json | None = None) -> None:
        self.options = Options.of(options)
        self.cursor = self.options.cursor
        self.objects: dict[str, dict[tuple[str, str], Json]] = {}
        self.nodes: list[NodeState] = []
        self.claims: dict[tuple[str, str], Json] = {}
        self.load(objects)

    def load(self, objects: list[Json]) -> None:
        """Replaces nodes and pods; other kinds are replaced only where they occur."""
        kinds = {entry["kind"] for entry in objects}
        for kind in kinds - {"Node", "Pod"}:
            self.objects[kind] = {}
        for entry in objects:
            if entry["kind"] not in ("Node", "Pod"):
                meta = entry["metadata"]
                self.objects[entry["kind"]][meta.get("namespace", ""), meta["name"]] = entry
        self.claims = {key: copy.deepcopy(claim) for key, claim in self.objects.get("ResourceClaim", {}).items()}
        self.nodes = []
        for entry in objects:
            if entry["kind"] == "Node":
                name = entry["metadata"]["name"]
                csi_node = self.get("CSINode", name) if self.options.csi else None
                self.nodes.append(NodeState(entry, csi_node=csi_node))
        for entry in objects:
            if entry["kind"] == "Pod":
                place = entry["spec"].get("nodeName") or (entry.get("status") or {}).get("nominatedNodeName")
                state = self.find(place or "")
                if state is not None:
                    state.pods.append(entry)

    def all(self, kind: str) -> list[Json]:
        return list(self.objects.get(kind, {}).values())

    def get(self, kind: str, name: str, namespace: str = "") -> Json | None:
        return self.objects.get(kind, {}).get((namespace, name))

    def find(self, name: str) -> NodeState | None:
        return next((state for state in self.nodes if state.name == name), None)

    def csi_node_of(self, state: NodeState) -> Json | None:
        """With the CSI-aware snapshot the node's own CSINode, else whatever the informer has under its name."""
        return state.csi_node if self.options.csi else self.get("CSINode", state.name)

    def fork(self) -> tuple[list[NodeState], dict[tuple[str, str], Json]]:
        """What `revert` needs to undo everything but the cursor."""
        saved = self.nodes, self.claims
        self.nodes, self.claims = [state.copy() for state in self.nodes], copy.deepcopy(self.claims)
        return saved

    def revert(self, saved: tuple[list[NodeState], dict[tuple[str, str], Json]]) -> None:
        self.nodes, self.claims = saved


def namespace_of(entry: Json) -> str:
    return entry["metadata"].get("namespace") or ""


def labels_of(entry: Json) -> Json:
    return entry["metadata"].get("labels") or {}
