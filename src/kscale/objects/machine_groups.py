"""Node groups that Cluster API describes: MachineDeployments, MachineSets and MachinePools with the autoscaler's
annotations (upstream: ``cloudprovider/clusterapi``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kscale.objects.argument_types import typed
from kscale.objects.cluster_api import MachineOwner, MachineSet
from kscale.objects.core import Node
from kscale.objects.durations import parse_duration
from kscale.objects.infrastructure import Infrastructure
from kscale.objects.machine_rollouts import MachineSets
from kscale.objects.machine_templates import CAPACITY, DEFAULT_ARCHITECTURE, machine_template
from kscale.objects.meta import KubeObject
from kscale.objects.nodegroup import NodeGroup, NodeGroupOptions
from kscale.objects.owners import controller_of
from kscale.objects.selectors import parse_int64

__all__ = [
    "CLUSTER_API",
    "MACHINE_KINDS",
    "InfrastructureOf",
    "MachineGroups",
    "id_of_owner",
    "machine_groups",
    "owner_ids",
]

MACHINE_KINDS: Final = ("MachineDeployment", "MachineSet", "MachinePool")
CLUSTER_API: Final = "cluster.x-k8s.io"
"""The API group, where nobody calls it otherwise."""
_SIZE: Final = "cluster-api-autoscaler-node-group-{}-size"
_PAUSED: Final = f"{CLUSTER_API}/paused"  # whatever the API group is called
_OPTIONS: Final = "autoscaling-options-"
_DRIVERS: Final = (f"{CAPACITY}dra-driver", f"{CAPACITY}csi-driver")


InfrastructureOf = Callable[[MachineOwner], Infrastructure | None]
"""What the infrastructure's provider says of an owner's machines; None: nothing."""


class MachineGroups(msgspec.Struct, kw_only=True):
    """The groups, in the order of the objects, and what is not as it was meant, by object."""

    groups: list[NodeGroup] = []
    warnings: list[str] = []
    """A line for each owner that is left out, and for each deployment in the middle of a rollout."""


@typed
def machine_groups(
    objects: Iterable[KubeObject],
    nodes: Iterable[Node],
    infrastructure: InfrastructureOf = lambda _: None,
    architecture: str = DEFAULT_ARCHITECTURE,
    *,
    wants: Callable[[MachineOwner], bool] = lambda _: True,
    api_group: str = CLUSTER_API,
) -> MachineGroups:
    """The groups that the autoscaler would find: those with both size annotations, a maximum above 0 and either
    machines, or cpu and memory by annotation or of the ``infrastructure``, which say what a new node is while there is
    none. ``objects``: those of other kinds than :data:`MACHINE_KINDS` are passed over. Only of groups without nodes the
    infrastructure is asked. ``architecture``: where it gives None; ``wants``: which owners may be groups;
    ``api_group``: what the annotations begin with.

    ``nodes`` belong to the owner that Cluster API names on them. Paused owners and those whose annotations cannot be
    read are left out and told; of a deployment in the middle of a rollout that is said.
    """
    owners = [each for each in objects if isinstance(each, MachineOwner)]
    home = owner_ids(owners)
    sets = MachineSets(owners)
    members: dict[str, list[str]] = {}
    for node in nodes:
        owner = _owner_of(node, api_group)
        if owner:
            members.setdefault(home.get(owner, owner), []).append(node.metadata.name)
    found = MachineGroups()
    for each in owners:
        name = id_of_owner(each)
        if name in home or not wants(each):
            continue
        try:
            group = _group(each, members.get(name, []), api_group, infrastructure, architecture, found.warnings)
        except ValueError as error:
            found.warnings.append(f"{name} cannot be scaled: {error}")
            continue
        if group is not None:
            found.groups.append(_with_rollout(group, each, sets, found.warnings))
    return found


def owner_ids(owners: Iterable[MachineOwner]) -> dict[str, str]:
    """Of sets that belong to a deployment: the set's identity -> the deployment's."""
    found = {}
    for each in owners:
        above = controller_of(each.metadata)
        if isinstance(each, MachineSet) and above is not None and above.kind == "MachineDeployment":
            found[id_of_owner(each)] = f"MachineDeployment/{each.namespace}/{above.name}"
    return found


def id_of_owner(each: KubeObject) -> str:
    """``Kind/namespace/name``, as the groups are called."""
    return f"{type(each).__name__}/{each.namespace}/{each.name}"


def _owner_of(node: Node, api_group: str) -> str:
    """The identity of the owner that Cluster API writes on a node; empty without one."""
    notes = node.metadata.annotations or {}
    name = notes.get(f"{api_group}/owner-name")
    if not name:
        return ""
    namespace = notes.get(f"{api_group}/cluster-namespace", "default")
    return f"{notes.get(f'{api_group}/owner-kind', 'MachineSet')}/{namespace}/{name}"


def _group(
    each: MachineOwner,
    nodes: list[str],
    api_group: str,
    infrastructure: InfrastructureOf,
    architecture: str,
    warnings: list[str],
) -> NodeGroup | None:
    """None for one that nobody wants scaled. Raises ValueError for what cannot be read."""
    notes = each.metadata.annotations or {}
    sizes = {which: notes.get(f"{api_group}/{_SIZE.format(which)}") for which in ("min", "max")}
    if sizes["min"] is None and sizes["max"] is None:
        return None
    least, most = (_size(which, text) for which, text in sizes.items())
    if most < least:
        raise ValueError(f"its maximum size {most} is below its minimum {least}")
    if most == 0:
        return None
    if _PAUSED in notes:
        raise ValueError(f"annotation {_PAUSED}")
    replicas = each.spec.replicas or 0
    # A node that exists is a better model.
    template, uncounted = (None, []) if nodes else machine_template(each, infrastructure(each), architecture)
    warnings += [f"{id_of_owner(each)}: {text}" for text in uncounted]
    if template is None and not nodes and not replicas:
        raise ValueError("it has no machines, and nothing says what one would be (cpu and memory)")
    if driven := [key for key in _DRIVERS if key in notes]:
        warnings.append(f"{id_of_owner(each)}: not looked at: {', '.join(driven)}")
    return NodeGroup(
        id=id_of_owner(each),
        min_size=least,
        max_size=most,
        target_size=replicas,
        nodes=nodes,
        template=template,
        options=_options(each, f"{api_group}/{_OPTIONS}", notes, warnings),
    )


def _size(which: str, text: str | None) -> int:
    """Without the annotation 0."""
    size = 0 if text is None else parse_int64(text)
    if size is None or size < 0:
        raise ValueError(f"invalid {which} annotation")
    return size


def _with_rollout(group: NodeGroup, each: MachineOwner, sets: MachineSets, warnings: list[str]) -> NodeGroup:
    try:
        return replace(group, rolling_out=sets.rolling_out(each))
    except ValueError as error:
        warnings.append(f"Failed to determine rolling out status for MachineDeployment {group.id}: {error}")
        return replace(group, rolling_out_error=str(error))


_Read = Callable[[str], Any]
_OPTION_FIELDS: dict[str, tuple[str, _Read]] = {
    "scaledownutilizationthreshold": ("scale_down_utilization_threshold", float),
    "scaledowngpuutilizationthreshold": ("scale_down_gpu_utilization_threshold", float),
    "scaledownunneededtime": ("scale_down_unneeded_time", lambda text: parse_duration(text) / 1e9),
    "scaledownunreadytime": ("scale_down_unready_time", lambda text: parse_duration(text) / 1e9),
    "maxnodeprovisiontime": ("max_node_provision_time", lambda text: parse_duration(text) / 1e9),
    "maxnodestartuptime": ("max_node_startup_time", lambda text: parse_duration(text) / 1e9),
}


def _options(each: KubeObject, prefix: str, notes: dict[str, str], warnings: list[str]) -> NodeGroupOptions | None:
    """The options of the group; those that cannot be read are as for other groups, and told."""
    given: dict[str, Any] = {}
    for key, (field, read) in _OPTION_FIELDS.items():
        text = notes.get(prefix + key)
        if text is None:
            continue
        try:
            given[field] = read(text)
        except ValueError:
            warnings.append(
                f"{id_of_owner(each)}: annotation {prefix}{key}: {text!r} cannot be read and does not count"
            )
    return NodeGroupOptions(**given) if given else None
