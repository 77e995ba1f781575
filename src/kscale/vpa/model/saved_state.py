"""Save, load and fork the state of the recommender, exactly: an ``.npz`` of arrays and JSON.

Not in upstream, whose checkpoints are a lossy form of the state (:mod:`kscale.vpa.recommender.checkpoints`).
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np

from kscale.errors import StateError
from kscale.objects.api.meta import ResourceList
from kscale.objects.api.vpa import (
    PodResourcePolicy,
    PodUpdatePolicy,
    RecommendedPodResources,
    TargetReference,
    VerticalPodAutoscalerCondition,
    VerticalPodAutoscalerStatus,
)
from kscale.objects.argument_types import typed
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.quantity import Quantity
from kscale.objects.selectors import Requirement, Selector
from kscale.vpa.model.add_samples import UsageError, add_usage, find_slot
from kscale.vpa.model.aggregates import AGGREGATE_COLUMNS, CONTAINER_COLUMNS, Aggregate, AggregateKey, AggregateStore
from kscale.vpa.model.cluster_state import RecommenderState
from kscale.vpa.model.histogram import Histograms
from kscale.vpa.model.usage import CPU_SAMPLE, MEMORY_SAMPLE, OOM, Usage
from kscale.vpa.model.vpa import ContainerState, LabelSet, PodState, Vpa
from kscale.vpa.options import RecommenderOptions

__all__ = [
    "CPU_SAMPLE",
    "MEMORY_SAMPLE",
    "OOM",
    "Aggregate",
    "AggregateKey",
    "AggregateStore",
    "ContainerState",
    "LabelSet",
    "PodState",
    "RecommenderState",
    "Usage",
    "UsageError",
    "Vpa",
    "add_usage",
    "find_slot",
    "fork_state",
    "load_state",
    "save_state",
]


STATE_FORMAT: Final = "kscale.dev/v1alpha2 vpa-state"
_DAMAGED_FILE_ERRORS: Final = (
    *(ValueError, LookupError, TypeError, AttributeError, OSError, EOFError, MemoryError, ArithmeticError, SyntaxError),
    *(RuntimeError, zipfile.BadZipFile, zlib.error, msgspec.MsgspecError),  # NotImplementedError: another compression
)
"""Errors of a file that is damaged in its archive, in the header of an array, or in its document."""
_HISTOGRAM_COLUMNS: Final = ("weights", "total", "min_bucket", "max_bucket", "reference")


@typed
def save_state(state: RecommenderState) -> bytes:
    """Encode the complete state as bytes; :func:`load_state` returns an equal state."""
    arrays = _collect_arrays(state)
    arrays["json"] = np.frombuffer(msgspec.json.encode(_build_document(state)), np.uint8)
    out = io.BytesIO()
    np.savez_compressed(out, allow_pickle=False, **arrays)
    return out.getvalue()


@typed
def load_state(data: bytes, *, threads: int = 1) -> RecommenderState:
    """Load a saved state from ``data``. ``threads``: threads of its kernels.

    Raises :class:`kscale.errors.StateError` if ``data`` is no valid state.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            arrays = {name: np.ascontiguousarray(file[name]) for name in file.files}
        document = msgspec.json.decode(arrays["json"].tobytes())
        if document.get("format") != STATE_FORMAT:
            raise StateError(f"not a state of the recommender: {document.get('format')!r}")
        return _restore_state(arrays, document, threads)
    except StateError:
        raise
    except _DAMAGED_FILE_ERRORS as error:
        raise StateError(f"a damaged state of the recommender: {error}") from None


@typed
def fork_state(state: RecommenderState) -> RecommenderState:
    """Return an independent copy of the state, for what-if analyses."""
    arrays = {name: column.copy() for name, column in _collect_arrays(state).items()}
    return _restore_state(arrays, _build_document(state), state.threads)


def _collect_arrays(state: RecommenderState) -> dict[str, Any]:
    """Return the columns of a state by the names that the file uses."""
    store = state.store
    arrays: dict[str, Any] = {name: getattr(store, name) for name in (*AGGREGATE_COLUMNS, *CONTAINER_COLUMNS)}
    for resource in ("cpu", "memory"):
        arrays |= {f"{resource}.{name}": getattr(getattr(store, resource), name) for name in _HISTOGRAM_COLUMNS}
    arrays["free_rows"] = np.array(store.free_rows, np.int64)
    arrays["free_slots"] = np.array(store.free_slots, np.int64)
    return arrays


# -- saving ----------------------------------------------------------------------------------------------------


def _build_document(state: RecommenderState) -> dict[str, Any]:
    """Return the part of a state that is no column as JSON data; aggregates are numbered."""
    aggregates: dict[int, Aggregate] = {}
    numbers: dict[int, int] = {}

    def number(aggregate: Aggregate | None) -> int | None:
        """Return the index of an aggregate, which is added if it is new; None for None."""
        if aggregate is None:
            return None
        aggregates.setdefault(id(aggregate), aggregate)
        return numbers.setdefault(id(aggregate), len(numbers))

    live = [number(aggregate) for aggregate in state.aggregates.values()]
    pods = [
        {
            "namespace": pod.namespace,
            "name": pod.name,
            "labels": pod.labels,
            "phase": pod.phase,
            "initContainers": sorted(pod.init_containers),
            "sources": list(pod.sources),
            "containers": {name: [c.slot, number(c.bound)] for name, c in pod.containers.items()},
        }
        for pod in state.pods.values()
    ]
    vpas = [_encode_vpa(vpa, number) for vpa in state.vpas.values()]
    return {
        "format": STATE_FORMAT,
        "options": msgspec.to_builtins(state.options, enc_hook=str),
        "observed": [list(key) for key in state.observed],
        "lastGC": state.last_gc,
        "lastCheckpointGC": state.last_checkpoint_gc,
        "withoutRecommendation": [[*key, time] for key, time in state.without_recommendation.items()],
        "passedOver": [[*key, list(sources)] for key, sources in state.unselected_pods.items()],
        "podsLoaded": state.pods_loaded,
        "pods": pods,
        "vpas": vpas,
        "live": live,
        "aggregates": [_encode_aggregate(aggregate) for aggregate in aggregates.values()],
    }


def _encode_aggregate(aggregate: Aggregate) -> dict[str, Any]:
    """Return an aggregate as JSON data; its samples are in the columns."""
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


def _encode_vpa(vpa: Vpa, number: Any) -> dict[str, Any]:
    """Return a VPA as JSON data. ``number`` returns the index of an aggregate."""
    return {
        "namespace": vpa.namespace,
        "name": vpa.name,
        "selector": [[item.key, item.operator, list(item.values)] for item in vpa.selector.requirements],
        "nothing": vpa.selector.nothing,
        "created": vpa.created,
        "annotations": vpa.annotations,
        "target": to_dict(vpa.target) if vpa.target is not None else None,
        "apiVersion": vpa.api_version,
        "updatePolicy": to_dict(vpa.update_policy) if vpa.update_policy is not None else None,
        "resourcePolicy": to_dict(vpa.resource_policy) if vpa.resource_policy is not None else None,
        "generation": vpa.generation,
        "observedStatus": to_dict(vpa.observed_status),
        "conditions": [to_dict(condition) for condition in vpa.conditions.values()],
        "recommendation": to_dict(vpa.recommendation) if vpa.recommendation is not None else None,
        "aggregates": [number(aggregate) for aggregate in vpa.aggregates.values()],
        "initialStates": {name: number(aggregate) for name, aggregate in vpa.initial_states.items()},
        "podCount": vpa.pod_count,
        "checkpointWritten": vpa.checkpoint_written,
    }


# -- loading ---------------------------------------------------------------------------------------------------


def _restore_state(arrays: Mapping[str, Any], document: Mapping[str, Any], threads: int) -> RecommenderState:
    """Build a state from its columns and document. Raises one of ``_DAMAGED_FILE_ERRORS`` if they are invalid."""
    state = RecommenderState(from_dict(document["options"], RecommenderOptions), threads=threads)
    state.store = _restore_store(state.options, arrays)
    state.observed = [(namespace, name) for namespace, name in document["observed"]]
    state.last_gc, state.last_checkpoint_gc = document["lastGC"], document["lastCheckpointGC"]
    state.without_recommendation = {(n, name): time for n, name, time in document["withoutRecommendation"]}
    state.unselected_pods = {(n, name): tuple(sources) for n, name, sources in document["passedOver"]}
    state.pods_loaded = document["podsLoaded"]
    aggregates = [_decode_aggregate(item) for item in document["aggregates"]]
    for i in document["live"]:
        key = aggregates[i].key
        state.adopt(aggregates[i], state.label_set(key.namespace, aggregates[i].labels))
    for item in document["pods"]:
        label_set = state.label_set(item["namespace"], item["labels"])
        pod = PodState(item["name"], label_set, item["phase"])
        pod.init_containers = frozenset(item["initContainers"])
        for name, (slot, bound) in item["containers"].items():
            pod.containers[name] = ContainerState(slot, None if bound is None else aggregates[bound])
        state.pods[pod.key] = label_set.pods[pod.name] = pod
        state.set_sources(pod, tuple(item["sources"]))
    for item in document["vpas"]:
        state.enter(_decode_vpa(item, aggregates))
    return state


def _restore_store(options: RecommenderOptions, arrays: Mapping[str, Any]) -> AggregateStore:
    """Build the store from the columns. Raises StateError for a column of another type."""
    store = AggregateStore(options)
    for histograms in (store.cpu, store.memory):
        _fill_histograms(histograms, arrays, "cpu" if histograms is store.cpu else "memory")
    for name, type_ in (*AGGREGATE_COLUMNS.items(), *CONTAINER_COLUMNS.items()):
        if arrays[name].dtype != type_:
            raise StateError(f"column {name} is of type {arrays[name].dtype}")
        setattr(store, name, arrays[name])
    store.set_free(arrays["free_rows"], arrays["free_slots"])
    assert store.native is not None  # the native constructor checks lengths and bounds
    return store


def _fill_histograms(histograms: Histograms, arrays: Mapping[str, Any], prefix: str) -> None:
    """Set the columns of the histograms of one resource, whose names begin with ``prefix`` (cpu or memory)."""
    for name in _HISTOGRAM_COLUMNS:
        setattr(histograms, name, arrays[f"{prefix}.{name}"])
    histograms.bind()


def _decode_resources(resources: Mapping[str, str] | None) -> ResourceList | None:
    """Parse the texts of quantities; None for None."""
    return None if resources is None else {name: Quantity(text) for name, text in resources.items()}


def _decode_aggregate(item: Mapping[str, Any]) -> Aggregate:
    """Build an aggregate from the JSON data ``item``."""
    controlled = item["controlledResources"]
    return Aggregate(
        key=AggregateKey(*item["key"]),
        row=item["row"],
        created=item["created"],
        labels=item["labels"],
        last_recommendation=_decode_resources(item["lastRecommendation"]),
        is_under_vpa=item["isUnderVPA"],
        update_mode=item["updateMode"],
        scaling_mode=item["scalingMode"],
        controlled_resources=None if controlled is None else tuple(controlled),
        alive=item["alive"],
        bound=item["bound"],
    )


def _decode_vpa(item: Mapping[str, Any], aggregates: list[Aggregate]) -> Vpa:
    """Build a VPA from the JSON data ``item``, which refers to ``aggregates`` by index."""
    selector = Selector(tuple(Requirement(k, op, tuple(v)) for k, op, v in item["selector"]), item["nothing"])
    conditions = [from_dict(condition, VerticalPodAutoscalerCondition) for condition in item["conditions"]]
    update, policy = item["updatePolicy"], item["resourcePolicy"]
    recommendation, target = item["recommendation"], item["target"]
    linked = [aggregates[i] for i in item["aggregates"]]
    return Vpa(
        namespace=item["namespace"],
        name=item["name"],
        selector=selector,
        created=item["created"],
        annotations=item["annotations"],
        target=None if target is None else from_dict(target, TargetReference),
        api_version=item["apiVersion"],
        update_policy=None if update is None else from_dict(update, PodUpdatePolicy),
        resource_policy=None if policy is None else from_dict(policy, PodResourcePolicy),
        generation=item["generation"],
        observed_status=from_dict(item["observedStatus"], VerticalPodAutoscalerStatus),
        conditions={condition.type: condition for condition in conditions},
        recommendation=None if recommendation is None else from_dict(recommendation, RecommendedPodResources),
        aggregates={aggregate.key: aggregate for aggregate in linked},
        initial_states={name: aggregates[i] for name, i in item["initialStates"].items()},
        pod_count=item["podCount"],
        checkpoint_written=item["checkpointWritten"],
    )
