"""Scenario files (``kind: Simulation``): their structure, JSON Schema and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_origin, get_type_hints

import msgspec
import numpy as np

from kscale.capacity.groups import groups_schema
from kscale.effects import Moment, timedelta_of
from kscale.errors import InputError, Problem
from kscale.imports import lazy_pattern
from kscale.objects.api.meta import ApiStruct
from kscale.objects.quantity import Quantity, QuantityError
from kscale.objects.times import parse_duration
from kscale.records import API_VERSION, components_of
from kscale.series import bin_events, read
from kscale.world.simulated.load import MILLION, DurationDistribution
from kscale.world.simulated.load import Signal as signals_Signal

__all__ = [
    "CLUSTER_AUTOSCALER",
    "KARPENTER",
    "ControllerFlags",
    "Controllers",
    "ExternalSource",
    "KarpenterEntry",
    "LoadEntry",
    "MachineEntry",
    "MetricsEntry",
    "OutOfStock",
    "OutageEntry",
    "PodEntry",
    "QueueEntry",
    "Scenario",
    "SignalEntry",
    "Values",
    "WorldEntry",
    "options_of",
    "simulation_schema",
    "simulation_schema_text",
]


CLUSTER_AUTOSCALER: Final = "cluster-autoscaler"
KARPENTER: Final = "karpenter"
"""The provisioners: programs that add and remove nodes."""

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
    """Work that arrives at a workload, and is processed by its ready pods."""

    arrivals: Signal
    """A second."""
    capacity: str | float
    """What a ready pod does a second."""
    used: dict[str, str | float] = {}
    """What a pod that is never idle uses of each resource."""
    patience: str = "10s"
    """What would have to wait for longer is late."""


class LoadEntry(ApiStruct, forbid_unknown_fields=True):
    """The load of a workload (``Deployment/namespace/name``)."""

    workload: str
    total: dict[str, Signal] = {}
    """By resource or metric of pods: what all ready pods use together."""
    per_pod: dict[str, Signal] = {}
    """The same of each ready pod."""
    queue: QueueEntry | None = None


class ExternalSource(ApiStruct, forbid_unknown_fields=True):
    """An external metric: a signal, or a value of a workload's queue."""

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
    """A period in which no machine is available; durations since the beginning."""

    begin: str
    end: str


class MachineEntry(ApiStruct, forbid_unknown_fields=True):
    """Behaviour of the machines of node groups.

    ``group``: its id, or the name of a NodePool for all of its groups; empty: all groups without their own entry.
    """

    group: str = ""
    boot: Time = "60s"
    """From being asked for to being a node."""
    apart: str = "0s"
    """Delay between the machines of one increase: each becomes a node this much later than the one before."""
    ready: Time = "0s"
    """From then to being ready."""
    startup: Time = "0s"
    """From then to losing the ``startupTaints`` of its NodePool."""
    deletion: Time = "30s"
    lifetime: Time | None = None
    """After this time, at least a second, a machine is lost. Its group creates another one, but not with Karpenter."""
    failures: float = 0.0
    """The share of machines that never become nodes."""
    stock: int | None = None
    """So many there can be at once."""
    out_of_stock: list[OutOfStock] = []
    creation: str = "0s"
    """Until a group that is made asynchronously is there."""


class OutageEntry(ApiStruct, forbid_unknown_fields=True):
    """An outage of a zone; durations since the beginning.

    Nodes of the zone are lost when it begins, and node groups in the zone are out of stock until it ends.
    """

    zone: str
    begin: str
    end: str


class PodEntry(ApiStruct, forbid_unknown_fields=True):
    """Durations of the pods of a workload. ``workload`` empty: all workloads without their own entry."""

    workload: str = ""
    pull: Time = "0s"
    start: Time = "1s"
    readiness: Time = "0s"
    termination: Time = "1s"
    work: Time | None = None
    """From running to the end of their work, of pods of jobs and of pods that nobody controls; absent, and of all
    others: they run until they are deleted."""


class WorldEntry(ApiStruct, forbid_unknown_fields=True):
    """API server and scheduler. ``latency`` of actions; ``watch_lag`` from a change to its watchers.

    ``scheduler``: takes the first node in list order that fits, or kube-scheduler's choice by scores.
    """

    latency: str = "5ms"
    watch_lag: str = "0s"
    scheduler: Literal["first-fit", "scores"] = "first-fit"
    scheduler_configuration: dict[str, Any] | str | None = None
    """With ``scores``: a KubeSchedulerConfiguration (``kubescheduler.config.k8s.io/v1``) of one profile, or the name of
    such a file, relative to the scenario; null: the default one."""
    preemption: bool = False
    """Whether pods of a higher priority make others end, as kube-scheduler's DefaultPreemption does."""


class ControllerFlags(ApiStruct, forbid_unknown_fields=True):
    """A controller to run. ``flags``: upstream's, by name, without leading dashes."""

    flags: dict[str, str | int | float | bool | list[str]] = {}


class KarpenterEntry(ApiStruct, forbid_unknown_fields=True):
    """Karpenter, with what it may launch. ``flags``: ``batch-idle-duration`` and ``batch-max-duration``."""

    node_pools: list[dict[str, Any]] | str
    """NodePools (``karpenter.sh/v1``), or the name of a file of them, relative to the scenario."""
    catalogue: str
    """A file of instance types and prices, relative to the scenario."""
    zones: list[str] = []
    """Zones of new nodes; empty: those that each NodePool names."""
    region: str = ""
    """The region whose prices count."""
    flags: dict[str, str | int | float | bool | list[str]] = {}


class Controllers(ApiStruct, forbid_unknown_fields=True):
    """The autoscalers to run; omitted ones do not run."""

    cluster_autoscaler: ControllerFlags | None = None
    karpenter: KarpenterEntry | None = None
    """Instead of the Cluster Autoscaler; with both, ``provisioner`` says which one runs."""
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
    """A cluster, its node groups, its load, and the autoscalers that manage it."""

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
    provisioner: Literal["", "cluster-autoscaler", "karpenter"] = ""
    """The program that adds and removes nodes, if ``controllers`` has two; empty: the one that it has. Without
    ``groups``, the Cluster Autoscaler has one group for each offering of Karpenter's NodePools."""
    world: WorldEntry = msgspec.field(default_factory=WorldEntry)
    """How the API server and the scheduler behave."""
    sample: str = "1m"
    """How often a row of the timeline is taken."""
    outages: list[OutageEntry] = []
    """Outages of zones (label ``topology.kubernetes.io/zone`` of nodes and templates)."""


def simulation_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a scenario file."""
    name, definitions = components_of(Scenario)
    scenario_schema = definitions.pop(name)
    groups = groups_schema()["$defs"]
    listed = {"type": "array", "items": groups.pop("Groups")["items"]}
    properties = {
        **scenario_schema["properties"],
        "apiVersion": {"const": API_VERSION},
        "kind": {"const": "Simulation"},
        "groups": {"anyOf": [listed, {"type": "string"}], "default": []},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "kscale scenario file",
        **scenario_schema,
        "properties": properties,
        "$defs": dict(sorted({**definitions, **groups}.items())),
    }


def simulation_schema_text() -> str:
    """Return the schema as it is published: indented JSON with a final line feed."""
    return msgspec.json.format(msgspec.json.encode(simulation_schema()), indent=2).decode() + "\n"


_T = TypeVar("_T", bound=msgspec.Struct)
_MOST: Final = 1 << 62
"""Thousandths; all that is added up of them has room in 64 bits."""
_PLAIN: Final = lazy_pattern(r"([0-9]{1,15})(?:\.([0-9]{1,3}))?")
"""A plain number that is in range and needs no rounding."""
_EXACT: Final = 1e9  # below, a float and its thousandths differ by less than a half
_TOO_MUCH: Final = Quantity(str(_MOST // 1000))


class Values:
    """Parses values of a scenario and collects their mistakes in ``problems``.

    ``source``: the file; ``folder``: where relative file names start; ``begin``: when the simulation begins.
    """

    def __init__(self, source: str, folder: Path, begin: Moment) -> None:
        self.source, self.folder, self.begin = source, folder, begin
        self.problems: list[Problem] = []

    def wrong(self, field: str, message: str, step: int | None = None) -> None:
        """Record a mistake of a field. ``step``: index of a signal's step, None if the mistake is not about a step."""
        place = field if step is None else f"{field}.steps[{step}]"
        self.problems.append(Problem(message, self.source, field=place))

    def duration(self, text: str, field: str, *, least: int = 0, step: int | None = None) -> int:
        """Parse a Go duration to nanoseconds.

        A malformed or too long duration, or one below ``least`` nanoseconds, is recorded as a mistake; the result is
        ``least`` then.
        """
        try:
            nanoseconds = parse_duration(text)
        except ValueError as error:
            self.wrong(field, str(error), step)
            return least
        if nanoseconds < least:
            self.wrong(field, f"{text} is too short" if least else f"{text} is negative", step)
            return least
        return nanoseconds

    def spread(self, given: Time, field: str, *, least: int = 0) -> DurationDistribution:
        """Parse a duration or its quantiles (``p50: 10s``), each at least ``least`` nanoseconds.

        Mistakes are recorded; a wrong duration becomes ``least``, and if the quantiles are wrong, every duration is 0.
        Below the lowest quantile, durations are its duration. Shares are rounded down to millionths.
        """
        if isinstance(given, str):
            return DurationDistribution.fixed(self.duration(given, field, least=least))
        points = []
        for name, text in given.items():
            share = name.removeprefix("p")
            try:
                place = int(Fraction(share) * MILLION // 100)
            except (ValueError, ZeroDivisionError):
                self.wrong(f"{field}.{name}", "a quantile is p0 to p100, as p50 or p99.9")
                return DurationDistribution.fixed(0)
            points.append((place, self.duration(text, f"{field}.{name}", least=least)))
        points.sort()
        if points and points[0][0] != 0:
            points.insert(0, (0, points[0][1]))
        try:
            return DurationDistribution(tuple(points))
        except ValueError:
            self.wrong(field, "quantiles go up to p100, and longer times belong to higher ones")
            return DurationDistribution.fixed(0)

    def milli(self, given: str | float, field: str, *, step: int | None = None) -> int:
        """Parse a quantity to thousandths, rounded up.

        A malformed or negative one, or one of ``2^62`` thousandths or more, is recorded as a mistake; the result is 0
        then.
        """
        if type(given) is float and 0 <= given < _EXACT and (milli := round(given * 1000)) / 1000 == given:
            return milli  # the number has at most three decimals
        text = str(given)
        if (plain := _PLAIN.fullmatch(text)) is not None:  # as Quantity reads it: long lists are of these
            return int(plain[1]) * 1000 + int((plain[2] or "").ljust(3, "0"))
        try:
            quantity = Quantity(text)
        except QuantityError as error:
            self.wrong(field, f"{given!r} is not a quantity: {error}", step)
            return 0
        if quantity.sign < 0 or quantity.cmp(_TOO_MUCH) >= 0:  # checked first, as milli_value() wraps like Go's
            self.wrong(field, f"{given} is out of range", step)
            return 0
        return quantity.milli_value()

    def _durations(self, texts: Sequence[str], field: str) -> list[int]:
        """Parse the offsets of a signal's steps, as :meth:`duration` does."""
        try:
            nanoseconds = [*map(parse_duration, texts)]
            if min(nanoseconds) >= 0:
                return nanoseconds
        except ValueError:
            pass
        return [self.duration(text, field, step=i) for i, text in enumerate(texts)]

    def _all_milli(self, amounts: Sequence[str | float], field: str) -> list[int]:
        """Parse the amounts of a signal's steps, as :meth:`milli` does."""
        if {*map(type, amounts)} == {float}:
            numbers = np.array(amounts)
            if ((numbers >= 0) & (numbers < _EXACT)).all():
                milli = np.rint(numbers * 1000)
                if (milli / 1000 == numbers).all():  # the numbers have at most three decimals
                    exact: list[int] = milli.astype(np.int64).tolist()
                    return exact
        return [self.milli(amount, field, step=i) for i, amount in enumerate(amounts)]

    def signal(self, given: Signal, field: str) -> signals_Signal:
        """Parse an amount over time, in thousandths. Scaled amounts are rounded down.

        After a mistake, which is recorded, it is 0 all the time.
        """
        if not isinstance(given, SignalEntry):
            return signals_Signal.constant(self.milli(given, field))
        repeat = 0 if given.repeat is None else self.duration(given.repeat, f"{field}.repeat", least=1_000_000)
        if bool(given.steps) == (given.file is not None):
            self.wrong(field, "either steps or a file is needed")
            return signals_Signal.constant(0)
        try:
            if given.file is not None:
                time, value = self._rows(given, field, repeat)
            else:
                offsets, amounts = zip(*given.steps, strict=True)
                time = [self.begin + offset for offset in self._durations(offsets, field)]
                value = self._all_milli(amounts, field)
            scale = Fraction(str(given.scale))
            if scale < 0:
                raise ValueError(f"scale {given.scale} is negative")
            scaled = [each * scale.numerator // scale.denominator for each in value] if scale != 1 else value
            if max(scaled) >= _MOST:
                raise ValueError(f"{max(scaled) // 1000} is out of range")
            return signals_Signal(time, scaled, repeat=repeat)
        except InputError as error:
            self.problems += error.problems
        except (ValueError, ZeroDivisionError, OverflowError) as error:
            self.wrong(field, str(error))
        return signals_Signal.constant(0)

    def _rows(self, given: SignalEntry, field: str, repeat: int) -> tuple[list[int], list[int]]:
        """Read (times in nanoseconds since 1970, amounts in thousandths) from a file. The first time becomes ``begin``.

        Counted events end with an amount of 0 after the last bin, unless the signal repeats by then (after ``repeat``
        nanoseconds, 0: never). Amounts are rounded down to thousandths. Raises ValueError for unusable rows, InputError
        if the file cannot be read.
        """
        path = self.folder / str(given.file)
        if given.bin is not None:
            counting = given.value == "count"
            rows = read(path, value="" if counting else given.value, time=given.time, unit=given.unit, events=True)
            if not len(rows.time):
                raise ValueError(f"{path} is empty")
            width = self.duration(given.bin, f"{field}.bin", least=1_000_000)
            times, values = bin_events(rows.time, width, None if counting else rows.value)
            end = times[-1] + width
            if not repeat or end - times[0] < repeat:  # no events after the last
                times, values = np.append(times, end), np.append(values, 0.0)
        else:
            series = read(path, value=given.value, time=given.time, unit=given.unit)
            if len(series.keys) != 1:
                raise ValueError(f"{path} holds {len(series.keys)} series, and one is needed")
            times, values = series.time, series.value
        if not len(times):
            raise ValueError(f"{path} is empty")
        if (np.asarray(values) < 0).any():
            raise ValueError(f"{path} holds a negative amount")
        milli = [int(Fraction(number) * 1000) for number in np.asarray(values).tolist()]
        return (np.asarray(times) - times[0] + self.begin).tolist(), milli


def options_of(struct: type[_T], flags: Mapping[str, Any], given: Mapping[str, Any], values: Values, field: str) -> _T:
    """Build an options struct from ``given`` (values by field) and the flags (by upstream's name).

    ``field``: path of the controller in the scenario, for mistakes, which are added to ``values``. Flags that do not
    exist or cannot be parsed are left out; if the options are refused as a whole, the result has default values.
    """
    hints = get_type_hints(struct)
    fields = dict(given)
    for name, value in flags.items():
        flag_field, attribute = f"{field}.flags.{name}", name.replace("-", "_")
        kind = hints.get(attribute)
        if kind is None:
            values.wrong(flag_field, "there is no such flag")
            continue
        try:
            if kind is timedelta:
                fields[attribute] = timedelta_of(parse_duration(str(value)))
            elif kind is Quantity:
                fields[attribute] = Quantity(str(value))
            elif get_origin(kind) in (dict, Mapping):
                fields[attribute] = _gates(value)
            elif get_origin(kind) is list and isinstance(value, str):
                fields[attribute] = [part for part in value.split(",") if part]
            else:
                fields[attribute] = msgspec.convert(value, kind, strict=False)
        except (ValueError, TypeError) as error:
            values.wrong(flag_field, str(error))
    try:
        options = struct(**fields)
    except InputError as error:
        for problem in error.problems:
            values.wrong(f"{field}.flags.{problem.field.replace('_', '-')}", problem.message)
        return struct()
    for problem in getattr(options, "problems", list)():
        values.wrong(f"{field}.flags.{problem.field.replace('_', '-')}", problem.message)
    return options


def _gates(given: Any) -> dict[str, bool]:
    """Parse feature gates as in Go's flags: ``A=true,B=false``, or a list of such texts.

    The last entry of a gate counts. Raises ValueError for any other text.
    """
    gates: dict[str, bool] = {}
    for part in ",".join(given if isinstance(given, list) else [str(given)]).split(","):
        name, _, value = part.partition("=")
        if value.strip().lower() not in ("true", "false"):
            raise ValueError(f"{part!r} is not NAME=true or NAME=false")
        gates[name.strip()] = value.strip().lower() == "true"
    return gates
