"""A scheduler's configuration file as what its Score plug-ins are told.

Upstream: ``pkg/scheduler/apis/config/types.go`` (KubeSchedulerConfiguration).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kscale._native import _selecting
from kscale.errors import InputError
from kscale.objects.argument_types import typed
from kscale.objects.core import NodeAffinity
from kscale.objects.decode import from_dict
from kscale.scheduling.configuration import (
    POINTS,
    fields_of,
    invalid,
    items_of,
    number_of,
    one_profile,
    plugin_set,
    plugins_everywhere,
)
from kscale.scheduling.scores.options import DEFAULT_WEIGHTS, ScoreOptions, wrong_point

__all__ = ["score_options"]


@typed
def score_options(configuration: Any) -> ScoreOptions:  # of any type: upstream has words for what is no object
    """The Score side of a KubeSchedulerConfiguration (``kubescheduler.config.k8s.io/v1``), as parsed YAML or JSON:
    weights (multi point and score), scoring strategies, preferences and ``percentageOfNodesToScore``. Its filters are
    read by :func:`kscale.scheduler_profile`.

    Plug-ins that score nothing here are passed over. Raises InputError, with the path of the field, for what upstream
    refuses.
    """
    profile = one_profile(configuration)
    found: dict[str, Any] = {
        "weights": _weights(fields_of(profile.get("plugins") or {}, "profiles[0].plugins", POINTS)),
        "percentage_of_nodes_to_score": _percentage(configuration, profile),
    }
    for i, config in enumerate(items_of(profile.get("pluginConfig") or [], "profiles[0].pluginConfig")):
        path = f"profiles[0].pluginConfig[{i}]"
        entry = fields_of(config, path, {"name", "args"})
        read = _READERS.get(str(entry.get("name", "")))
        if read is not None:
            found |= read(fields_of(entry.get("args") or {}, f"{path}.args", None), f"{path}.args")
    return ScoreOptions(**found)


def _percentage(configuration: Mapping[str, Any], profile: Mapping[str, Any]) -> int:
    """The profile's own, else that of all; 0: by the number of nodes."""
    for where, fields in (("profiles[0].", profile), ("", configuration)):
        given = fields.get(_PERCENTAGE)
        if given is not None:
            return _within(given, 0, 100, f"{where}{_PERCENTAGE}", "not in valid range [0-100]")
    return 0


def _weights(plugins: Mapping[str, Any]) -> dict[str, int]:
    given, _ = plugin_set(plugins.get("multiPoint"), "profiles[0].plugins.multiPoint")
    everywhere = {
        name: (given[name] or 1) if name in given else DEFAULT_WEIGHTS.get(name, 1)
        for name in plugins_everywhere(plugins.get("multiPoint"))
    }
    enabled, disabled = plugin_set(plugins.get("score"), "profiles[0].plugins.score")
    kept = {} if "*" in disabled else {name: w for name, w in everywhere.items() if name not in disabled}
    weights = kept | {name: weight or 1 for name, weight in enabled.items()}
    return {name: weights[name] for name in _selecting.PLUGINS if name in weights}


def _resources(given: Any, path: str) -> dict[str, int]:
    found = {}
    for i, each in enumerate(items_of(given, path)):
        entry = fields_of(each, f"{path}[{i}]", {"name", "weight"})
        name = str(entry.get("name", ""))
        if name in found:
            raise _refused(f"{path}[{i}].name", f'Duplicate value: "{name}"')
        found[name] = number_of(entry.get("weight") or 1, f"{path}[{i}].weight")
    return found


def _refused(path: str, why: str) -> InputError:
    return InputError(f"invalid KubeSchedulerConfiguration: {path}: {why}")


def _shape(given: Any, path: str) -> tuple[tuple[int, int], ...]:
    """The points of a function."""
    points: list[tuple[int, int]] = []
    for i, each in enumerate(items_of(given or [], path)):
        point = fields_of(each, f"{path}[{i}]", {"utilization", "score"})
        at, score = (number_of(point.get(field) or 0, f"{path}[{i}].{field}") for field in ("utilization", "score"))
        points.append((at, score))
    wrong = wrong_point(points)
    if wrong is not None:
        place, field, value, reason = wrong
        raise invalid(f"{path}[{place}].{field}", value, reason)
    return tuple(points)


def _within(given: Any, low: int, high: int, path: str, otherwise: str | None = None) -> int:
    number = number_of(given, path)
    if not low <= number <= high:
        raise invalid(path, number, otherwise or f"not in valid range [{low}, {high}]")
    return number


def _fit(args: Mapping[str, Any], path: str) -> dict[str, Any]:
    path = f"{path}.scoringStrategy"
    if args.get("scoringStrategy") is None:
        return {}
    strategy = fields_of(args["scoringStrategy"], path, {"type", "resources", _RATIO})
    type_ = strategy.get("type") or ""
    if type_ not in _selecting.STRATEGIES:
        known = ", ".join(f'"{name}"' for name in sorted(_selecting.STRATEGIES))
        raise _refused(f"{path}.type", f'Unsupported value: "{type_}": supported values: {known}')
    found: dict[str, Any] = {"fit_strategy": type_}
    if strategy.get("resources"):
        found["fit_resources"] = resources = _resources(strategy["resources"], f"{path}.resources")
        for i, (name, weight) in enumerate(resources.items()):
            reason = f"resource weight of {name} not in valid range (0, 100]"
            _within(weight, 1, 100, f"{path}.resources[{i}].weight", reason)
    path, ratio = f"{path}.{_RATIO}", strategy.get(_RATIO)
    if type_ != "RequestedToCapacityRatio":
        if ratio is not None:
            raise _refused(path, "Forbidden: must be nil when type is not RequestedToCapacityRatio")
        return found
    if ratio is None:
        raise _refused(path, "Required value: must be specified when type is RequestedToCapacityRatio")
    found["fit_shape"] = _shape(fields_of(ratio, path, {"shape"}).get("shape"), f"{path}.shape")
    if not found["fit_shape"]:
        raise _refused(f"{path}.shape", "Required value: at least one point must be specified")
    return found


def _balanced(args: Mapping[str, Any], path: str) -> dict[str, Any]:
    resources = _resources(args.get("resources") or [], f"{path}.resources")
    for i, weight in enumerate(resources.values()):
        if weight != 1:
            raise invalid(f"{path}.resources[{i}].weight", weight, "must be 1")
    return {"balanced_resources": tuple(resources)} if resources else {}


def _affinity(args: Mapping[str, Any], path: str) -> dict[str, Any]:
    known = {"apiVersion", "kind", "hardPodAffinityWeight", "ignorePreferredTermsOfExistingPods"}
    args = fields_of(args, path, known)
    found: dict[str, Any] = {"ignore_preferred_terms_of_existing_pods": bool(args.get(_IGNORE))}
    if args.get("hardPodAffinityWeight") is not None:
        weight = _within(args["hardPodAffinityWeight"], 0, 100, f"{path}.hardPodAffinityWeight")
        found["hard_pod_affinity_weight"] = weight
    return found


def _node_affinity(args: Mapping[str, Any], path: str) -> dict[str, Any]:
    added = fields_of(args, path, {"apiVersion", "kind", "addedAffinity"}).get("addedAffinity")
    return {} if added is None else {"added_preferences": tuple(from_dict(added, NodeAffinity).preferred)}


def _volume_binding(args: Mapping[str, Any], path: str) -> dict[str, Any]:
    args = fields_of(args, path, {"apiVersion", "kind", _TIMEOUT, "shape"})
    if args.get(_TIMEOUT) is not None:  # nobody waits here, but what upstream refuses is refused
        timeout = number_of(args[_TIMEOUT], f"{path}.{_TIMEOUT}")
        if timeout < 0:
            negative = "invalid BindTimeoutSeconds, should not be a negative value"
            raise invalid(f"{path}.{_TIMEOUT}", timeout, negative)
    shape = _shape(args.get("shape"), f"{path}.shape")
    return {"volume_shape": shape} if shape else {}


_IGNORE: Final = "ignorePreferredTermsOfExistingPods"
_PERCENTAGE: Final = "percentageOfNodesToScore"
_RATIO: Final = "requestedToCapacityRatio"
_TIMEOUT: Final = "bindTimeoutSeconds"
_READERS = {
    "NodeResourcesFit": _fit,
    "NodeResourcesBalancedAllocation": _balanced,
    "InterPodAffinity": _affinity,
    "NodeAffinity": _node_affinity,
    "VolumeBinding": _volume_binding,
}
