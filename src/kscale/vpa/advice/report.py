"""Requests for every workload of a dump from recorded usage: what ``kscale recommend`` answers.

kscale's own, around the recommender that is upstream's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from os import PathLike, fspath
from typing import Any, Final

import msgspec

from kscale.effects import SECOND, ZERO_TIME, Moment, Progress, moment, to_text
from kscale.errors import InputError
from kscale.objects.core import Pod
from kscale.objects.meta import object_key
from kscale.objects.selector_text import parse_selector
from kscale.objects.selectors import Selector, SelectorError
from kscale.objects.vpa import VerticalPodAutoscalerCheckpoint, VerticalPodAutoscalerStatus
from kscale.series.columns import SeriesKey
from kscale.series.usage_reader import UsageBatch, read_usage
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.collector import collector_paused
from kscale.vpa.advice.feed import Feed
from kscale.vpa.advice.findings import Findings
from kscale.vpa.advice.history import take_in
from kscale.vpa.advice.records import RecommendationReport
from kscale.vpa.advice.workloads import Workload, Workloads
from kscale.vpa.checkpoint import load_all
from kscale.vpa.dump_controllers import controllers_of, custom_workloads_of
from kscale.vpa.model import RecommenderState, UsageError, add_usage
from kscale.vpa.oom import OutOfMemory, evicted_for_memory, last_out_of_memory, usage_of
from kscale.vpa.options import RecommenderOptions
from kscale.vpa.quality import Quality
from kscale.vpa.recommender.load_pods import load_pods
from kscale.vpa.recommender.load_vpas import in_charge, load_vpas_steps
from kscale.vpa.recommender.update_vpas import recommend_for
from kscale.vpa.scales import without_asking
from kscale.vpa.strategies import Recommender, Strategy

__all__ = ["recommend"]

_LONG_AGO: Final = 946684800 * SECOND
"""2000-01-01: no container is older."""
_FAR: Final = 8 * 86400 * SECOND
"""What upstream keeps of the past."""
_DISCARDED: Final = "containers killed for memory too long ago, or unknown, discarded"


@collector_paused()
def recommend(
    cluster: Cluster | Iterable[Any],
    history: str | PathLike[str] | Iterable[UsageBatch],
    *,
    options: RecommenderOptions | None = None,
    strategy: Strategy | None = None,
    now: datetime | Moment | None = None,
    checkpoints: Sequence[VerticalPodAutoscalerCheckpoint] = (),
    namespaces: Collection[str] = (),
    kinds: Collection[str] = (),
    selector: str = "",
    points_required: int = 1,
    threads: int = 1,
    progress: Callable[[int], None] | None = None,
) -> RecommendationReport:
    """What the workloads of a cluster should request, from what their containers used.

    - ``cluster``: what :func:`kscale.load` returns, or objects (structs, dicts, those of a client): workloads, their
      pods, VPAs, HPAs, eviction events.
    - ``history``: a file that :func:`~kscale.series.usage_reader.read_usage` reads, or batches of usage. One that can
      be read twice may come in any order (see :func:`~kscale.vpa.advice.history.take_in`).
    - ``options``: of the recommender; ``strategy``: upstream's recommender unless given.
    - ``now``: the moment asked about; None: the newest sample.
    - ``checkpoints``: VPA checkpoints that are taken in as well.
    - ``namespaces``, ``kinds`` (``Deployment``, ...), ``selector`` (labels of pod templates): which workloads; all
      where they are empty.
    - ``points_required``: a container with fewer samples gets no advice.
    - ``threads``: the answer does not depend on it; ``progress`` is told the number of rows read so far.

    Workloads without a VPA are treated as if they had one in mode Off. Amounts in the record are millicores and bytes.
    Raises :class:`~kscale.errors.InputError` for what cannot be read, a selector that is none, a strategy that fails.
    """
    strategy = strategy or Recommender()
    options = options or RecommenderOptions()
    asked_about = None if now is None else moment(now)
    seen = cluster if isinstance(cluster, Cluster) else Cluster(cluster)
    usage = read_usage(fspath(history), threads=threads) if isinstance(history, str | PathLike) else history
    controllers = controllers_of(seen)
    custom = custom_workloads_of(seen)
    workloads = Workloads(controllers, seen.pods(), seen.all("VerticalPodAutoscaler"), options, custom)
    asked, notes = _asked_for(workloads, namespaces, kinds, selector)
    chosen = [item for item in asked if in_charge(item.vpa, options)]
    pods = [pod for item in chosen for pod in (*item.pods, *item.finished)]
    begun = asked_about or 0

    def prepare() -> Feed:
        state = RecommenderState(options, threads=threads)
        state.store.reserve(sum(len(item.containers) for item in chosen), sum(len(p.spec.containers) for p in pods))
        vpas = [msgspec.structs.replace(item.vpa, status=VerticalPodAutoscalerStatus()) for item in chosen]
        without_asking(load_vpas_steps(state, vpas, controllers, Progress(begun)))
        load_pods(state, pods, begun)
        return Feed(state, workloads, strategy, {item.identity for item in chosen}, namespaces, asked_about)

    feed = take_in(usage, prepare, progress)
    feed.counts["workloads in namespaces that the recommender leaves alone"] += len(asked) - len(chosen)
    for (namespace, text), count in workloads.aside.items():
        if not namespaces or namespace in namespaces:
            feed.counts[text] += count
    ooms = _out_of_memory(seen, pods, feed)
    at = _moment_of(feed, ooms, asked_about, notes)
    diagnostics = _load_checkpoints(seen, feed.state, checkpoints, max(at, 0))
    _take_in_ooms(feed, ooms, max(at, 0))
    results = recommend_for(feed.state, list(feed.state.observed_vpas()), max(at, 0), diagnostics, Quality())
    notes += [text for place, text in workloads.notes() if not namespaces or place in namespaces]
    return Findings(seen, chosen, results, feed, ooms, points_required).report(at, notes + diagnostics)


def _load_checkpoints(
    cluster: Cluster, state: RecommenderState, checkpoints: Iterable[VerticalPodAutoscalerCheckpoint], now: Moment
) -> list[str]:
    """Load checkpoints; texts of those that are left out for another reason than the choice of workloads."""
    vpas = {vpa.key for vpa in cluster.all("VerticalPodAutoscaler")}
    loaded = []
    for item in checkpoints:
        key = item.namespace, item.spec.vpa_object_name
        # A VPA that is there but not in the state has no target, or is not asked about: that is said of the VPA.
        if key in state.vpas or object_key(*key) not in vpas:
            loaded.append(item)
    return load_all(state, loaded, now)


# -- what is asked about ---------------------------------------------------------------------------------------


def _asked_for(
    workloads: Workloads, namespaces: Collection[str], kinds: Collection[str], selector: str
) -> tuple[list[Workload], list[str]]:
    """The workloads that are asked about, and notes on what was asked for in vain."""
    try:
        wanted = parse_selector(selector) if selector else Selector()
    except SelectorError as error:
        raise InputError(f"selector {selector!r}: {error}") from None
    folded = {kind.lower() for kind in kinds}
    found = [
        item
        for item in workloads.items.values()
        if (not namespaces or item.key.namespace in namespaces)
        and (not folded or item.key.kind.lower() in folded)
        and wanted.matches(item.labels)
    ]
    notes = _asked_in_vain(workloads.items.values(), namespaces, kinds, selector, wanted)
    if workloads.items and not found and not notes:
        notes = ["no workload is all of what was asked for"]
    return found, notes


def _asked_in_vain(
    workloads: Collection[Workload], namespaces: Iterable[str], kinds: Iterable[str], selector: str, wanted: Selector
) -> list[str]:
    """What was asked for and no workload has, as texts."""
    there = {item.key.namespace for item in workloads}
    folded = {item.key.kind.lower() for item in workloads}
    found = [f"no workload in the namespace {name}" for name in namespaces if name not in there]
    found += [f"no workload of the kind {kind}" for kind in kinds if kind.lower() not in folded]
    if selector and not any(wanted.matches(item.labels) for item in workloads):
        found.append(f"no workload with the pod labels {selector}")
    return found


# -- when ------------------------------------------------------------------------------------------------------


def _moment_of(feed: Feed, ooms: Sequence[OutOfMemory], now: Moment | None, notes: list[str]) -> Moment:
    """The moment asked about: the newest sample unless given, else the newest kill; may be unknown."""
    if now is None:
        _warn_of_the_future(feed)
    if ZERO_TIME < feed.newest < _LONG_AGO:
        notes.append(f"the newest sample is of {to_text(feed.newest)}: is the unit of time right?")
    if now is not None:
        return now
    return feed.newest if feed.newest != ZERO_TIME else max((event.time for event in ooms), default=ZERO_TIME)


def _warn_of_the_future(feed: Feed) -> None:
    """Of samples long after most: the newest is taken for the moment asked about, which makes all others old."""
    found = feed.from_the_future(_FAR)
    if found is None:
        return
    usual, containers = found
    shown = f" ({', '.join(containers[:3])}{', ...' if len(containers) > 3 else ''})" if containers else ""
    text = f"containers{shown or ' that are not known'} with samples of up to {to_text(feed.newest)}, more than eight "
    text += f"days after most ({to_text(usual)}): that is taken for the moment asked about (--now says another)"
    feed.counts[text] += max(len(containers), 1)


# -- kills for memory ------------------------------------------------------------------------------------------


def _out_of_memory(cluster: Cluster, pods: Iterable[Pod], feed: Feed) -> list[OutOfMemory]:
    """The kills that pods and eviction events of the dump tell of, in order of time, for the workloads asked about."""
    found = last_out_of_memory(pods)
    for event in cluster.all("Event"):
        if event.reason == "Evicted" and event.involved_object.kind == "Pod":
            for one in evicted_for_memory(event):
                if feed.place(SeriesKey(*one.container)).owner is not None:
                    found.append(one)
    return sorted(found, key=lambda one: one.time)


def _take_in_ooms(feed: Feed, ooms: Sequence[OutOfMemory], now: Moment) -> None:
    refused: list[UsageError] = add_usage(feed.state, usage_of(ooms), now) if ooms else []
    if refused:
        feed.counts[_DISCARDED] += len(refused)
