"""Score plug-ins, their weights and arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Protocol

import msgspec

from kscale._native import _engine
from kscale.errors import InputError
from kscale.objects.api.core import PreferredSchedulingTerm
from kscale.objects.argument_types import check_fields
from kscale.scheduling.coercion import short

__all__ = ["DEFAULT_WEIGHTS", "ScoreOptions", "Scoring", "wrong_point"]

DEFAULT_WEIGHTS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "NodeResourcesFit": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
        "VolumeBinding": 1,
    }
)
"""Weights of the default profile of Kubernetes 1.37."""

_MOST_WEIGHT: Final = 100
_RESOURCES: Final[Mapping[str, int]] = MappingProxyType({"cpu": 1, "memory": 1})


class Scoring(Protocol):
    """A compiled scorer (:class:`kscale.plugin.ScorePlugin`)."""

    @property
    def name(self) -> str:
        """Return the name of the plug-in."""
        ...

    @property
    def resources(self) -> tuple[str, ...]:
        """Return the resources that the function reads in ``request`` and ``free``, besides the fixed first columns."""
        ...

    @property
    def address(self) -> int:
        """Return the address of the compiled function."""
        ...


class ScoreOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The Score side of the default profile of Kubernetes 1.37.

    ``weights``: plug-in -> weight; a plug-in without weight, or with 0, is not called. ``fit_strategy``
    (``LeastAllocated``, ``MostAllocated`` or ``RequestedToCapacityRatio``), ``fit_resources`` (resource -> weight) and
    ``fit_shape`` (ascending pairs of percent in use and score from 0 to 10): the scoring strategy of NodeResourcesFit.
    ``balanced_resources``: those of NodeResourcesBalancedAllocation. ``hard_pod_affinity_weight``,
    ``ignore_preferred_terms_of_existing_pods``: of InterPodAffinity. ``added_preferences``: the preferred part of
    NodeAffinity's ``addedAffinity``. ``volume_shape``: the ``shape`` of VolumeBinding, like ``fit_shape``.
    ``percentage_of_nodes_to_score``: the search for nodes stops once this percentage of all nodes was found to fit the
    pod; 0: a percentage that depends on the number of nodes. ``scorers``: the user's compiled scorers
    (:func:`kscale.plugin.scorer`) with their weights; a score is a number from 0 to 100, truncated to an integer.

    Raises InputError for what upstream's validation refuses, and for plug-ins that score nothing in kscale.
    """

    weights: Mapping[str, int] = DEFAULT_WEIGHTS
    fit_strategy: str = "LeastAllocated"
    fit_resources: Mapping[str, int] = _RESOURCES
    fit_shape: tuple[tuple[int, int], ...] = ()
    balanced_resources: tuple[str, ...] = ("cpu", "memory")
    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False
    added_preferences: tuple[PreferredSchedulingTerm, ...] = ()
    volume_shape: tuple[tuple[int, int], ...] = ((0, 10), (100, 0))
    percentage_of_nodes_to_score: int = 0
    scorers: tuple[tuple[Scoring, int], ...] = ()

    def __post_init__(self) -> None:
        check_fields(self)
        for name in self.weights:
            if name not in _engine.SCORE_PLUGINS:
                raise InputError(f"weights: no Score plug-in {name!r}; known: {', '.join(_engine.SCORE_PLUGINS)}")
        for name, weight in (*self.weights.items(), *((plugin.name, weight) for plugin, weight in self.scorers)):
            _check_integer(weight, 0, 2**31 - 1, f"weights: {name}")
        if self.fit_strategy not in _engine.FIT_STRATEGIES:
            strategies = ", ".join(_engine.FIT_STRATEGIES)
            raise InputError(f"fit_strategy is {short(self.fit_strategy)}, not one of {strategies}")
        for name, weight in self.fit_resources.items():
            _check_integer(weight, 1, _MOST_WEIGHT, f"fit_resources: {name}")
        if self.weights.get("NodeResourcesFit") and not self.fit_resources:
            raise InputError("fit_resources: NodeResourcesFit scores no resources")
        if self.weights.get("NodeResourcesBalancedAllocation") and not self.balanced_resources:
            raise InputError("balanced_resources: NodeResourcesBalancedAllocation scores no resources")
        if self.fit_strategy == "RequestedToCapacityRatio" and not self.fit_shape:
            raise InputError("fit_shape: RequestedToCapacityRatio needs at least one point")
        if self.fit_strategy != "RequestedToCapacityRatio" and self.fit_shape:
            raise InputError(f"fit_shape: {self.fit_strategy} takes no points, only RequestedToCapacityRatio does")
        _check_shape(self.fit_shape, "fit_shape")
        if not self.volume_shape:
            raise InputError("volume_shape: at least one point")
        _check_shape(self.volume_shape, "volume_shape")
        _check_integer(self.hard_pod_affinity_weight, 0, 100, "hard_pod_affinity_weight")
        _check_integer(self.percentage_of_nodes_to_score, 0, 100, "percentage_of_nodes_to_score")


def wrong_point(shape: Sequence[tuple[int, int]]) -> tuple[int, str, int, str] | None:
    """Return (index, field, value, reason) of the first point that upstream refuses; None if all points are valid.

    Upstream: ``validateFunctionShape``.
    """
    for i, (utilization, score) in enumerate(shape):
        if not 0 <= utilization <= 100:
            return i, "utilization", utilization, "not in valid range [0, 100]"
        if i and utilization <= shape[i - 1][0]:
            return i, "utilization", utilization, "values must be sorted in increasing order"
        if not 0 <= score <= 10:
            return i, "score", score, "not in valid range [0, 10]"
    return None


def _check_shape(shape: tuple[tuple[int, int], ...], what: str) -> None:
    """Raise InputError, which names ``what``, unless all points are pairs of integers that upstream accepts."""
    for i, point in enumerate(shape):
        for field, value in zip(("utilization", "score"), point, strict=True):
            if isinstance(value, bool) or not isinstance(value, int):
                raise InputError(f"{what}[{i}].{field} is {short(value)}, not a whole number")
    wrong = wrong_point(shape)
    if wrong is not None:
        i, field, value, reason = wrong
        raise InputError(f"{what}[{i}].{field}: Invalid value: {value}: {reason}")


def _check_integer(value: Any, low: int, high: int, what: str) -> None:
    """Raise InputError, which names ``what``, unless the value is an integer from ``low`` to ``high``."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InputError(f"{what} is {short(value)}, not a whole number from {low} to {high}")
