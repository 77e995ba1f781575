"""NodeDeclaredFeatures (6.14)."""

from __future__ import annotations

from reference.cluster import SKIPPED, Cluster, Json, NodeState, PreFiltered, Status, unresolvable

NAME = "NodeDeclaredFeatures"


def inferred(pod: Json) -> set[str]:
    """The node features that a pod's spec needs."""
    spec = pod["spec"]
    regular = (spec.get("containers") or []) + (spec.get("initContainers") or [])
    features = set()
    for container in regular:
        for rule in container.get("restartPolicyRules") or []:
            if rule.get("action") == "RestartAllContainers":
                features.add("RestartAllContainersOnContainerExits")
    if spec.get("hostNetwork") and spec.get("hostUsers") is False:
        features.add("UserNamespacesHostNetworkSupport")
    for container in regular + (spec.get("ephemeralContainers") or []):
        if any(mount.get("bindMountOptions") for mount in container.get("volumeMounts") or []):
            features.add("VolumeBindMountOptions")
    return features


def pre_filter(pod: Json, cluster: Cluster) -> PreFiltered:
    features = inferred(pod)
    return PreFiltered(state=features) if features else PreFiltered(SKIPPED)


def check(state: set[str], pod: Json, node: NodeState, cluster: Cluster) -> Status | None:
    declared = (node.node.get("status") or {}).get("declaredFeatures") or []
    if state <= set(declared):
        return None
    return unresolvable("node(s) didn't match Pod's required features")
