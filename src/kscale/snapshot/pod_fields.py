"""The one table of what is read of a pod: what decisions read, and what :mod:`kscale.objects.validation` looks at.

Pods that are read as text are reduced to it, by the names that the API structs have; a test holds it against what the
reading of structs looks into.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec.structs import fields

from kscale._native import _pod_columns
from kscale.objects.base import ApiStruct
from kscale.objects.core import Container, Pod, PodSpec, PodStatus
from kscale.objects.core.containers import ContainerStatus, VolumeMount
from kscale.objects.meta import Condition, ObjectMeta
from kscale.objects.pod_annotations import READ_ANNOTATIONS
from kscale.objects.volumes import Volume
from kscale.snapshot.pod_facets import READ_SOURCES
from kscale.snapshot.text_classes import AFFINITY, LABELS, OWNERS, TOLD_TO_STOP, VOLUMES

__all__ = ["FACETS", "READ_FIELDS", "READ_OF_PODS", "SLOTS"]

SLOTS: Final = {name: slot for slot, name in enumerate(_pod_columns.SLOTS)}
"""What is noted of a pod apart, by the number of the projector's slot."""

FACETS: Final = 4
"""How many parts of a pod are numbered by themselves."""

READ_FIELDS: Final[dict[type[ApiStruct], tuple[str, ...]]] = {}
"""The fields that are read, of each struct of a pod of which not all are."""


def _read(
    struct: type[ApiStruct],
    *kept: str,
    need: tuple[str, ...] = (),
    also: Mapping[str, Any] = MappingProxyType({}),
    **rules: Any,
) -> tuple[str, Any, Any]:
    """A projector's rule for a struct: fields that are ``kept`` as they are, and those with a rule of their own;
    ``also``: members of the JSON text that the struct does not have."""
    READ_FIELDS[struct] = tuple(dict.fromkeys((*READ_FIELDS.get(struct, ()), *kept, *rules)))
    name_of = {field.name: field.encode_name for field in fields(struct)}
    members = dict.fromkeys(kept, "keep") | rules
    made = {name_of[name]: rule for name, rule in members.items()} | dict(also)
    return "object", made, tuple(map(name_of.__getitem__, need))


def _noted(name: str) -> tuple[str, int]:
    return "capture", SLOTS[name]


_CONTAINER: Final = ("alike", _read(
    Container, "name", "resources", "ports", "restart_policy", "restart_policy_rules",
    volume_mounts=("array", _read(VolumeMount, "bind_mount_options", need=("bind_mount_options",))),
))  # fmt: skip
_VOLUME: Final = _read(
    Volume, "name", *READ_SOURCES, need=(*READ_SOURCES, "host_path", "empty_dir"),
    host_path=("object", {"-": "keep"}, ()),  # that there is one, not what it says
    empty_dir=("object", {"medium": "keep"}, ()),
)  # fmt: skip
_STATUS: Final = ("array", _read(ContainerStatus, "name", "allocated_resources", "resources"))
_CONDITIONS: Final = {
    '"PodScheduled"': _read(Condition, "type", "status", "reason"),
    '"PodResizePending"': _read(Condition, "type", "reason"),
    '"Ready"': _read(Condition, need=("status",), status=_noted("ready"), last_transition_time=_noted("since")),
}

READ_OF_PODS: Final = _read(
    Pod, "api_version", "kind",
    metadata=_read(
        ObjectMeta,
        also={"managedFields": ("span", SLOTS["managed"])},  # where they are, to leave them out
        name=_noted("name"),
        uid=_noted("uid"),
        creation_timestamp=_noted("created"),
        labels=("facet", LABELS, "keep"),
        owner_references=("facet", OWNERS, "keep"),
        resource_version=_noted("version"),
        deletion_timestamp=("mark", SLOTS["deleted"], TOLD_TO_STOP),
        namespace=("note", SLOTS["namespace"]),
        annotations=("object", dict.fromkeys(READ_ANNOTATIONS, "keep"), ()),
    ),
    spec=("alike", _read(
        PodSpec, "restart_policy", "node_selector", "host_network", "host_users", "tolerations", "priority",
        "preemption_policy", "overhead", "topology_spread_constraints", "scheduling_gates", "resource_claims",
        "resources", "termination_grace_period_seconds", "scheduler_name",
        node_name=_noted("node"),
        containers=("array", _CONTAINER),
        init_containers=("array", _CONTAINER),
        ephemeral_containers=("array", _CONTAINER),
        volumes=("facet", VOLUMES, ("array", _VOLUME)),
        affinity=("facet", AFFINITY, "keep"),
    )),
    status=("alike", _read(
        PodStatus, "phase", "resource_claim_statuses", "allocated_resources", "resources",
        nominated_node_name=_noted("nominated"),
        start_time=_noted("started"),
        conditions=("array", ("switch", "type", _CONDITIONS)),
        container_statuses=_STATUS,
        init_container_statuses=_STATUS,
    )),
)  # fmt: skip
"""The rule of a projector (:mod:`kscale._native._projection`) that reduces the text of a pod."""
