"""A scheduler's configuration file as a profile (``--scheduler-config-file``).

Upstream: ``pkg/scheduler/apis/config/types.go`` (KubeSchedulerConfiguration).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from kscale.errors import InputError
from kscale.objects.argument_types import typed
from kscale.objects.core import NodeAffinity, TopologySpreadConstraint
from kscale.objects.decode import from_dict
from kscale.objects.durations import format_duration, parse_duration
from kscale.scheduling.configuration import (
    FILTERS,
    POINTS,
    fields_of,
    invalid,
    is_known,
    items_of,
    number_of,
    one_profile,
    plugin_set,
    plugins_everywhere,
)
from kscale.scheduling.preemption import Candidates
from kscale.scheduling.profile import SchedulerProfile

__all__ = ["preemption_candidates", "scheduler_profile"]

_CONFIG: Final = "profiles[0].pluginConfig"
_PERCENTAGE: Final = "minCandidateNodesPercentage"
_ABSOLUTE: Final = "minCandidateNodesAbsolute"


@typed
def scheduler_profile(configuration: Any) -> SchedulerProfile:  # of any type: upstream has words for what is no object
    """The profile of a KubeSchedulerConfiguration (``kubescheduler.config.k8s.io/v1``), as parsed YAML or JSON.

    Of its one profile the plug-ins that filter count, with the arguments that their Filters read; what only
    queues, preempts or binds has no effect here, as in the Cluster Autoscaler; scores are
    :func:`kscale.score_options`'s.

    Raises InputError, with the path of the field, for what upstream refuses, and for what kscale does not follow:
    filters in another order than the default one, and plug-ins that it does not have.
    """
    profile = one_profile(configuration)
    plugins = fields_of(profile.get("plugins") or {}, "profiles[0].plugins", POINTS)
    everywhere = plugins_everywhere(plugins.get("multiPoint"))
    return SchedulerProfile(
        disabled_filters=_missing(_expanded(everywhere, plugins.get("filter"), "profiles[0].plugins.filter")),
        disabled_prefilters=_missing(_expanded(everywhere, plugins.get("preFilter"), "profiles[0].plugins.preFilter")),
        **_arguments(items_of(profile.get("pluginConfig") or [], "profiles[0].pluginConfig")),
    )


def preemption_candidates(configuration: Mapping[str, Any]) -> Candidates:
    """How many nodes DefaultPreemption tries, of a KubeSchedulerConfiguration. Raises InputError for what upstream
    refuses (``ValidateDefaultPreemptionArgs``)."""
    found = Candidates()
    for i, config in enumerate(items_of(one_profile(configuration).get("pluginConfig") or [], _CONFIG)):
        entry = fields_of(config, f"{_CONFIG}[{i}]", {"name", "args"})
        if entry.get("name") == "DefaultPreemption":
            path = f"{_CONFIG}[{i}].args"
            args = fields_of(entry.get("args") or {}, path, {"apiVersion", "kind", _PERCENTAGE, _ABSOLUTE})
            share, least = (
                default if args.get(name) is None else number_of(args[name], f"{path}.{name}")
                for name, default in ((_PERCENTAGE, found.least_percentage), (_ABSOLUTE, found.least_candidates))
            )
            if not 0 <= share <= 100:
                raise invalid(f"{path}.{_PERCENTAGE}", share, "not in valid range [0, 100]")
            if least < 0:
                raise invalid(f"{path}.{_ABSOLUTE}", least, "not in valid range [0, inf)")
            if not share and not least:
                raise invalid(f"{path}.{_PERCENTAGE}", share, f"cannot be zero at the same time as {_ABSOLUTE}")
            found = Candidates(share, least)
    return found


def _missing(enabled: Iterable[str]) -> frozenset[str]:
    return frozenset(FILTERS).difference(enabled)


def _expanded(everywhere: Sequence[str], given: Any, path: str) -> list[str]:
    """The filters that run at an extension point, in order."""
    enabled, disabled = plugin_set(given, path)
    from_all = [] if "*" in disabled else [name for name in everywhere if name not in disabled]
    overriding = [name for name in enabled if name in from_all]
    rest = [name for name in enabled if name not in from_all]
    order = [*overriding, *(name for name in from_all if name not in overriding), *rest]
    found = [name for name in order if name in FILTERS]
    if len(set(found)) < len(found):
        raise InputError(f"{path}: a plug-in is enabled twice")
    if found != sorted(found, key=FILTERS.index):
        raise InputError(f"{path}: filters in another order than the default one are not followed: {', '.join(found)}")
    return found


# -- arguments ---------------------------------------------------------------------------------------------------------


def _arguments(configs: Sequence[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    seen: set[str] = set()
    for i, config in enumerate(configs):
        path = f"profiles[0].pluginConfig[{i}]"
        entry = fields_of(config, path, {"name", "args"})
        name = str(entry.get("name", ""))
        if name in seen:
            raise InputError(f"{path}: repeated config for plugin {name}")
        if not is_known(name):
            raise InputError(f"{path}.name: kscale has no plug-in {name!r}")
        seen.add(name)
        read = _READERS.get(name)
        if read is not None:
            found |= read(fields_of(entry.get("args") or {}, f"{path}.args", None), f"{path}.args")
    return found


def _node_affinity(args: Mapping[str, Any], path: str) -> dict[str, Any]:
    fields_of(args, path, {"apiVersion", "kind", "addedAffinity"})
    added = args.get("addedAffinity")
    return {} if added is None else {"added_affinity": from_dict(added, NodeAffinity).required}


def _resources_fit(args: Mapping[str, Any], path: str) -> dict[str, Any]:
    fields_of(args, path, {"apiVersion", "kind", "ignoredResources", "ignoredResourceGroups", "scoringStrategy"})
    groups = items_of(args.get("ignoredResourceGroups") or [], f"{path}.ignoredResourceGroups")
    for i, group in enumerate(groups):
        if "/" in str(group):
            raise InputError(
                f"invalid KubeSchedulerConfiguration: {path}.ignoredResourceGroups[{i}]: Invalid value: "
                f"\"{group}\": resource group name can't contain '/'"
            )
    return {
        "ignored_resources": frozenset(
            map(str, items_of(args.get("ignoredResources") or [], f"{path}.ignoredResources"))
        ),
        "ignored_resource_groups": frozenset(map(str, groups)),
    }


def _topology_spread(args: Mapping[str, Any], path: str) -> dict[str, Any]:
    fields_of(args, path, {"apiVersion", "kind", "defaultConstraints", "defaultingType"})
    constraints = items_of(args.get("defaultConstraints") or [], f"{path}.defaultConstraints")
    kind = args.get("defaultingType") or ("List" if constraints else "System")
    if kind not in ("List", "System"):
        raise InputError(
            f'invalid KubeSchedulerConfiguration: {path}.defaultingType: Unsupported value: "{kind}": '
            'supported values: "System", "List"'
        )
    if kind == "System":
        if constraints:
            raise InputError(
                f'invalid KubeSchedulerConfiguration: {path}.defaultingType: Invalid value: "System": when '
                ".defaultConstraints are not empty"
            )
        return {}
    for i, constraint in enumerate(constraints):
        if isinstance(constraint, Mapping) and constraint.get("labelSelector") is not None:
            raise InputError(
                f"invalid KubeSchedulerConfiguration: {path}.defaultConstraints[{i}].labelSelector: Forbidden: "
                "constraint must not define a selector, as they deduced for each pod"
            )
    return {"default_constraints": tuple(from_dict(each, TopologySpreadConstraint) for each in constraints)}


def _dynamic_resources(args: Mapping[str, Any], path: str) -> dict[str, Any]:
    fields_of(args, path, {"apiVersion", "kind", "filterTimeout", "bindingTimeout"})
    given = args.get("bindingTimeout")
    if given is None:
        return {}
    try:
        timeout = parse_duration(given)
    except (TypeError, ValueError) as problem:
        raise InputError(f"couldn't decode scheduler config: {path}.bindingTimeout: {problem}") from None
    if timeout < 10**9:
        raise InputError(
            f'invalid KubeSchedulerConfiguration: {path}.bindingTimeout: Invalid value: "{format_duration(timeout)}": '
            "must be at least 1 second"
        )
    return {"device_binding_timeout": timedelta(microseconds=timeout // 1000)}


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any], str], dict[str, Any]]]] = {
    "DynamicResources": _dynamic_resources,
    "NodeAffinity": _node_affinity,
    "NodeResourcesFit": _resources_fit,
    "PodTopologySpread": _topology_spread,
}
