"""A scenario file (``kind: Simulation``): what is simulated, and its published JSON Schema."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from kscale.capacity.groups import groups_schema
from kscale.objects.base import ApiStruct
from kscale.records import API_VERSION, components_of

__all__ = [
    "ControllerFlags",
    "Controllers",
    "ExternalSource",
    "LoadEntry",
    "MachineEntry",
    "MetricsEntry",
    "OutOfStock",
    "PodEntry",
    "QueueEntry",
    "Scenario",
    "SignalEntry",
    "WorldEntry",
    "simulation_schema",
    "simulation_schema_text",
]

Time = str | dict[str, str]
"""A duration as Go writes it (``90s``), or durations by their quantiles (``{p0: 40s, p50: 1m, p100: 5m}``)."""


class SignalEntry(ApiStruct, forbid_unknown_fields=True):
    """An amount over time: ``steps``, or the rows of a ``file`` (CSV, Parquet or Prometheus JSON)."""

    steps: list[tuple[str, str | float]] = []
    """(duration since the beginning, quantity) of each step, the first at ``0s``."""
    file: str | None = None
    """Relative to the scenario."""
    value: str = "value"
    """The column of the values."""
    time: str = "time"
    """The column of the times."""
    unit: Literal["s", "ms", "us", "ns"] = "s"
    """What a time as a number counts."""
    bin: str | None = None
    """The rows are events: their rate a second in bins of this width. ``value: count`` counts them."""
    scale: str | float = "1"
    """What every value is multiplied by."""
    repeat: str | None = None
    """After this duration it begins again."""


Signal = str | float | SignalEntry
"""A quantity that stays as it is, or one that changes."""


class QueueEntry(ApiStruct, forbid_unknown_fields=True):
    """Work that arrives at a workload, and is done by its ready pods."""

    arrivals: Signal
    """A second."""
    capacity: str | float
    """What a ready pod does a second."""
    used: dict[str, str | float] = {}
    """What a pod that is never idle uses of each resource."""
    patience: str = "10s"
    """What would have to wait for longer is late."""


class LoadEntry(ApiStruct, forbid_unknown_fields=True):
    """What a workload (``Deployment/namespace/name``) has to do."""

    workload: str
    total: dict[str, Signal] = {}
    """By resource or metric of pods: what all ready pods use together."""
    per_pod: dict[str, Signal] = {}
    """The same of each ready pod."""
    queue: QueueEntry | None = None


class ExternalSource(ApiStruct, forbid_unknown_fields=True):
    """An external metric: a signal, or what the queue of a workload tells."""

    namespace: str
    name: str
    signal: Signal | None = None
    workload: str | None = None
    tells: Literal["rate", "waiting"] = "rate"
    """Of a queue: what arrives a second, or the work that waits."""
    labels: dict[str, str] = {}
    """What a selector of metrics goes by; they tell it from others of its name."""


class MetricsEntry(ApiStruct, forbid_unknown_fields=True):
    """The metrics pipeline."""

    scrape: str = "15s"
    window: str = "15s"
    lag: str = "0s"
    external: list[ExternalSource] = []


class OutOfStock(ApiStruct, forbid_unknown_fields=True):
    """A time in which no machine can be had; durations since the beginning."""

    begin: str
    end: str


class MachineEntry(ApiStruct, forbid_unknown_fields=True):
    """How the machines of node groups behave. ``group``: its id; empty: of all that have no entry of their own."""

    group: str = ""
    boot: Time = "60s"
    """From being asked for to being a node."""
    apart: str = "0s"
    """The machines of one increase become nodes each so much later than the one before."""
    ready: Time = "0s"
    """From then to being ready."""
    deletion: Time = "30s"
    lifetime: Time | None = None
    """After this time, at least a second, a machine is lost, and another one comes in its place."""
    failures: float = 0.0
    """The share of machines that never become nodes."""
    stock: int | None = None
    """So many there can be at once."""
    out_of_stock: list[OutOfStock] = []
    creation: str = "0s"
    """Until a group that is made asynchronously is there."""


class PodEntry(ApiStruct, forbid_unknown_fields=True):
    """How long the pods of a workload take. ``workload`` empty: of all that have no entry of their own."""

    workload: str = ""
    pull: Time = "0s"
    start: Time = "1s"
    readiness: Time = "0s"
    termination: Time = "1s"
    work: Time | None = None
    """From running to the end of their work, of pods of jobs and of pods that nobody controls; absent, and of all
    others: they run until they are deleted."""


class WorldEntry(ApiStruct, forbid_unknown_fields=True):
    """API server and scheduler. ``latency`` of what is to be done; ``watch_lag`` from a change to who watches.
    ``scheduler``: among the nodes that fit takes the first in list order, or kube-scheduler's choice by scores."""

    latency: str = "5ms"
    watch_lag: str = "0s"
    scheduler: Literal["first-fit", "scores"] = "first-fit"
    scheduler_configuration: dict[str, Any] | str | None = None
    """With ``scores``: a KubeSchedulerConfiguration (``kubescheduler.config.k8s.io/v1``) of one profile, or the name of
    such a file, relative to the scenario; null: the default one."""
    preemption: bool = False
    """Whether pods of a higher priority make others end, as kube-scheduler's DefaultPreemption does."""


class ControllerFlags(ApiStruct, forbid_unknown_fields=True):
    """A controller that runs. ``flags``: upstream's, by name, without dashes in front."""

    flags: dict[str, str | int | float | bool | list[str]] = {}


class Controllers(ApiStruct, forbid_unknown_fields=True):
    """Which autoscalers run; those that are left out do not."""

    cluster_autoscaler: ControllerFlags | None = None
    horizontal: ControllerFlags | None = None
    vpa_recommender: ControllerFlags | None = None
    vpa_updater: ControllerFlags | None = None
    vpa_admission: ControllerFlags | None = None


class OpenbEntry(ApiStruct, forbid_unknown_fields=True):
    """A trace of the openb clusters: lists of pods and nodes (CSV, may be gzip), relative to the scenario."""

    pods: str
    """Each comes at its ``creation_time`` (seconds since the beginning), and works from its ``scheduled_time`` to its
    ``deletion_time``, however late it gets a node here."""
    nodes: str = ""
    """They are there from the beginning on."""


class Scenario(ApiStruct, forbid_unknown_fields=True):
    """A cluster, its node groups, what runs on it, and which autoscalers look after it."""

    api_version: Literal["kscale.dev/v1alpha1"]
    """The version of the format; ``apiVersion`` in the file."""
    kind: Literal["Simulation"]
    name: str = ""
    begin: str = "2026-01-01T00:00:00Z"
    """When it begins (RFC 3339)."""
    horizon: str = "24h"
    """How long it goes on."""
    seed: int = 0
    """Of all that is left to chance: the same seed gives the same run."""
    cluster: list[str] = []
    """Dumps and manifests: files or directories, relative to the scenario."""
    objects: list[dict[str, Any]] = []
    """More objects, as in a manifest."""
    groups: list[dict[str, Any]] | str = []
    """Node groups as in a groups file (see its schema), or the name of such a file. ``target``: size at the beginning.
    """
    openb: OpenbEntry | None = None
    """A trace of the openb clusters, whose nodes and pods come besides all else; null: none."""
    simkube: str = ""
    """A trace of SimKube (MessagePack or JSON, may be gzip), relative to the scenario, which begins with its first
    event: its objects are applied and deleted when they were."""
    machines: list[MachineEntry] = []
    """How the machines of node groups behave: at most one entry for each group, and one for all others. Groups without
    an entry have its defaults."""
    pods: list[PodEntry] = []
    load: list[LoadEntry] = []
    """What workloads have to do, at most one entry for each. Pods of a workload without one have no metrics."""
    metrics: MetricsEntry = msgspec.field(default_factory=MetricsEntry)
    """The metrics pipeline, and the external metrics that there are."""
    controllers: Controllers = msgspec.field(default_factory=Controllers)
    world: WorldEntry = msgspec.field(default_factory=WorldEntry)
    """How the API server and the scheduler behave."""
    sample: str = "1m"
    """How often a row of the timeline is taken."""


def simulation_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a scenario file."""
    name, definitions = components_of(Scenario)
    own = definitions.pop(name)
    groups = groups_schema()["$defs"]
    listed = {"type": "array", "items": groups.pop("Groups")["items"]}
    properties = {
        **own["properties"],
        "apiVersion": {"const": API_VERSION},
        "kind": {"const": "Simulation"},
        "groups": {"anyOf": [listed, {"type": "string"}], "default": []},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "kscale scenario file",
        **own,
        "properties": properties,
        "$defs": dict(sorted({**definitions, **groups}.items())),
    }


def simulation_schema_text() -> str:
    """The schema as it is published: indented JSON with a final line feed."""
    return msgspec.json.format(msgspec.json.encode(simulation_schema()), indent=2).decode() + "\n"
