"""Options of ``kscale recommend``, and the formats of its output."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, cast, get_args, get_origin

import msgspec
import typer

from kscale.cli.inputs import parse_moment
from kscale.cli.options import OptionGroup
from kscale.cli.output import Answer, Cell, Column, Format, Show, Table, View, make_columns
from kscale.cli.terminal import Terminal, object_name
from kscale.effects import moment
from kscale.errors import InputError, Problem
from kscale.files import replacing
from kscale.series.usage_reader import UsageFiles
from kscale.views import Tone
from kscale.vpa.advice.records import (
    SEVERITIES,
    ContainerAdvice,
    PackedPools,
    RecommendationReport,
    ResourceAdvice,
    build_patch,
    build_vpa,
)
from kscale.vpa.controllers import WELL_KNOWN_KINDS
from kscale.vpa.options import RecommenderOptions
from kscale.vpa.strategies import Strategy, list_strategies

__all__ = [
    "Advice",
    "History",
    "Quality",
    "Settings",
    "Shape",
    "ShowAdvice",
    "UsageHistory",
    "fail_level",
    "recommender_options",
    "setting_of",
    "view_of",
]


_COLUMNS = ("time", "namespace", "pod", "container", "cpu_cores", "memory_bytes", "workload")


class Shape(StrEnum):
    """Output formats of ``-o``, with two more that ``kubectl apply`` reads."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    CSV = "csv"
    MARKDOWN = "markdown"
    HTML = "html"
    VPA = "vpa"
    PATCH = "patch"


class Quality(StrEnum):
    """The QoS class that a recommendation aims at."""

    GUARANTEED = "guaranteed"
    BURSTABLE = "burstable"


class Metric(StrEnum):
    """The resource that a single Prometheus series measures."""

    CPU = "cpu"
    MEMORY = "memory"


def _setting_fields() -> list[tuple[str, Any, Any]]:
    """Return (name, annotation, dataclass field) of an option for each setting of the strategies.

    Settings of several strategies with the same name share an option. Raises InputError if a strategy of an installed
    package cannot be loaded.
    """
    takers: dict[str, list[str]] = {}
    kinds: dict[str, Any] = {}
    for name, strategy in list_strategies().items():
        for setting in msgspec.structs.fields(strategy.Settings):
            takers.setdefault(setting.name, []).append(f"{name} (default {setting.default:g})")
            # A range (msgspec.Meta) is checked when the strategy is created.
            kinds[setting.name] = get_args(setting.type)[0] if get_origin(setting.type) is Annotated else setting.type
    fields = []
    for name, uses in takers.items():
        option = typer.Option(
            f"--{name.replace('_', '-')}", help=f"Setting of the same name of --strategy {' or '.join(uses)}."
        )
        kind = int if kinds[name] in (int, "int") else float
        fields.append((name, Annotated[kind | None, option], dataclasses.field(default=None)))
    return fields


Settings = dataclasses.make_dataclass(
    "Settings", _setting_fields(), bases=(OptionGroup,), namespace={"__module__": __name__}
)


@dataclass
class UsageHistory(OptionGroup):
    """Options for the files of historical usage, and their columns and units.

    Attributes
    ----------
    history : FILE
        Usage: .parquet, .csv (time, namespace, pod, container, cpu_cores, memory_bytes[, workload]) or the .json of
        a Prometheus range query. Repeatable.
    label_map : A=B,...
        Other names of columns or labels, e.g. pod=pod_name.
    time_unit
        Unit of times that are numbers: s (the default), ms, us, ns.
    metric
        Resource of Prometheus series whose metric name does not say it.
    now : TIME
        Time of the recommendation (RFC 3339); default: the last sample.
    """

    title = "History"
    common = ("history",)

    history: list[Path] = field(default_factory=list)
    label_map: str | None = None
    time_unit: str | None = None
    metric: Metric | None = None
    now: str = ""

    @property
    def inputs(self) -> list[str]:
        """Return the names of the files and clusters that are read, for the header of a page."""
        return [str(path) for path in self.history]

    def check(self) -> None:
        """Raise BadParameter for options that have no effect."""
        if self.history:
            return
        for option, value in (
            ("--label-map", self.label_map),
            ("--time-unit", self.time_unit),
            ("--metric", self.metric),
        ):
            if value is not None:
                raise typer.BadParameter("needs --history", param_hint=option)

    def column_names(self) -> dict[str, str]:
        """Return ``--label-map`` as kscale's column name -> name in the files; empty without the option.

        Raises typer.BadParameter if it is malformed.
        """
        columns = {}
        for part in filter(None, (self.label_map or "").split(",")):
            name, sign, other = part.partition("=")
            if not sign or name not in _COLUMNS:
                raise typer.BadParameter(f"{part!r}: expected NAME=OTHER with NAME of {', '.join(_COLUMNS)}")
            columns[name] = other
        return columns

    def moment(self) -> int | None:
        """Return ``--now`` in nanoseconds since 1970; None if it is not set.

        Raises typer.BadParameter if it is malformed.
        """
        if not self.now:
            return None
        return moment(parse_moment(self.now))

    def batches(self, threads: int) -> UsageFiles:
        """Return an iterable over batches of the rows of all history files, read with ``threads`` threads.

        Raises typer.BadParameter for a malformed ``--label-map``. The files are read during the iteration.
        """
        return UsageFiles(self.history, self.column_names(), self.time_unit or "s", threads, self.metric or "")


@dataclass
class History(UsageHistory):
    """As :class:`UsageHistory`, for recommendations.

    Attributes
    ----------
    points_required
        Minimum number of CPU samples for an advice.
    """

    points_required: Annotated[int, typer.Option(min=1)] = 100


def recommender_options(strategy: Strategy, values: Mapping[str, float | None]) -> RecommenderOptions:
    """Return the recommender's options. ``values``: by flag (``--margin``), None for the default.

    Raises typer.BadParameter for a bad number, or if the strategy does not use the option.
    """
    field_of_flag = {
        "--min-cpu": "pod_recommendation_min_cpu_millicores",
        "--min-memory": "pod_recommendation_min_memory_mb",
        "--margin": "recommendation_margin_fraction",
    }
    options: dict[str, Any] = {}
    for option, value in values.items():
        if value is None:
            continue
        if not strategy.uses_recommendation:
            raise typer.BadParameter(f"the strategy {strategy.name} does not use it", param_hint=option)
        if not math.isfinite(value) or value < 0:
            raise typer.BadParameter(f"{value} is no finite number from 0 on", param_hint=option)
        options[field_of_flag[option]] = value
    return RecommenderOptions(**options)


def setting_of(text: str) -> tuple[str, str]:
    """Split ``NAME=VALUE`` into (name, value), with dashes of the name as underscores.

    Raises typer.BadParameter without ``=``.
    """
    name, sign, value = text.partition("=")
    if not sign:
        raise typer.BadParameter(f"{text!r}: expected NAME=VALUE", param_hint="--setting")
    return name.replace("-", "_"), value


def fail_level(text: str) -> int | None:
    """Return the index in :data:`SEVERITIES` of ``severity=S`` or ``severity>=S``, which mean the same.

    None for an empty text. Raises typer.BadParameter for any other text.
    """
    if not text:
        return None
    name, _, level = text.partition("=")  # severity=S is accepted too, as the shell interprets an unquoted >
    if name.replace(" ", "") not in ("severity", "severity>") or level.strip() not in SEVERITIES:
        raise typer.BadParameter(f"expected severity=S with S of {', '.join(SEVERITIES)}", param_hint="--fail-on")
    return SEVERITIES.index(level.strip())


_TONES: dict[str, Tone] = {"critical": "bad", "warning": "warn", "ok": "", "good": "good", "unknown": "dim"}
_OF_RESOURCE = (
    "request",
    "limit",
    "target",
    "target_limit",
    "lower_bound",
    "upper_bound",
    "uncapped_target",
    "compare",
)


class Advice(Answer, frozen=True):
    """The answer, with the VPAs of the dump by (namespace, name)."""

    own: Mapping[tuple[str, str], Any] = {}


@dataclass
class ShowAdvice(Show):
    """Output options with two more formats and a file to write to.

    Attributes
    ----------
    output
        How to print the answer; for kubectl: vpa (VPA objects: the dump's own with their spec, else mode Off) and
        patch (requests of workloads).
    output_file : FILE
        File to write the output to instead of stdout.
    qos
        guaranteed: request = limit = target; burstable: request = lower, limit = upper bound.
    """

    output: Annotated[Shape, typer.Option("-o", "--output")] = Shape.TABLE  # type: ignore[assignment]  # more values than in the base class
    output_file: Path | None = None
    qos: Quality | None = None

    @property
    def needs_full_record(self) -> bool:
        """Return whether the output format prints the full record."""
        return self.output in (Shape.JSON, Shape.YAML, Shape.HTML)

    def emit(self, answer: Answer) -> int:
        """Print the answer in the chosen format and return the exit status.

        Raises InputError if the output file cannot be written.
        """
        if self.output_file is None:
            return self._emit(answer)
        stdout = self.terminal.stdout
        try:
            with replacing(self.output_file) as raw, io.TextIOWrapper(raw, encoding="utf-8") as file:
                self.terminal.stdout = file
                return self._emit(answer)
        except OSError as error:
            raise InputError(Problem(error.strerror or str(error), str(self.output_file))) from None
        finally:
            self.terminal.stdout = stdout

    def _emit(self, answer: Answer) -> int:
        """Print the answer to this terminal and return the exit status."""
        if self.output in (Shape.VPA, Shape.PATCH):
            import yaml

            documents = list(_objects(cast("Advice", answer), self.output, self.terminal))
            yaml.safe_dump_all(documents, self.terminal.stdout, sort_keys=False)
            return answer.exit_code
        if self.output is Shape.CSV and isinstance(answer.record, RecommendationReport):  # one of several is a table
            _write_csv(answer.record, self.terminal.stdout)
            return answer.exit_code
        from kscale.cli.output import render

        render(answer, Format(self.output.value), self.terminal, self.origin)
        return answer.exit_code


def _group_by_workload(record: RecommendationReport) -> Iterator[list[ContainerAdvice]]:
    """Yield the containers' advice, one list for each workload."""
    for _, group in groupby(record.containers, key=lambda one: (one.namespace, one.workload)):
        yield list(group)


def _objects(answer: Advice, shape: Shape, terminal: Terminal) -> Iterator[dict[str, Any]]:
    """Yield the VPA objects or patches (``shape``) of all workloads; warn of custom workloads that have no patch."""
    for group in _group_by_workload(cast("RecommendationReport", answer.record)):
        first = group[0]
        own = None if first.implied else answer.own.get((first.namespace, first.vpa))
        document = build_vpa(group, own) if shape is Shape.VPA else build_patch(group)
        if document is not None:
            yield document
        elif shape is Shape.PATCH and first.workload.partition("/")[0] not in WELL_KNOWN_KINDS:
            terminal.warn(f"no patch for {first.workload} in {first.namespace}: a patch would replace its containers")


def _write_csv(record: RecommendationReport, file: Any) -> None:
    """Write one row per container to ``file``, with one column per number, in millicores and bytes.

    An empty field means not set or no recommendation.
    """
    rows = csv.writer(file, lineterminator="\n")
    numbers = [f"{resource}_{name}" for resource in ("cpu_millicores", "memory_bytes") for name in _OF_RESOURCE]
    rows.writerow(
        ["namespace", "workload", "container", "vpa", "implied", "pods", "samples", *numbers, "severity", "info"]
    )
    for one in record.containers:
        amounts = [getattr(resource, name) for resource in (one.cpu, one.memory) for name in _OF_RESOURCE]
        rows.writerow(
            [one.namespace, one.workload, one.container, one.vpa, str(one.implied).lower(), one.pods, one.samples]
            + ["" if amount is None else amount for amount in amounts]
            + [one.severity, ", ".join(one.info)]
        )


# -- the table -------------------------------------------------------------------------------------------------


def _cpu(millicores: int | None) -> str:
    """Format millicores as a quantity: ``2``, ``1500m``; ``?`` for None."""
    if millicores is None:
        return "?"
    return f"{millicores // 1000}" if millicores % 1000 == 0 and millicores else f"{millicores}m"


def _memory(size: int | None) -> str:
    """Format bytes in the largest binary unit: ``1.5Gi``; ``?`` for None."""
    if size is None:
        return "?"
    for unit, power in (("Gi", 30), ("Mi", 20), ("Ki", 10)):
        if size >= 1 << power:
            return f"{size / (1 << power):.3g}{unit}" if size >> power < 1000 else f"{size >> power}{unit}"
    return str(size)


def _resource(one: ResourceAdvice, shown: Any) -> Cell:
    """Format one resource: request -> target, bounds and limit. ``shown`` formats an amount."""
    before = shown(one.request) if one.request is not None else "-"
    text = f"{before} -> {shown(one.target)}"
    if one.target is not None and one.lower_bound is not None and one.upper_bound is not None:
        text += f" [{shown(one.lower_bound)}..{shown(one.upper_bound)}]"
    if one.target_limit is not None:
        text += f" limit {shown(one.target_limit)}"
    return Cell(text)


def _compare(one: ContainerAdvice) -> str | None:
    """Format the CPU and memory targets that the advice is compared with; None if there are none."""
    if one.cpu.compare is None and one.memory.compare is None:
        return None
    return f"{_cpu(one.cpu.compare)}, {_memory(one.memory.compare)}"


def view_of(advice: RecommendationReport) -> View:
    """Build the view of a recommendation report."""
    compared = any(_compare(one) is not None for one in advice.containers)
    columns = [
        *make_columns("NAMESPACE", "WORKLOAD", "CONTAINER"),
        Column("PODS", "right"),
        *make_columns("CPU request -> target [lower..upper]", "MEMORY", "SEVERITY", "INFO"),
        Column("SAMPLES", "right", wide=True),
    ]
    if compared:
        columns.insert(6, Column("COMPARE"))
    rows = []
    for one in advice.containers:
        row: list[Any] = [
            one.namespace,
            one.workload,
            one.container,
            one.pods,
            _resource(one.cpu, _cpu),
            _resource(one.memory, _memory),
            Cell(one.severity, _TONES[one.severity]),
            ", ".join(one.info),
            one.samples,
        ]
        if compared:
            row.insert(6, _compare(one))
        rows.append(row)
    return View(
        headline=_headline(advice),
        tables=[Table(columns, rows)],
        footer=_effect(advice),
        names=list(_names(advice.containers)),
    )


def _effect(advice: RecommendationReport) -> list[str]:
    """Return lines about the nodes and money that the new requests save or cost; empty if not computed."""
    effect = advice.effect
    if effect is None:
        return []
    if not effect.node:
        return ["The dump has no nodes: nothing to pack the pods onto."]
    if effect.pods and effect.homeless_before == effect.homeless_after == effect.pods:
        return [
            f"None of the {effect.pods:,} running pods fits on an empty node like {effect.node}: nothing is packed."
        ]
    lines = [
        (
            f"Packed onto nodes like {effect.node}, the {effect.pods:,} running pods need {effect.nodes_after:,} nodes "
            f"instead of {effect.nodes_before:,}."
        )
    ]
    if effect.saved_per_hour is not None and effect.node_price is not None:
        verb = "saves" if effect.saved_per_hour >= 0 else "costs"
        amount = abs(effect.saved_per_hour)
        lines.append(
            f"At {effect.node_price:,.4g} an hour a node that {verb} {amount:,.4g} an hour, "
            f"{amount * 730:,.0f} a month."
        )
    if effect.homeless_after or effect.homeless_before:
        lines.append(
            f"Pods that fit on no such node: {effect.homeless_after:,} "
            f"(before: {effect.homeless_before:,}); not packed."
        )
    if effect.pools_before is not None and effect.pools_after is not None:
        lines += _pools(effect.pools_before, effect.pools_after)
    if effect.no_longer_fit:
        more = len(effect.no_longer_fit) - 5
        named = ", ".join(effect.no_longer_fit[:5]) + (f" and {more:,} more" if more > 0 else "")
        lines.append(f"Pods that would no longer fit: {named}.")
    return lines


def _pools(before: PackedPools, after: PackedPools) -> list[str]:
    """Describe the cost of the node pools before and after all recommendations.

    The requested CPU and memory may change in opposite directions.
    """

    def describe(packed: PackedPools) -> str:
        pools = ", ".join(f"{name} {count:,}" for name, count in packed.nodes.items())
        return f"${packed.cost:,.2f} an hour ({pools or 'no node'})"

    changes = [
        f"{resource} {'falls' if new < old else 'rises'} to {_share(new, old)}"
        for resource, new, old in (
            ("cpu", after.millicores, before.millicores),
            ("memory", after.bytes, before.bytes),
        )
        if new != old
    ]
    requested = f" ({', '.join(changes)} of what is requested now)" if changes else ""
    lines = [
        f"On its own pools, packed anew, the cluster costs {describe(after)} instead of {describe(before)}{requested}."
    ]
    if after.unschedulable_count or before.unschedulable_count:
        counts = f"{after.unschedulable_count:,} (before: {before.unschedulable_count:,})"
        lines.append(f"Pods that fit on none of the pools: {counts}.")
    return lines


def _share(new: int, old: int) -> str:
    """Format ``new`` as a whole percentage of ``old``; ``something`` if ``old`` is 0."""
    return f"{new / old:.0%}" if old else "something"


def _names(containers: Iterable[ContainerAdvice]) -> Iterator[str]:
    """Yield ``kind/namespace/name`` of each workload once, as ``-o name`` prints it."""
    for namespace, workload in dict.fromkeys((one.namespace, one.workload) for one in containers):
        kind, _, name = workload.rpartition("/")
        yield object_name(kind, namespace, name)


def _headline(advice: RecommendationReport) -> str:
    """Return a sentence with the total change of requests, or why there is no recommendation."""
    if not advice.containers:
        return f"No workload to recommend for{': ' + '; '.join(advice.notes) if advice.notes else ''}."
    cpu, memory = advice.change_millicores, advice.change_bytes
    now = f"(of {advice.requested_millicores / 1000:,.4g} cpu, {_memory(advice.requested_bytes)})"
    if all(one.cpu.target is None and one.memory.target is None for one in advice.containers):
        return f"No advice: requests would stay as they are {now}."
    if cpu == memory == 0:
        return f"Requests would stay as they are {now}."
    changes = (
        f"{'fall' if cpu < 0 else 'rise'} by {abs(cpu) / 1000:,.4g} cpu",
        f"{'fall' if memory < 0 else 'rise'} by {_memory(abs(memory))}",
    )
    same = (cpu < 0) == (memory < 0)
    text = f"{changes[0]} and {_memory(abs(memory)) if same else changes[1]}"
    return f"Requests would {text} {now}."
