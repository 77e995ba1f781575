"""Scenario files (edits, questions, products of values), conditions on results, and the records of ``kscale whatif``.

Every mistake in a file is reported with its field. Not in upstream.
"""

from __future__ import annotations

import itertools
import math
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Final

import msgspec

from kscale.ca.flag_parsing import parse_flags
from kscale.ca.options import AutoscalingOptions
from kscale.capacity.groups.groups_file import read_plain_file
from kscale.errors import InputError, Problem
from kscale.imports import lazy_pattern
from kscale.objects.api.meta import ApiStruct
from kscale.objects.argument_types import typed
from kscale.objects.decode import escape, from_dict
from kscale.objects.go_numbers import parse_float, parse_int64
from kscale.records import Record, components_of

__all__ = [
    "BASELINE",
    "METRICS",
    "READ",
    "Condition",
    "Edit",
    "GroupsEdit",
    "LoseEdit",
    "PodsEdit",
    "PricesEdit",
    "Question",
    "RequestsEdit",
    "Scenario",
    "ScenarioRow",
    "SetGroup",
    "WhatIfReport",
    "combine_variations",
    "explain_change",
    "options_in",
    "parse_condition",
    "read_scenarios",
    "scenarios_from",
    "scenarios_schema_text",
]


BASELINE = "baseline"
CLUSTER_AUTOSCALER, KARPENTER = "cluster-autoscaler", "karpenter"
"""Programs whose rule may decide scale-ups."""


class ScenarioRow(msgspec.Struct, kw_only=True, rename="camel", frozen=True):
    """The result of one scenario.

    Attributes
    ----------
    name : str
        Name of the scenario, or ``baseline``.
    question : str
        The question that was decided.
    nodes : int
        Number of nodes after the decision. For the question simulate: at the end.
    cost : float or None
        Price of all nodes per hour after the decision. For the question simulate: the average per hour. None: a price
        is unknown.
    bound : float or None
        Lower bound of ``cost``: no decision on these groups that places the same pods costs less. None: not computed,
        or unknown.
    pending : int
        Number of pods that stay without a node.
    homeless : int
        Number of those of these pods that ran on a node which was lost. For the question headroom: number of pods that
        the worst loss of one more node, or of one more zone, would leave without a node.
    pending_seconds : float or None
        For the question simulate: how long pods were pending, in seconds, summed over all pods. None for other
        questions.
    groups : dict of str to int
        By how many nodes each node group grows (negative: shrinks). For the question simulate: until the end. For the
        question rebuild: compared with the existing nodes. For the question headroom: empty.
    notes : list of str
        What the edits leave unchanged although a reader may expect otherwise, as texts.
    differs : str
        The first decision that differs from that of the baseline. Empty: none.
    crossed : list of str
        Conditions (``--fail-on``) that hold.
    """

    name: str
    question: str
    nodes: int
    cost: float | None
    bound: float | None
    pending: int
    homeless: int
    pending_seconds: float | None = None
    groups: dict[str, int] = {}
    notes: list[str] = []
    differs: str = ""
    crossed: list[str] = []


class WhatIfReport(Record, frozen=True, dict=True):
    """Results of scenarios, and the baselines without their edits.

    Attributes
    ----------
    baselines : list of ScenarioRow
        One row for each question that the scenarios ask.
    scenarios : list of ScenarioRow
        One row for each scenario, in their order.
    shared : int
        Number of decisions that were reused from another scenario because none of their inputs differ.
    assumptions : list of str
        Assumptions of the choice of node groups, as texts.
    provisioner : str
        Program whose rule decided the question scale-up: ``cluster-autoscaler``, or ``karpenter`` for NodePools.
    """

    KIND: ClassVar[str] = "WhatIfReport"
    ROWS: ClassVar[str] = "scenarios"
    baselines: list[ScenarioRow]
    scenarios: list[ScenarioRow]
    shared: int
    assumptions: list[str] = msgspec.field(default_factory=list)
    provisioner: str = CLUSTER_AUTOSCALER

    def summary(self) -> str:
        """Return a line: the number of scenarios, the nodes of the first three, and how many meet a condition."""
        rows = [f"{row.name}: {row.nodes:,} nodes" for row in self.scenarios[:3]]
        crossed = sum(bool(row.crossed) for row in self.scenarios)
        parts = [f"{len(self.scenarios):,} scenarios", *rows, *([f"{crossed:,} cross a limit"] if crossed else [])]
        return ", ".join(parts)

    def explain(self, name: str) -> str:
        """Return a line on what a scenario changes and why: its result, each edit's part in it, and pending pods.

        ``name``: of the scenario; ``baseline`` explains the first baseline. A report that was read from JSON or
        unpickled has no scenarios to decide again: it explains the result and the first decision that differs. Raises
        InputError if the report has no such scenario.
        """
        for row in (*self.scenarios, *self.baselines):
            if row.name == name:
                break
        else:
            raise InputError(f"no scenario {name!r} in this report")
        baseline = next(item for item in self.baselines if item.question == row.question)
        explain_edits: ExplainEdits | None = self.__dict__.get("_explain_edits")
        texts = [_explain_result(row, baseline), *row.notes]
        if explain_edits is not None:
            texts += explain_edits(row.name, row.question)
        elif row.differs:
            texts.append(f"first difference: {row.differs}")
        return "; ".join(texts)

    def with_explanations(self, explain_edits: ExplainEdits) -> WhatIfReport:
        """Set the function by which :meth:`explain` explains edits, and return this report.

        ``explain_edits``: called with (name of the scenario, its question), returns texts.
        """
        self.__dict__["_explain_edits"] = explain_edits
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return msgspec.convert, (msgspec.to_builtins(self), type(self))


ExplainEdits = Callable[[str, str], Sequence[str]]
"""Returns texts on the edits of a scenario, from its name and its question."""


def _explain_result(row: ScenarioRow, baseline: ScenarioRow) -> str:
    """Return a line with the numbers of a scenario, each with the baseline's number if they differ."""
    parts = [f"{row.question}: {_compare(row.nodes, baseline.nodes)} nodes"]
    if row.cost is not None:
        parts.append(f"{_compare(row.cost, baseline.cost)} per hour")
    parts.append(f"{_compare(row.pending, baseline.pending)} {'pod' if row.pending == 1 else 'pods'} pending")
    if row.homeless or baseline.homeless:
        parts.append(f"{_compare(row.homeless, baseline.homeless)} homeless")
    for group in dict.fromkeys((*row.groups, *baseline.groups)):
        change, before = row.groups.get(group, 0), baseline.groups.get(group, 0)
        parts.append(f"{group} {change:+,}" + (f" (baseline {before:+,})" if change != before else ""))
    return ", ".join(parts)


def _compare(value: float, before: float | None) -> str:
    """Format a value, with the baseline's in brackets if it differs and is known."""
    return _format_number(value) + (f" (baseline {_format_number(before)})" if before not in (None, value) else "")


def _format_number(value: float) -> str:
    """Format a number with thousands separators; with two decimals unless it is an int."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def explain_change(before: ScenarioRow, after: ScenarioRow) -> str:
    """Return a line with the numbers that differ between two rows, before and after; empty if none does."""
    pairs = [("nodes", before.nodes, after.nodes), ("cost", before.cost, after.cost)]
    pairs += [("pending pods", before.pending, after.pending), ("homeless pods", before.homeless, after.homeless)]
    parts = [
        f"{name} {'unknown' if old is None else _format_number(old)} -> "
        f"{'unknown' if new is None else _format_number(new)}"
        for name, old, new in pairs
        if old != new
    ]
    for group in dict.fromkeys((*before.groups, *after.groups)):
        old, new = before.groups.get(group, 0), after.groups.get(group, 0)
        if old != new:
            parts.append(f"{group} {old:+,} -> {new:+,}")
    return ", ".join(parts)


METRICS = ("nodes", "cost", "bound", "pending", "homeless", "waited")
_FIELDS = {"waited": "pending_seconds"}  # fields of ScenarioRow whose names differ from the metric
_SIGNS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_TEXT = lazy_pattern(r"\s*([a-z]+)\s*(>=|<=|>|<)\s*([+-]?)(\d+(?:\.\d+)?)(%?)\s*")


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on a scenario's result: ``metric`` compared by ``sign`` with ``amount``.

    With ``relative`` the change from the baseline is compared, with ``percent`` that change in percent.
    """

    text: str
    """As it was written."""
    metric: str
    sign: str
    amount: float
    relative: bool
    percent: bool

    def is_known(self, row: ScenarioRow, baseline: ScenarioRow) -> bool:
        """Check whether the values that the condition compares are known in ``row`` and, if needed, in ``baseline``."""
        rows = (row, baseline) if self.relative or self.percent else (row,)
        return all(self._get_metric(compared_row) is not None for compared_row in rows)

    def _get_metric(self, row: ScenarioRow) -> float | None:
        """Return the condition's metric in a row; None if it is unknown."""
        value: float | None = getattr(row, _FIELDS.get(self.metric, self.metric))
        return value

    def is_met(self, row: ScenarioRow, baseline: ScenarioRow) -> bool:
        """Check whether the condition holds for a scenario's ``row``, compared with its ``baseline`` row.

        A condition on an unknown value does not hold. If the baseline is 0, only the sign of a percentage counts.
        """
        value, before = self._get_metric(row), self._get_metric(baseline)
        if value is None:
            return False
        if self.relative or self.percent:
            if before is None:
                return False
            value = round(value - before, 9)  # without the noise of adding up
            if self.percent:
                if not before:
                    return bool(value) and bool(_SIGNS[self.sign](value, 0))
                value *= 100.0 / before
        return bool(_SIGNS[self.sign](value, self.amount))


@typed
def parse_condition(text: str) -> Condition:
    """Parse a condition such as ``cost>+5%``.

    Parameters
    ----------
    text : str
        A metric (nodes, cost, bound, pending, homeless, waited), then ``>``, ``>=``, ``<`` or ``<=``, then a number.
        With ``+``, ``-`` or ``%`` the number is the change from the baseline.

    Raises
    ------
    InputError
        If the text is not a condition.
    """
    match = _TEXT.fullmatch(text)
    if match is None or match[1] not in METRICS:
        raise InputError(
            f'"{text}" is no condition: one of {", ".join(METRICS)}, then > >= < <=, then a number; with + or - or % '
            "it is the change from the baseline"
        )
    amount = float(match[3] + match[4])
    return Condition(text, match[1], match[2], amount, bool(match[3]), bool(match[5]))


class Question(StrEnum):
    """The question that a scenario asks: which decision is simulated."""

    ESTIMATE = "estimate"
    SCALE_UP = "scale-up"
    SCALE_DOWN = "scale-down"
    MIX = "mix"
    HEADROOM = "headroom"
    REBUILD = "rebuild"
    SIMULATE = "simulate"


class _Strict(ApiStruct, forbid_unknown_fields=True):
    """Base of the structs of a scenario file; unknown fields are errors."""


class SetGroup(_Strict):
    """Changed fields of a node group. Fields that are null or absent are unchanged.

    Attributes
    ----------
    min : int or None
        New minimum number of nodes.
    max : int or None
        New maximum number of nodes.
    target : int or None
        New target size, in nodes.
    price : float or None
        New price of one node per hour.
    instance_type : str or None
        New instance type of new nodes, by its name in the catalogue.
    """

    min: int | None = None
    max: int | None = None
    target: int | None = None
    price: float | None = None
    instance_type: str | None = None

    @property
    def set_fields(self) -> frozenset[str]:
        """Return the names of the fields that are set."""
        return frozenset(name for name in self.__struct_fields__ if getattr(self, name) is not None)


class GroupsEdit(_Strict):
    """A change of node groups.

    Attributes
    ----------
    add : list of dict of str to Any
        Groups to add, as entries of a groups file.
    remove : list of str
        Ids of the groups to remove, or patterns with ``*``.
    set : dict of str to SetGroup
        Changed fields by id of the group, or by a pattern with ``*``.
    """

    add: list[dict[str, Any]] = msgspec.field(default_factory=list)
    remove: list[str] = msgspec.field(default_factory=list)
    set: dict[str, SetGroup] = msgspec.field(default_factory=dict)


class PodsEdit(_Strict):
    """A change of pods.

    Attributes
    ----------
    add : list of str
        Manifest files with pods or workloads to add. The new pods are pending.
    scale : dict of str to int or str
        New sizes by ``namespace/Kind/name`` of the workload, or by a pattern with ``*``: a number, or a factor such as
        ``x1.5`` (rounded up). A pattern does not match DaemonSets. A full name takes precedence over a pattern.
    remove : str or None
        Label selector of the pods to remove. None: no pods are removed.
    namespace : str or None
        Namespace in which ``remove`` selects pods. None: all namespaces.
    """

    add: list[str] = msgspec.field(default_factory=list)
    scale: dict[str, int | str] = msgspec.field(default_factory=dict)
    remove: str | None = None
    namespace: str | None = None


class LoseEdit(_Strict):
    """A loss of nodes: by name, by zone or by node group. Their pods become pending, except those of DaemonSets.

    Attributes
    ----------
    node : list of str
        Names of nodes that are lost. Their groups may always replace them.
    zone : list of str
        Zones whose nodes are lost.
    pool : list of str
        Ids of node groups whose nodes are lost.
    rebuy : bool
        Whether new nodes may be created in a zone or a node group that is lost.
    """

    node: list[str] = msgspec.field(default_factory=list)
    zone: list[str] = msgspec.field(default_factory=list)
    pool: list[str] = msgspec.field(default_factory=list)
    rebuy: bool = False


class RequestsEdit(_Strict):
    """A change of the requests of containers.

    Attributes
    ----------
    cpu : str or None
        New CPU request of each container, as a quantity, or a factor such as ``x0.8``. None: unchanged.
    memory : str or None
        New memory request of each container, as a quantity, or a factor such as ``x0.8``. None: unchanged.
    recommendation : str or None
        File with a report of ``kscale recommend -o json``, whose recommended requests are applied.
    namespace : str or None
        Namespace of the pods to change. None: all namespaces.
    selector : str or None
        Label selector of the pods to change. None: all pods.
    """

    cpu: str | None = None
    memory: str | None = None
    recommendation: str | None = None
    namespace: str | None = None
    selector: str | None = None


class PricesEdit(_Strict):
    """A change of prices of node groups.

    Attributes
    ----------
    scale : dict of str to str
        Factor of the price such as ``x0.4``, by id of the group, or by a pattern with ``*``.
    catalogue : str or None
        Catalogue whose prices the groups get, by the instance types of their nodes: the name of an imported catalogue,
        or a file.
    region : str
        Region of the prices in ``catalogue``. Empty: the first region of each instance type.
    """

    scale: dict[str, str] = msgspec.field(default_factory=dict)
    catalogue: str | None = None
    region: str = ""


class Edit(_Strict):
    """One change. Exactly one of the fields is set.

    Attributes
    ----------
    groups : GroupsEdit or None
        Change of node groups.
    flags : dict of str to str or int or float or bool or None
        Flags of the Cluster Autoscaler by name, without leading dashes.
    pods : PodsEdit or None
        Change of pods.
    lose : LoseEdit or None
        Loss of nodes.
    requests : RequestsEdit or None
        Change of the requests of containers.
    prices : PricesEdit or None
        Change of prices.
    scheduler : str or None
        File with a KubeSchedulerConfiguration; only for the question ``scale-up``.
    """

    groups: GroupsEdit | None = None
    flags: dict[str, str | int | float | bool] | None = None
    pods: PodsEdit | None = None
    lose: LoseEdit | None = None
    requests: RequestsEdit | None = None
    prices: PricesEdit | None = None
    scheduler: str | None = None

    @property
    def kind(self) -> str:
        """Return the name of the one field that is set, such as ``groups`` or ``pods``."""
        return next(name for name in self.__struct_fields__ if getattr(self, name) is not None)


class Scenario(_Strict):
    """A scenario of ``kscale whatif``: changes of the cluster, and the question to decide after them.

    Attributes
    ----------
    name : str
        Unique name of the scenario.
    edits : list of Edit
        Changes in the order in which they are applied.
    question : Question or None
        The question of this scenario. None: the question of the file.
    """

    name: str
    edits: list[Edit] = msgspec.field(default_factory=list)
    question: Question | None = None


class _File(_Strict):
    """Scenarios of ``kscale whatif``, and a question for all of them.

    Attributes
    ----------
    scenarios : list of Scenario
        The scenarios.
    question : Question
        The question of each scenario without a question of its own.
    """

    scenarios: list[Scenario]
    question: Question = Question.SCALE_UP


@typed
def read_scenarios(path: str | os.PathLike[str]) -> list[Scenario]:
    """Read the scenarios of a file, each with its question (default: that of the file, else scale-up).

    Raises
    ------
    InputError
        If the file cannot be read or has mistakes; lists every mistake with its field.
    """
    return scenarios_from(read_plain_file(path, "scenarios"), source=str(path))


@typed
def scenarios_from(data: Any, *, source: str = "") -> list[Scenario]:
    """Decode scenarios from plain data.

    Parameters
    ----------
    data : list or dict
        A list of scenarios, or an object with ``scenarios`` and a ``question`` for all of them.
    source : str
        Name of the data in problems.

    Returns
    -------
    list of Scenario
        The scenarios in order, each with its question (default: scale-up).

    Raises
    ------
    InputError
        With every mistake: wrong fields, names that are empty or taken, edits with not exactly one change.
    """
    question = Question.SCALE_UP
    prefix = ""
    if isinstance(data, dict) and "scenarios" in data:
        file = from_dict({**data, "scenarios": []}, _File, source=source)
        data, question, prefix = data["scenarios"], file.question, "scenarios"
    if not isinstance(data, list) or not data:
        raise InputError(Problem("a list of at least one scenario expected", source))
    problems: list[Problem] = []
    scenarios: list[Scenario] = []
    for number, item in enumerate(data):
        place = f"{prefix}[{number}]"
        if isinstance(item, dict) and isinstance(item.get("name"), str):
            place += f" ({escape(item['name'])})"
        try:
            scenario = from_dict(item, Scenario, source=source, object_path=place)
        except InputError as error:
            problems += error.problems
            continue
        if not scenario.name or not scenario.name.isprintable():
            problems.append(Problem("is empty or has control characters", source, place, "name"))
        if scenario.name == "baseline" or any(scenario.name == other.name for other in scenarios):
            problems.append(Problem(f'"{scenario.name}" is taken', source, place, "name"))
        for i, edit in enumerate(scenario.edits):
            fields = [name for name in edit.__struct_fields__ if getattr(edit, name) is not None]
            if len(fields) != 1:
                text = f"{' and '.join(fields) or 'nothing'} in one edit: an edit is one change"
                problems.append(Problem(text, source, place, f"edits[{i}]"))
        scenarios.append(msgspec.structs.replace(scenario, question=scenario.question or question))
    if problems:
        raise InputError(problems, total=len(data))
    return scenarios


def scenarios_schema_text() -> str:
    """Return the JSON Schema (2020-12) of a scenario file as published: indented, with a final line feed."""
    name, components = components_of(_File)
    file_schema = components.pop(name)
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "scenarios",
        "description": "Scenarios of kscale whatif: a list, or an object with a question for all.",
        "anyOf": [
            {key: file_schema[key] for key in file_schema if key not in ("title", "description")},
            {"type": "array", "items": {"$ref": "#/$defs/Scenario"}, "minItems": 1},
        ],
        "$defs": components,
    }
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"


_NUMBERS = frozenset({"min", "max", "target"})
_MOST = 1_000_000


def combine_variations(texts: Iterable[str], scenarios: Iterable[Scenario] = ()) -> list[Scenario]:
    """Build a scenario for every combination of the values, on top of each of ``scenarios`` (default: of the base).

    ``texts`` have the form PATH=VALUES: ``groups.ID.FIELD=...`` (min, max, target, price, instanceType),
    ``flags.NAME=...``, ``prices.ID=x0.5,...``, ``pods.NAMESPACE/KIND/NAME=...`` (a size or a factor),
    ``requests.cpu=x0.8,...``. Values are separated by commas; ``A..B:N`` are N numbers from A to B. Raises InputError
    if a text has another form, or for more than a million combinations.
    """
    axes = [list(_parse_variation(text)) for text in texts]
    if math.prod(len(axis) for axis in axes) > _MOST:
        raise InputError(f"more than {_MOST:,} combinations")
    starts: list[Scenario | None] = list(scenarios)
    result = []
    for start in starts or [None]:
        for chosen in itertools.product(*axes):
            label = " ".join(name for name, _ in chosen)
            name = " ".join(part for part in (start.name if start is not None else "", label) if part)
            scenario = scenarios_from([{"name": name, "edits": [edit for _, edit in chosen]}], source="--vary")[0]
            if start is not None:
                scenario = Scenario(name=name, edits=[*start.edits, *scenario.edits], question=start.question)
            result.append(scenario)
    return result


def _parse_variation(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (``PATH=VALUE``, the edit as plain data) for each value of a ``--vary`` argument.

    Raises InputError if the text is malformed or repeats a value.
    """
    path, equals, values = text.partition("=")
    kind, dot, rest = path.partition(".")
    if not equals or not dot or not rest or not values:
        raise InputError(f'--vary: "{text}" is not PATH=VALUES, such as flags.expander=price,least-waste')
    seen: set[str] = set()
    for value in _values(values, text):
        if value in seen:
            raise InputError(f'--vary: "{value}" occurs twice in "{text}"')
        seen.add(value)
        yield f"{path}={value}", _edit(kind, rest, value, text)


def _values(text: str, expression: str) -> Iterator[str]:
    """Yield the values in ``text``: the parts between commas, and the numbers of ``A..B:N``.

    Raises InputError, which quotes the whole ``expression``, for a malformed range.
    """
    for part in text.split(","):
        if ".." not in part:
            yield part
            continue
        ends, _, count = part.partition(":")
        first, _, last = ends.partition("..")
        try:
            low, high, number = parse_float(first), parse_float(last), parse_int64(count or "2")
        except ValueError:
            raise InputError(f'--vary: "{part}" in "{expression}" is not A..B:N') from None
        if number is None or not math.isfinite(high - low):
            raise InputError(f'--vary: "{part}" in "{expression}" is not A..B:N')
        if number < 2:
            raise InputError(f'--vary: "{part}" in "{expression}": at least 2 numbers')
        for i in range(number):
            yield f"{low + (high - low) * i / (number - 1):.10g}"


def _edit(kind: str, rest: str, value: str, text: str) -> dict[str, Any]:
    """Build the edit that sets ``kind.rest`` to ``value``, as plain data.

    Raises InputError, which quotes ``text``, for an unknown kind or field.
    """
    match kind:
        case "flags":
            return {"flags": {rest: value}}
        case "groups":
            group, dot, field = rest.rpartition(".")
            if not dot or field not in (*_NUMBERS, "price", "instanceType"):
                wrong = f'--vary: "{text}": groups.ID.FIELD with min, max, target, price or instanceType'
                raise InputError(wrong)
            return {"groups": {"set": {group: {field: _number(value, field, text)}}}}
        case "prices":
            return {"prices": {"scale": {rest: value}}}
        case "pods":
            return {"pods": {"scale": {rest: value if (count := parse_int64(value)) is None else count}}}
        case "requests" if rest in ("cpu", "memory"):
            return {"requests": {rest: value}}
    raise InputError(f'--vary: "{text}": there are flags, groups, prices, pods, requests.cpu and requests.memory')


def _number(value: str, field: str, text: str) -> Any:
    """Parse the value of a group's field: int for sizes, float for prices; an instance type stays a text.

    Raises InputError, which quotes ``text``, for any other text.
    """
    if field == "instanceType":
        return value
    try:
        number = parse_int64(value) if field in _NUMBERS else parse_float(value)
    except ValueError:
        number = None
    if number is None:
        raise InputError(f'--vary: "{value}" in "{text}" is no number')
    return number


_TEMPLATES: Final = frozenset(
    {
        "force_ds",
        "ignore_taint",
        "scale_from_unschedulable",
        "startup_taint",
        "startup_taint_prefix",
        "status_taint",
    }
)
"""Fields of a node group that describe its new nodes."""

READ: Final[Mapping[Question, frozenset[str]]] = {
    Question.ESTIMATE: _TEMPLATES,
    Question.HEADROOM: frozenset(),
    Question.MIX: _TEMPLATES,
    Question.REBUILD: _TEMPLATES,
    Question.SCALE_DOWN: frozenset(
        {
            "blocking_system_pod_distruption_timeout",
            "cores_total",
            "expendable_pods_priority_cutoff",
            "gpu_total",
            "ignore_daemonsets_utilization",
            "ignore_mirror_pods_utilization",
            "memory_total",
            "min_replica_count",
            "scale_down_gpu_utilization_threshold",
            "scale_down_unready_enabled",
            "scale_down_utilization_threshold",
            "skip_nodes_with_custom_controller_pods",
            "skip_nodes_with_local_storage",
            "skip_nodes_with_system_pods",
        }
    ),
}
"""By field of the options. The question scale-down is which nodes could go together: no time passes, and nothing limits
how many go at once. Of a question that is not here, :func:`~kscale.ca.flag_parsing.parse_flags` tells."""


def options_in(edit: Mapping[str, Any], question: Question) -> dict[str, Any]:
    """Parse the flags of an edit: return the values by field of the options.

    Raises InputError without flags, for a flag that cannot be parsed, and for one that the result of ``question`` does
    not depend on.
    """
    if not edit:
        raise InputError("no flag is named")
    parsed = parse_flags(f"{name}={_text(value)}" for name, value in edit.items())
    if question is Question.SIMULATE:  # whole loops, one after the other
        fields = AutoscalingOptions.__struct_fields__
        idle = {name: reason for name, reason in parsed.idle.items() if name.replace("-", "_") not in fields}
    elif question not in READ:
        idle = dict(parsed.idle)
    else:
        names = {name: name.removeprefix("--").replace("-", "_") for name in edit}
        reason = f"the question {question} does not depend on it"
        idle = {name: reason for name, field in names.items() if field not in READ[question]}
    if idle:
        name, reason = next(iter(idle.items()))
        raise InputError(f"flag {name} has no effect: {reason}")
    return parsed.values


def _text(value: Any) -> str:
    """Format a value as in a flag of the command line: ``true`` and ``false`` for bool."""
    return str(value).lower() if isinstance(value, bool) else str(value)
