"""Which pods count as the same: equivalence groups and the similar-pods cache (cluster-autoscaler-scale-up 5.7, 6)."""

from __future__ import annotations

import copy
from typing import Any

from reference.resources import quantity

Json = dict[str, Any]
MOST_SHAPES = 10

QUANTITY_MAPS = ("requests", "limits", "overhead")
MAPS = ("nodeSelector", "matchLabels", "labels", "annotations", *QUANTITY_MAPS)
# Fields that are pointers in Go: their zero value is not the same as their absence.
POINTERS = frozenset(
    {
        "activeDeadlineSeconds",
        "allowPrivilegeEscalation",
        "automountServiceAccountToken",
        "controller",
        "defaultMode",
        "enableServiceLinks",
        "fsGroup",
        "hostUsers",
        "minDomains",
        "mode",
        "nodeAffinityPolicy",
        "nodeTaintsPolicy",
        "optional",
        "preemptionPolicy",
        "priority",
        "privileged",
        "procMount",
        "readOnlyRootFilesystem",
        "runAsGroup",
        "runAsNonRoot",
        "runAsUser",
        "runtimeClassName",
        "setHostnameAsFQDN",
        "shareProcessNamespace",
        "storageClassName",
        "terminationGracePeriodSeconds",
        "tolerationSeconds",
        "volumeMode",
    }
)


def controller_of(pod: Json) -> Json | None:
    for owner in pod["metadata"].get("ownerReferences") or []:
        if owner.get("controller"):
            return owner
    return None


def is_daemon_set_pod(pod: Json) -> bool:
    owner = controller_of(pod)
    if owner is not None and owner.get("kind") == "DaemonSet":
        return True
    return (pod["metadata"].get("annotations") or {}).get("cluster-autoscaler.kubernetes.io/daemonset-pod") == "true"


def plain(value: Any, key: str = "", *, in_container: bool = False) -> Any:
    """A spec without what semantic equality does not see: nil against empty, zero values, how a quantity is written."""
    if isinstance(value, dict):
        result = {}
        for name, item in value.items():
            if key in QUANTITY_MAPS:
                result[name] = quantity(item).nano()
                continue
            inside = in_container or name in ("containers", "initContainers", "ephemeralContainers")
            item = quantity(item).nano() if name == "sizeLimit" else plain(item, name, in_container=inside)
            if item is None or item == []:
                continue
            if item == {} and (name in MAPS or (name == "resources" and in_container)):
                continue
            is_zero = item in ("", 0) and not isinstance(item, dict | list)
            if is_zero and key not in MAPS and name not in POINTERS:
                continue
            result[name] = item
        return result
    if isinstance(value, list):
        return [plain(item, in_container=in_container) for item in value]
    return value


def comparable_spec(pod: Json) -> Any:
    """The spec without projected volumes and their mounts, host name and environment."""
    spec = copy.deepcopy(pod["spec"])
    volumes = spec.get("volumes") or []
    projected = {volume["name"] for volume in volumes if volume.get("projected") is not None}
    spec["volumes"] = [volume for volume in volumes if volume["name"] not in projected]
    spec.pop("hostname", None)
    for container in (spec.get("containers") or []) + (spec.get("initContainers") or []):
        container.pop("env", None)
        mounts = container.get("volumeMounts") or []
        container["volumeMounts"] = [mount for mount in mounts if mount.get("name") not in projected]
    return plain(spec)


def same_shape(first: Json, second: Json) -> bool:
    """Labels exactly (absent is not empty), specs semantically."""
    if first["metadata"].get("labels") != second["metadata"].get("labels"):
        return False
    return comparable_spec(first) == comparable_spec(second)


def groups(pods: list[Json]) -> list[list[Json]]:
    """Pods of one controller and one shape, in order of appearance; ten shapes a controller are remembered."""
    result: list[list[Json]] = []
    recorded: dict[str, list[list[Json]]] = {}
    for pod in pods:
        owner = controller_of(pod)
        if owner is None or is_daemon_set_pod(pod):
            result.append([pod])
            continue
        shapes = recorded.setdefault(owner.get("uid") or "", [])
        for shape in shapes:
            if same_shape(shape[0], pod):
                shape.append(pod)
                break
        else:
            group = [pod]
            result.append(group)
            if len(shapes) < MOST_SHAPES:
                shapes.append(group)
    return result


class SimilarPods:
    """Shapes that failed already within one call."""

    def __init__(self) -> None:
        self.failed: dict[str, list[Json]] = {}
        self.overflowing: set[str] = set()

    def is_unschedulable(self, pod: Json) -> bool:
        owner = controller_of(pod)
        if owner is None:
            return False
        return any(same_shape(failed, pod) for failed in self.failed.get(owner.get("uid") or "", []))

    def add(self, pod: Json) -> None:
        owner = controller_of(pod)
        if owner is None or is_daemon_set_pod(pod):
            return
        uid = owner.get("uid") or ""
        shapes = self.failed.setdefault(uid, [])
        if len(shapes) >= MOST_SHAPES:
            self.overflowing.add(uid)
            return
        shapes.append(pod)
