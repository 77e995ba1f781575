"""The recommender's state as bytes, exact: arrays as they are, the rest as JSON, in one ``.npz``.

Upstream's checkpoints are its lossy form (:mod:`kscale.vpa.checkpoint`).
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np

from kscale.errors import StateError
from kscale.objects.base import ResourceList
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.quantity import Quantity
from kscale.objects.selectors import Requirement, Selector
from kscale.objects.vpa import (
    PodResourcePolicy,
    RecommendedPodResources,
    TargetReference,
    VerticalPodAutoscalerCondition,
)
from kscale.vpa.histogram import Histograms
from kscale.vpa.model.aggregates import AGGREGATE_COLUMNS, CONTAINER_COLUMNS, Aggregate, AggregateKey, Store
from kscale.vpa.model.cluster import ClusterState, ContainerState, PodState
from kscale.vpa.model.vpa import Vpa
from kscale.vpa.options import RecommenderOptions

__all__ = ["load_state", "save_state"]

FORMAT: Final = "kscale.dev/v1alpha1 vpa-state"
_BANK_COLUMNS: Final = ("weights", "total", "min_bucket", "max_bucket", "reference")


def save_state(state: ClusterState) -> bytes:
    """The whole state; :func:`load_state` gives back an equal one."""
    store = state.store
    arrays: dict[str, Any] = {name: getattr(store, name) for name in (*AGGREGATE_COLUMNS, *CONTAINER_COLUMNS)}
    for bank in ("cpu", "memory"):
        arrays |= {f"{bank}.{name}": getattr(getattr(store, bank), name) for name in _BANK_COLUMNS}
    arrays["free_rows"] = np.array(store.free_rows, np.int64)
    arrays["free_slots"] = np.array(store.free_slots, np.int64)
    arrays["json"] = np.frombuffer(msgspec.json.encode(_document(state)), np.uint8)
    out = io.BytesIO()
    np.savez_compressed(out, allow_pickle=False, **arrays)
    return out.getvalue()


def load_state(data: bytes, *, threads: int = 1) -> ClusterState:
    """A saved state; raises :class:`kscale.errors.StateError` for anything else."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            arrays = {name: np.ascontiguousarray(file[name]) for name in file.files}
        document = msgspec.json.decode(arrays["json"].tobytes())
        if document.get("format") != FORMAT:
            raise StateError(f"not a state of the recommender: {document.get('format')!r}")
        return _restored(arrays, document, threads)
    except StateError:
        raise
    except (ValueError, KeyError, TypeError, OSError, EOFError, zipfile.BadZipFile, IndexError) as error:
        raise StateError(f"a damaged state of the recommender: {error}") from None


# -- out -------------------------------------------------------------------------------------------------------


def _document(state: ClusterState) -> dict[str, Any]:
    aggregates: dict[int, Aggregate] = {}

    def number(aggregate: Aggregate | None) -> int | None:
        if aggregate is None:
            return None
        aggregates.setdefault(id(aggregate), aggregate)
        return numbers.setdefault(id(aggregate), len(numbers))

    numbers: dict[int, int] = {}
    live = [number(aggregate) for aggregate in state.aggregates.values()]
    pods = [
        {
            "namespace": pod.namespace,
            "name": pod.name,
            "labels": pod.labels,
            "phase": pod.phase,
            "initContainers": sorted(pod.init_containers),
            "containers": {name: [c.slot, *c.request, number(c.bound)] for name, c in pod.containers.items()},
        }
        for pod in state.pods.values()
    ]
    vpas = [_vpa_out(vpa, number) for vpa in state.vpas.values()]
    return {
        "format": FORMAT,
        "options": msgspec.to_builtins(state.options, enc_hook=str),
        "lastGC": state.last_gc,
        "withoutRecommendation": [[*key, time] for key, time in state.without_recommendation.items()],
        "pods": pods,
        "vpas": vpas,
        "live": live,
        "aggregates": [_aggregate_out(aggregate) for aggregate in aggregates.values()],
    }


def _aggregate_out(aggregate: Aggregate) -> dict[str, Any]:
    last = aggregate.last_recommendation
    return {
        "key": list(aggregate.key),
        "row": aggregate.row,
        "created": aggregate.created,
        "labels": dict(aggregate.labels),
        "lastRecommendation": None if last is None else {name: str(value) for name, value in last.items()},
        "isUnderVPA": aggregate.is_under_vpa,
        "updateMode": aggregate.update_mode,
        "scalingMode": aggregate.scaling_mode,
        "controlledResources": aggregate.controlled_resources,
        "alive": aggregate.alive,
        "bound": aggregate.bound,
    }


def _vpa_out(vpa: Vpa, number: Any) -> dict[str, Any]:
    return {
        "namespace": vpa.namespace,
        "name": vpa.name,
        "selector": [[item.key, item.operator, list(item.values)] for item in vpa.selector.requirements],
        "nothing": vpa.selector.nothing,
        "created": vpa.created,
        "annotations": vpa.annotations,
        "target": to_dict(vpa.target) if vpa.target is not None else None,
        "apiVersion": vpa.api_version,
        "updateMode": vpa.update_mode,
        "resourcePolicy": to_dict(vpa.resource_policy) if vpa.resource_policy is not None else None,
        "generation": vpa.generation,
        "conditions": [to_dict(condition) for condition in vpa.conditions.values()],
        "recommendation": to_dict(vpa.recommendation) if vpa.recommendation is not None else None,
        "aggregates": [number(aggregate) for aggregate in vpa.aggregates.values()],
        "initialStates": {name: number(aggregate) for name, aggregate in vpa.initial_states.items()},
        "podCount": vpa.pod_count,
        "checkpointWritten": vpa.checkpoint_written,
    }


# -- in --------------------------------------------------------------------------------------------------------


def _restored(arrays: Mapping[str, Any], document: Mapping[str, Any], threads: int) -> ClusterState:
    state = ClusterState(from_dict(document["options"], RecommenderOptions), threads=threads)
    state.store = _store(state.options, arrays)
    state.last_gc = document["lastGC"]
    state.without_recommendation = {(n, name): time for n, name, time in document["withoutRecommendation"]}
    aggregates = [_aggregate_in(item) for item in document["aggregates"]]
    state.aggregates = {aggregates[i].key: aggregates[i] for i in document["live"]}
    for item in document["pods"]:
        labels = item["labels"]
        pod = PodState(item["namespace"], item["name"], labels, ",".join(f"{k}={labels[k]}" for k in sorted(labels)))
        pod.phase = item["phase"]
        pod.init_containers = frozenset(item["initContainers"])
        for name, (slot, cpu, memory, bound) in item["containers"].items():
            pod.containers[name] = ContainerState(slot, (cpu, memory), None if bound is None else aggregates[bound])
        state.pods[pod.namespace, pod.name] = pod
    for item in document["vpas"]:
        vpa = _vpa_in(item, aggregates)
        state.vpas[vpa.key] = vpa
    state.reindex()
    return state


def _store(options: RecommenderOptions, arrays: Mapping[str, Any]) -> Store:
    store = Store(options)
    for bank in (store.cpu, store.memory):
        _fill(bank, arrays, "cpu" if bank is store.cpu else "memory")
    for name in (*AGGREGATE_COLUMNS, *CONTAINER_COLUMNS):
        if arrays[name].dtype != getattr(store, name).dtype:
            raise StateError(f"column {name} is of type {arrays[name].dtype}")
        setattr(store, name, arrays[name])
    store.free_rows = arrays["free_rows"].tolist()
    store.free_slots = arrays["free_slots"].tolist()
    assert store.native is not None  # the native door checks lengths and bounds
    return store


def _fill(bank: Histograms, arrays: Mapping[str, Any], prefix: str) -> None:
    for name in _BANK_COLUMNS:
        setattr(bank, name, arrays[f"{prefix}.{name}"])
    bank.bind()


def _resources(given: Mapping[str, str] | None) -> ResourceList | None:
    return None if given is None else {name: Quantity(text) for name, text in given.items()}


def _aggregate_in(item: Mapping[str, Any]) -> Aggregate:
    controlled = item["controlledResources"]
    return Aggregate(
        key=AggregateKey(*item["key"]),
        row=item["row"],
        created=item["created"],
        labels=item["labels"],
        last_recommendation=_resources(item["lastRecommendation"]),
        is_under_vpa=item["isUnderVPA"],
        update_mode=item["updateMode"],
        scaling_mode=item["scalingMode"],
        controlled_resources=None if controlled is None else tuple(controlled),
        alive=item["alive"],
        bound=item["bound"],
    )


def _vpa_in(item: Mapping[str, Any], aggregates: list[Aggregate]) -> Vpa:
    selector = Selector(tuple(Requirement(k, op, tuple(v)) for k, op, v in item["selector"]), item["nothing"])
    conditions = [from_dict(condition, VerticalPodAutoscalerCondition) for condition in item["conditions"]]
    policy, recommendation, target = item["resourcePolicy"], item["recommendation"], item["target"]
    linked = [aggregates[i] for i in item["aggregates"]]
    return Vpa(
        namespace=item["namespace"],
        name=item["name"],
        selector=selector,
        created=item["created"],
        annotations=item["annotations"],
        target=None if target is None else from_dict(target, TargetReference),
        api_version=item["apiVersion"],
        update_mode=item["updateMode"],
        resource_policy=None if policy is None else from_dict(policy, PodResourcePolicy),
        generation=item["generation"],
        conditions={condition.type: condition for condition in conditions},
        recommendation=None if recommendation is None else from_dict(recommendation, RecommendedPodResources),
        aggregates={aggregate.key: aggregate for aggregate in linked},
        initial_states={name: aggregates[i] for name, i in item["initialStates"].items()},
        pod_count=item["podCount"],
        checkpoint_written=item["checkpointWritten"],
    )
