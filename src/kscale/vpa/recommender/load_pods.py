"""``LoadPods``: pods as they are now (``input/cluster_feeder.go``, ``input/spec``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kscale.effects import List, Progress, StepsOf
from kscale.objects.core import Pod
from kscale.snapshot.collector import collector_paused
from kscale.vpa.model import RecommenderState
from kscale.vpa.model.pods import PodKey
from kscale.vpa.model.vpa import Vpa
from kscale.vpa.recommender.records import PodChanges
from kscale.vpa.resources import resources_sources

__all__ = ["load_pods", "load_pods_steps"]


def load_pods_steps(
    state: RecommenderState, changes: PodChanges, new_vpas: Iterable[Vpa], progress: Progress, diagnostics: list[str]
) -> StepsOf[List, list[PodKey]]:
    """Takes in pods that changed; the keys of those that are gone come back, to be deleted after the usage is in.

    With ``memory_saver`` pods that no VPA selects are passed over. So what a VPA selects that is new is listed, where
    these pods have not just come.
    """
    changed = {(pod.namespace, pod.name): pod for pod in changes.changed}
    gone = {key for key in changes.gone if key not in changed}
    if state.options.memory_saver and state.pods_loaded:
        for vpa in new_vpas:
            if vpa.selector.nothing:
                continue
            outcome = yield from progress.act(
                List(kind="Pod", api_version="v1", namespace=vpa.namespace, selector=str(vpa.selector))
            )
            if outcome.error is not None:
                diagnostics.append(f"listing the pods of VPA {vpa.namespace}/{vpa.name}: {outcome.error.message}")
                continue
            for pod in outcome.value:
                key = (pod.namespace, pod.name)
                if key not in gone:
                    changed.setdefault(key, pod)
    for key in gone:
        state.passed_over.pop(key, None)
    load_pods(state, [changed[key] for key in sorted(changed)], progress.now)
    state.pods_loaded = True
    return sorted(gone)


@collector_paused()
def load_pods(state: RecommenderState, pods: Sequence[Pod], now: int) -> None:
    """Takes in pods in this order, each at most once."""
    saver = state.options.memory_saver
    for pod in pods:
        labels = pod.metadata.labels or {}
        containers, init_containers = pod.spec.containers, pod.spec.init_containers
        sources = resources_sources(pod)
        key = (pod.namespace, pod.name)
        if saver:
            if not state.is_selected(pod.namespace, labels):
                if key not in state.pods:
                    state.passed_over[key] = sources
                else:
                    state.read_from(state.pods[key], sources)
                continue
            state.passed_over.pop(key, None)
        known = state.add_pod(pod.namespace, pod.name, labels, pod.status.phase, now)
        state.read_from(known, sources)
        for container in containers:
            state.add_container(known, container.name, now)
        state.set_init_containers(known, frozenset(container.name for container in init_containers))
