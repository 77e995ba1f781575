"""Report of the decisions for the HPAs of a dump: metrics, conditions, limits, and pods that belong to other
workloads.

Upstream counts every pod that the selector matches, whoever owns it, and names none of them; the replicas stay
upstream's. Not in upstream.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
import numpy as np

from kscale.effects import ZERO_TIME, ApiError, Moment, moment, to_text
from kscale.errors import InputError
from kscale.hpa.api.keda import PausedTarget
from kscale.hpa.controller.decision import HPADecision, build_decision, describe_target, explain_decision
from kscale.hpa.controller.metric_proposals import get_value_target
from kscale.hpa.controller.state import ControllerState
from kscale.hpa.dump.dump import Dump
from kscale.hpa.options import DEFAULT_OPTIONS, HPAOptions
from kscale.objects.api.autoscaling import (
    CrossVersionObjectReference,
    ExternalMetricSource,
    HorizontalPodAutoscaler,
    ObjectMetricSource,
    Scale,
)
from kscale.objects.api.meta import ObjectMeta
from kscale.objects.argument_types import typed
from kscale.objects.decode import from_dict
from kscale.objects.kinds import group_of
from kscale.objects.pod_owners import controller_of
from kscale.objects.selectors import SelectorError
from kscale.records import Record
from kscale.snapshot.caches import collector_paused
from kscale.snapshot.classes.interner import PodClass
from kscale.snapshot.columns import PHASES
from kscale.snapshot.pods.index import PodIndex, PodSelections

__all__ = [
    "HPAReport",
    "PausedScaledObject",
    "PodOwners",
    "depends_on_pods",
    "hpa_report",
]


_TEMPLATE_HASH_LABELS: Final = {"pod-template-hash": "Deployment", "rollouts-pod-template-hash": "Rollout"}
"""Pod labels whose value ends the name of the ReplicaSet, and the kind that owns the ReplicaSet."""
_INTERMEDIATE_KINDS: Final = frozenset({"ReplicaSet", "Job"})
_MAX_OWNER_CHAIN: Final = 10
"""Maximum number of owners to follow; chains have two or three."""

_Owner = tuple[str, str, str]
"""(group or API version, kind, name)."""


def depends_on_pods(hpa: HorizontalPodAutoscaler) -> bool:
    """Check whether a metric of an HPA depends on the pods that the selector matches.

    All metrics do, except object and external metrics with a value per pod.
    """
    return any(not _has_per_pod_target(spec.object or spec.external) for spec in hpa.spec.metrics or ())


def _has_per_pod_target(source: ObjectMetricSource | ExternalMetricSource | None) -> bool:
    """Check whether there is a metric source and its target is a value per pod."""
    return source is not None and get_value_target(source)[0].endswith("per_pod")


class PodOwners(msgspec.Struct, eq=False):
    """Counts pods by the workload that they belong to.

    ``objects``: plain data of workloads by (group, kind, namespace, name), as far as they are known.
    """

    _pods: PodIndex
    _objects: Mapping[tuple[str, str, str, str], Mapping[str, Any]]

    def count(self, selected: Sequence[tuple[HorizontalPodAutoscaler, str]]) -> list[Counter[str]]:
        """Count by owner the pods that each HPA's selector matches.

        ``selected``: HPAs with their targets' selectors. An owner is ``Kind/name``, or empty for pods without one. Pods
        that are being deleted or have failed are left out, as upstream leaves them out. Raises SelectorError for an
        invalid selector.
        """
        counts: list[Counter[str]] = []
        size = _SELECTED_TOGETHER
        while len(counts) < len(selected):
            batch = selected[len(counts) : len(counts) + size]
            selections = self._pods.select_many([(hpa.metadata.namespace, selector) for hpa, selector in batch])
            counts += self._count_batch(batch, selections)
            size = max(_SELECTED_TOGETHER, len(batch) * _PODS_TOGETHER // (int(selections.ends[-1]) + 1))
        return counts

    def _count_batch(
        self, selected: Sequence[tuple[HorizontalPodAutoscaler, str]], selections: PodSelections
    ) -> list[Counter[str]]:
        """Count by owner the pods of some HPAs as :meth:`count` does. ``selections``: the pods of each HPA."""
        owners = [Counter[str]() for _ in selected]
        pods = selections.pods
        is_counted = (pods.deleted == ZERO_TIME) & (pods.phase != PHASES.index("Failed"))
        classes = pods.classes[is_counted].astype(np.int64)
        rows = np.repeat(np.arange(len(selected)), np.diff(selections.ends))[is_counted]
        width = int(classes.max(initial=0)) + 1
        pairs, counts = np.unique(rows * width + classes, return_counts=True)
        for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
            row, number = divmod(pair, width)
            owners[row][self._find_owner(pods.pod_class(number), selected[row][0])] += count
        return owners

    def _find_owner(self, pods: PodClass, hpa: HorizontalPodAutoscaler) -> str:
        """Return the owner of pods as ``Kind/name``: the target if it owns them, or their workload; empty for none."""
        reference, target = pods.owner, hpa.spec.scale_target_ref
        shown: _Owner | None = None
        for _ in range(_MAX_OWNER_CHAIN):
            if reference is None:
                break
            api_version, kind, name = reference
            owner = group_of(api_version), kind, name
            if owner == (group_of(target.api_version), target.kind, target.name):
                return f"{kind}/{name}"
            if shown is None or shown[1] in _INTERMEDIATE_KINDS:
                shown = owner
            data = self._objects.get((owner[0], kind, hpa.metadata.namespace, name))
            reference = (
                _guess_replica_set_owner(pods.labels or {}, owner, target) if data is None else _read_controller(data)
            )
        return "" if shown is None else f"{shown[1]}/{shown[2]}"


_SELECTED_TOGETHER: Final = 64
"""HPAs whose pods are counted together, if not more: each of them may select all pods of a namespace."""
_PODS_TOGETHER: Final = 1 << 15
"""Pods of HPAs that are counted together, as estimated from the HPAs before them."""


def _read_controller(data: Mapping[str, Any]) -> _Owner | None:
    """Return API version, kind and name of the controller that owns a workload.

    None if there is none or it is invalid.
    """
    references = (data.get("metadata") or {}).get("ownerReferences") or []
    try:
        owner = controller_of(from_dict({"ownerReferences": references}, ObjectMeta)) if references else None
    except InputError:  # an object that is only shown by name is not rejected
        return None
    return None if owner is None else (owner.api_version, owner.kind, owner.name)


def _guess_replica_set_owner(
    labels: Mapping[str, str], owner: _Owner, target: CrossVersionObjectReference
) -> _Owner | None:
    """Guess API version, kind and name of a ReplicaSet's owner that the input lacks, from the name ``NAME-HASH``.

    ``labels``: of its pods; ``owner``: the ReplicaSet; ``target``: that of the HPA, which is the owner if ``NAME`` is
    its name. None if ``owner`` is of another kind or the name does not fit.
    """
    if owner[1] != "ReplicaSet":
        return None
    for label, kind in _TEMPLATE_HASH_LABELS.items():
        name = owner[2].removesuffix(f"-{labels.get(label, '')}")
        if label in labels and name != owner[2]:
            return "argoproj.io/v1alpha1" if kind == "Rollout" else "apps/v1", kind, name
    name, _, _ = owner[2].rpartition("-")
    if name == target.name and target.kind in _TEMPLATE_HASH_LABELS.values():
        return f"{group_of(target.api_version)}/v1", target.kind, name
    return None


_OWNERS_SHOWN: Final = 5


class PausedScaledObject(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A ScaledObject that is paused, so that KEDA deletes its HPA.

    Attributes
    ----------
    namespace : str
        Namespace of the ScaledObject.
    name : str
        Name of the ScaledObject.
    hpa : str
        Name of its HPA.
    target : str
        Scale target as ``Kind/name``.
    replicas : int or None
        Size that KEDA sets. None: the target keeps its size.
    error : str
        Why KEDA does neither. Empty: no error.
    """

    namespace: str
    name: str
    hpa: str
    target: str
    replicas: int | None = None
    error: str = ""


class HPAReport(Record, frozen=True):
    """Decisions for the HPAs of a dump.

    Attributes
    ----------
    now : str or None
        Time of the decisions (RFC 3339). None: the input contains no time.
    state_mode : str
        The assumed past: ``settled`` (no past restrains a change), ``fresh`` (the controller has just started) or
        ``given`` (a saved state).
    hpas : list of HPADecision
        Decision for each HPA.
    missing : list of str
        Missing inputs that matter, as texts.
    unmodelled : dict of str to list of str
        Features of objects that are not considered, by kind and ``namespace/name``. For the shown HPAs; if all are
        shown, also for every ScaledObject.
    duplicates : list of str
        Objects that appear more than once (kind and ``namespace/name``), shown or not. The last one counts.
    state : ControllerState
        The next state of every HPA of the dump, shown or not, and of the HPAs of the given state that are not in the
        dump.
    without_state : list of str
        HPAs that are not in the given state. They are treated as if the controller had just seen them.
    paused : list of PausedScaledObject
        Paused ScaledObjects, which have no active HPA.
    assumed : dict of str to str
        Assumptions about the scale of a target whose CustomResourceDefinition is not in the input, by
        ``namespace/name`` of the HPA.
    """

    KIND = "HPAReport"
    ROWS = "hpas"
    now: str | None
    state_mode: str
    hpas: Sequence[HPADecision]
    missing: Sequence[str]
    unmodelled: dict[str, list[str]]
    duplicates: Sequence[str]
    state: ControllerState
    without_state: Sequence[str] = ()
    paused: Sequence[PausedScaledObject] = ()
    assumed: dict[str, str] = msgspec.field(default_factory=dict)

    def summary(self) -> str:
        """Return one line: how many HPAs rescale, and the change of the first three."""
        changes = [
            f"{item.name}: {item.current_replicas} -> {item.desired_replicas}" for item in self.hpas if item.rescales
        ]
        return ", ".join([f"{len(changes):,} of {len(self.hpas):,} HPAs rescale", *changes[:3]])

    def explain(self, name: str) -> str:
        """Return the replicas that an HPA wants and why, in one line.

        ``name``: ``namespace/name`` of the HPA, or its name if only one has it. Raises InputError if the HPA is not
        part of this report.
        """
        matches = [item for item in self.hpas if name in (item.name, f"{item.namespace}/{item.name}")]
        if len(matches) != 1:
            raise InputError(f"{'several HPAs have the name' if matches else 'no HPA'} {name!r} in this report")
        return explain_decision(matches[0])


@collector_paused()
@typed
def hpa_report(
    dump: Dump,
    hpas: Sequence[HorizontalPodAutoscaler] | None = None,
    *,
    state: ControllerState | None = None,
    fresh: bool = False,
    now: datetime | Moment | None = None,
    options: HPAOptions | None = None,
    threads: int = 1,
) -> HPAReport:
    """Build the report of the decisions for the HPAs of a dump. All HPAs are decided together.

    Parameters
    ----------
    dump : Dump
        The dump.
    hpas : sequence of HorizontalPodAutoscaler, optional
        HPAs of the dump to report (None: all).
    state : ControllerState, optional
        State of the controller. Default: stable, or with ``fresh`` that of a controller that has just started.
    fresh : bool
        Use the state of a controller that has just started. Not to be combined with ``state``, which takes precedence.
    now : datetime or Moment, optional
        Time of the decisions. Default: the newest time in the dump.
    options : HPAOptions, optional
        Options of the controller.
    threads : int
        Number of threads, without effect on the result.

    Returns
    -------
    HPAReport
        The decisions, their explanations and the next state.

    Raises
    ------
    InputError
        If an HPA of the dump is malformed, even one that is not reported, or if ``state`` has HPAs and there is no
        time.
    """
    every = list(dump.hpas.values())
    chosen = every if hpas is None else list(hpas)
    mode = "given" if state is not None else "fresh" if fresh else "settled"
    if fresh and state is None:
        state = ControllerState()
    scales = dump.scales()
    decisions = dump.decide(state=state, now=now, options=options, threads=threads)
    number = {key: row for row, key in enumerate(dump.hpas)}
    shown = [(hpa, number[f"{hpa.metadata.namespace}/{hpa.metadata.name}"]) for hpa in chosen]
    # A malformed HPA raises an error even if it is not shown.
    wanted = sorted({row for _, row in shown}.union(decisions.problems))
    rows = dict(zip(wanted, decisions.summarize(wanted), strict=True))
    owners = PodOwners(dump.pods.index, dump.targets)
    keys = [f"{hpa.metadata.namespace}/{hpa.metadata.name}" for hpa in chosen]
    reported = {each for key in keys for each in (dump.generated.get(key, ""), f"HorizontalPodAutoscaler {key}")}
    if hpas is None or len(chosen) == len(every):
        reported |= {f"ScaledObject {key}" for key in dump.scaled_objects}  # also those without an HPA
        paused = dump.paused
    else:
        namespaces = {hpa.metadata.namespace for hpa in chosen}
        paused = {key: pause for key, pause in dump.paused.items() if key.partition("/")[0] in namespaces}
    return HPAReport(
        now=to_text(dump.newest if now is None else moment(now), fraction=True),
        state_mode=mode,
        hpas=[
            build_decision(
                hpa,
                rows[row],
                int(decisions.best[row]),
                scale=scales.get(key),
                options=options or DEFAULT_OPTIONS,
                warnings=[*dump.keda_refusals.get(key, ()), *_describe_overlap(hpa, counts)],
                pod_owners=counts,
            )
            for key, (hpa, row), counts in zip(keys, shown, _count_shared_pods(scales, owners, chosen), strict=True)
        ],
        missing=dump.missing(),
        unmodelled={each: texts for each, texts in dump.unmodelled.items() if each in reported},
        duplicates=dump.duplicates,
        state=ControllerState(hpas=dict(decisions.state.hpas.items())),
        without_state=[key for key in dump.hpas if key not in state.hpas] if state is not None and not fresh else [],
        paused=[_build_paused(key, pause) for key, pause in paused.items()],
        assumed={key: text for key, hpa in zip(keys, chosen, strict=True) if (text := dump.assumed_scale(hpa))},
    )


def _build_paused(key: str, pause: PausedTarget) -> PausedScaledObject:
    """Build the report's entry of a paused ScaledObject ``key`` (``namespace/name``)."""
    namespace, _, name = key.partition("/")
    return PausedScaledObject(namespace=namespace, name=name, **pause._asdict())


def _count_shared_pods(
    scales: Mapping[str, Scale | ApiError], owners: PodOwners, hpas: Sequence[HorizontalPodAutoscaler]
) -> list[dict[str, int]]:
    """Return each HPA's number of selected pods by owner, with the HPA's target first.

    Empty for an HPA if

    - all selected pods belong to its target, or no owner of them is known;
    - or it has no scale, no selector, or no metric that depends on pods.
    """
    shared: list[dict[str, int]] = [{} for _ in hpas]
    selected = []
    for row, hpa in enumerate(hpas):
        scale = scales.get(f"{hpa.metadata.namespace}/{hpa.metadata.name}")
        if isinstance(scale, Scale) and scale.status.selector and depends_on_pods(hpa):
            selected.append((row, hpa, scale.status.selector))
    for row, counts in zip((row for row, _, _ in selected), _count_pods(owners, selected), strict=True):
        if not any(counts):  # without any owner reference the owners of the pods are unknown
            continue
        target = describe_target(hpas[row])
        if set(counts) != {target}:
            shared[row] = dict(sorted(counts.items(), key=lambda item: (item[0] != target, -item[1], item[0])))
    return shared


def _count_pods(owners: PodOwners, selected: Sequence[tuple[int, HorizontalPodAutoscaler, str]]) -> list[Counter[str]]:
    """Count by owner the pods of each (number, HPA, selector) in ``selected``.

    Empty for an invalid selector, which is the error of the HPA's decision.
    """
    try:
        return owners.count([(hpa, selector) for _, hpa, selector in selected])
    except SelectorError:
        if len(selected) == 1:
            return [Counter()]
        return [counts for each in selected for counts in _count_pods(owners, [each])]


def _describe_overlap(hpa: HorizontalPodAutoscaler, shared: Mapping[str, int]) -> list[str]:
    """Return a text on the selected pods that do not belong to the target; empty list if there are none.

    ``shared``: number of pods by owner.
    """
    if not shared:
        return []
    target = describe_target(hpa)
    others = {owner: count for owner, count in shared.items() if owner != target}
    names = [f"{count:,} of {owner}" if owner else f"{count:,} of no owner" for owner, count in others.items()]
    if len(names) > _OWNERS_SHOWN:
        names[_OWNERS_SHOWN:] = [f"{len(names) - _OWNERS_SHOWN:,} more owners"]
    total, foreign = sum(shared.values()), sum(others.values())
    return [f"{foreign:,} of the {total:,} pods that the selector counts do not belong to {target}: {', '.join(names)}"]
