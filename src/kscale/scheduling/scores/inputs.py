"""Inputs of Score plug-ins, compiled for the native loop (``engine/scorer.hpp``): pod amounts and preferences, image
locality, storage capacity and domains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _engine
from kscale.objects.api.core import Pod, PodAffinityTerm, PreferredSchedulingTerm, Taint, WeightedPodAffinityTerm
from kscale.objects.api.meta import ResourceList
from kscale.objects.decode import enc_hook
from kscale.objects.node_selectors import compile_term
from kscale.objects.pod_resources import CPU, MEMORY, NON_ZERO, demand, is_scalar, non_zero_occupancy
from kscale.objects.selectors import SelectorError
from kscale.objects.taints import tolerates
from kscale.scheduling.compile.node_classes import NodeClasses
from kscale.scheduling.equivalent_pods import number_controllers_and_shapes
from kscale.scheduling.plugins.base import Eligibility, Row, Rows
from kscale.scheduling.plugins.inter_pod_affinity import Term, TermIndex, incoming_terms, terms_of
from kscale.scheduling.plugins.pod_topology_spread import Constraint, SpreadRow, eligibility, soft_constraints
from kscale.scheduling.plugins.volume_binding import VolumeBinding
from kscale.scheduling.profile import HOSTNAME, NAME, Context, NodeFacts, SchedulerProfile
from kscale.scheduling.scores.options import ScoreOptions
from kscale.scheduling.volumes import PodVolumes, Volumes, WaitingClaims, room_of, size_of
from kscale.snapshot.classes.interner import PodClass
from kscale.snapshot.pods.record import PodRecord
from kscale.snapshot.pods.rows import shapes_of
from kscale.snapshot.snapshot import Snapshot

__all__ = ["CompiledScores", "Counters", "PulledImages", "ScoredPod", "capacity_score", "non_zero_used", "scored_pod"]

_MIB: Final = 1 << 20
_LEAST: Final = 23 * _MIB
_MOST_OF_AN_IMAGE: Final = 1000 * _MIB
_MOST_SCORE: Final = 100


class PulledImages:
    """Images on the nodes of a snapshot; cached with it.

    If nodes report different sizes of an image, the first in list order counts (upstream: the node that was added
    first).
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._count = len(snapshot.columns)
        self._size: dict[str, int] = {}
        self._nodes: dict[str, set[int]] = {}
        for i, node in enumerate(snapshot.columns.objects):
            for image in node.status.images:
                for name in image.names:
                    self._size.setdefault(name, image.size_bytes)
                    self._nodes.setdefault(name, set()).add(i)

    def of(self, pod: Pod) -> tuple[str, ...]:
        """Return the images that a pod runs and mounts, sorted, with repetitions; empty if no node has any of them."""
        if not self._size:
            return ()
        spec = pod.spec
        names = [container.image for container in (*spec.init_containers, *spec.containers)]
        names += [str(volume.image.get("reference") or "") for volume in spec.volumes if volume.image is not None]
        images = sorted(map(_normalize_image_name, names))
        return tuple(images) if any(name in self._size for name in images) else ()

    def scores(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Return each node's score for having the images ``names``: int64[nodes], 0 to 100.

        An image counts by its size times the share of nodes that have it, so that pods do not all follow the first one.
        """
        sums = [0] * self._count
        for name in names:
            nodes = self._nodes.get(name, set())
            scaled = int(self._size.get(name, 0) * (len(nodes) / self._count))
            for node in nodes:
                sums[node] += scaled
        limit = _MOST_OF_AN_IMAGE * len(names)
        return np.array(
            [_MOST_SCORE * (min(max(each, _LEAST), limit) - _LEAST) // (limit - _LEAST) for each in sums],
            dtype=np.int64,
        )


def _normalize_image_name(name: str) -> str:
    """Return the image name with a tag (``latest`` if it has none), as nodes report it."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


_encode = msgspec.json.Encoder(enc_hook=enc_hook, order="sorted").encode


@dataclass(frozen=True, slots=True)
class ScoredPod:
    """A pod as Score plug-ins see it. Pods with the same scores are equal. Amounts are in the order of ``columns``:
    ``non_zero`` and ``requested`` are what the pod requests, ``takes_non_zero`` and ``takes`` what it uses once placed.
    ``images``: those that it runs, by nodes' names for them; empty if no node has any.
    """

    class_of: int
    non_zero: tuple[int, ...]
    requested: tuple[int, ...]
    takes_non_zero: tuple[int, ...]
    takes: tuple[int, ...]
    preferences: bytes
    images: tuple[str, ...]


def scored_pod(
    pod: Pod, of: PodClass, columns: Sequence[str], pulled: PulledImages
) -> tuple[ScoredPod, list[PreferredSchedulingTerm]]:
    """Return (a pending pod as Score plug-ins see it, its preferred node affinity terms).

    ``of``: its class; ``columns``: the scorer's resources; ``pulled``: the images on nodes.
    """
    # Upstream's scorer of NodeResourcesFit ignores pod-level requests of the pod to place.
    requested, filled = demand(pod), demand(pod, NON_ZERO, pod_level=False)
    affinity = pod.spec.affinity
    preferences = (
        affinity.node_affinity.preferred if affinity is not None and affinity.node_affinity is not None else []
    )
    cpu, memory = non_zero_occupancy(pod)
    scored = ScoredPod(
        class_of=of.index,
        non_zero=tuple(_amount(filled, name) for name in columns),
        requested=tuple(_amount(requested, name) for name in columns),
        takes_non_zero=tuple(
            cpu if name == CPU else memory if name == MEMORY else of.occupancy.get(name, 0) for name in columns
        ),
        takes=tuple(of.occupancy.get(name, 0) for name in columns),
        preferences=_encode(preferences) if preferences else b"",
        images=pulled.of(pod),
    )
    return scored, preferences


def _amount(amounts: ResourceList, name: str) -> int:
    """Return an amount in milli-units for cpu, otherwise in whole units; 0 if absent."""
    quantity = amounts.get(name)
    return 0 if quantity is None else quantity.milli_value() if name == CPU else quantity.value()


class _NonZeroUsed:
    """Amounts used on each node, with defaults for pods without requests: ``used`` int64[2, nodes], cpu and memory."""

    def __init__(self, snapshot: Snapshot) -> None:
        rows, added = snapshot.placed.rows, snapshot.placed.added
        shapes = shapes_of(snapshot.table, rows)
        numbers, which = np.unique(shapes, return_inverse=True)
        each = np.zeros((len(numbers) + len(added), 2), dtype=np.int64)
        for i, number in enumerate(numbers.tolist()):
            shape = snapshot.interner.shapes[number]
            assert shape is not None  # some pod has it
            each[i] = non_zero_occupancy(shape.exemplar)
        for i, record in enumerate(added, len(numbers)):
            each[i] = record.non_zero
        of_pod = np.concatenate([which.reshape(-1), np.arange(len(numbers), len(each))])
        self.used = np.zeros((2, len(snapshot.columns)), dtype=np.int64)
        for i in range(2):
            np.add.at(self.used[i], snapshot.placed_node, each[of_pod, i])


def non_zero_used(snapshot: Snapshot) -> dict[str, NDArray[np.int64]]:
    """Return cpu (milli-units) and memory (bytes) used by the pods on each node, int64[nodes] each.

    Pods without requests count with upstream's non-zero defaults.
    """
    used = snapshot.memo.get(_NonZeroUsed, lambda: _NonZeroUsed(snapshot)).used
    return {CPU: used[0], MEMORY: used[1]}


_FULL: Final = 100

Shape = Sequence[tuple[int, int]]


def capacity_score(claims: WaitingClaims, shape: Shape, node: NodeFacts) -> int:
    """Return a node's score for the storage that these claims would use on it: 0 to 100.

    The score is the mean over storage classes, rounded half up, of ``shape`` (percent -> score) at the share in use. 0
    if nothing is known, or if a claim gets no volume.
    """
    volumes = claims.on(node)
    if isinstance(volumes, str):
        return 0
    scores = [_engine.broken_line(shape, _percent(*each)) for each in _sum_by_storage_class(volumes).values()]
    return (2 * sum(scores) + len(scores)) // (2 * len(scores)) if scores else 0


def _percent(requested: int, capacity: int) -> int:
    """Return the share in use in percent, rounded down; 100 if the capacity is 0 or exceeded."""
    return _FULL if capacity == 0 or requested > capacity else requested * _FULL // capacity


def _sum_by_storage_class(volumes: PodVolumes) -> dict[str, tuple[int, int]]:
    """Return storage class -> (requested bytes, available bytes).

    Existing volumes for the claims count; capacities that drivers publish only if there are no such volumes. Amounts of
    several volumes are added, while a published capacity is shared by all claims of the class.
    """
    sums: dict[str, tuple[int, int]] = {}
    for claim, volume in volumes.bindings:
        name = volume.spec.storage_class_name
        requested, available = sums.get(name, (0, 0))
        sums[name] = requested + size_of(claim).value(), available + room_of(volume).value()
    if sums:
        return sums
    for claim, capacity in volumes.provisions:
        if capacity is not None:
            name = capacity.storage_class_name
            requested, _ = sums.get(name, (0, 0))
            # Without `capacity`, upstream's scheduler crashes here.
            available = 0 if capacity.capacity is None else capacity.capacity.value()
            sums[name] = requested + size_of(claim).value(), available
    return sums


class Counters:
    """Counter rows of all classes that are scored, and of the preferences of placed pods."""

    def __init__(self, ctx: Context, options: ScoreOptions) -> None:
        self._ctx = ctx
        self.broken: set[int] = set()
        """Indices of classes with an invalid soft constraint."""
        self._spreads = options.weights.get("PodTopologySpread", 0) > 0
        self._near = options.weights.get("InterPodAffinity", 0) > 0
        self._hard_weight = options.hard_pod_affinity_weight
        self._ignores = options.ignore_preferred_terms_of_existing_pods
        self._rows = Rows()
        self._spread: dict[SpreadRow, int] = {}
        self._term_rows: dict[Term, int] = {}
        self._carried: dict[Term, int] = {}
        self._known = TermIndex()
        self._soft: dict[int, tuple[tuple[Constraint, ...], bool]] = {}
        self._weighted_rows: dict[int, list[tuple[int, int]]] = {}

    # -- counters ----------------------------------------------------------------------------------------------------

    def add_classes(self, pods: Iterable[PodClass]) -> None:
        """Add the counters that scores of the classes ``pods`` read.

        These must be all classes that will be scored or placed.
        """
        classes = list(pods)
        for pod in (*self._ctx.snapshot.placed_classes, *classes) if self._near else ():
            for term in self._carries(pod):
                self._known.add(term)
        for pod in classes:
            self._add_spread_counters(pod)
            self._add_affinity_counters(pod)

    def _add_spread_counters(self, pod: PodClass) -> None:
        """Add the counters that PodTopologySpread's score of a class reads.

        A class with an invalid selector is added to ``broken`` instead.
        """
        if not self._spreads:
            return
        try:
            soft, require_all_keys = soft_constraints(pod, self._ctx)
        except SelectorError:
            self.broken.add(pod.index)
            return
        if soft:
            self._soft[pod.index] = soft, require_all_keys
        for constraint in soft:
            row = constraint.row
            if row not in self._spread:
                eligible = None if row.key == HOSTNAME else eligibility(row.inclusion, pod)
                self._spread[row] = self._rows.add(Row(row.key, row.counts, row.selector, eligibility=eligible))

    def _add_affinity_counters(self, pod: PodClass) -> None:
        """Add the counters that InterPodAffinity's score of a class reads."""
        if not self._near:
            return
        weighted_rows: list[tuple[int, int]] = []
        for terms, sign in ((pod.preferred_affinity, 1), (pod.preferred_anti_affinity, -1)):
            for term, weight in self._compile_preferences(pod, terms):
                if term not in self._term_rows:
                    self._term_rows[term] = self._rows.add(Row(term.key, _selects_pod(term), term.selector))
                weighted_rows.append((self._term_rows[term], sign * weight))
        if weighted_rows or not self._ignores:
            for term in self._known.find_matching_terms(pod, self._ctx):
                if term not in self._carried:
                    self._carried[term] = self._rows.add(Row(term.key, None))
                weighted_rows.append((self._carried[term], 1))
        if weighted_rows:
            self._weighted_rows[pod.index] = weighted_rows

    def _compile_preferences(self, pod: PodClass, terms: tuple[WeightedPodAffinityTerm, ...]) -> list[tuple[Term, int]]:
        """Return the preferred ``terms`` of a pending pod with their weights; an empty list if a term is invalid."""
        try:
            compiled = incoming_terms(pod, [preferred.pod_affinity_term for preferred in terms], self._ctx)
        except SelectorError:  # its PreFilter fails
            return []
        return [(term, preferred.weight) for term, preferred in zip(compiled, terms, strict=True)]

    def _carries(self, pod: PodClass) -> dict[Term, int]:
        """Return the terms that placed pods of the class have for other pods, with their summed weights.

        Preferred anti-affinity has weights below 0. Required affinity has the weight ``hard_pod_affinity_weight``, and
        is left out if that is 0. Invalid terms are left out.
        """
        weight_of: dict[Term, int] = {}
        parts = [(pod.preferred_affinity, 1), (pod.preferred_anti_affinity, -1)]
        for terms, sign in parts:
            weights = [sign * preferred.weight for preferred in terms]
            for term, weight in zip(_parse_terms(pod, (w.pod_affinity_term for w in terms)), weights, strict=False):
                weight_of[term] = weight_of.get(term, 0) + weight
        if self._hard_weight:
            for term in _parse_terms(pod, pod.affinity):
                weight_of[term] = weight_of.get(term, 0) + self._hard_weight
        return weight_of

    # -- columns in use ----------------------------------------------------------------------------------------------

    @property
    def columns(self) -> frozenset[str]:
        """Return the parts of a node on which it depends whether a counter counts the node's pods.

        Each is the key of a label, or one of the names of :mod:`kscale.scheduling.profile` (such as ``NAME`` or
        ``TAINTS``). Only counters of topology spread constraints leave out some nodes: those that lack a label
        key of the constraints, and those that ``nodeAffinityPolicy`` or ``nodeTaintsPolicy`` excludes.
        """
        return self._rows.columns()

    def spread(self, pod: PodClass) -> tuple[list[tuple[int, int, bool]], bool]:
        """Return a class's soft constraints, and whether only nodes with all of their keys are compared.

        Constraints are (row, max skew, whether each host is a domain).
        """
        soft, require_all_keys = self._soft.get(pod.index, ((), False))
        return [(self._spread[c.row], c.max_skew, c.row.key == HOSTNAME) for c in soft], require_all_keys

    def terms(self, pod: PodClass) -> list[tuple[int, int]]:
        """Return the terms that InterPodAffinity scores for a class, as (row of its counts, weight).

        The class's own preferred affinity has a weight above 0, its anti-affinity one below 0. Terms that placed pods
        have for the class have the weight 1, as their rows count by weight.
        """
        return self._weighted_rows.get(pod.index, [])

    def get_affected_rows(self, pod: PodClass) -> list[tuple[int, int]]:
        """Return (row, increment) for the rows whose counts change when a pod of the class is placed."""
        touched = [(row, 1) for part in self._rows.get_counting_rows(pod) for row in part]
        if self._carried:
            touched += [(self._carried[term], w) for term, w in self._carries(pod).items() if term in self._carried]
        return touched

    def fill(self, scorer: _engine.Scorer, nodes: NodeClasses) -> None:
        """Add all rows to the scorer.

        A row has the domain of each node, the count of placed pods in each domain, and the nodes that count.
        """
        snapshot, size = self._ctx.snapshot, nodes.existing
        domains: list[NDArray[np.int32]] = []
        counts: list[NDArray[np.int64]] = []
        hosts = set(self._spread.values())
        for number, row in enumerate(self._rows.rows):
            label = snapshot.columns.label(row.key)
            if row.key == HOSTNAME and number in hosts:  # every node is a domain of its own
                domain = np.where(label.ids >= 0, np.arange(size, dtype=np.int32), np.int32(-1)).astype(np.int32)
                counts.append(np.zeros(size, dtype=np.int64))
            else:
                domain = np.ascontiguousarray(label.ids, dtype=np.int32)
                counts.append(np.zeros(len(label.values), dtype=np.int64))
            domains.append(domain)
        masks = [
            None if row.eligibility is None else _eligible_nodes(row.eligibility, nodes) for row in self._rows.rows
        ]
        if counts:
            for which, pod in enumerate(snapshot.placed_classes):
                touched = self.get_affected_rows(pod)
                if not touched:
                    continue
                where = snapshot.nodes_of_class(which)
                for row_number, weight in touched:
                    mask = masks[row_number]
                    domain = domains[row_number][where if mask is None else where[mask[where] != 0]]
                    np.add.at(counts[row_number], domain[domain >= 0], weight)
        for domain, count, mask in zip(domains, counts, masks, strict=True):
            scorer.add_row(domain, count, mask)


def _eligible_nodes(eligible: Eligibility, nodes: NodeClasses) -> NDArray[np.uint8]:
    """Return 1 for each existing node that counts, otherwise 0: uint8[nodes]."""

    def counts(node: NodeFacts) -> int:
        return int(eligible.counts(node))

    return nodes.values(eligible.columns, counts).astype(np.uint8)


def _selects_pod(term: Term) -> Callable[[PodClass], bool]:
    """Return a function that checks whether a term selects a pod."""
    return lambda pod: term.matches(pod, None)


def _parse_terms(pod: PodClass, terms: Iterable[PodAffinityTerm]) -> tuple[Term, ...]:
    """Compile terms of a placed pod; an invalid list counts as empty."""
    try:
        return terms_of(pod, terms)
    except SelectorError:
        return ()


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
        self.names = (*_engine.SCORE_PLUGINS, *(plugin.name for plugin, _ in options.scorers))
        columns = set(counters.columns)
        for _, preferences in pods.values():
            columns |= _columns_of(preferences)
        self._claims = self._waiting_claims(unique)
        for claims in self._claims.values():
            columns |= claims.columns
        self._nodes = NodeClasses(ctx, (), frozenset(columns | _columns_of(options.added_preferences)))
        self.scorer = _engine.Scorer(self._nodes.existing)
        self._add_columns()
        counters.fill(self.scorer, self._nodes)
        self._statics: dict[object, int] = {}
        self.broken: list[bool] = []
        self._avoided = snapshot.memo.get(_Avoided, lambda: _Avoided(snapshot))
        for scored, preferences in pods.values():
            pod_class = self._by_index[scored.class_of]
            broken = pod_class.index in counters.broken or any(map(_is_unreadable, preferences))
            self.broken.append(broken)
            spread, require_all_keys = counters.spread(pod_class)
            self.scorer.add_class(
                non_zero=scored.non_zero,
                requested=scored.requested,
                takes_non_zero=scored.takes_non_zero,
                takes=scored.takes,
                taints=self._taints(pod_class),
                broken=broken,
                affinity=self._affinity(scored.preferences, preferences),
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
        """Return (scored classes in order of appearance, number of each pod's class among them: int32[pods]).

        ``which``: position of each pod's class in ``unique``. Only one replica of a controller and shape is read.
        """
        scored_pods: dict[ScoredPod, tuple[ScoredPod, list[PreferredSchedulingTerm]]] = {}
        number: dict[ScoredPod, int] = {}
        number_by_key: dict[tuple[int, int, int], int] = {}
        class_of = np.zeros(len(records), dtype=np.int32)
        controller, shape = number_controllers_and_shapes(records)
        keys = zip(which.tolist(), controller.tolist(), shape.tolist(), strict=True)
        for i, key in enumerate(keys):
            class_number = number_by_key.get(key) if key[2] >= 0 else None
            if class_number is None:
                scored, preferences = scored_pod(records[i].pod, unique[key[0]], self._columns, self._pulled)
                if scored not in number:
                    number[scored] = len(number)
                    scored_pods[scored] = scored, preferences
                class_number = number_by_key[key] = number[scored]
            class_of[i] = class_number
        return scored_pods, class_of

    def _add_columns(self) -> None:
        """Add each resource to the scorer: allocatable amounts, used ones, and used ones with non-zero defaults."""
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
        """Return the index of the static column that counts each node's untolerated PreferNoSchedule taints."""
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

    def _affinity(self, key: bytes, preferences: Sequence[PreferredSchedulingTerm]) -> int:
        """Return the index of the static column of preferred node affinity weights, added if it is new.

        Returns -1 if neither the pod nor the options have preferences. ``key``: equal for equal ``preferences``.
        """
        preferences = [*self._options.added_preferences, *preferences]
        if not preferences:
            return -1
        terms = [(compile_term(preferred.preference), preferred.weight) for preferred in preferences]

        def weight(node: NodeFacts) -> int:
            return sum(weight for term, weight in terms if term.matches(node.labels, node.name))

        if key not in self._statics:
            self._statics[key] = self.scorer.add_static(self._nodes.values(_columns_of(preferences), weight))
        return self._statics[key]

    def _images(self, names: tuple[str, ...]) -> int:
        """Return the index of the static column of scores for images; -1 without images."""
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
        """Return the index of the static column of scores for unbound claims, added if it is new; -1 without claims."""
        claims = self._claims.get(pod.index)
        if claims is None:
            return -1
        if claims not in self._statics:
            shape = [(utilization, score * 10) for utilization, score in self._options.volume_shape]
            scores = self._nodes.values(claims.columns, partial(capacity_score, claims, shape))
            self._statics[claims] = self.scorer.add_static(scores)
        return self._statics[claims]

    def _configure(self) -> None:
        """Pass the weights, strategies and user plug-ins of the options to the scorer."""
        options, number = self._options, {name: i for i, name in enumerate(self._columns)}
        self.scorer.set_weights([options.weights.get(name, 0) for name in _engine.SCORE_PLUGINS])
        self.scorer.set_fit(
            _engine.FIT_STRATEGIES.index(options.fit_strategy),
            [(number[name], weight) for name, weight in options.fit_resources.items()],
            [(utilization, score * 10) for utilization, score in options.fit_shape],
        )
        self.scorer.set_balanced([number[name] for name in options.balanced_resources])
        for plugin, weight in options.scorers:
            names = ("cpu", "memory", "ephemeral-storage", *plugin.resources)
            self.scorer.add_user(plugin, [number[name] for name in names], weight)


def _is_unreadable(preferred: PreferredSchedulingTerm) -> bool:
    """Return whether a preference with a weight cannot be compiled, so that scoring fails."""
    return preferred.weight != 0 and bool(compile_term(preferred.preference).error)


def _columns_of(preferences: Sequence[PreferredSchedulingTerm]) -> frozenset[str]:
    """Return the node columns that preferences read."""
    keys = {each.key for preferred in preferences for each in preferred.preference.match_expressions}
    return frozenset(keys | ({NAME} if any(preferred.preference.match_fields for preferred in preferences) else set()))
