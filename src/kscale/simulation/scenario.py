"""Scenario files (``kind: Simulation``): their structure, JSON Schema and values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from kscale.objects.go_numbers import parse_bool, parse_float, parse_int_literal
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
    """An amount that changes over time. Set either ``steps`` or ``file``.

    File formats: CSV, Parquet, or Prometheus JSON. The first time in a file is the beginning of the simulation.

    Attributes
    ----------
    steps : list[tuple[str, str or float]]
        Steps as (duration since the beginning, quantity), such as ``["20m", 4]``. The first duration is ``0s``. An
        amount holds until the next step.
    file : str or None
        Name of a file with the values, relative to the scenario file.
    value : str
        Column of the values in the file.
    time : str
        Column of the times in the file.
    unit : str
        Unit of times in the file that are plain numbers.
    bin : str or None
        Width of a bin, as a duration. If set, each row of the file is an event, and the amount is the sum of the values
        in a bin per second. With ``value: count``, the amount is the number of events per second.
    scale : str or float
        Factor for every value; not negative.
    repeat : str or None
        Duration after which the signal starts again. None: it does not repeat, and the last amount holds.
    """

    steps: list[tuple[str, str | float]] = []
    file: str | None = None
    value: str = "value"
    time: str = "time"
    unit: Literal["s", "ms", "us", "ns"] = "s"
    bin: str | None = None
    scale: str | float = "1"
    repeat: str | None = None


Signal = str | float | SignalEntry
"""A quantity that stays as it is, or one that changes."""


class QueueEntry(ApiStruct, forbid_unknown_fields=True):
    """Work that arrives at a workload and that its ready pods process.

    Attributes
    ----------
    arrivals : Signal
        Units of work that arrive per second: a quantity, or an amount over time.
    capacity : str or float
        Units of work that one ready pod processes per second.
    used : dict of str to str or float
        Usage of each resource, as a quantity, by a pod that is never idle. A pod that is busy half of the time uses
        half of it.
    patience : str
        Longest acceptable wait, as a duration. Work is late if, when it arrives, the waiting work would take the ready
        pods longer than this.
    """

    arrivals: Signal
    capacity: str | float
    used: dict[str, str | float] = {}
    patience: str = "10s"


class LoadEntry(ApiStruct, forbid_unknown_fields=True):
    """The load of one workload. Each resource or metric appears in only one of ``total``, ``per_pod`` and ``queue``.

    Attributes
    ----------
    workload : str
        The workload as ``Kind/namespace/name``, such as ``Deployment/shop/web``.
    total : dict of str to Signal
        Usage of all ready pods together, by resource (``cpu``, ``memory``) or name of a pods metric: a quantity, or an
        amount over time.
    per_pod : dict of str to Signal
        Usage of each ready pod, by resource or name of a pods metric: a quantity, or an amount over time.
    queue : QueueEntry or None
        Work that arrives at the workload. None: there is no queue.
    """

    workload: str
    total: dict[str, Signal] = {}
    per_pod: dict[str, Signal] = {}
    queue: QueueEntry | None = None


class ExternalSource(ApiStruct, forbid_unknown_fields=True):
    """An external metric. Its value is either a ``signal`` or a value of the queue of a ``workload``.

    Attributes
    ----------
    namespace : str
        Namespace of the metric.
    name : str
        Name of the metric.
    signal : Signal or None
        The value: a quantity, or an amount over time. None: the value comes from the queue of ``workload``.
    workload : str or None
        Workload (``Kind/namespace/name``) whose queue gives the value. None: ``signal`` is the value.
    tells : str
        Which value of the queue the metric has: ``rate`` (units of work that arrive per second) or ``waiting`` (units
        of work that wait).
    labels : dict of str to str
        Labels of the metric. Metric selectors match them; they also distinguish metrics of the same name.
    """

    namespace: str
    name: str
    signal: Signal | None = None
    workload: str | None = None
    tells: Literal["rate", "waiting"] = "rate"
    labels: dict[str, str] = {}


class MetricsEntry(ApiStruct, forbid_unknown_fields=True):
    """Timing of the metrics pipeline, and external metrics. All times are durations such as ``15s``.

    Attributes
    ----------
    scrape : str
        Interval between two scrapes; at least ``1s``.
    window : str
        Time over which a value is averaged. ``0s``: the value at the time of the scrape.
    lag : str
        Age that a value has at least when autoscalers can read it.
    external : list of ExternalSource
        External metrics.
    """

    scrape: str = "15s"
    window: str = "15s"
    lag: str = "0s"
    external: list[ExternalSource] = []


class OutOfStock(ApiStruct, forbid_unknown_fields=True):
    """A period in which the cloud can create no machine.

    Attributes
    ----------
    begin, end : str
        Durations since the beginning of the simulation, such as ``1h30m``.
    """

    begin: str
    end: str


class MachineEntry(ApiStruct, forbid_unknown_fields=True):
    """Behaviour of the machines of a node group.

    Times are durations (``90s``). Those that accept an object may be a distribution instead, by quantiles: ``{p0: 40s,
    p50: 1m, p100: 5m}``.

    Attributes
    ----------
    group : str
        Id of the node group, or name of a NodePool, for all of its groups. Empty: all groups without an entry of their
        own.
    boot : Time
        Time from the request of a machine until it is a node.
    apart : str
        Additional time for each further machine of the same increase.
    ready : Time
        Time from when the machine is a node until the node is ready.
    startup : Time
        Time from when the node is ready until it loses the ``startupTaints`` of its NodePool.
    deletion : Time
        Time that the deletion of a machine takes.
    lifetime : Time or None
        Time after which a machine is lost, as a spot machine is; at least ``1s``. Its group creates a new one, but not
        with Karpenter. None: no machine is lost this way.
    failures : float
        Share of the machines that never become nodes, from 0 to 1.
    stock : int or None
        Maximum number of machines of the group at the same time. None: no limit.
    out_of_stock : list of OutOfStock
        Periods in which the cloud can create no machine of the group.
    creation : str
        Time until a node group exists that the Cluster Autoscaler creates asynchronously.
    """

    group: str = ""
    boot: Time = "60s"
    apart: str = "0s"
    ready: Time = "0s"
    startup: Time = "0s"
    deletion: Time = "30s"
    lifetime: Time | None = None
    failures: float = 0.0
    stock: int | None = None
    out_of_stock: list[OutOfStock] = []
    creation: str = "0s"


class OutageEntry(ApiStruct, forbid_unknown_fields=True):
    """An outage of a zone.

    The nodes of the zone are lost when the outage begins, and node groups in the zone are out of stock until it ends.
    The zone of a node is its label ``topology.kubernetes.io/zone``.

    Attributes
    ----------
    zone : str
        Name of the zone.
    begin, end : str
        Durations since the beginning of the simulation, such as ``1h30m``.
    """

    zone: str
    begin: str
    end: str


class PodEntry(ApiStruct, forbid_unknown_fields=True):
    """Times of the pods of a workload.

    Each is a duration (``5s``), or a distribution by quantiles: ``{p0: 1s, p50: 2s, p100: 30s}``.

    Attributes
    ----------
    workload : str
        The workload as ``Kind/namespace/name``. Empty: all workloads without an entry of their own.
    pull : Time
        Time to pull the images, after the pod is bound to a node.
    start : Time
        Time from then until the pod runs.
    readiness : Time
        Time from then until the pod is ready.
    termination : Time
        Time from the deletion of a pod until it is gone, at most its grace period.
    work : Time or None
        Time from when the pod runs until its work ends, for pods of Jobs and pods without a controller. Other pods run
        until they are deleted. None: no pod ends by itself.
    """

    workload: str = ""
    pull: Time = "0s"
    start: Time = "1s"
    readiness: Time = "0s"
    termination: Time = "1s"
    work: Time | None = None


class WorldEntry(ApiStruct, forbid_unknown_fields=True):
    """Behaviour of the API server and of the scheduler.

    Attributes
    ----------
    latency : str
        Time until the API server or the cloud has carried out and answered a request, as a duration.
    watch_lag : str
        Time from a change of an object to its watch event, as a duration.
    scheduler : str
        How the scheduler chooses among the nodes that fit a pod: ``first-fit`` (the next one in list order) or
        ``scores`` (the best one by kube-scheduler's scores).
    scheduler_configuration : dict of str to Any or str or None
        With ``scores``: a KubeSchedulerConfiguration (``kubescheduler.config.k8s.io/v1``) with one profile, or the name
        of its file, relative to the scenario file. None: kube-scheduler's defaults.
    preemption : bool
        Whether pods of a higher priority evict pods of a lower one, as kube-scheduler's DefaultPreemption does.
    """

    latency: str = "5ms"
    watch_lag: str = "0s"
    scheduler: Literal["first-fit", "scores"] = "first-fit"
    scheduler_configuration: dict[str, Any] | str | None = None
    preemption: bool = False


class ControllerFlags(ApiStruct, forbid_unknown_fields=True):
    """A controller to run.

    Attributes
    ----------
    flags : dict of str to str or int or float or bool or list of str
        Upstream's flags by name, without leading dashes. Durations are texts such as ``10s``.
    """

    flags: dict[str, str | int | float | bool | list[str]] = {}


class KarpenterEntry(ApiStruct, forbid_unknown_fields=True):
    """Karpenter, and the machines that it may launch.

    Attributes
    ----------
    node_pools : list of dict of str to Any or str
        NodePools (``karpenter.sh/v1``), or the name of a file with NodePools, relative to the scenario file.
    catalogue : str
        File of instance types and prices, relative to the scenario file.
    zones : list of str
        Zones of new nodes. Empty: the zones that each NodePool names.
    region : str
        Region of the prices. Empty: the first region of each instance type.
    flags : dict of str to str or int or float or bool or list of str
        Karpenter's flags by name: ``batch-idle-duration`` and ``batch-max-duration``.
    """

    node_pools: list[dict[str, Any]] | str
    catalogue: str
    zones: list[str] = []
    region: str = ""
    flags: dict[str, str | int | float | bool | list[str]] = {}


class Controllers(ApiStruct, forbid_unknown_fields=True):
    """The autoscalers to run. An autoscaler that is omitted does not run.

    Attributes
    ----------
    cluster_autoscaler : ControllerFlags or None
        The Cluster Autoscaler.
    karpenter : KarpenterEntry or None
        Karpenter, instead of the Cluster Autoscaler. If both are present, ``provisioner`` of the scenario says which
        one runs.
    horizontal : ControllerFlags or None
        The HPA controller.
    vpa_recommender : ControllerFlags or None
        The recommender of the VerticalPodAutoscaler.
    vpa_updater : ControllerFlags or None
        The updater of the VerticalPodAutoscaler.
    vpa_admission : ControllerFlags or None
        The admission controller of the VerticalPodAutoscaler.
    """

    cluster_autoscaler: ControllerFlags | None = None
    karpenter: KarpenterEntry | None = None
    horizontal: ControllerFlags | None = None
    vpa_recommender: ControllerFlags | None = None
    vpa_updater: ControllerFlags | None = None
    vpa_admission: ControllerFlags | None = None


class OpenbEntry(ApiStruct, forbid_unknown_fields=True):
    """A trace of the openb GPU clusters. Its lists are CSV files, which may be compressed with gzip.

    Attributes
    ----------
    pods : str
        File with the pods, relative to the scenario file. Each pod arrives at its ``creation_time`` (seconds since the
        beginning). Once it runs, it runs as long as from its ``scheduled_time`` to its ``deletion_time``.
    nodes : str
        File with the nodes, relative to the scenario file. The nodes exist from the beginning. Empty: no nodes of the
        trace.
    """

    pods: str
    nodes: str = ""


class Scenario(ApiStruct, forbid_unknown_fields=True):
    """A simulated cluster: its objects, node groups and load, and the autoscalers that manage it.

    Durations are written as in Go (``90s``, ``1h30m``), amounts as quantities (``500m``, ``2Gi``).

    Attributes
    ----------
    api_version : str
        Version of the format.
    kind : str
        Kind of the document.
    name : str
        Name of the scenario in reports.
    begin : str
        Start of the simulated time (RFC 3339).
    horizon : str
        Length of the simulated time, as a duration.
    seed : int
        Random seed. The same scenario with the same seed gives the same run.
    cluster : list of str
        Dumps and manifests with the objects at the beginning: files or directories, relative to the scenario file.
    objects : list of dict of str to Any
        Further objects at the beginning, as in a manifest.
    groups : list of dict of str to Any or str
        Node groups as in a groups file, or the name of such a file. ``target`` is the size of a group at the beginning.
    openb : OpenbEntry or None
        A trace of the openb clusters, whose nodes and pods are added to all others. None: no such trace.
    simkube : str
        File with a SimKube trace (MessagePack or JSON, may be compressed with gzip), relative to the scenario file. The
        simulation starts with its first event. Its objects are applied and deleted at their recorded times. Empty: no
        such trace.
    machines : list of MachineEntry
        Behaviour of the machines of node groups: at most one entry for each group, and one for all others. A group
        without an entry has the default values.
    pods : list of PodEntry
        Times of pods: at most one entry for each workload, and one for all others. A workload without an entry has the
        default values.
    load : list of LoadEntry
        Load of workloads, at most one entry for each. Pods of a workload without an entry have no metrics.
    metrics : MetricsEntry
        Timing of the metrics pipeline, and external metrics.
    controllers : Controllers
        The autoscalers to run.
    provisioner : str
        The program that adds and removes nodes, if ``controllers`` has two of them. Empty: the only one. Without
        ``groups``, the Cluster Autoscaler has one group for each offering of Karpenter's NodePools.
    world : WorldEntry
        Behaviour of the API server and of the scheduler.
    sample : str
        Interval between two rows of the timeline, as a duration.
    outages : list of OutageEntry
        Outages of zones.
    """

    api_version: Literal["kscale.dev/v1alpha1"]
    kind: Literal["Simulation"]
    name: str = ""
    begin: str = "2026-01-01T00:00:00Z"
    horizon: str = "24h"
    seed: int = 0
    cluster: list[str] = []
    objects: list[dict[str, Any]] = []
    groups: list[dict[str, Any]] | str = []
    openb: OpenbEntry | None = None
    simkube: str = ""
    machines: list[MachineEntry] = []
    pods: list[PodEntry] = []
    load: list[LoadEntry] = []
    metrics: MetricsEntry = msgspec.field(default_factory=MetricsEntry)
    controllers: Controllers = msgspec.field(default_factory=Controllers)
    provisioner: Literal["", "cluster-autoscaler", "karpenter"] = ""
    world: WorldEntry = msgspec.field(default_factory=WorldEntry)
    sample: str = "1m"
    outages: list[OutageEntry] = []


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
        "groups": {**scenario_schema["properties"]["groups"], "anyOf": [listed, {"type": "string"}]},
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

    ``warnings``: parts of the load that may be missing, as a Prometheus response says. ``source``: the file;
    ``folder``: where relative file names start; ``begin``: when the simulation begins.
    """

    def __init__(self, source: str, folder: Path, begin: Moment) -> None:
        self.source, self.folder, self.begin = source, folder, begin
        self.problems: list[Problem] = []
        self.warnings: list[str] = []

    def wrong(self, field: str, message: str, step: int | None = None) -> None:
        """Record a mistake. ``field``: path in the scenario; ``step``: index of a signal's step, None without steps."""
        place = field if step is None else f"{field}.steps[{step}]"
        self.problems.append(Problem(message, self.source, field=place))

    def duration(self, text: str, field: str, *, least: int = 0, step: int | None = None) -> int:
        """Parse a Go duration to nanoseconds. ``field``, ``step``: where it is in the scenario, as in :meth:`wrong`.

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

        ``given``: the scenario's entry; ``field``: its path, for mistakes.

        The duration of the lowest quantile also counts for all shares below it. Shares are rounded down to millionths.
        Mistakes are recorded: a malformed duration becomes ``least``; after a mistake in the names or the order of the
        quantiles, every duration is 0.
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
        """Parse a quantity (``given``) to thousandths, rounded up. ``field``, ``step``: as in :meth:`wrong`.

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
        """Parse the offsets of a signal's steps into nanoseconds, as :meth:`duration` does, which records mistakes."""
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

        ``given``: the scenario's entry; ``field``: its path, for mistakes. After a mistake, which is recorded, the
        amount is always 0.
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
        """Read (times in nanoseconds since 1970, amounts in thousandths) from a signal's file.

        All times are shifted so that the first equals ``begin``, the beginning of the run. Counted events end with an
        amount of 0 after the last bin, unless the signal repeats by then (after ``repeat`` nanoseconds, 0: never).
        Amounts are rounded down to thousandths. Raises ValueError for unusable rows, InputError if the file cannot be
        read.
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
            self.warnings += [f"what {path} lacks, of which Prometheus warned: {text}" for text in series.warnings]
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
            fields[attribute] = _parse_flag(kind, value)
        except (ValueError, TypeError) as error:
            values.wrong(flag_field, str(error))
    try:
        options = struct(**fields)
    except InputError as error:
        for problem in error.problems:
            values.wrong(f"{field}.flags.{problem.field.replace('_', '-')}", problem.message)
        return struct()
    return options if check_options(options, values, field) else struct()


def check_options(options: Any, values: Values, field: str) -> bool:
    """Return whether a controller starts with the options; otherwise add its problems to ``values``.

    ``field``: path of the controller in the scenario.
    """
    problems: Sequence[Problem] = getattr(options, "problems", list)()
    for problem in problems:
        values.wrong(f"{field}.flags.{problem.field.replace('_', '-')}", problem.message)
    return not problems


def _parse_flag(kind: Any, value: str | float | bool | list[str]) -> Any:
    """Parse the value of a flag as the programs of ``kscale run`` parse its text. ``kind``: type of the option.

    Raises ValueError for a malformed value, and TypeError for a list where one value is expected.
    """
    origin = get_origin(kind)
    if origin in (dict, Mapping):
        return _gates(value)
    if origin is list:
        return value if isinstance(value, list) else [part for part in str(value).split(",") if part]
    if isinstance(value, list):
        raise TypeError("one value is expected, not a list")
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if kind is timedelta:
        return timedelta_of(parse_duration(text))
    if kind is Quantity:
        return Quantity(text) if text else Quantity.zero()
    return _FLAG_PARSERS[kind](text)


_FLAG_PARSERS: Final[Mapping[type, Callable[[str], Any]]] = {
    bool: parse_bool,
    int: parse_int_literal,
    float: parse_float,
    str: str,
}


def _gates(given: Any) -> dict[str, bool]:
    """Parse feature gates as in Go's flags: ``A=true,B=false``, or a list of such texts.

    The last entry of a gate counts. Raises ValueError for any other text.
    """
    gates: dict[str, bool] = {}
    for part in filter(None, ",".join(given if isinstance(given, list) else [str(given)]).split(",")):
        name, _, value = part.partition("=")
        if value.strip().lower() not in ("true", "false"):
            raise ValueError(f"{part!r} is not NAME=true or NAME=false")
        gates[name.strip()] = value.strip().lower() == "true"
    return gates
