"""The options of ``kscale recommend``."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import msgspec
import typer

from kscale.cli.moments import parse_moment
from kscale.cli.options import OptionGroup
from kscale.effects import moment
from kscale.series.usage_reader import UsageFiles
from kscale.vpa.advice.records import SEVERITIES
from kscale.vpa.options import RecommenderOptions
from kscale.vpa.strategies import Strategy, strategies

__all__ = ["History", "Quality", "Settings", "Shape", "fail_level", "recommender_options", "setting_of"]

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
    HTML = "html"
    VPA = "vpa"
    PATCH = "patch"


class Quality(StrEnum):
    """Which of two readings of a recommendation is given."""

    GUARANTEED = "guaranteed"
    BURSTABLE = "burstable"


class Metric(StrEnum):
    """What series of Prometheus may be of."""

    CPU = "cpu"
    MEMORY = "memory"


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
        str | None,
        typer.Option("--label-map", metavar="A=B,...", help="Other names of columns or labels, e.g. pod=pod_name."),
    ] = None
    time_unit: Annotated[
        str | None, typer.Option("--time-unit", help="Unit of times that are numbers: s (the default), ms, us, ns.")
    ] = None
    metric: Annotated[
        Metric | None, typer.Option("--metric", help="Resource of Prometheus series whose names do not say it.")
    ] = None
    now: Annotated[
        str, typer.Option("--now", metavar="TIME", help="The moment asked about (RFC 3339); default: the last sample.")
    ] = ""
    points_required: Annotated[
        int, typer.Option("--points-required", min=1, help="Advise only from this many CPU samples on.")
    ] = 100

    def check(self) -> None:
        """Raises BadParameter for options that nothing reads."""
        if self.history:
            return
        for option, value in (
            ("--label-map", self.label_map),
            ("--time-unit", self.time_unit),
            ("--metric", self.metric),
        ):
            if value is not None:
                raise typer.BadParameter("needs --history", param_hint=option)

    def columns(self) -> dict[str, str]:
        """The label map."""
        found = {}
        for part in filter(None, (self.label_map or "").split(",")):
            name, sign, other = part.partition("=")
            if not sign or name not in _COLUMNS:
                raise typer.BadParameter(f"{part!r}: expected NAME=OTHER with NAME of {', '.join(_COLUMNS)}")
            found[name] = other
        return found

    def moment(self) -> int | None:
        """``--now`` in nanoseconds."""
        if not self.now:
            return None
        return moment(parse_moment(self.now))

    def batches(self, threads: int) -> UsageFiles:
        """All rows of all files."""
        return UsageFiles(self.history, self.columns(), self.time_unit or "s", threads, self.metric or "")


def recommender_options(strategy: Strategy, given: Mapping[str, float | None]) -> RecommenderOptions:
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


def setting_of(text: str) -> tuple[str, str]:
    """``NAME=VALUE``."""
    name, sign, value = text.partition("=")
    if not sign:
        raise typer.BadParameter(f"{text!r}: expected NAME=VALUE", param_hint="--setting")
    return name.replace("-", "_"), value


def fail_level(text: str) -> int | None:
    """The place in :data:`SEVERITIES` of ``severity=S`` or ``severity>=S``, which mean the same."""
    if not text:
        return None
    name, _, level = text.partition("=")  # severity=S, too: an unquoted > is the shell's
    if name.replace(" ", "") not in ("severity", "severity>") or level.strip() not in SEVERITIES:
        raise typer.BadParameter(f"expected severity=S with S of {', '.join(SEVERITIES)}", param_hint="--fail-on")
    return SEVERITIES.index(level.strip())
