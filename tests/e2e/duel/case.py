"""A case of the duel: a file that says what both sides find and what happens to them (``docs/duel.md``)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import yaml

from e2e.cloud import Machines
from e2e.duel.programs import CLUSTER_AUTOSCALER
from kscale.effects import SECOND, Moment, from_text

__all__ = ["CASES", "Case", "Explained", "Group", "Meddling", "Refusal", "Samples", "Step", "Until", "read_case"]

CASES = Path(__file__).with_name("cases")


class Group(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A node group: ``start`` machines are there from the beginning; those of an increase register ``boot`` seconds
    after it, each ``apart`` seconds after the one before. ``price`` is for an expander."""

    name: str
    cpu: str = "2"
    memory: str = "8Gi"
    least: int = 0
    most: int = 10
    start: int = 0
    boot: float = 1.0
    apart: float = 0.5
    labels: dict[str, str] = {}
    registers: bool = True
    price: float | None = None

    def machines(self) -> Machines:
        """As the stand-in for a cloud has it."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__ if name not in ("start", "price")}
        return Machines(**fields)


class Refusal(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The cloud refuses the first ``times`` such calls for a group (empty: for any)."""

    call: str
    message: str
    group: str = ""
    times: int = 1


class Until(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """All of what is said is so: so many nodes, so many pods that run or wait, so many calls to the cloud that change
    something, an event with this reason, a status that has this text, and at each path of ``says`` an object whose JSON
    has what the regular expression finds."""

    nodes: int | None = None
    running: int | None = None
    pending: int | None = None
    calls: int | None = None
    event: str = ""
    status: str = ""
    says: dict[str, str] = {}


class Samples(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What pods use: pod, or value of its label ``app`` -> container -> one after the other (``"100m 50Mi"``).

    The first is of ``begin`` (empty: of the moment at which the step that has it begins), the others are of ``every``
    so many seconds later: each keeps its moment, and is there until it has been read twice, the last stays. Each is of
    what was used in ``window`` seconds.
    """

    begin: str = ""
    every: int = 60
    window: int = 30
    usage: dict[str, dict[str, list[str]]]

    def sampled_at(self, position: int, started: Moment) -> Moment:
        """Of which moment the samples at ``position`` are, counted from 0, of a step that began at ``started``."""
        begin = from_text(self.begin) if self.begin else started
        return begin + position * self.every * SECOND


class Meddling(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Somebody else is quicker: the first ``times`` writes of ``resource`` (``deployments/scale``) find that the object
    at ``path`` has just got a merge patch (``{n}`` in it: the how many-eth)."""

    resource: str
    path: str
    patch: dict[str, Any]
    times: int = 1


class Step(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One of: objects are made; the object at ``path`` gets a merge patch, or goes (``delete``); pods use what the
    samples say; programs begin (those that no step starts run from the beginning), or end and begin again; something
    holds within ``within`` seconds; a pause. ``refused``: what is made or changed is refused, and its text
    is compared."""

    create: list[dict[str, Any]] = []
    patch: dict[str, Any] | None = None
    delete: bool = False
    refused: bool = False
    path: str = ""
    samples: Samples | None = None
    start: list[str] = []
    restart: list[str] = []
    until: Until | None = None
    within: float = 120.0
    wait: float = 0.0


class Explained(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A difference that may be there: what it reads like (a regular expression), and why."""

    where: str
    why: str


class Case(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a file says."""

    about: str
    programs: dict[str, list[str]] = msgspec.field(default_factory=lambda: {CLUSTER_AUTOSCALER: []})
    """Who plays, by what ``kscale run`` calls it, and with which flags."""
    groups: list[Group]
    expander: list[str] = []
    """Words of ``kscale serve expander``, which the autoscaler asks then; ``{groups}`` is a file of the groups."""
    custom: bool = False
    """The custom resource ``Widget`` is there (``e2e/widgets.py``)."""
    room: str = ""
    """Pods are resized in place, up to so much CPU a container; empty: nobody resizes them."""
    refuse: list[Refusal] = []
    meddle: Meddling | None = None
    objects: list[dict[str, Any]] = []
    steps: list[Step]
    rest: float = 5.0
    """Seconds until the end is looked at, after the last step."""
    explained: list[Explained] = []
    name: str = ""

    def explanation(self, difference: str) -> str:
        """Why a difference is there, or nothing."""
        return next((each.why for each in self.explained if re.search(each.where, difference)), "")


def read_case(path: str | Path) -> Case:
    """Reads a case file; its name is the file's."""
    path = Path(path)
    case = msgspec.convert(yaml.safe_load(path.read_text()), Case)
    case.name = path.stem
    return case
