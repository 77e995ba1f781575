"""Compiles the inputs of Score plug-ins for the native loop (``engine/scorer.hpp``)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kscale._native import _selecting
from kscale.objects.api.core import PreferredSchedulingTerm, Taint
from kscale.objects.node_selectors import compile_term, tolerates
from kscale.objects.pod_resources import is_scalar
from kscale.scheduling.compile.node_classes import NodeClasses
from kscale.scheduling.equivalent_pods import shapes_of
from kscale.scheduling.plugins.volume_binding import VolumeBinding
from kscale.scheduling.profile import NAME, Context, NodeFacts, SchedulerProfile
from kscale.scheduling.scores.inputs import Counters, PulledImages, ScoredPod, capacity_score, non_zero_used, scored_pod
from kscale.scheduling.scores.options import ScoreOptions
from kscale.scheduling.volumes.lookup import Volumes
from kscale.scheduling.volumes.waiting_claims import WaitingClaims
from kscale.snapshot.classes.interner import PodClass
from kscale.snapshot.pods.record import PodRecord
from kscale.snapshot.snapshot import Snapshot

__all__ = ["CompiledScores"]

_PREFER: Final = "PreferNoSchedule"


class _Avoided:
    """PreferNoSchedule taints: ``kinds``: distinct lists of taints; ``of``: index of each node's list. Cached with a
    snapshot.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        numbers: dict[tuple[tuple[str, str], ...], int] = {}
        self.kinds: list[list[Taint]] = []
        self.of = np.zeros(len(snapshot.columns), dtype=np.int64)
        for i, node in enumerate(snapshot.columns.objects):
            taints = [taint for taint in node.spec.taints if taint.effect == _PREFER]
            key = tuple((taint.key, taint.value) for taint in taints)
            if key not in numbers:
                numbers[key] = len(self.kinds)
                self.kinds.append(taints)
            self.of[i] = numbers[key]


class CompiledScores:
    """Pods as Score plug-ins see them. ``scorer``: the native scorer, including placed pods; ``class_of`` int32[pods]:
    class of each pod in it; ``names``: the plug-ins in its order; ``broken``: per class, whether a preference is
    invalid, so that scoring fails.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        records: Sequence[PodRecord],
        unique: Sequence[PodClass],
        which: NDArray[np.int32],
        options: ScoreOptions,
        profile: SchedulerProfile | None,
    ) -> None:
        self._ctx = ctx = Context(snapshot, profile or SchedulerProfile())
        self._options = options
        self._by_index = {pod.index: pod for pod in unique}
        user = [name for plugin, _ in options.scorers for name in plugin.resources]
        fixed = ("cpu", "memory", "ephemeral-storage") if options.scorers else ()
        self._columns = tuple(dict.fromkeys((*options.fit_resources, *options.balanced_resources, *fixed, *user)))
        self._pulled = snapshot.memo.get(PulledImages, lambda: PulledImages(snapshot))
        pods, self.class_of = self._classify_pods(records, unique, which)
        counters = Counters(ctx, options)
        counters.add_classes(unique)
        self.names = (*_selecting.PLUGINS, *(plugin.name for plugin, _ in options.scorers))
        columns = set(counters.columns)
        for _, wishes in pods.values():
            columns |= _columns_of(wishes)
        self._claims = self._waiting_claims(unique)
        for claims in self._claims.values():
            columns |= claims.columns
        self._nodes = NodeClasses(ctx, (), frozenset(columns | _columns_of(options.added_preferences)))
        self.scorer = _selecting.Scorer(self._nodes.existing)
        self._add_columns()
        counters.fill(self.scorer, self._nodes)
        self._statics: dict[object, int] = {}
        self.broken: list[bool] = []
        self._avoided = snapshot.memo.get(_Avoided, lambda: _Avoided(snapshot))
        for scored, wishes in pods.values():
            pod_class = self._by_index[scored.class_of]
            broken = pod_class.index in counters.broken or any(map(_is_unreadable, wishes))
            self.broken.append(broken)
            spread, require_all_keys = counters.spread(pod_class)
            self.scorer.add_class(
                non_zero=scored.non_zero,
                requested=scored.requested,
                takes_non_zero=scored.takes_non_zero,
                takes=scored.takes,
                taints=self._taints(pod_class),
                broken=broken,
                affinity=self._affinity(scored.wishes, wishes),
                images=self._images(scored.images),
                volumes=self._volumes(pod_class),
                whole=require_all_keys,
                spread=spread,
                terms=counters.terms(pod_class),
                touch=counters.get_affected_rows(pod_class),
            )
        self._configure()

    def _classify_pods(
        self, records: Sequence[PodRecord], unique: Sequence[PodClass], which: NDArray[np.int32]
    ) -> tuple[dict[ScoredPod, tuple[ScoredPod, list[PreferredSchedulingTerm]]], NDArray[np.int32]]:
        """Return the scored classes in order of appearance, and the class of each pod.

        Only one replica of a controller and shape is read.
        """
        scored_pods: dict[ScoredPod, tuple[ScoredPod, list[PreferredSchedulingTerm]]] = {}
        number: dict[ScoredPod, int] = {}
        number_by_key: dict[tuple[int, int, int], int] = {}
        class_of = np.zeros(len(records), dtype=np.int32)
        controller, shape = shapes_of(records)
        keys = zip(which.tolist(), controller.tolist(), shape.tolist(), strict=True)
        for i, key in enumerate(keys):
            class_number = number_by_key.get(key) if key[2] >= 0 else None
            if class_number is None:
                scored, wishes = scored_pod(records[i].pod, unique[key[0]], self._columns, self._pulled)
                if scored not in number:
                    number[scored] = len(number)
                    scored_pods[scored] = scored, wishes
                class_number = number_by_key[key] = number[scored]
            class_of[i] = class_number
        return scored_pods, class_of

    def _add_columns(self) -> None:
        snapshot = self._ctx.snapshot
        filled = non_zero_used(snapshot)
        zeros = np.zeros(len(snapshot.columns), dtype=np.int64)
        for name in self._columns:
            allocatable = snapshot.columns.allocatable.get(name, zeros)
            used = snapshot.used.get(name, zeros)
            self.scorer.add_column(
                np.ascontiguousarray(allocatable),
                np.ascontiguousarray(used),
                np.ascontiguousarray(filled.get(name, used)),
                scalar=is_scalar(name),
            )

    def _taints(self, pod: PodClass) -> int:
        """Return the number of the static column that counts each node's untolerated PreferNoSchedule taints."""
        key = pod.tolerations_id
        if key not in self._statics:
            tolerations = [each for each in pod.tolerations if not each.effect or each.effect == _PREFER]
            counts = np.array(
                [
                    sum(not any(tolerates(each, taint) for each in tolerations) for taint in taints)
                    for taints in self._avoided.kinds
                ],
                dtype=np.int64,
            )
            self._statics[key] = self.scorer.add_static(counts[self._avoided.of])
        return self._statics[key]

    def _affinity(self, key: bytes, wishes: Sequence[PreferredSchedulingTerm]) -> int:
        wishes = [*self._options.added_preferences, *wishes]
        if not wishes:
            return -1
        terms = [(compile_term(wish.preference), wish.weight) for wish in wishes]

        def weight(node: NodeFacts) -> int:
            return sum(weight for term, weight in terms if term.matches(node.labels, node.name))

        if key not in self._statics:
            self._statics[key] = self.scorer.add_static(self._nodes.values(_columns_of(wishes), weight))
        return self._statics[key]

    def _images(self, names: tuple[str, ...]) -> int:
        if not names:
            return -1
        if names not in self._statics:
            self._statics[names] = self.scorer.add_static(self._pulled.scores(names))
        return self._statics[names]

    def _waiting_claims(self, pods: Sequence[PodClass]) -> dict[int, WaitingClaims]:
        """Return the unbound claims by class index.

        Empty if VolumeBinding's filter or score is disabled, as the filter finds the volumes.
        """
        if (
            not self._options.weights.get(VolumeBinding.name)
            or VolumeBinding.name in self._ctx.profile.disabled_filters
        ):
            return {}
        volumes = Volumes.of(self._ctx)
        waiting = {pod.index: WaitingClaims.of(pod, volumes) for pod in pods if pod.has_claims}
        return {index: claims for index, claims in waiting.items() if claims}

    def _volumes(self, pod: PodClass) -> int:
        claims = self._claims.get(pod.index)
        if claims is None:
            return -1
        if claims not in self._statics:
            shape = [(utilization, score * 10) for utilization, score in self._options.volume_shape]
            scores = self._nodes.values(claims.columns, partial(capacity_score, claims, shape))
            self._statics[claims] = self.scorer.add_static(scores)
        return self._statics[claims]

    def _configure(self) -> None:
        options, number = self._options, {name: i for i, name in enumerate(self._columns)}
        self.scorer.set_weights([options.weights.get(name, 0) for name in _selecting.PLUGINS])
        self.scorer.set_fit(
            _selecting.STRATEGIES.index(options.fit_strategy),
            [(number[name], weight) for name, weight in options.fit_resources.items()],
            [(utilization, score * 10) for utilization, score in options.fit_shape],
        )
        self.scorer.set_balanced([number[name] for name in options.balanced_resources])
        for plugin, weight in options.scorers:
            names = ("cpu", "memory", "ephemeral-storage", *plugin.resources)
            self.scorer.add_user(plugin, [number[name] for name in names], weight)


def _is_unreadable(wish: PreferredSchedulingTerm) -> bool:
    return wish.weight != 0 and bool(compile_term(wish.preference).error)


def _columns_of(wishes: Sequence[PreferredSchedulingTerm]) -> frozenset[str]:
    """Return the node columns that preferences read."""
    keys = {each.key for wish in wishes for each in wish.preference.match_expressions}
    return frozenset(keys | ({NAME} if any(wish.preference.match_fields for wish in wishes) else set()))
