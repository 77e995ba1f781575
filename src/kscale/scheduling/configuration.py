"""What readers of a scheduler's configuration file have in common (upstream: ``KubeSchedulerConfiguration``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kscale._native import _engine
from kscale.errors import InputError
from kscale.scheduling.arguments import short

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
    """The one profile of a configuration. Raises InputError for what upstream refuses."""
    if not isinstance(configuration, Mapping):
        raise InputError(f"couldn't decode scheduler config: {short(configuration)} is no object")
    version, kind = configuration.get("apiVersion"), configuration.get("kind")
    if kind != _KIND or version != _API_VERSION:
        raise InputError(f"couldn't assert type as KubeSchedulerConfiguration, gvk: {version}, Kind={kind}")
    profiles = configuration.get("profiles")
    profiles = [{}] if not profiles else items_of(profiles, "profiles")
    if len(profiles) != 1:
        found = f"expected one scheduler profile only (found {len(profiles)} profiles)"
        raise InputError(f"unexpected scheduler config: {found}")
    known = {"schedulerName", "percentageOfNodesToScore", "plugins", "pluginConfig"}
    return fields_of(profiles[0], "profiles[0]", known)


def is_known(name: str) -> bool:
    """Whether there is such a plug-in here, or one that filters nothing."""
    return name in FILTERS or name in _OTHERS


def plugin_set(given: Any, path: str) -> tuple[dict[str, int], set[str]]:
    """(enabled ones with their weights, 0 = none given; disabled names) of an extension point. Raises InputError."""
    found = fields_of(given or {}, path, {"enabled", "disabled"})
    sets: list[list[tuple[str, int]]] = []
    for field in ("enabled", "disabled"):
        entries = enumerate(items_of(found.get(field) or [], f"{path}.{field}"))
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


def plugins_everywhere(given: Any) -> list[str]:
    """What is enabled at every extension point: the default plug-ins but for those that are disabled, then others."""
    enabled, disabled = plugin_set(given, "profiles[0].plugins.multiPoint")
    kept = [] if "*" in disabled else [name for name in (*FILTERS, *sorted(_OTHERS)) if name not in disabled]
    return kept + [name for name in enabled if name not in kept]


def fields_of(given: Any, path: str, fields: Iterable[str] | None) -> Mapping[str, Any]:
    """An object that has no fields but these (None: any). Raises InputError."""
    if not isinstance(given, Mapping):
        raise InputError(f"couldn't decode scheduler config: {path} is {short(given)}, not an object")
    unknown = sorted(set(given).difference(fields)) if fields is not None else []
    if unknown:
        raise InputError(
            f'couldn\'t decode scheduler config: strict decoding error: unknown field "{path}.{unknown[0]}"'
        )
    return given


def items_of(given: Any, path: str) -> Sequence[Any]:
    """A list. Raises InputError."""
    if not isinstance(given, list | tuple):
        raise InputError(f"couldn't decode scheduler config: {path} is {short(given)}, not a list")
    return given


def number_of(given: Any, path: str) -> int:
    """A whole number. Raises InputError."""
    if isinstance(given, bool) or not isinstance(given, int):
        raise InputError(f"couldn't decode scheduler config: {path} is {short(given)}, not a whole number")
    return given


def invalid(path: str, value: object, reason: str) -> InputError:
    """What upstream's validation says of a value (``field.Invalid``)."""
    return InputError(f"invalid KubeSchedulerConfiguration: {path}: Invalid value: {value}: {reason}")
