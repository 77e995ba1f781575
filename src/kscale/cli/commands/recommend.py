"""``kscale recommend``: requests from recorded usage."""

from __future__ import annotations

import csv
import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, cast, get_args, get_origin

import msgspec
import typer

import kscale
from kscale.cli.failures import of_dump
from kscale.cli.inputs import say_read
from kscale.cli.options import OptionGroup
from kscale.cli.output import Answer, Cell, Column, Format, Show, Table, Tone, View
from kscale.errors import InputError, Problem
from kscale.objects.times import nanoseconds
from kscale.series.usage_reader import UsageBatch, read_usage
from kscale.vpa.advice import advise
from kscale.vpa.manifests import patch_of, vpa_of
from kscale.vpa.options import RecommenderOptions
from kscale.vpa.report import (
    SEVERITIES,
    ContainerAdvice,
    RecommendationReport,
    ResourceAdvice,
    with_quality,
)
from kscale.vpa.strategies import Strategy, find_strategy, strategies

__all__ = ["command"]

_TONES: dict[str, Tone] = {"critical": "bad", "warning": "warn", "ok": "", "good": "good", "unknown": "dim"}
_COLUMNS = ("time", "namespace", "pod", "container", "cpu_cores", "memory_bytes", "workload")


class Shape(StrEnum):
    """What ``-o`` takes here: the usual formats, and two that ``kubectl apply`` takes."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    CSV = "csv"
    MARKDOWN = "markdown"
    VPA = "vpa"
    PATCH = "patch"


class Quality(StrEnum):
    """Which of two readings of a recommendation is given."""

    GUARANTEED = "guaranteed"
    BURSTABLE = "burstable"


@dataclass
class ShowAdvice(Show):
    """Output options with two more formats and a file to write to."""

    output: Annotated[
        Shape,
        typer.Option(
            "-o",
            "--output",
            help="How to print the answer; for kubectl: vpa (VPA objects: the dump's own with their spec, else mode "
            "Off) and patch (requests of workloads).",
        ),
    ] = Shape.TABLE  # type: ignore[assignment]  # the same option with more values
    output_file: Annotated[
        Path | None, typer.Option("--output-file", metavar="FILE", help="Write the answer here instead of to stdout.")
    ] = None
    qos: Annotated[
        Quality | None,
        typer.Option(
            "--qos", help="guaranteed: request = limit = target; burstable: request = lower, limit = upper bound."
        ),
    ] = None

    @property
    def whole(self) -> bool:
        """Whether the whole record is printed."""
        return self.output in (Shape.JSON, Shape.YAML)

    def emit(self, answer: Answer) -> int:
        """Print the answer as asked; the exit status."""
        if self.output_file is None:
            return self._emit(answer)
        stdout = self.terminal.stdout
        try:
            with self.output_file.open("w", encoding="utf-8") as file:
                self.terminal.stdout = file
                return self._emit(answer)
        except OSError as error:
            raise InputError(Problem(error.strerror or str(error), str(self.output_file))) from None
        finally:
            self.terminal.stdout = stdout

    def _emit(self, answer: Answer) -> int:
        if self.output in (Shape.VPA, Shape.PATCH):
            import yaml

            documents = list(_objects(cast("Advice", answer), self.output))
            yaml.safe_dump_all(documents, self.terminal.stdout, sort_keys=False)
            return answer.exit_code
        if self.output is Shape.CSV:
            _write_csv(cast("RecommendationReport", answer.record), self.terminal.stdout)
            return answer.exit_code
        from kscale.cli.output import render

        render(answer, Format(self.output.value), self.terminal)
        return answer.exit_code


def _by_workload(record: RecommendationReport) -> Iterator[list[ContainerAdvice]]:
    for _, group in groupby(record.containers, key=lambda one: (one.namespace, one.workload)):
        yield list(group)


@dataclass(frozen=True)
class Advice(Answer):
    """The answer, and the VPAs of the dump by (namespace, name)."""

    own: Mapping[tuple[str, str], Any] = field(default_factory=dict)


def _objects(answer: Advice, shape: Shape) -> Iterator[dict[str, Any]]:
    for group in _by_workload(cast("RecommendationReport", answer.record)):
        first = group[0]
        own = None if first.implied else answer.own.get((first.namespace, first.vpa))
        found = vpa_of(group, own) if shape is Shape.VPA else patch_of(group)
        if found is not None:
            yield found


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


def _write_csv(record: RecommendationReport, file: Any) -> None:
    """One row a container, one column a number: millicores and bytes; empty = not set, no advice."""
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


def _setting_fields() -> list[tuple[str, Any, Any]]:
    """The settings of all strategies as options; a setting that several have is one option."""
    takers: dict[str, list[str]] = {}
    kinds: dict[str, Any] = {}
    for name, strategy in strategies().items():
        for setting in msgspec.structs.fields(strategy.Settings):
            takers.setdefault(setting.name, []).append(f"{name} {setting.default:g}")
            # A range (msgspec.Meta) is checked when the strategy is made.
            kinds[setting.name] = get_args(setting.type)[0] if get_origin(setting.type) is Annotated else setting.type
    fields = []
    for name, uses in takers.items():
        option = typer.Option(
            f"--{name.replace('_', '-')}", help=f"Setting of a strategy, and its default: {', '.join(uses)}."
        )
        kind = int if kinds[name] in (int, "int") else float
        fields.append((name, Annotated[kind | None, option], dataclasses.field(default=None)))
    return fields


Settings = dataclasses.make_dataclass(
    "Settings", _setting_fields(), bases=(OptionGroup,), namespace={"__module__": __name__}
)


@dataclass
class History(OptionGroup):
    """What was used, and how it is written down."""

    history: Annotated[
        list[Path],
        typer.Option(
            "--history",
            metavar="FILE",
            help="Usage: .parquet, .csv (time, namespace, pod, container, cpu_cores, memory_bytes[, workload]) or the "
            ".json of a Prometheus range query. Repeatable.",
        ),
    ] = field(default_factory=list)
    label_map: Annotated[
        str, typer.Option("--label-map", metavar="A=B,...", help="Other names of columns or labels, e.g. pod=pod_name.")
    ] = ""
    time_unit: Annotated[str, typer.Option("--time-unit", help="Of times that are numbers: s, ms, us, ns.")] = "s"
    now: Annotated[
        str, typer.Option("--now", metavar="TIME", help="The moment asked about (RFC 3339); default: the last sample.")
    ] = ""
    points_required: Annotated[
        int, typer.Option("--points-required", min=1, help="Advise only from this many CPU samples on.")
    ] = 100

    def columns(self) -> dict[str, str]:
        """The label map."""
        found = {}
        for part in filter(None, self.label_map.split(",")):
            name, sign, other = part.partition("=")
            if not sign or name not in _COLUMNS:
                raise typer.BadParameter(f"{part!r}: expected NAME=OTHER with NAME of {', '.join(_COLUMNS)}")
            found[name] = other
        return found

    def moment(self) -> int | None:
        """``--now`` in nanoseconds."""
        if not self.now:
            return None
        try:
            return nanoseconds(self.now)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--now") from None

    def batches(self) -> Iterator[UsageBatch]:
        """All rows of all files."""
        for path in self.history:
            yield from read_usage(path, columns=self.columns(), unit=self.time_unit)


def command(
    *,
    history: History,
    show: ShowAdvice,
    settings: Settings,  # type: ignore[valid-type]  # made from the registry of strategies
    filename: Annotated[
        list[str],
        typer.Option("-f", "--filename", metavar="FILE", help="A dump: workloads, pods, VPAs, HPAs. Repeatable."),
    ],
    namespace: Annotated[list[str] | None, typer.Option("-n", "--namespace", help="Only these. Repeatable.")] = None,
    kind: Annotated[list[str] | None, typer.Option("-r", "--kind", help="Only workloads of these kinds.")] = None,
    selector: Annotated[str, typer.Option("-l", "--selector", help="Only workloads with these pod labels.")] = "",
    strategy: Annotated[
        str,
        typer.Option("--strategy", help=f"One of {', '.join(strategies())}; or your own: module:Class, file.py:Class."),
    ] = "vpa",
    setting: Annotated[
        list[str] | None,
        typer.Option("--setting", metavar="NAME=VALUE", help="A setting of the strategy. Repeatable."),
    ] = None,
    min_cpu: Annotated[
        float | None, typer.Option("--min-cpu", help="Least CPU of a pod, in millicores (vpa; default 25).")
    ] = None,
    min_memory: Annotated[
        float | None, typer.Option("--min-memory", help="Least memory of a pod, in MiB (vpa; default 250).")
    ] = None,
    margin: Annotated[
        float | None, typer.Option("--margin", help="Added to what was used: 0.15 is 15 % (vpa; default 0.15).")
    ] = None,
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints/--no-checkpoints", help="Take in the dump's VPA checkpoints.")
    ] = True,
    fail_on: Annotated[
        str, typer.Option("--fail-on", metavar="severity>=S", help="Exit 1 when a container is at least this bad.")
    ] = "",
    effect: Annotated[
        bool, typer.Option("--effect", help="Also pack the running pods before and after: how many nodes less.")
    ] = False,
    catalogue: Annotated[
        str | None, typer.Option("--catalogue", metavar="CSV", help="With --effect: instance types and their prices.")
    ] = None,
    groups: Annotated[
        str | None, typer.Option("-g", "--groups", metavar="FILE", help="With --effect: node groups with prices.")
    ] = None,
    threads: Annotated[int, typer.Option("--threads", min=1, help="The answer does not depend on it.")] = 2,
    skip_invalid: Annotated[bool, typer.Option("--skip-invalid", help="Go on without unreadable objects.")] = False,
) -> Answer:
    """What requests every workload should have, from what its containers used.

    The default strategy is the Vertical Pod Autoscaler's recommender, exact to the last digit. A workload without a VPA
    object is treated as if it had one in mode Off. Pods that are gone are mapped to their workload by the history's
    workload column, by the labels of Prometheus series (label_app), else by their name.
    """
    worst = _fail_level(fail_on)
    given = {name: value for name, value in vars(settings).items() if value is not None}
    given |= dict(_setting(text) for text in setting or ())
    chosen = find_strategy(strategy, given)
    options = _options(chosen, {"--min-cpu": min_cpu, "--min-memory": min_memory, "--margin": margin})
    terminal = show.terminal
    with terminal.step(f"reading {', '.join(filename)}"), of_dump():
        cluster = kscale.load(*filename, strict=not skip_invalid)
    say_read(cluster.report, ", ".join(filename), terminal)
    saved = list(cluster.all("VerticalPodAutoscalerCheckpoint")) if checkpoints and chosen.uses_recommendation else []
    if not history.history and not saved:
        needed = "name a history" + (", or dump checkpoints" if chosen.uses_recommendation else "")
        raise typer.BadParameter(f"nothing to recommend from: {needed}", param_hint="--history")
    if (catalogue or groups) and not effect:
        raise typer.BadParameter("--catalogue and -g are about the price of nodes: they need --effect")
    if show.qos is not None and show.output is Shape.VPA:
        raise typer.BadParameter("a VPA object has neither requests nor limits", param_hint="--qos")
    with terminal.step("reading the history") as tell:
        advice = advise(
            cluster,
            history.batches(),
            options=options,
            strategy=chosen,
            now=history.moment(),
            checkpoints=saved,
            namespaces=namespace or (),
            kinds=kind or (),
            selector=selector,
            points_required=history.points_required,
            threads=threads,
            progress=lambda rows: tell(f"reading the history: {rows:,} rows"),
        )
    if show.qos is not None:
        advice = with_quality(advice, show.qos.value)
    if effect:
        from kscale.capacity.right_sizing import effect_of

        price = _prices(cluster, catalogue, groups)
        with terminal.step("packing"):
            advice = msgspec.structs.replace(advice, effect=effect_of(cluster, advice, price=price))
        if price is not None and advice.effect is not None and advice.effect.node_price is None:
            terminal.warn(f"no price for nodes like {advice.effect.node}")
    _say(advice, terminal)
    bad = worst is not None and any(SEVERITIES.index(one.severity) >= worst for one in advice.containers)
    own = {(vpa.namespace, vpa.name): vpa for vpa in cluster.all("VerticalPodAutoscaler")}
    return Advice(record=advice, view=lambda: _view(advice), exit_code=1 if bad else 0, own=own)


def _options(strategy: Strategy, given: Mapping[str, float | None]) -> RecommenderOptions:
    """The recommender's options; an error where the strategy does not look at them."""
    fields = {
        "--min-cpu": "pod_recommendation_min_cpu_millicores",
        "--min-memory": "pod_recommendation_min_memory_mb",
        "--margin": "recommendation_margin_fraction",
    }
    found: dict[str, Any] = {}
    for option, value in given.items():
        if value is None:
            continue
        if not strategy.uses_recommendation:
            raise typer.BadParameter(f"the strategy {strategy.name} does not use it", param_hint=option)
        if not math.isfinite(value) or value < 0:
            raise typer.BadParameter(f"{value} is no finite number from 0 on", param_hint=option)
        found[fields[option]] = value
    return RecommenderOptions(**found)


def _setting(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign:
        raise typer.BadParameter(f"{text!r}: expected NAME=VALUE", param_hint="--setting")
    return name.replace("-", "_"), value


def _prices(cluster: Any, catalogue: str | None, groups: str | None) -> Callable[[Any], float | None] | None:
    if catalogue is None and groups is None:
        return None
    from kscale.capacity.catalogue import read_catalogue
    from kscale.capacity.groups import read_groups
    from kscale.capacity.prices import price_of

    types = read_catalogue(catalogue) if catalogue is not None else None
    names = {node.metadata.name: i for i, node in enumerate(cluster.nodes())}
    known = read_groups(groups, node_names=names, catalogue=catalogue) if groups is not None else []
    return lambda node: price_of(node, known, types)


def _fail_level(text: str) -> int | None:
    if not text:
        return None
    name, sign, level = text.partition(">=")
    if name.strip() != "severity" or not sign or level.strip() not in SEVERITIES:
        raise typer.BadParameter(f"expected severity>=S with S of {', '.join(SEVERITIES)}", param_hint="--fail-on")
    return SEVERITIES.index(level.strip())


def _say(advice: RecommendationReport, terminal: Any) -> None:
    for name, count in advice.counts.items():
        (terminal.note if name == "samples" else terminal.warn)(f"{count:,} {name}")
    both = sorted({f"{one.namespace}/{one.workload}" for one in advice.containers if "HPA detected" in one.info})
    if both:
        terminal.warn(f"an HPA scales by a resource that these requests are of: {', '.join(both[:5])}")
    for note in advice.notes[: None if terminal.verbose else 5]:
        terminal.note(note)


# -- the table -------------------------------------------------------------------------------------------------


def _cpu(millicores: int | None) -> str:
    if millicores is None:
        return "?"
    return f"{millicores // 1000}" if millicores % 1000 == 0 and millicores else f"{millicores}m"


def _memory(size: int | None) -> str:
    if size is None:
        return "?"
    for unit, power in (("Gi", 30), ("Mi", 20), ("Ki", 10)):
        if size >= 1 << power:
            return f"{size / (1 << power):.3g}{unit}" if size >> power < 1000 else f"{size >> power}{unit}"
    return str(size)


def _resource(one: ResourceAdvice, shown: Any) -> Cell:
    before = shown(one.request) if one.request is not None else "-"
    text = f"{before} -> {shown(one.target)}"
    if one.target is not None and one.lower_bound is not None and one.upper_bound is not None:
        text += f" [{shown(one.lower_bound)}..{shown(one.upper_bound)}]"
    if one.target_limit is not None:
        text += f" limit {shown(one.target_limit)}"
    return Cell(text)


def _compare(one: ContainerAdvice) -> str | None:
    if one.cpu.compare is None and one.memory.compare is None:
        return None
    return f"{_cpu(one.cpu.compare)}, {_memory(one.memory.compare)}"


def _view(advice: RecommendationReport) -> View:
    compared = any(_compare(one) is not None for one in advice.containers)
    columns = [
        Column("NAMESPACE"),
        Column("WORKLOAD"),
        Column("CONTAINER"),
        Column("PODS", "right"),
        Column("CPU request -> target [lower..upper]"),
        Column("MEMORY"),
        Column("SEVERITY"),
        Column("INFO"),
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
    found = advice.effect
    if found is None:
        return []
    if not found.node:
        return ["The dump has no nodes: nothing to pack the pods onto."]
    if found.pods and found.homeless_before == found.homeless_after == found.pods:
        return [f"None of the {found.pods:,} running pods fits on an empty node like {found.node}: nothing is packed."]
    lines = [
        (
            f"Packed onto nodes like {found.node}, the {found.pods:,} running pods need {found.nodes_after:,} nodes "
            f"instead of {found.nodes_before:,}."
        )
    ]
    if found.saved_per_hour is not None and found.node_price is not None:
        verb = "saves" if found.saved_per_hour >= 0 else "costs"
        worth = abs(found.saved_per_hour)
        lines.append(
            f"At {found.node_price:,.4g} an hour a node that {verb} {worth:,.4g} an hour, {worth * 730:,.0f} a month."
        )
    if found.homeless_after or found.homeless_before:
        lines.append(
            f"Pods that fit on no such node: {found.homeless_after:,} (before: {found.homeless_before:,}); not packed."
        )
    if found.no_longer_fit:
        more = len(found.no_longer_fit) - 5
        named = ", ".join(found.no_longer_fit[:5]) + (f" and {more:,} more" if more > 0 else "")
        lines.append(f"Pods that would no longer fit: {named}.")
    return lines


def _names(containers: Iterable[ContainerAdvice]) -> Iterator[str]:
    return iter(dict.fromkeys(f"{one.namespace}/{one.workload}" for one in containers))


def _headline(advice: RecommendationReport) -> str:
    if not advice.containers:
        return "No workload to recommend for."
    cpu, memory = advice.change_millicores, advice.change_bytes
    changes = (
        f"{'fall' if cpu < 0 else 'rise'} by {abs(cpu) / 1000:,.4g} cpu",
        f"{'fall' if memory < 0 else 'rise'} by {_memory(abs(memory))}",
    )
    same = (cpu < 0) == (memory < 0)
    text = f"{changes[0]} and {_memory(abs(memory)) if same else changes[1]}"
    return (
        f"Requests would {text} (of {advice.requested_millicores / 1000:,.4g} cpu, {_memory(advice.requested_bytes)})."
    )
