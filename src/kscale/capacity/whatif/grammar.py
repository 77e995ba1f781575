"""The scenarios file: JSON or YAML; every mistake by scenario and field. kscale's own."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Any

import msgspec

from kscale.capacity.plain_files import read_plain_file
from kscale.errors import InputError, Problem
from kscale.objects.base import ApiStruct
from kscale.objects.decode import escaped, from_dict
from kscale.records import components_of

__all__ = [
    "Edit",
    "GroupsEdit",
    "LoseEdit",
    "PodsEdit",
    "PricesEdit",
    "Question",
    "RequestsEdit",
    "Scenario",
    "SetGroup",
    "read_scenarios",
    "scenarios_from",
    "scenarios_schema_text",
]


class Question(StrEnum):
    """What is asked of each scenario."""

    ESTIMATE = "estimate"
    SCALE_UP = "scale-up"
    SCALE_DOWN = "scale-down"
    MIX = "mix"
    HEADROOM = "headroom"
    REBUILD = "rebuild"
    SIMULATE = "simulate"


class _Strict(ApiStruct, forbid_unknown_fields=True):
    """Base of what a file may hold."""


class SetGroup(_Strict):
    """What is other about a node group; what is left out stays."""

    min: int | None = None
    max: int | None = None
    target: int | None = None
    price: float | None = None
    instance_type: str | None = None
    """A machine of the catalogue."""

    @property
    def given(self) -> frozenset[str]:
        """The names of the fields that are there."""
        return frozenset(name for name in self.__struct_fields__ if getattr(self, name) is not None)


class GroupsEdit(_Strict):
    """Node groups: ``add`` holds entries as in a groups file, ``remove`` and ``set`` name groups (patterns with ``*``
    are names, too)."""

    add: list[dict[str, Any]] = msgspec.field(default_factory=list)
    remove: list[str] = msgspec.field(default_factory=list)
    set: dict[str, SetGroup] = msgspec.field(default_factory=dict)


class PodsEdit(_Strict):
    """Pods: those of the manifests in files (``add``), of workloads that get another size (``scale``:
    namespace/kind/name, or a pattern of it, to a number, or to ``x1.5``), and without those that a label selector picks
    (``remove``). A pattern (``*``: everything) means no DaemonSets, and a name in full wins over it."""

    add: list[str] = msgspec.field(default_factory=list)
    scale: dict[str, int | str] = msgspec.field(default_factory=dict)
    remove: str | None = None
    namespace: str | None = None
    """Of ``remove``: only there."""


class LoseEdit(_Strict):
    """Nodes that are gone: by name, by zone, by node group. Their pods wait, but for those of DaemonSets.

    No new nodes come in a zone or a node group that is lost, unless ``rebuy`` says that they may. Nodes that are lost
    by name may always be replaced.
    """

    node: list[str] = msgspec.field(default_factory=list)
    zone: list[str] = msgspec.field(default_factory=list)
    pool: list[str] = msgspec.field(default_factory=list)
    rebuy: bool = False
    """New nodes may come in the lost zones and node groups."""


class RequestsEdit(_Strict):
    """What containers ask for: ``cpu`` and ``memory`` to an amount, or to ``x0.8``; or as a report of
    ``kscale recommend -o json`` says. Of all pods, or those of a ``namespace``, with labels (``selector``)."""

    cpu: str | None = None
    memory: str | None = None
    recommendation: str | None = None
    namespace: str | None = None
    selector: str | None = None


class PricesEdit(_Strict):
    """Prices: of groups (names or patterns) times a factor (``x0.4``, ``scale``), or those of a ``catalogue`` by the
    instance types of the groups' nodes."""

    scale: dict[str, str] = msgspec.field(default_factory=dict)
    catalogue: str | None = None
    region: str = ""


class Edit(_Strict):
    """One change; exactly one of its fields is there."""

    groups: GroupsEdit | None = None
    flags: dict[str, str | int | float | bool] | None = None
    """Flags of the Cluster Autoscaler, by upstream's names."""
    pods: PodsEdit | None = None
    lose: LoseEdit | None = None
    """Nodes that are lost."""
    requests: RequestsEdit | None = None
    """What containers ask for."""
    prices: PricesEdit | None = None
    """Of nodes of groups, for one hour."""
    scheduler: str | None = None
    """A file with a KubeSchedulerConfiguration."""

    @property
    def kind(self) -> str:
        """The name of the one field that is there."""
        return next(name for name in self.__struct_fields__ if getattr(self, name) is not None)


class Scenario(_Strict):
    """A name, and edits in the order in which they are made. ``question``: instead of the file's."""

    name: str
    edits: list[Edit] = msgspec.field(default_factory=list)
    question: Question | None = None


class _File(_Strict):
    """Scenarios. ``question`` is what is asked of each that does not say it itself."""

    scenarios: list[Scenario]
    question: Question = Question.SCALE_UP


def read_scenarios(path: str | os.PathLike[str]) -> list[Scenario]:
    """The scenarios of a file, each with its question. Raises InputError with every mistake."""
    return scenarios_from(read_plain_file(path, "scenarios"), source=str(path))


def scenarios_from(data: Any, *, source: str = "") -> list[Scenario]:
    """The scenarios in plain data: a list of them, or an object with ``scenarios`` and a ``question`` for all.

    ``source``: what problems call the data. Raises InputError with every mistake.
    """
    question = Question.SCALE_UP
    prefix = ""
    if isinstance(data, dict) and "scenarios" in data:
        head = from_dict({**data, "scenarios": []}, _File, source=source)
        data, question, prefix = data["scenarios"], head.question, "scenarios"
    if not isinstance(data, list) or not data:
        raise InputError(Problem("a list of at least one scenario expected", source))
    problems: list[Problem] = []
    found: list[Scenario] = []
    for number, item in enumerate(data):
        place = f"{prefix}[{number}]"
        if isinstance(item, dict) and isinstance(item.get("name"), str):
            place += f" ({escaped(item['name'])})"
        try:
            scenario = from_dict(item, Scenario, source=source, object_path=place)
        except InputError as error:
            problems += error.problems
            continue
        if not scenario.name or not scenario.name.isprintable():
            problems.append(Problem("is empty or has control characters", source, place, "name"))
        if scenario.name == "baseline" or any(scenario.name == other.name for other in found):
            problems.append(Problem(f'"{scenario.name}" is taken', source, place, "name"))
        for i, edit in enumerate(scenario.edits):
            given = [name for name in edit.__struct_fields__ if getattr(edit, name) is not None]
            if len(given) != 1:
                text = f"{' and '.join(given) or 'nothing'} in one edit: an edit is one change"
                problems.append(Problem(text, source, place, f"edits[{i}]"))
        found.append(msgspec.structs.replace(scenario, question=scenario.question or question))
    if problems:
        raise InputError(problems, total=len(data))
    return found


def scenarios_schema_text() -> str:
    """The JSON Schema (2020-12) of the file as it is published."""
    name, components = components_of(_File)
    own = components.pop(name)
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "scenarios",
        "description": "Scenarios of kscale whatif: a list, or an object with a question for all.",
        "anyOf": [
            {key: own[key] for key in own if key not in ("title", "description")},
            {"type": "array", "items": {"$ref": "#/$defs/Scenario"}, "minItems": 1},
        ],
        "$defs": components,
    }
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"
