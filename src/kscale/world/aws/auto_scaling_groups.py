"""Cache of Auto Scaling groups: discovery, instances and placeholders, changes of sizes, and templates.

Upstream: ``cloudprovider/aws/auto_scaling_groups.go``, ``instance_type_cache.go`` and ``managed_nodegroup_cache.go``.
"""

from __future__ import annotations

import logging
import math
import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from kscale.effects import SECOND, Moment
from kscale.errors import InputError, Problem
from kscale.objects.go_numbers import parse_int64
from kscale.objects.nodegroup import NodeGroupOptions, NodeTemplate, ProviderError
from kscale.world.aws.api import (
    AutoScalingGroup,
    GroupInstance,
    LaunchTemplateData,
    LaunchTemplateSpecification,
    MixedInstancesPolicy,
)
from kscale.world.aws.client import AwsClient, AwsError
from kscale.world.aws.templates import (
    MachineType,
    ManagedNodegroup,
    build_template,
    machine_type_from,
    managed_nodegroup_from,
    managed_nodegroup_name,
    node_group_options,
    options_from_tags,
    requirements_request,
)
from kscale.world.nodegroups.provider import CLOUD_ERROR

__all__ = [
    "UNFULFILLABLE",
    "AutoScalingGroups",
    "GroupSpec",
    "RegisteredGroup",
    "read_auto_discovery",
    "read_group_spec",
]

_log = logging.getLogger(__name__)
PLACEHOLDER: Final = "i-placeholder"
"""Prefix of the IDs of instances that a group should have, but that do not exist yet."""
UNFULFILLABLE: Final = "placeholder-cannot-be-fulfilled"
"""Health status of placeholders of a group whose last scaling activity failed; also the code of the instance error."""
_REFRESH_INTERVAL: Final = 60 * SECOND
_TYPE_LIFETIME: Final = 1_200
"""Seconds for which the instance type of a group is cached."""
_TYPE_JITTER: Final = (120, 600)
"""Range of seconds by which the type is looked up early, so that not all groups are looked up at once."""
_MACHINE_RETRY: Final = 600 * SECOND
_NODEGROUP_LIFETIME: Final = 360 * SECOND
_TERMINATING: Final = frozenset({"Terminating", "Terminating:Wait", "Terminating:Proceed", "Terminated"})
_WARM: Final = "Warmed:"
"""Prefix of the lifecycle states of instances in a warm pool. They are not part of the group's size."""
_NEEDED_PROCESSES: Final = ("Launch", "Terminate")


# -- specifications ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A group of ``--nodes``: its name and its own limits, which replace those of AWS."""

    minimum: int
    maximum: int
    name: str


def read_group_spec(text: str) -> GroupSpec:
    """Parse ``--nodes=MIN:MAX:NAME``. Raises InputError with upstream's text."""
    try:
        return _read_group_spec(text)
    except ValueError as error:
        raise InputError(Problem(f"failed to parse node group spec: {error}", field="--nodes")) from None


def _read_group_spec(text: str) -> GroupSpec:
    """Parse ``MIN:MAX:NAME``. Raises ValueError with upstream's text."""
    parts = text.split(":", 2)
    if len(parts) != 3:
        raise ValueError(f"wrong nodes configuration: {text}")
    minimum, maximum = parse_int64(parts[0]), parse_int64(parts[1])
    if minimum is None:
        raise ValueError(f"failed to set min size: {parts[0]}, expected integer")
    if maximum is None:
        raise ValueError(f"failed to set max size: {parts[1]}, expected integer")
    if problem := _limits_problem(minimum, maximum, parts[2]):
        raise ValueError(f"invalid node group spec: {problem}")
    return GroupSpec(minimum, maximum, parts[2])


def _limits_problem(minimum: int, maximum: int, name: str) -> str:
    """Return why the limits or the name of a group are invalid; empty if they are valid."""
    if minimum < 0:
        return "min size must be >= 0"
    if maximum < minimum:
        return "max size must be greater or equal to min size"
    return "" if name else "name must not be blank"


def read_auto_discovery(text: str) -> dict[str, str]:
    """Parse ``--node-group-auto-discovery=asg:tag=KEY[=VALUE],...`` into tags; an empty value matches every value.

    Raises InputError with upstream's text.
    """
    try:
        return _read_auto_discovery(text)
    except ValueError as error:
        raise InputError(Problem(str(error), field="--node-group-auto-discovery")) from None


def _read_auto_discovery(text: str) -> dict[str, str]:
    """Return the tags of an auto-discovery spec (``asg:tag=NAME=VALUE,NAME``), each with its value, which may be empty.

    Raises ValueError with upstream's text.
    """
    discoverer, colon, parameter = text.partition(":")
    if not colon:
        raise ValueError(f"invalid node group auto discovery spec specified via --node-group-auto-discovery: {text}")
    if discoverer != "asg":
        raise ValueError(f"unsupported discoverer specified: {discoverer}")
    key, equal, value = parameter.partition("=")
    if not equal:
        raise ValueError(f"invalid key=value pair [{parameter}]")
    if key != "tag":
        only = 'The only supported key is "tag"'
        raise ValueError(f'unsupported parameter key "{key}" is specified for discoverer "asg". {only}')
    if not value:
        raise ValueError("tag value not supplied")
    tags = {}
    for part in value.split(","):
        tag, _, tag_value = part.partition("=")
        tags[tag] = tag_value
    return tags


# -- cache -------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class RegisteredGroup:
    """A group as of the last refresh, with the sizes that were set since.

    ``instances``: instances and placeholders by provider ID (empty if AWS does not have the group). ``resized``: when
    its size was last set. ``requirements``: instance requirements that replace the capacity of the instance type.
    ``template_inputs``: inputs from which ``template`` was built.
    """

    name: str
    minimum: int
    maximum: int
    explicit: bool = False
    size: int = 0
    resized: Moment = 0
    described: AutoScalingGroup | None = None
    instances: dict[str, GroupInstance] = field(default_factory=dict)
    requirements: Mapping[str, Any] | None = None
    tags: dict[str, str] = field(default_factory=dict)
    options: NodeGroupOptions | None = None
    template: NodeTemplate | None = None
    template_error: str | None = None
    template_inputs: tuple[Any, ...] = ()


@dataclass(slots=True)
class _CachedType:
    """Instance type of a group. ``refresh``, ``expires``: monotonic nanoseconds."""

    name: str
    refresh: int
    expires: int


class AutoScalingGroups:
    """Groups of an account, and changes of them. Methods may block, and are called from several threads.

    Parameters
    ----------
    api : AwsClient
        Calls to AWS.
    specs : sequence of GroupSpec
        Groups with limits of their own. They stay known even if AWS does not have them.
    tags : mapping
        Tags that discovered groups have; no tags discover none.
    names : sequence of str
        Further groups, with the limits that AWS has.
    everything : bool
        Discover all groups.
    now, monotonic : callable
        Wall clock and monotonic clock in nanoseconds.
    machines : mapping
        Instance types for names that EC2 does not describe.
    describe_machines : bool
        Whether instance types are requested from EC2 at all (not with ``--aws-use-static-instance-list``).
    """

    def __init__(
        self,
        api: AwsClient,
        *,
        specs: Sequence[GroupSpec] = (),
        tags: Mapping[str, str] | None = None,
        names: Sequence[str] = (),
        everything: bool = False,
        now: Callable[[], Moment],
        monotonic: Callable[[], int],
        machines: Mapping[str, MachineType] | None = None,
        describe_machines: bool = True,
        rng: random.Random | None = None,
    ) -> None:
        self._api = api
        self._tags = dict(tags or {})
        self._names = list(names)
        self._everything = everything
        self._now = now
        self._monotonic = monotonic
        self._fallback = machines or {}
        self._describes = describe_machines
        self._rng = rng or random.Random()
        self._lock = threading.RLock()
        self._refreshed: int | None = None
        self._groups: dict[str, RegisteredGroup] = {}
        for spec in specs:
            self._groups.setdefault(spec.name, RegisteredGroup(spec.name, spec.minimum, spec.maximum, explicit=True))
        self._by_instance: dict[str, RegisteredGroup] = {}
        self._types: dict[str, _CachedType] = {}
        self._machines: dict[str, MachineType] = {}
        self._machines_tried: dict[str, int] = {}
        self._nodegroups: dict[tuple[str, str], tuple[ManagedNodegroup | None, int]] = {}
        self._suspended: dict[str, tuple[str, ...]] = {}

    def refresh(self) -> list[RegisteredGroup]:
        """Return the groups. They are read from AWS again after a minute, or if instances were deleted.

        Raises ProviderError if AWS cannot be read, or a group has invalid limits or instance requirements; the groups
        stay as they were.
        """
        with self._lock:
            now = self._monotonic()
            if self._refreshed is None or now - self._refreshed >= _REFRESH_INTERVAL:
                self._regenerate()
                self._refreshed = self._monotonic()
            return list(self._groups.values())

    def group_of_instance(self, provider_id: str) -> RegisteredGroup | None:
        """Return the group of an instance, or None."""
        return self._by_instance.get(provider_id)

    def instance(self, provider_id: str) -> GroupInstance | None:
        """Return an instance or placeholder, or None if no group has it."""
        group = self._by_instance.get(provider_id)
        return None if group is None else group.instances.get(provider_id)

    # -- changes -------------------------------------------------------------------------------------------------------

    def increase_size(self, name: str, delta: int) -> None:
        """Increase the target size by ``delta``.

        Raises ProviderError if the group is unknown, ``delta`` is not positive, the maximum would be exceeded, or AWS
        refuses.
        """
        with self._lock:
            group = self._get(name)
            if delta <= 0:
                raise ProviderError("size increase must be positive", CLOUD_ERROR)
            if group.size + delta > group.maximum:
                text = f"size increase too large - desired:{group.size + delta} max:{group.maximum}"
                raise ProviderError(text, CLOUD_ERROR)
            self._set_size(group, group.size + delta)

    def decrease_size(self, name: str, delta: int) -> None:
        """Reduce the target size by ``delta`` (negative).

        Raises ProviderError if the group is unknown here or at AWS, ``delta`` is not negative, there are more instances
        and placeholders than the new size, or AWS refuses.
        """
        with self._lock:
            group = self._get(name)
            if delta >= 0:
                raise ProviderError("size decrease size must be negative", CLOUD_ERROR)
            if group.described is None:
                raise ProviderError(f"error while looking for instances of ASG: {{{name}}}", CLOUD_ERROR)
            existing = len(group.instances)
            if group.size + delta < existing:
                text = f"targetSize:{group.size} delta:{delta} existingNodes: {existing}"
                raise ProviderError(f"attempt to delete existing nodes {text}", CLOUD_ERROR)
            self._set_size(group, group.size + delta)

    def delete_instances(self, name: str, instances: Sequence[tuple[str, str]]) -> None:
        """Terminate instances of a group, given as (node name, provider ID), and reduce its target size.

        If there are placeholders among them, the target size first becomes the number of instances that AWS reports
        now. Instances that terminate already are left alone. After success, the next :meth:`refresh` reads AWS.

        Raises
        ------
        ProviderError
            For an unknown group, a size at or below the minimum, an instance of another group or of none, and for the
            first call that fails. Instances before it are terminated.
        """
        with self._lock:
            group = self._get(name)
            if group.size <= group.minimum:
                raise ProviderError("min size reached, nodes will not be deleted", CLOUD_ERROR)
            selected = [self._instance_of(group, node, provider_id) for node, provider_id in instances]
            if not selected:
                return
            if any(_is_placeholder(each) for each in selected):
                self._drop_placeholders(group)
            for each in selected:
                if _is_placeholder(each):
                    continue
                if each.lifecycle_state in _TERMINATING:
                    _log.info("instance %s is already terminating in state %s", each.instance_id, each.lifecycle_state)
                    continue
                description = self._api.terminate_instance(each.instance_id)
                _log.info("Terminated instance %s in autoscaling group: %s", each.instance_id, description)
                group.size -= 1
            self._refreshed = None

    def _instance_of(self, group: RegisteredGroup, node: str, provider_id: str) -> GroupInstance:
        """Return the instance of a provider ID.

        Raises ProviderError if ``group`` does not have it. ``node``: name for messages.
        """
        owner = self._by_instance.get(provider_id)
        if owner is None:
            raise ProviderError(f"{node} doesn't belong to a known asg", CLOUD_ERROR)
        if owner is not group:
            raise ProviderError(f"{node} belongs to a different asg than {group.name}", CLOUD_ERROR)
        return group.instances[provider_id]

    def _drop_placeholders(self, group: RegisteredGroup) -> None:
        """Set the target size to the number of instances that AWS reports now, without its warm pool.

        Raises ProviderError.
        """
        described = self._api.groups_named([group.name])
        if not described:
            raise ProviderError(f"there is no Auto Scaling group {group.name}", CLOUD_ERROR)
        self._set_size(group, len(_counted_instances(described[0])))

    def _set_size(self, group: RegisteredGroup, size: int) -> None:
        """Set the target size of a group at AWS, then here together with the time of the request. Raises AwsError."""
        start = self._now()
        _log.info("Setting asg %s size to %d", group.name, size)
        self._api.set_desired_capacity(group.name, size)
        group.resized, group.size = start, size

    def _get(self, name: str) -> RegisteredGroup:
        """Return a group. Raises ProviderError if there is none."""
        if name not in self._groups:
            raise ProviderError(f"there is no node group {name}", CLOUD_ERROR)
        return self._groups[name]

    # -- refresh -------------------------------------------------------------------------------------------------------

    def _regenerate(self) -> None:
        """Read the groups from AWS, and update groups, instances, options and templates.

        Groups that AWS does not have are dropped; explicit ones stay without instances. Raises ProviderError; the
        groups stay as they were then.
        """
        described = self._describe()
        instances = {each.name: self._with_placeholders(each) for each in described}
        templates = _LaunchTemplates(self._api)
        requirements = {each.name: _requirements(each, templates) for each in described}
        for each in described:
            if problem := _limits_problem(each.min_size, each.max_size, each.name):
                raise ProviderError(f"failed to create node group spec: {each.name}: {problem}", CLOUD_ERROR)
        # Nothing below raises: a failed refresh leaves the groups as they were.
        names = {each.name for each in described}
        for each in described:
            group = self._groups.get(each.name)
            if group is None:
                _log.info("Registering ASG %s", each.name)
                group = self._groups[each.name] = RegisteredGroup(each.name, each.min_size, each.max_size)
            elif not group.explicit:
                group.minimum, group.maximum = each.min_size, each.max_size
            group.size = each.desired_capacity
            group.described = each
            group.tags = {tag.key: tag.value for tag in each.tags}
            group.instances = {item.provider_id: item for item in instances[each.name]}
            group.requirements = requirements[each.name]
        for name, group in list(self._groups.items()):
            if name in names:
                continue
            if not group.explicit:
                _log.info("Unregistered ASG %s", name)
                del self._groups[name]
                continue
            _log.warning("Failed to get cloud provider node instance for node group %s: AWS has no such group", name)
            group.instances, group.described = {}, None
        self._by_instance = {id_: group for group in self._groups.values() for id_ in group.instances}
        self._types = {name: cached for name, cached in self._types.items() if name in self._groups}
        self._warn_of_suspended()
        self._read_options()
        self._build_templates(templates)

    def _describe(self) -> list[AutoScalingGroup]:
        """Return the groups that are known by name, then the discovered ones, each once. Raises AwsError."""
        names = [*(group.name for group in self._groups.values() if group.explicit), *self._names]
        groups = self._api.groups_named(names) if names else []
        if self._everything:
            groups = [*groups, *self._api.all_groups()]
        elif self._tags:
            groups = [*groups, *self._api.groups_tagged(self._tags)]
        return list({each.name: each for each in groups}.values())

    def _with_placeholders(self, described: AutoScalingGroup) -> list[GroupInstance]:
        """Return the instances of a group without its warm pool, with a placeholder for each one that is missing."""
        instances = _counted_instances(described)
        if described.desired_capacity <= len(instances):
            return instances
        status = "" if self._is_available(described.name) else UNFULFILLABLE
        zone = described.availability_zones[0] if described.availability_zones else ""
        placeholders = [
            GroupInstance(
                instance_id=f"{PLACEHOLDER}-{described.name}-{number}", availability_zone=zone, health_status=status
            )
            for number in range(len(instances), described.desired_capacity)
        ]
        return instances + placeholders

    def _is_available(self, name: str) -> bool:
        """Return False if a scaling activity of a group failed since its size was set (or has no start time).

        Returns True if AWS does not return the activities, and for an unknown group.
        """
        group = self._groups.get(name)
        if group is None:
            return True
        try:
            activities = self._api.scaling_activities(name)
        except AwsError as error:
            _log.warning("Could not check instance availability of %s: %s", name, error.message)
            return True
        for activity in activities:
            if activity.started is not None and activity.started < group.resized:
                break
            if activity.status_code == "Failed":
                _log.warning(
                    "ASG %s scaling failed with description: %s %s",
                    name, activity.description, activity.status_message,
                )  # fmt: skip
                return False
        return True

    def _warn_of_suspended(self) -> None:
        """Warn of the suspended processes that the autoscaler depends on, whenever those of a group change."""
        for name, group in self._groups.items():
            processes = () if group.described is None else group.described.suspended_processes
            stopped = tuple(
                process for process in _NEEDED_PROCESSES if any(p.process_name == process for p in processes)
            )
            if stopped != self._suspended.get(name, ()):
                for process in stopped:
                    _log.warning("the process %s of group %s is suspended: sizes have no effect", process, name)
                self._suspended[name] = stopped
        self._suspended = {name: stopped for name, stopped in self._suspended.items() if name in self._groups}

    def _read_options(self) -> None:
        """Set the options of all groups from their tags; log unreadable ones."""
        for group in self._groups.values():
            warnings: list[str] = []
            group.options = node_group_options(options_from_tags(group.tags), group.name, warnings)
            for warning in warnings:
                _log.warning("%s", warning)

    # -- templates -----------------------------------------------------------------------------------------------------

    def _build_templates(self, templates: _LaunchTemplates) -> None:
        """Set the template of each group; or remove it, and set the error that prevents it."""
        errors = self._look_up_types(templates)
        self._look_up_machines(each.name for each in self._types.values())
        for group in self._groups.values():
            try:
                self._build_template(group, errors.get(group.name))
            except ProviderError as error:
                group.template, group.template_error, group.template_inputs = None, error.message, ()

    def _build_template(self, group: RegisteredGroup, error: str | None) -> None:
        """Set the template of a group, unless its inputs are unchanged. Raises ProviderError if it cannot be built.

        ``error``: why the instance type of the group is unknown (None: there was no error).
        """
        zones = [] if group.described is None else group.described.availability_zones
        if not zones:
            raise ProviderError(f'unable to get first AvailabilityZone for ASG "{group.name}"')
        cached = self._types.get(group.name)
        if cached is None:
            raise ProviderError(error or f"could not find instance type for {group.name}")
        machine = self._machines.get(cached.name) or self._fallback.get(cached.name)
        if machine is None:
            raise ProviderError(f'ASG "{group.name}" uses the unknown EC2 instance type "{cached.name}"')
        managed = self._managed_nodegroup(group)
        inputs = (zones[0], machine, group.tags, group.requirements, managed)
        if group.template is None or inputs != group.template_inputs:
            group.template = build_template(
                group.name, zones[0], machine, group.tags, requirements=group.requirements, managed=managed
            )
            group.template_inputs = inputs
        group.template_error = None

    def _look_up_types(self, templates: _LaunchTemplates) -> dict[str, str]:
        """Look up the instance types of groups whose type is not cached or due for a refresh, and cache them.

        Types that have expired are dropped. Returns error messages by group; they are logged, too.
        """
        now = self._monotonic()
        groups = [
            group
            for group in self._groups.values()
            if group.described is not None and (group.name not in self._types or self._types[group.name].refresh <= now)
        ]
        types, errors = _instance_types(self._api, [group.described for group in groups if group.described], templates)
        for name, type_ in types.items():
            lifetime = math.trunc((_TYPE_LIFETIME - self._rng.uniform(*_TYPE_JITTER)) * SECOND)
            self._types[name] = _CachedType(type_, now + lifetime, now + _TYPE_LIFETIME * SECOND)
        self._types = {name: cached for name, cached in self._types.items() if cached.expires > now}
        for name, error in errors.items():
            _log.error("Failed to look up the instance type of ASG %s: %s", name, error)
        return {name: f"could not get instance type for {name}: {error}" for name, error in errors.items()}

    def _look_up_machines(self, names: Iterable[str]) -> None:
        """Request and cache the descriptions of instance types that are not known yet, unless EC2 must not be used.

        Types that EC2 did not describe are requested again after ten minutes. A failed request is logged.
        """
        now = self._monotonic()
        missing = sorted(
            name
            for name in {*names} - self._machines.keys()
            if name not in self._machines_tried or now - self._machines_tried[name] >= _MACHINE_RETRY
        )
        if not missing or not self._describes:
            return
        self._machines_tried |= dict.fromkeys(missing, now)
        try:
            described = self._api.instance_types(missing)
        except AwsError as error:
            _log.error("Failed to describe EC2 instance types, falling back to the catalogue: %s", error.message)
            return
        self._machines |= {each.instance_type: machine_type_from(each) for each in described}

    def _managed_nodegroup(self, group: RegisteredGroup) -> ManagedNodegroup | None:
        """Return the labels, taints and tags of the managed node group behind a group.

        Returns None if there is no managed node group, if EKS fails or if a taint has an unknown effect. What EKS
        returned, or its failure, is cached for six minutes.
        """
        key = managed_nodegroup_name(group.tags)
        if key is None:
            return None
        now = self._monotonic()
        cached, expires = self._nodegroups.get(key, (None, 0))
        if key in self._nodegroups and now < expires:
            return cached
        cluster, name = key
        managed: ManagedNodegroup | None = None
        try:
            managed = managed_nodegroup_from(self._api.nodegroup(cluster, name))
        except (AwsError, ValueError) as error:
            _log.error("Failed to query the managed nodegroup %s for the cluster %s: %s", name, cluster, error)
        self._nodegroups[key] = managed, now + _NODEGROUP_LIFETIME
        return managed


def _is_placeholder(instance: GroupInstance) -> bool:
    """Check whether an instance is a placeholder for one that AWS has not created yet."""
    return instance.instance_id.startswith(PLACEHOLDER)


def _counted_instances(group: AutoScalingGroup) -> list[GroupInstance]:
    """Return the instances that are part of the group's size: all but those in its warm pool."""
    return [each for each in group.instances if not each.lifecycle_state.startswith(_WARM)]


class _LaunchTemplates(msgspec.Struct, eq=False):
    """Launch templates that were read during one refresh: each is described once."""

    _api: AwsClient
    _cached: dict[LaunchTemplateSpecification, LaunchTemplateData | AwsError] = {}

    def get(self, template: LaunchTemplateSpecification) -> LaunchTemplateData:
        """Return the content of a launch template's version. Raises AwsError, which is cached, too."""
        if template not in self._cached:
            try:
                self._cached[template] = self._api.launch_template_data(template)
            except AwsError as error:
                self._cached[template] = error
        cached = self._cached[template]
        if isinstance(cached, AwsError):
            raise cached
        return cached


def _requirements(group: AutoScalingGroup, templates: _LaunchTemplates) -> Mapping[str, Any] | None:
    """Return the instance requirements of a group's mixed instances policy, else of the policy's launch template.

    Returns None without a policy or requirements, or if overrides name instance types. Raises ProviderError if the
    launch template cannot be read, or a type and requirements are set together.
    """
    policy = group.mixed_instances_policy
    if policy is None:
        return None
    if policy.instance_types:
        if policy.requirements is not None:
            text = "invalid setup of both instance type and instance requirements overrides configured"
            raise ProviderError(f"{group.name}: {text}", CLOUD_ERROR)
        return None
    if policy.requirements is not None:
        return policy.requirements
    if policy.specification is None:
        return None
    try:
        return templates.get(policy.specification).instance_requirements
    except AwsError as error:
        text = "unable to retrieve instance requirements from mixed instance policy"
        raise ProviderError(f"{group.name}: {text}, err: {error.message}", CLOUD_ERROR) from None


def _instance_types(
    api: AwsClient, groups: Sequence[AutoScalingGroup], templates: _LaunchTemplates
) -> tuple[dict[str, str], dict[str, str]]:
    """Return (instance types, error messages) of groups, both by group name.

    A group with neither launch configuration, template nor policy is in none of them.
    """
    types: dict[str, str] = {}
    errors: dict[str, str] = {}
    configured = [group for group in groups if group.launch_configuration_name]
    if configured:
        names = list(dict.fromkeys(group.launch_configuration_name for group in configured))
        try:
            known = {each.launch_configuration_name: each.instance_type for each in api.launch_configurations(names)}
        except AwsError as error:
            errors |= {group.name: error.message for group in configured}
        else:
            for group in configured:
                if type_ := known.get(group.launch_configuration_name):
                    types[group.name] = type_
                else:
                    errors[group.name] = f'could not fetch "{group.launch_configuration_name}" launch configuration'
    for group in groups:
        if group.launch_configuration_name:
            continue
        try:
            if type_ := _launched_type(api, group, templates):
                types[group.name] = type_
        except ProviderError as error:
            errors[group.name] = error.message
    return types, errors


def _launched_type(api: AwsClient, group: AutoScalingGroup, templates: _LaunchTemplates) -> str:
    """Return the instance type of a group's launch template or mixed instances policy; empty if it has neither.

    Raises ProviderError if the type cannot be determined.
    """
    template, policy = group.launch_template, group.mixed_instances_policy
    if template is None and policy is not None:
        if policy.instance_types:
            return policy.instance_types[0]
        if policy.requirements is not None:
            return _type_of_overrides(api, policy, templates)
        template = policy.specification
    if template is None:
        return ""
    data = templates.get(template)
    if data.instance_type:
        return data.instance_type
    if data.instance_requirements is not None and data.image_id is not None:
        return _required_type(api, data.image_id, data.instance_requirements)
    raise ProviderError("unable to find instance type using launch template")


def _type_of_overrides(api: AwsClient, policy: MixedInstancesPolicy, templates: _LaunchTemplates) -> str:
    """Return the first instance type that meets the requirements of a policy. Raises ProviderError if there is none."""
    if policy.specification is None:
        raise ProviderError("no launch template found for mixed instances policy")
    image = templates.get(policy.specification).image_id
    if image is None:
        raise ProviderError(f"no image found in launch template {policy.specification.label}")
    return _required_type(api, image, policy.requirements or {})


def _required_type(api: AwsClient, image: str, requirements: Mapping[str, Any]) -> str:
    """Return the first type that EC2 names for an image and requirements. Raises ProviderError if there is none."""
    type_ = api.first_type_for_requirements(api.image(image), requirements_request(requirements))
    if not type_:
        raise ProviderError("no instance types found for requirements")
    return type_
