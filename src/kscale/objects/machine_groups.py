"""Node groups of Cluster API (``cluster.x-k8s.io``): MachineDeployments, MachineSets and MachinePools, their machines,
rollouts and templates.

Upstream: ``cloudprovider/clusterapi``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kscale.objects.api.core import Node, NodeSpec, NodeStatus, Taint
from kscale.objects.api.meta import ApiStruct, Int32, KubeObject, ObjectMeta
from kscale.objects.argument_types import typed
from kscale.objects.go_numbers import parse_float, parse_int64
from kscale.objects.names import label_value_errors, qualified_name_errors
from kscale.objects.nodegroup import NodeGroup, NodeGroupOptions, NodeTemplate
from kscale.objects.pod_owners import controller_of
from kscale.objects.quantity import Quantity, QuantityError
from kscale.objects.times import parse_duration

__all__ = [
    "CAPACITY",
    "CLUSTER_API",
    "DEFAULT_ARCHITECTURE",
    "MACHINE_KINDS",
    "Infrastructure",
    "InfrastructureOf",
    "InfrastructureReference",
    "Machine",
    "MachineDeployment",
    "MachineGroups",
    "MachineNode",
    "MachineOwner",
    "MachinePool",
    "MachineScale",
    "MachineSet",
    "MachineSetStatus",
    "MachineSets",
    "MachineSpec",
    "MachineStatus",
    "MachineTemplate",
    "MachineTemplateSpec",
    "id_of_owner",
    "machine_groups",
    "machine_template",
    "owner_ids",
    "read_infrastructure",
]


class InfrastructureReference(ApiStruct):
    """The infrastructure object that machines are created from. Older versions have its ``api_version``."""

    kind: str = ""
    name: str = ""
    api_group: str = ""
    api_version: str = ""


class MachineTemplateSpec(ApiStruct):
    """Template of machines.

    Upstream's autoscaler reads labels from ``metadata`` here; Cluster API's own types have them one level above.
    """

    infrastructure_ref: InfrastructureReference | None = None
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    taints: list[Taint] | None = None


class MachineTemplate(ApiStruct):
    """Template of machines."""

    spec: MachineTemplateSpec = msgspec.field(default_factory=MachineTemplateSpec)


class MachineScale(ApiStruct):
    """Number of machines and their cluster. A pool also lists its machines."""

    replicas: Int32 | None = None
    cluster_name: str = ""
    template: MachineTemplate = msgspec.field(default_factory=MachineTemplate)
    provider_id_list: list[str] | None = msgspec.field(name="providerIDList", default=None)


class MachineDeployment(KubeObject):
    """Machines of one template, replaced one by one when the template changes."""

    spec: MachineScale = msgspec.field(default_factory=MachineScale)


class MachineSetStatus(ApiStruct):
    """Status of a MachineSet."""

    replicas: Int32 | None = None


class MachineSet(KubeObject):
    """Machines of one template. It may belong to a MachineDeployment."""

    spec: MachineScale = msgspec.field(default_factory=MachineScale)
    status: MachineSetStatus = msgspec.field(default_factory=MachineSetStatus)


class MachinePool(KubeObject):
    """Machines that the cloud manages as one group."""

    spec: MachineScale = msgspec.field(default_factory=MachineScale)


MachineOwner = MachineDeployment | MachineSet | MachinePool
"""Kinds whose objects may be node groups."""


class MachineSpec(ApiStruct):
    """The cloud's id of a machine; empty while it has none."""

    provider_id: str = msgspec.field(name="providerID", default="")


class MachineNode(ApiStruct):
    """The node of a machine."""

    name: str = ""


class MachineStatus(ApiStruct):
    """Status of a machine."""

    node_ref: MachineNode | None = None
    failure_message: str = ""


class Machine(KubeObject):
    """A machine."""

    spec: MachineSpec = msgspec.field(default_factory=MachineSpec)
    status: MachineStatus = msgspec.field(default_factory=MachineStatus)


class Infrastructure(msgspec.Struct, frozen=True, kw_only=True):
    """Resources, architecture and operating system of a machine; empty if unknown."""

    capacity: dict[str, Quantity] = {}
    architecture: str = ""
    operating_system: str = ""


def read_infrastructure(content: Mapping[str, Any]) -> Infrastructure:
    """Read ``status.capacity`` and ``status.nodeInfo`` of an object as plain data.

    As upstream, leaves out malformed amounts, and treats a map with a value that is not text as empty.
    """
    status = content.get("status")
    status_fields = status if isinstance(status, Mapping) else {}
    capacity = {}
    for name, text in _to_texts(status_fields.get("capacity")).items():
        try:
            capacity[name] = Quantity(text)
        except QuantityError:
            continue
    system = _to_texts(status_fields.get("nodeInfo"))
    return Infrastructure(
        capacity=capacity,
        architecture=system.get("architecture", ""),
        operating_system=system.get("operatingSystem", ""),
    )


def _to_texts(value: object) -> dict[str, str]:
    """Return a map of texts as a dict; empty for any other value."""
    if not isinstance(value, Mapping) or not all(isinstance(value, str) for value in value.values()):
        return {}
    return dict(value)


DEFAULT_ARCHITECTURE: Final = "amd64"
"""Of machines of which nothing says it."""

CAPACITY: Final = "capacity.cluster-autoscaler.kubernetes.io/"
"""How the annotations begin that say what a machine will be."""
_AMOUNTS: Final = {"cpu": "cpu", "memory": "memory", "ephemeral-disk": "ephemeral-storage", "maxPods": "pods"}
_COUNTS: Final = frozenset({"maxPods", "gpu-count"})
_MOST_PODS: Final = "110"
_NODE_ROLE: Final = "node-role.kubernetes.io"
_MANAGED: Final = ("node-restriction.kubernetes.io", "node.cluster.x-k8s.io")


def machine_template(
    owner: MachineOwner, infrastructure: Infrastructure | None, architecture: str = DEFAULT_ARCHITECTURE
) -> tuple[NodeTemplate | None, list[str]]:
    """Return the template of an owner's new nodes, and messages about ignored parts of annotations.

    Annotations take precedence over the infrastructure. As in upstream, the infrastructure's number of pods is ignored.

    Parameters
    ----------
    owner : MachineOwner
    infrastructure : Infrastructure or None
    architecture : str
        Architecture if ``infrastructure`` is None.

    Returns
    -------
    template : NodeTemplate or None
        None if CPU or memory is in neither source.
    uncounted : list of str
        Messages about ignored parts of annotations.

    Raises
    ------
    ValueError
        If an amount is malformed or negative.
    """
    notes = owner.metadata.annotations or {}
    capacity = _get_capacity(notes, infrastructure)
    if not {"cpu", "memory"} <= capacity.keys():
        return None, []
    uncounted: list[str] = []
    node = Node(
        metadata=ObjectMeta(
            name=f"{owner.name}-template", labels=_get_labels(owner, infrastructure, uncounted, architecture)
        ),
        spec=NodeSpec(taints=_get_taints(owner, uncounted)),
        status=NodeStatus(capacity=capacity, allocatable=dict(capacity)),
    )
    return NodeTemplate(node=node), uncounted


def _get_capacity(notes: Mapping[str, str], infrastructure: Infrastructure | None) -> dict[str, Quantity]:
    """Return the capacity of a new node: the infrastructure's, replaced by the amounts of annotations (``notes``).

    The number of pods is 110 unless an annotation has it. Raises ValueError if an annotation is malformed.
    """
    capacity = {} if infrastructure is None else dict(infrastructure.capacity)
    capacity["pods"] = Quantity(_MOST_PODS)
    resources = {**_AMOUNTS, "gpu-count": notes.get(f"{CAPACITY}gpu-type", "")}
    for key, resource in resources.items():
        amount = _get_amount(notes, key)
        if resource and amount is not None:
            capacity[resource] = amount
    return capacity


def _get_amount(notes: Mapping[str, str], key: str) -> Quantity | None:
    """Return the amount of a capacity annotation (``key``: its name without prefix); None if absent, empty or zero.

    Raises ValueError if it is malformed or negative.
    """
    text = notes.get(CAPACITY + key)
    if not text:
        return None
    try:
        if key in _COUNTS and parse_int64(text) is None:
            raise QuantityError("a count is an integer")
        amount = Quantity(text)
    except QuantityError:
        raise ValueError(f"annotation {CAPACITY}{key}: {text!r} is no amount") from None
    if amount.sign < 0:
        raise ValueError(f"annotation {CAPACITY}{key}: {text!r} is negative")
    return amount if amount.sign else None


def _get_labels(
    owner: MachineOwner, infrastructure: Infrastructure | None, uncounted: list[str], architecture: str
) -> dict[str, str]:
    """Return the labels of new nodes. Later ones win: system labels, copied labels, labels of the annotation.

    Copied labels are those that Cluster API copies from machines to nodes. ``uncounted``: gets messages about ignored
    parts of the annotation.
    """
    labels = {"kubernetes.io/os": "linux", "kubernetes.io/arch": architecture}
    if infrastructure is not None:  # as upstream: empty labels if the infrastructure lacks its system
        labels["kubernetes.io/os"] = infrastructure.operating_system
        labels["kubernetes.io/arch"] = infrastructure.architecture
    owner_labels = owner.spec.template.spec.metadata.labels or {}
    labels |= {key: value for key, value in owner_labels.items() if _is_managed(key)}
    for pair in _split_annotation(owner, "labels"):
        key, equal, value = pair.partition("=")
        if equal:
            labels[key] = value
        else:
            uncounted.append(f"annotation {CAPACITY}labels: {pair!r} is no label and does not count")
    return labels


def _is_managed(key: str) -> bool:
    """Return whether Cluster API copies the label from a machine to its node (``isManagedLabel``)."""
    domain = key.partition("/")[0]
    return domain == _NODE_ROLE or any(domain == each or domain.endswith(f".{each}") for each in _MANAGED)


def _get_taints(owner: MachineOwner, uncounted: list[str]) -> list[Taint]:
    """Return the machines' taints and those of the annotation, which replace the first one of equal key and effect.

    ``uncounted``: gets messages about ignored parts of the annotation.
    """
    taints = [
        Taint(key=each.key, value=each.value, effect=each.effect) for each in owner.spec.template.spec.taints or ()
    ]
    for text in _split_annotation(owner, "taints"):
        taint = _parse_taint(text)
        if taint is None:
            uncounted.append(f"annotation {CAPACITY}taints: {text!r} is no taint and does not count")
            continue
        same = (i for i, each in enumerate(taints) if (each.key, each.effect) == (taint.key, taint.effect))
        at = next(same, len(taints))
        taints[at : at + 1] = [taint]
    return taints


def _parse_taint(text: str) -> Taint | None:
    """Parse a taint, ``key[=value]:effect`` or a key alone (``parseTaint``); None if the text is malformed."""
    pair, *effects = text.split(":")
    if len(effects) > 1:
        return None
    key, *values = pair.split("=") if effects else [pair]
    if len(values) > 1 or qualified_name_errors(key) or any(label_value_errors(value) for value in values):
        return None
    return Taint(key=key, value="".join(values), effect="".join(effects))


def _split_annotation(owner: MachineOwner, key: str) -> list[str]:
    """Return the non-empty, comma-separated parts of the capacity annotation ``key``, untrimmed as in upstream."""
    text = (owner.metadata.annotations or {}).get(CAPACITY + key, "")
    return [part for part in text.split(",") if part]


_DEPLOYMENT: Final = "cluster.x-k8s.io/deployment-name"
_REVISION: Final = "machinedeployment.clusters.x-k8s.io/revision"


class MachineSets:
    """The MachineSets of each MachineDeployment.

    As in upstream, they are found by namespace and label, not by owner references, and for any API group.
    """

    def __init__(self, owners: Iterable[MachineOwner]) -> None:
        self._of: dict[tuple[str, str], list[MachineSet]] = {}
        for each in owners:
            name = (each.metadata.labels or {}).get(_DEPLOYMENT)
            if isinstance(each, MachineSet) and name is not None:
                self._of.setdefault((each.namespace, name), []).append(each)

    def rolling_out(self, owner: MachineOwner) -> bool:
        """Return whether a MachineDeployment is in the middle of a rollout; False for other owners.

        A rollout is in progress if a set that is not of the newest revision has machines or should have some. Sets
        without a revision are old. Raises ValueError if a revision is not an int64.
        """
        if not isinstance(owner, MachineDeployment):
            return False
        sets = self._of.get((owner.namespace, owner.name), [])
        revisions = [(each.metadata.annotations or {}).get(_REVISION) for each in sets]
        newest = str(max((_get_revision(each, text) for each, text in zip(sets, revisions, strict=True)), default=0))
        return any(
            text != newest and ((each.spec.replicas or 0) > 0 or (each.status.replicas or 0) > 0)
            for each, text in zip(sets, revisions, strict=True)
        )


def _get_revision(machine_set: MachineSet, revision: str | None) -> int:
    """Return the ``revision`` of a set as a number; 0 for a negative or missing one.

    Raises ValueError, which names the set, for text that is no int64.
    """
    if revision is None:
        return 0
    number = parse_int64(revision)
    if number is None:
        name = f"{machine_set.namespace}/{machine_set.name}"
        raise ValueError(f"failed to parse current revision on MachineSet {name}: {revision!r} is no int64")
    return max(0, number)


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
    """The node groups, in the order of the objects, and warnings by object."""

    groups: list[NodeGroup] = []
    warnings: list[str] = []
    """A line for each owner that is left out, for each ignored annotation, and for each unknown state of a rollout."""


@typed
def machine_groups(
    objects: Iterable[KubeObject],
    nodes: Iterable[Node],
    infrastructure: InfrastructureOf = lambda _: None,
    architecture: str = DEFAULT_ARCHITECTURE,
    *,
    include: Callable[[MachineOwner], bool] = lambda _: True,
    api_group: str = CLUSTER_API,
) -> MachineGroups:
    """Return the node groups that the autoscaler finds among Cluster API's objects.

    A group has a maximum size above 0 and a minimum size (0 if missing) in its annotations, and either machines or a
    known CPU and memory (by annotation or from ``infrastructure``). A node belongs to the owner that Cluster API names
    in its annotations. A MachineSet of a MachineDeployment is no group of its own; its nodes belong to the deployment.
    Owners are left out with a warning if they are paused, have malformed annotations or a maximum below the minimum, or
    have neither machines nor a known CPU and memory. Unknown states of rollouts also add a warning.

    Parameters
    ----------
    objects : iterable of KubeObject
        Objects of kinds other than :data:`MACHINE_KINDS` are ignored.
    nodes : iterable of Node
    infrastructure : callable
        Returns an owner's Infrastructure or None. Called only for groups without nodes.
    architecture : str
        Architecture if ``infrastructure`` returns None.
    include : callable
        Returns whether an owner may be a group.
    api_group : str
        Prefix of the annotations.

    Returns
    -------
    MachineGroups
    """
    owners = [each for each in objects if isinstance(each, MachineOwner)]
    deployment_of = owner_ids(owners)
    sets = MachineSets(owners)
    members: dict[str, list[str]] = {}
    for node in nodes:
        owner = _get_owner_id(node, api_group)
        if owner:
            members.setdefault(deployment_of.get(owner, owner), []).append(node.metadata.name)
    result = MachineGroups()
    for each in owners:
        name = id_of_owner(each)
        if name in deployment_of or not include(each):
            continue
        try:
            group = _build_group(each, members.get(name, []), api_group, infrastructure, architecture, result.warnings)
        except ValueError as error:
            result.warnings.append(f"{name} cannot be scaled: {error}")
            continue
        if group is not None:
            result.groups.append(_with_rollout(group, each, sets, result.warnings))
    return result


def owner_ids(owners: Iterable[MachineOwner]) -> dict[str, str]:
    """Return the id of the MachineDeployment that controls a MachineSet, by the set's id. Omits sets without one."""
    result = {}
    for each in owners:
        above = controller_of(each.metadata)
        if isinstance(each, MachineSet) and above is not None and above.kind == "MachineDeployment":
            result[id_of_owner(each)] = f"MachineDeployment/{each.namespace}/{above.name}"
    return result


def id_of_owner(owner: KubeObject) -> str:
    """Return the id of the node group of an object: ``Kind/namespace/name``."""
    return f"{type(owner).__name__}/{owner.namespace}/{owner.name}"


def _get_owner_id(node: Node, api_group: str) -> str:
    """Return the id of the owner that Cluster API writes on a node; empty if there is none."""
    notes = node.metadata.annotations or {}
    name = notes.get(f"{api_group}/owner-name")
    if not name:
        return ""
    namespace = notes.get(f"{api_group}/cluster-namespace", "default")
    return f"{notes.get(f'{api_group}/owner-kind', 'MachineSet')}/{namespace}/{name}"


def _build_group(
    owner: MachineOwner,
    nodes: list[str],
    api_group: str,
    infrastructure: InfrastructureOf,
    architecture: str,
    warnings: list[str],
) -> NodeGroup | None:
    """Return the owner's node group; None without size annotations or with a maximum of 0.

    ``warnings``: gets messages about ignored annotations. Raises ValueError, with the reason, for an owner that is
    paused, has malformed annotations or a maximum below its minimum, or has neither machines nor known CPU and memory.
    """
    notes = owner.metadata.annotations or {}
    sizes = {which: notes.get(f"{api_group}/{_SIZE.format(which)}") for which in ("min", "max")}
    if sizes["min"] is None and sizes["max"] is None:
        return None
    minimum, maximum = (_get_size(which, text) for which, text in sizes.items())
    if maximum < minimum:
        raise ValueError(f"its maximum size {maximum} is below its minimum {minimum}")
    if maximum == 0:
        return None
    if _PAUSED in notes:
        raise ValueError(f"annotation {_PAUSED}")
    replicas = owner.spec.replicas or 0
    # An existing node is a better template.
    template, uncounted = (None, []) if nodes else machine_template(owner, infrastructure(owner), architecture)
    warnings += [f"{id_of_owner(owner)}: {text}" for text in uncounted]
    if template is None and not nodes and not replicas:
        raise ValueError("it has no machines, and nothing says what one would be (cpu and memory)")
    if driven := [key for key in _DRIVERS if key in notes]:
        warnings.append(f"{id_of_owner(owner)}: not looked at: {', '.join(driven)}")
    return NodeGroup(
        id=id_of_owner(owner),
        min_size=minimum,
        max_size=maximum,
        target_size=replicas,
        nodes=nodes,
        template=template,
        options=_get_options(owner, f"{api_group}/{_OPTIONS}", notes, warnings),
    )


def _get_size(which: str, text: str | None) -> int:
    """Return the size in an annotation; 0 without the annotation.

    ``which``: ``min`` or ``max``. Raises ValueError if the size is malformed or negative.
    """
    size = 0 if text is None else parse_int64(text)
    if size is None or size < 0:
        raise ValueError(f"invalid {which} annotation")
    return size


def _with_rollout(group: NodeGroup, owner: MachineOwner, sets: MachineSets, warnings: list[str]) -> NodeGroup:
    """Return the group with ``rolling_out`` set; if it is unknown, with ``rolling_out_error``, and add a warning."""
    try:
        return replace(group, rolling_out=sets.rolling_out(owner))
    except ValueError as error:
        warnings.append(f"Failed to determine rolling out status for MachineDeployment {group.id}: {error}")
        return replace(group, rolling_out_error=str(error))


_Read = Callable[[str], Any]
_OPTION_FIELDS: dict[str, tuple[str, _Read]] = {
    "scaledownutilizationthreshold": ("scale_down_utilization_threshold", parse_float),
    "scaledowngpuutilizationthreshold": ("scale_down_gpu_utilization_threshold", parse_float),
    "scaledownunneededtime": ("scale_down_unneeded_time", lambda text: parse_duration(text) / 1e9),
    "scaledownunreadytime": ("scale_down_unready_time", lambda text: parse_duration(text) / 1e9),
    "maxnodeprovisiontime": ("max_node_provision_time", lambda text: parse_duration(text) / 1e9),
    "maxnodestartuptime": ("max_node_startup_time", lambda text: parse_duration(text) / 1e9),
}


def _get_options(owner: KubeObject, prefix: str, notes: dict[str, str], warnings: list[str]) -> NodeGroupOptions | None:
    """Return the group's options; None if there are none.

    Reads the annotations (``notes``) whose names begin with ``prefix``. A malformed option is ignored, with a message
    added to ``warnings``.
    """
    values: dict[str, Any] = {}
    for key, (field, read) in _OPTION_FIELDS.items():
        text = notes.get(prefix + key)
        if text is None:
            continue
        try:
            values[field] = read(text)
        except ValueError:
            warnings.append(
                f"{id_of_owner(owner)}: annotation {prefix}{key}: {text!r} cannot be read and does not count"
            )
    return NodeGroupOptions(**values) if values else None
