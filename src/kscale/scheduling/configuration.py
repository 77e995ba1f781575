"""Reads a scheduler configuration file (``--scheduler-config-file``) into a profile and score options.

Upstream: ``pkg/scheduler/apis/config/types.go`` (KubeSchedulerConfiguration).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from kscale._native import _engine
from kscale.errors import InputError
from kscale.objects.api.core import NodeAffinity, TopologySpreadConstraint
from kscale.objects.argument_types import typed
from kscale.objects.decode import from_dict
from kscale.objects.times import format_duration, parse_duration
from kscale.scheduling.coercion import short
from kscale.scheduling.preemption import Candidates
from kscale.scheduling.profile import SchedulerProfile
from kscale.scheduling.scores.options import DEFAULT_WEIGHTS, ScoreOptions, wrong_point

__all__ = [
    "FILTERS",
    "POINTS",
    "fields_of",
    "invalid",
    "is_known",
    "items_of",
    "number_of",
    "one_profile",
    "plugin_set",
    "plugins_everywhere",
    "preemption_candidates",
    "scheduler_profile",
    "score_options",
]


_API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
_KIND: Final = "KubeSchedulerConfiguration"

_OTHERS: Final = frozenset(
    {
        "SchedulingGates", "PrioritySort", "DefaultPreemption", "NodeResourcesBalancedAllocation", "ImageLocality",
        "DefaultBinder",
    }
)  # fmt: skip
"""Plug-ins of the default profile that filter nothing."""

FILTERS: Final = tuple(_engine.ORDINALS)
POINTS: Final = frozenset(
    {
        "preEnqueue", "queueSort", "preFilter", "filter", "postFilter", "preScore", "score", "reserve", "permit",
        "preBind", "bind", "postBind", "multiPoint",
    }
)  # fmt: skip


def one_profile(configuration: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the only profile of a configuration, an empty one if it lists none.

    Raises InputError for a wrong type, ``apiVersion`` or ``kind``, and for more than one profile, as upstream does.
    """
    if not isinstance(configuration, Mapping):
        raise InputError(f"couldn't decode scheduler config: {short(configuration)} is no object")
    version, kind = configuration.get("apiVersion"), configuration.get("kind")
    if kind != _KIND or version != _API_VERSION:
        raise InputError(f"couldn't assert type as KubeSchedulerConfiguration, gvk: {version}, Kind={kind}")
    profiles = configuration.get("profiles")
    profiles = [{}] if not profiles else items_of(profiles, "profiles")
    if len(profiles) != 1:
        problem = f"expected one scheduler profile only (found {len(profiles)} profiles)"
        raise InputError(f"unexpected scheduler config: {problem}")
    field_names = {"schedulerName", "percentageOfNodesToScore", "plugins", "pluginConfig"}
    return fields_of(profiles[0], "profiles[0]", field_names)


def is_known(name: str) -> bool:
    """Check whether kscale has a plug-in with this name, or ignores the plug-in because it filters nothing."""
    return name in FILTERS or name in _OTHERS


def plugin_set(value: Any, path: str) -> tuple[dict[str, int], set[str]]:
    """Return (weight by enabled plug-in, 0 if absent; names of disabled plug-ins) of an extension point at ``path``.

    Raises InputError, with the path of the field, for a wrong type, a bad weight, and an enabled plug-in that is
    unknown or repeated.
    """
    fields = fields_of(value or {}, path, {"enabled", "disabled"})
    sets: list[list[tuple[str, int]]] = []
    for field in ("enabled", "disabled"):
        entries = enumerate(items_of(fields.get(field) or [], f"{path}.{field}"))
        read = [fields_of(each, f"{path}.{field}[{i}]", {"name", "weight"}) for i, each in entries]
        weights = [number_of(entry.get("weight") or 0, f"{path}.{field}[{i}].weight") for i, entry in enumerate(read)]
        for i, weight in enumerate(weights):
            if not 0 <= weight < 2**31:
                raise invalid(f"{path}.{field}[{i}].weight", weight, "not in valid range [0, 2147483647]")
        sets.append([(str(entry.get("name", "")), weight) for entry, weight in zip(read, weights, strict=True)])
    enabled, disabled = sets
    for i, (name, _) in enumerate(enabled):
        if not is_known(name):
            raise InputError(f"{path}.enabled: kscale has no plug-in {name!r}")
        if any(name == other for other, _ in enabled[:i]):
            raise InputError(f"{path}: a plug-in is enabled twice")
    return dict(enabled), {name for name, _ in disabled}


def plugins_everywhere(value: Any) -> list[str]:
    """Return the plug-ins that the ``multiPoint`` object ``value`` enables.

    These are the default plug-ins that are not disabled, then additional ones. Raises InputError as :func:`plugin_set`
    does.
    """
    enabled, disabled = plugin_set(value, "profiles[0].plugins.multiPoint")
    defaults = [] if "*" in disabled else [name for name in (*FILTERS, *sorted(_OTHERS)) if name not in disabled]
    return defaults + [name for name in enabled if name not in defaults]


def fields_of(value: Any, path: str, fields: Iterable[str] | None) -> Mapping[str, Any]:
    """Return ``value`` if it is an object that has only these fields (None: any fields).

    Raises InputError for another type or for an unknown field.
    """
    if not isinstance(value, Mapping):
        raise InputError(f"couldn't decode scheduler config: {path} is {short(value)}, not an object")
    unknown = sorted(set(value).difference(fields)) if fields is not None else []
    if unknown:
        raise InputError(
            f'couldn\'t decode scheduler config: strict decoding error: unknown field "{path}.{unknown[0]}"'
        )
    return value


def items_of(value: Any, path: str) -> Sequence[Any]:
    """Return ``value`` if it is a list or tuple. Raises InputError, with the ``path``, otherwise."""
    if not isinstance(value, list | tuple):
        raise InputError(f"couldn't decode scheduler config: {path} is {short(value)}, not a list")
    return value


def number_of(value: Any, path: str) -> int:
    """Return ``value`` if it is an integer. Raises InputError, with the ``path``, otherwise and for a boolean."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"couldn't decode scheduler config: {path} is {short(value)}, not a whole number")
    return value


def invalid(path: str, value: object, reason: str) -> InputError:
    """Build the error that upstream's validation reports for a value (``field.Invalid``)."""
    return InputError(f"invalid KubeSchedulerConfiguration: {path}: Invalid value: {value}: {reason}")


_CONFIG: Final = "profiles[0].pluginConfig"
_PERCENTAGE: Final = "minCandidateNodesPercentage"
_ABSOLUTE: Final = "minCandidateNodesAbsolute"


@typed
def scheduler_profile(configuration: Any) -> SchedulerProfile:  # any type: upstream reports non-objects
    """Read the filter profile of a KubeSchedulerConfiguration.

    Only plug-ins that filter are read, with the arguments of their Filters. Plug-ins that queue, preempt or bind have
    no effect, as in the Cluster Autoscaler. :func:`kscale.score_options` reads the scores.

    Parameters
    ----------
    configuration : dict
        A KubeSchedulerConfiguration (``kubescheduler.config.k8s.io/v1``) with one profile, as parsed YAML or JSON.

    Returns
    -------
    SchedulerProfile
        Disabled filters and prefilters, and the arguments of plug-ins.

    Raises
    ------
    InputError
        With the path of the field, for what upstream refuses and for what kscale does not support: filters in another
        order than the default one, and unknown plug-ins.
    """
    profile = one_profile(configuration)
    plugins = fields_of(profile.get("plugins") or {}, "profiles[0].plugins", POINTS)
    everywhere = plugins_everywhere(plugins.get("multiPoint"))
    return SchedulerProfile(
        disabled_filters=_disabled_filters(
            _expand_filters(everywhere, plugins.get("filter"), "profiles[0].plugins.filter")
        ),
        disabled_prefilters=_disabled_filters(
            _expand_filters(everywhere, plugins.get("preFilter"), "profiles[0].plugins.preFilter")
        ),
        **_arguments(items_of(profile.get("pluginConfig") or [], "profiles[0].pluginConfig")),
    )


def preemption_candidates(configuration: Mapping[str, Any]) -> Candidates:
    """Read how many nodes DefaultPreemption tries from a KubeSchedulerConfiguration.

    A number that the configuration does not give is upstream's default (10 %, 100). Upstream:
    ``ValidateDefaultPreemptionArgs``. Raises InputError for what upstream refuses.
    """
    candidates = Candidates()
    for i, config in enumerate(items_of(one_profile(configuration).get("pluginConfig") or [], _CONFIG)):
        entry = fields_of(config, f"{_CONFIG}[{i}]", {"name", "args"})
        if entry.get("name") == "DefaultPreemption":
            path = f"{_CONFIG}[{i}].args"
            args = fields_of(entry.get("args") or {}, path, {"apiVersion", "kind", _PERCENTAGE, _ABSOLUTE})
            share, least = (
                default if args.get(name) is None else number_of(args[name], f"{path}.{name}")
                for name, default in (
                    (_PERCENTAGE, candidates.least_percentage),
                    (_ABSOLUTE, candidates.least_candidates),
                )
            )
            if not 0 <= share <= 100:
                raise invalid(f"{path}.{_PERCENTAGE}", share, "not in valid range [0, 100]")
            if least < 0:
                raise invalid(f"{path}.{_ABSOLUTE}", least, "not in valid range [0, inf)")
            if not share and not least:
                raise invalid(f"{path}.{_PERCENTAGE}", share, f"cannot be zero at the same time as {_ABSOLUTE}")
            candidates = Candidates(share, least)
    return candidates


def _disabled_filters(enabled: Iterable[str]) -> frozenset[str]:
    """Return the filters that are not enabled."""
    return frozenset(FILTERS).difference(enabled)


def _expand_filters(everywhere: Sequence[str], value: Any, path: str) -> list[str]:
    """Return the filters that run at an extension point, in order.

    ``everywhere``: plug-ins that ``multiPoint`` enables; ``value``: the extension point's object at ``path``. Raises
    InputError if a filter is enabled twice, or if the order is not the default one.
    """
    enabled, disabled = plugin_set(value, path)
    from_all = [] if "*" in disabled else [name for name in everywhere if name not in disabled]
    overriding = [name for name in enabled if name in from_all]
    rest = [name for name in enabled if name not in from_all]
    order = [*overriding, *(name for name in from_all if name not in overriding), *rest]
    filters = [name for name in order if name in FILTERS]
    if len(set(filters)) < len(filters):
        raise InputError(f"{path}: a plug-in is enabled twice")
    if filters != sorted(filters, key=FILTERS.index):
        raise InputError(
            f"{path}: filters in another order than the default one are not followed: {', '.join(filters)}"
        )
    return filters


# -- arguments ---------------------------------------------------------------------------------------------------------


def _arguments(configs: Sequence[Any]) -> dict[str, Any]:
    """Return the fields of a SchedulerProfile that the arguments of plug-ins (``configs``: ``pluginConfig``) set.

    Raises InputError for an unknown or repeated plug-in, or an invalid argument.
    """
    arguments: dict[str, Any] = {}
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
            arguments |= read(fields_of(entry.get("args") or {}, f"{path}.args", None), f"{path}.args")
    return arguments


def _node_affinity(args: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Read NodeAffinity's arguments: ``added_affinity``, if set. Raises InputError for invalid ones."""
    fields_of(args, path, {"apiVersion", "kind", "addedAffinity"})
    added = args.get("addedAffinity")
    return {} if added is None else {"added_affinity": from_dict(added, NodeAffinity).required}


def _resources_fit(args: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Read NodeResourcesFit's arguments: the resources and groups of resources to ignore.

    Raises InputError for invalid ones.
    """
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
    """Read PodTopologySpread's arguments: ``default_constraints``, absent for the system's defaults.

    Raises InputError for invalid arguments.
    """
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
    """Read DynamicResources' arguments: ``device_binding_timeout`` if set; ``filterTimeout`` is ignored.

    Raises InputError for invalid ones.
    """
    fields_of(args, path, {"apiVersion", "kind", "filterTimeout", "bindingTimeout"})
    binding_timeout = args.get("bindingTimeout")
    if binding_timeout is None:
        return {}
    try:
        timeout = parse_duration(binding_timeout)
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


@typed
def score_options(configuration: Any) -> ScoreOptions:  # any type: upstream reports non-objects
    """Read the Score side of a KubeSchedulerConfiguration.

    Reads weights (multi point and score), scoring strategies, preferences and ``percentageOfNodesToScore``. Plug-ins
    that score nothing in kscale are ignored. :func:`kscale.scheduler_profile` reads the filters.

    Parameters
    ----------
    configuration : dict
        A KubeSchedulerConfiguration (``kubescheduler.config.k8s.io/v1``) with one profile, as parsed YAML or JSON.

    Returns
    -------
    ScoreOptions
        The options of the scoring plug-ins.

    Raises
    ------
    InputError
        With the path of the field, for what upstream refuses, and for an enabled plug-in that kscale does not know.
    """
    profile = one_profile(configuration)
    options: dict[str, Any] = {
        "weights": _weights(fields_of(profile.get("plugins") or {}, "profiles[0].plugins", POINTS)),
        "percentage_of_nodes_to_score": _percentage(configuration, profile),
    }
    for i, config in enumerate(items_of(profile.get("pluginConfig") or [], "profiles[0].pluginConfig")):
        path = f"profiles[0].pluginConfig[{i}]"
        entry = fields_of(config, path, {"name", "args"})
        read = _ARGS_READERS.get(str(entry.get("name", "")))
        if read is not None:
            options |= read(fields_of(entry.get("args") or {}, f"{path}.args", None), f"{path}.args")
    return ScoreOptions(**options)


def _percentage(configuration: Mapping[str, Any], profile: Mapping[str, Any]) -> int:
    """Return ``percentageOfNodesToScore`` of the profile, else of the configuration.

    0 (the default) lets the number of nodes decide. Raises InputError if it is not between 0 and 100.
    """
    for where, fields in (("profiles[0].", profile), ("", configuration)):
        value = fields.get(_PERCENTAGE_FIELD)
        if value is not None:
            return _integer_between(value, 0, 100, f"{where}{_PERCENTAGE_FIELD}", "not in valid range [0-100]")
    return 0


def _weights(plugins: Mapping[str, Any]) -> dict[str, int]:
    """Return the weight of each Score plug-in that is enabled, in the scorer's order.

    Raises InputError, as :func:`plugin_set`, for a field of a wrong type, a bad weight, and an enabled plug-in that is
    unknown or repeated.
    """
    multi_point, _ = plugin_set(plugins.get("multiPoint"), "profiles[0].plugins.multiPoint")
    everywhere = {
        name: (multi_point[name] or 1) if name in multi_point else DEFAULT_WEIGHTS.get(name, 1)
        for name in plugins_everywhere(plugins.get("multiPoint"))
    }
    enabled, disabled = plugin_set(plugins.get("score"), "profiles[0].plugins.score")
    defaults = {} if "*" in disabled else {name: w for name, w in everywhere.items() if name not in disabled}
    weights = defaults | {name: weight or 1 for name, weight in enabled.items()}
    return {name: weights[name] for name in _engine.SCORE_PLUGINS if name in weights}


def _resources(value: Any, path: str) -> dict[str, int]:
    """Return resource -> weight (1 if absent) of a list of resources.

    Raises InputError, with the path of the field, for a wrong type or a repeated resource.
    """
    weights = {}
    for i, each in enumerate(items_of(value, path)):
        entry = fields_of(each, f"{path}[{i}]", {"name", "weight"})
        name = str(entry.get("name", ""))
        if name in weights:
            raise _build_error(f"{path}[{i}].name", f'Duplicate value: "{name}"')
        weights[name] = number_of(entry.get("weight") or 1, f"{path}[{i}].weight")
    return weights


def _build_error(path: str, reason: str) -> InputError:
    """Build the InputError for an invalid field, with ``reason`` in the words of upstream's validation."""
    return InputError(f"invalid KubeSchedulerConfiguration: {path}: {reason}")


def _shape(raw_points: Any, path: str) -> tuple[tuple[int, int], ...]:
    """Return the points (utilization, score) of a scoring function. Raises InputError for an invalid point."""
    points: list[tuple[int, int]] = []
    for i, each in enumerate(items_of(raw_points or [], path)):
        point = fields_of(each, f"{path}[{i}]", {"utilization", "score"})
        utilization, score = (
            number_of(point.get(field) or 0, f"{path}[{i}].{field}") for field in ("utilization", "score")
        )
        points.append((utilization, score))
    wrong = wrong_point(points)
    if wrong is not None:
        place, field, value, reason = wrong
        raise invalid(f"{path}[{place}].{field}", value, reason)
    return tuple(points)


def _integer_between(value: Any, low: int, high: int, path: str, otherwise: str | None = None) -> int:
    """Return ``value`` if it is an integer between two limits, both included.

    Raises InputError for other values. ``otherwise``: the error's reason if the value is out of range (None: a text
    with the limits).
    """
    number = number_of(value, path)
    if not low <= number <= high:
        raise invalid(path, number, otherwise or f"not in valid range [{low}, {high}]")
    return number


def _fit(args: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Read NodeResourcesFit's scoring strategy: ``fit_strategy``, ``fit_resources``, ``fit_shape``.

    Empty if absent. Raises InputError for what upstream refuses.
    """
    path = f"{path}.scoringStrategy"
    if args.get("scoringStrategy") is None:
        return {}
    strategy = fields_of(args["scoringStrategy"], path, {"type", "resources", _RATIO})
    type_ = strategy.get("type") or ""
    if type_ not in _engine.FIT_STRATEGIES:
        strategies = ", ".join(f'"{name}"' for name in sorted(_engine.FIT_STRATEGIES))
        raise _build_error(f"{path}.type", f'Unsupported value: "{type_}": supported values: {strategies}')
    options: dict[str, Any] = {"fit_strategy": type_}
    if strategy.get("resources"):
        options["fit_resources"] = resources = _resources(strategy["resources"], f"{path}.resources")
        for i, (name, weight) in enumerate(resources.items()):
            reason = f"resource weight of {name} not in valid range (0, 100]"
            _integer_between(weight, 1, 100, f"{path}.resources[{i}].weight", reason)
    path, ratio = f"{path}.{_RATIO}", strategy.get(_RATIO)
    if type_ != "RequestedToCapacityRatio":
        if ratio is not None:
            raise _build_error(path, "Forbidden: must be nil when type is not RequestedToCapacityRatio")
        return options
    if ratio is None:
        raise _build_error(path, "Required value: must be specified when type is RequestedToCapacityRatio")
    options["fit_shape"] = _shape(fields_of(ratio, path, {"shape"}).get("shape"), f"{path}.shape")
    if not options["fit_shape"]:
        raise _build_error(f"{path}.shape", "Required value: at least one point must be specified")
    return options


def _read_balanced_args(args: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Read ``balanced_resources``; empty if absent. Raises InputError if a weight is not 1."""
    resources = _resources(args.get("resources") or [], f"{path}.resources")
    for i, weight in enumerate(resources.values()):
        if weight != 1:
            raise invalid(f"{path}.resources[{i}].weight", weight, "must be 1")
    return {"balanced_resources": tuple(resources)} if resources else {}


def _affinity(args: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Read InterPodAffinity's scoring arguments; ``hard_pod_affinity_weight`` only if set.

    Raises InputError if invalid.
    """
    field_names = {"apiVersion", "kind", "hardPodAffinityWeight", "ignorePreferredTermsOfExistingPods"}
    args = fields_of(args, path, field_names)
    options: dict[str, Any] = {"ignore_preferred_terms_of_existing_pods": bool(args.get(_IGNORE))}
    if args.get("hardPodAffinityWeight") is not None:
        weight = _integer_between(args["hardPodAffinityWeight"], 0, 100, f"{path}.hardPodAffinityWeight")
        options["hard_pod_affinity_weight"] = weight
    return options


def _read_node_affinity_args(args: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Read NodeAffinity's ``added_preferences``; empty if absent. Raises InputError for invalid arguments."""
    added = fields_of(args, path, {"apiVersion", "kind", "addedAffinity"}).get("addedAffinity")
    return {} if added is None else {"added_preferences": tuple(from_dict(added, NodeAffinity).preferred)}


def _volume_binding(args: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Read VolumeBinding's ``volume_shape``; empty if absent. Raises InputError for what upstream refuses."""
    args = fields_of(args, path, {"apiVersion", "kind", _TIMEOUT, "shape"})
    if args.get(_TIMEOUT) is not None:  # kscale does not wait, but refuses what upstream refuses
        timeout = number_of(args[_TIMEOUT], f"{path}.{_TIMEOUT}")
        if timeout < 0:
            negative = "invalid BindTimeoutSeconds, should not be a negative value"
            raise invalid(f"{path}.{_TIMEOUT}", timeout, negative)
    shape = _shape(args.get("shape"), f"{path}.shape")
    return {"volume_shape": shape} if shape else {}


_IGNORE: Final = "ignorePreferredTermsOfExistingPods"
_PERCENTAGE_FIELD: Final = "percentageOfNodesToScore"
_RATIO: Final = "requestedToCapacityRatio"
_TIMEOUT: Final = "bindTimeoutSeconds"
_ARGS_READERS = {
    "NodeResourcesFit": _fit,
    "NodeResourcesBalancedAllocation": _read_balanced_args,
    "InterPodAffinity": _affinity,
    "NodeAffinity": _read_node_affinity_args,
    "VolumeBinding": _volume_binding,
}
