"""VolumeBinding (6.9)."""

from __future__ import annotations

from dataclasses import dataclass

from reference.cluster import SKIPPED, Cluster, Json, NodeState, PreFiltered, Status, error, namespace_of, unresolvable
from reference.in_tree import as_csi
from reference.labels import label_selector, matches, node_selector_matches
from reference.resources import quantity
from reference.volumes import annotations, claim_names, claim_of, class_name, missing, not_owned

NAME = "VolumeBinding"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
NO_PROVISIONER = "kubernetes.io/no-provisioner"


@dataclass
class Claims:
    bound: list[Json]
    delayed: list[Json]


def is_bound(claim: Json) -> bool:
    return bool(claim["spec"].get("volumeName")) and BIND_COMPLETED in annotations(claim)


def pre_filter(pod: Json, cluster: Cluster) -> PreFiltered:
    names = list(claim_names(pod))
    if not names:
        return PreFiltered(SKIPPED)
    result = []
    for name, ephemeral in names:
        claim = claim_of(pod, name, cluster)
        if claim is None and ephemeral:
            text = f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
            return PreFiltered(unresolvable(text))
        if claim is None:
            return PreFiltered(unresolvable(missing("persistentvolumeclaim", name)))
        if (claim.get("status") or {}).get("phase") == "Lost":
            volume = claim["spec"].get("volumeName") or ""
            text = f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume}"'
            return PreFiltered(unresolvable(text))
        if claim["metadata"].get("deletionTimestamp"):
            return PreFiltered(unresolvable(f'persistentvolumeclaim "{name}" is being deleted'))
        if ephemeral and (problem := not_owned(pod, claim)):
            return PreFiltered(unresolvable(problem))
        result.append(claim)
    claims = Claims([], [])
    immediate = False
    for claim in result:
        if is_bound(claim):
            claims.bound.append(claim)
            continue
        storage_class = cluster.get("StorageClass", class_name(claim))
        if storage_class is not None and not storage_class.get("volumeBindingMode"):
            return PreFiltered(error(f'VolumeBindingMode not set for StorageClass "{class_name(claim)}"'))
        delayed = (storage_class or {}).get("volumeBindingMode") == "WaitForFirstConsumer"
        if delayed and not claim["spec"].get("volumeName"):
            claims.delayed.append(claim)
        else:
            immediate = True
    if immediate:
        return PreFiltered(unresolvable("pod has unbound immediate PersistentVolumeClaims"))
    return PreFiltered(state=claims)


def volume_fits_node(volume: Json, node: NodeState) -> bool:
    required = (volume["spec"].get("nodeAffinity") or {}).get("required")
    return required is None or node_selector_matches(required, node.labels, "")


def check(state: Claims, pod: Json, node: NodeState, cluster: Cluster) -> Status | None:
    reasons = []
    bound = check_bound(state.bound, node, cluster)
    if bound not in (None, "affinity", "gone"):
        return error(str(bound))
    if bound == "affinity":
        reasons.append("node(s) didn't match PersistentVolume's node affinity")
    reasons += check_delayed(state.delayed, pod, node, cluster)
    if bound == "gone":
        reasons.append("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)")
    return unresolvable(*reasons) if reasons else None


def check_bound(claims: list[Json], node: NodeState, cluster: Cluster) -> str | None:
    """What is wrong with the first bound claim that has something wrong."""
    for claim in claims:
        volume = cluster.get("PersistentVolume", claim["spec"]["volumeName"])
        if volume is None:
            return "gone"
        csi_volume = as_csi(volume, cluster.csi_node_of(node))
        if isinstance(csi_volume, str):
            return csi_volume
        if not volume_fits_node(csi_volume, node):
            return "affinity"
    return None


def check_delayed(claims: list[Json], pod: Json, node: NodeState, cluster: Cluster) -> list[str]:
    result = delayed(claims, node, cluster)
    return [result] if isinstance(result, str) else []


def delayed(
    claims: list[Json], node: NodeState, cluster: Cluster
) -> tuple[list[tuple[Json, Json]], list[tuple[Json, Json | None]]] | str:
    """(claims and volumes that are there for them, claims that get a new one and the capacity it comes of), or why not
    all get one."""
    no_volume = "node(s) didn't find available persistent volumes to bind"
    to_provision = []
    to_match = []
    for claim in claims:
        selected = annotations(claim).get(SELECTED_NODE)
        if selected is None:
            to_match.append(claim)
        elif selected != node.name:
            return no_volume
        else:
            to_provision.append(claim)
    chosen: set[str] = set()
    bindings, provisions = [], []
    for claim in sorted(to_match, key=lambda each: request(each)):
        volume = best_volume(claim, node, cluster, chosen)
        if volume is None:
            to_provision.append(claim)
        else:
            chosen.add(volume["metadata"]["name"])
            bindings.append((claim, volume))
    for claim in to_provision:
        storage_class = cluster.get("StorageClass", class_name(claim)) or {}
        if storage_class.get("provisioner") in (None, "", NO_PROVISIONER):
            return no_volume
        if not topology_allows(storage_class.get("allowedTopologies"), node):
            return no_volume
        if not publishes_capacity(claim, storage_class, cluster):
            provisions.append((claim, None))
            continue
        capacity = sufficient_capacity(claim, storage_class, node, cluster)
        if capacity is None:
            return "node(s) did not have enough free storage"
        provisions.append((claim, capacity))
    return bindings, provisions


def request(claim: Json) -> int:
    return quantity(((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage")).nano()


def best_volume(claim: Json, node: NodeState, cluster: Cluster, chosen: set[str]) -> Json | None:
    """The volume bound to this claim in advance, else the smallest one that is free, large enough and reachable."""
    selector = claim["spec"].get("selector")
    requirements = label_selector(selector) if selector is not None else []
    best: Json | None = None
    for volume in cluster.all("PersistentVolume"):
        spec = volume["spec"]
        if class_name(volume) != class_name(claim) or volume["metadata"]["name"] in chosen:
            continue
        if capacity(volume) < request(claim):
            continue
        if (spec.get("volumeMode") or "Filesystem") != (claim["spec"].get("volumeMode") or "Filesystem"):
            continue
        if (spec.get("volumeAttributesClassName") or "") != (claim["spec"].get("volumeAttributesClassName") or ""):
            continue
        if volume["metadata"].get("deletionTimestamp"):
            continue
        holder = spec.get("claimRef")
        if holder is not None:
            same = (holder.get("namespace"), holder.get("name")) == (namespace_of(claim), claim["metadata"]["name"])
            if same and (holder.get("uid") or "") in ("", claim["metadata"].get("uid") or ""):
                return volume if volume_fits_node(volume, node) else None
            continue
        if (volume.get("status") or {}).get("phase") != "Available":
            continue
        if not volume_fits_node(volume, node) or not matches(requirements, volume["metadata"].get("labels")):
            continue
        if not set(claim["spec"].get("accessModes") or []) <= set(spec.get("accessModes") or []):
            continue
        if best is None or capacity(volume) < capacity(best):
            best = volume
    return best


def capacity(volume: Json) -> int:
    return quantity((volume["spec"].get("capacity") or {}).get("storage")).nano()


def topology_allows(terms: list[Json] | None, node: NodeState) -> bool:
    if not terms:
        return True
    for term in terms:
        expressions = term.get("matchLabelExpressions") or []
        if expressions and all(node.labels.get(each["key"]) in each["values"] for each in expressions):
            return True
    return False


def publishes_capacity(claim: Json, storage_class: Json, cluster: Cluster) -> bool:
    driver = cluster.get("CSIDriver", storage_class["provisioner"])
    if driver is None or not (driver.get("spec") or {}).get("storageCapacity"):
        return False
    return ((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage") is not None


def sufficient_capacity(claim: Json, storage_class: Json, node: NodeState, cluster: Cluster) -> Json | None:
    size = claim["spec"]["resources"]["requests"]["storage"]
    for entry in cluster.all("CSIStorageCapacity"):
        if entry.get("storageClassName") != storage_class["metadata"]["name"]:
            continue
        room = entry.get("maximumVolumeSize", entry.get("capacity"))
        topology = entry.get("nodeTopology")
        if room is None or topology is None or not matches(label_selector(topology), node.labels):
            continue
        if quantity(room).value() >= quantity(size).value():
            return entry
    return None
