"""SimKube's traces: objects that were applied and deleted in a cluster, and when.

Source: acrlabs/simkube, ``docs/ref/trace-files.md`` and ``sk-store``: versions 2 and 3 of the format, as MessagePack
(what ``skctl export`` writes) or as the JSON that ``msgpack2json`` makes of it. How long the pods of an object worked
(``index``, ``pod_lifecycles``) is not read.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import msgspec

from kscale.effects import SECOND, Moment
from kscale.errors import InputError, Problem
from kscale.files import read_file
from kscale.objects.meta import KubeObject
from kscale.simulation.values import Values
from kscale.snapshot.loading import load_objects
from kscale.world.simulated.turns import HAPPENINGS
from kscale.world.simulated.world import SimulatedWorld

__all__ = ["SimkubeEvent", "SimkubeObjects", "read_simkube", "simkube_objects"]

_VERSIONS: Final = (2, 3)
_OF_A_CLUSTER: Final = frozenset(
    {"creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields",
     "ownerReferences", "resourceVersion", "uid"}
)  # fmt: skip
"""Metadata that an object had in the cluster that was traced, and has not in another."""
_Admit = Callable[[KubeObject], KubeObject]


class SimkubeEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What was done at ``ts`` (seconds since 1970): manifests of objects."""

    ts: int
    applied_objs: list[dict[str, Any]] = []
    deleted_objs: list[dict[str, Any]] = []


class _Trace(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    events: list[SimkubeEvent]


def read_simkube(path: str | os.PathLike[str]) -> list[SimkubeEvent]:
    """The events of a trace (MessagePack or JSON, may be gzip), in order of time. Raises InputError."""
    source = os.fspath(path)
    try:
        raw = read_file(path)
        raw = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(Problem(f"not readable: {error}", source=source)) from None
    decode = msgspec.json.decode if raw.lstrip()[:1] == b"{" else msgspec.msgpack.decode
    try:
        trace = decode(raw, type=_Trace)
    except msgspec.ValidationError as error:
        text, _, at = str(error).partition(" - at `$.")
        raise InputError(Problem(text, source=source, field=at.rstrip("`"))) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(Problem(f"no trace of SimKube: {error}", source=source)) from None
    except RecursionError:
        raise InputError(Problem("nested too deeply to be read", source=source)) from None
    if trace.version not in _VERSIONS:
        raise InputError(Problem(f"{trace.version} is none of {_VERSIONS}", source=source, field="version"))
    return sorted(trace.events, key=lambda event: event.ts)


@dataclass(frozen=True, kw_only=True)
class SimkubeObjects:
    """``first``: what is there at the beginning; ``later``: when others are applied, and which are deleted then."""

    first: Sequence[KubeObject] = ()
    later: Sequence[tuple[Moment, Sequence[KubeObject], Sequence[KubeObject]]] = ()

    @property
    def applied(self) -> list[KubeObject]:
        """All that is ever there."""
        return [*self.first, *self.applied_later]

    @property
    def applied_later(self) -> list[KubeObject]:
        """What is not there at the beginning, or not as it will be; an object as often as it is applied."""
        return [item for _, applied, _ in self.later for item in applied]

    @property
    def deleted_later(self) -> list[KubeObject]:
        """What is deleted after the beginning."""
        return [item for _, _, deleted in self.later for item in deleted]

    def admitted(self, admit: _Admit) -> SimkubeObjects:
        """The same with what comes later as the API server stores it."""
        later = [(at, [admit(item) for item in applied], deleted) for at, applied, deleted in self.later]
        return replace(self, later=later)

    def enter(self, world: SimulatedWorld) -> None:
        """They come and go in a world."""
        for at, applied, deleted in self.later:
            world.time.at(at, partial(_happen, world, applied, deleted), rank=HAPPENINGS)


def _happen(world: SimulatedWorld, applied: Sequence[KubeObject], deleted: Sequence[KubeObject]) -> None:
    for item in applied:
        world.apply(item)
    for item in deleted:
        world.delete(item.kind, item.key)


def simkube_objects(name: str, values: Values, begin: Moment, end: Moment) -> SimkubeObjects:
    """What of a trace happens from ``begin``, the time of its first event, up to ``end``; an empty name: nothing. What
    is wrong ``values`` keeps."""
    if not name:
        return SimkubeObjects()
    source = values.folder / name
    try:
        events = read_simkube(source)
    except InputError as error:
        values.problems += error.problems
        return SimkubeObjects()

    def objects(given: Sequence[Mapping[str, Any]], field: str) -> list[KubeObject]:
        found: list[KubeObject] = []
        for i, data in enumerate(given):
            try:
                found.append(_object(data))
            except InputError as error:
                where = f"{field}[{i}]"
                values.problems += [replace(each, source=str(source), object=where) for each in error.problems]
        return found

    first: dict[tuple[str, str], KubeObject] = {}
    later: list[tuple[Moment, Sequence[KubeObject], Sequence[KubeObject]]] = []
    for number, event in enumerate(events):
        at = begin + (event.ts - events[0].ts) * SECOND
        if at > end:
            break
        applied = objects(event.applied_objs, f"events[{number}].applied_objs")
        deleted = objects(event.deleted_objs, f"events[{number}].deleted_objs")
        if at > begin:
            later.append((at, applied, deleted))
            continue
        first |= {(item.kind, item.key): item for item in applied}
        for item in deleted:
            first.pop((item.kind, item.key), None)
    return SimkubeObjects(first=list(first.values()), later=later)


def _object(data: Mapping[str, Any]) -> KubeObject:
    """An object as it was applied, bound to no node of its cluster. Raises InputError: for a list of objects, too, and
    for a cron job, which makes no jobs here."""
    metadata = data.get("metadata")
    own = {key: value for key, value in data.items() if key != "status"}
    if isinstance(metadata, Mapping):
        own["metadata"] = {key: value for key, value in metadata.items() if key not in _OF_A_CLUSTER}
    spec = data.get("spec")
    if data.get("kind") == "Pod" and isinstance(spec, Mapping):
        own["spec"] = {key: value for key, value in spec.items() if key != "nodeName"}
    found = [loaded.obj for loaded in load_objects(own, validate=True)]
    if len(found) == 1 and found[0].kind == data.get("kind") and found[0].kind != "CronJob":
        return found[0]
    raise InputError(Problem(f"objects of {data.get('apiVersion')} {data.get('kind')} cannot be simulated"))
