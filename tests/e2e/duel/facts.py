"""What a run was: the log that two runs are compared by."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["Change", "CloudCall", "EventSeen", "Log", "changes_of", "plain", "read_logs", "write_logs"]

_UNSEEN = frozenset({"uid", "resourceVersion", "managedFields", "creationTimestamp", "generation", "selfLink"})


class CloudCall(msgspec.Struct, kw_only=True):
    """A call to the cloud that would change something, ``at`` so many seconds after the start."""

    at: float
    group: str
    what: str
    refused: str = ""


class Change(msgspec.Struct, kw_only=True):
    """A write: what of the object was another before and after (path -> both), or the code of a refusal."""

    verb: str
    changed: dict[str, tuple[Any, Any]] = {}
    refused: int = 0


class EventSeen(msgspec.Struct, kw_only=True):
    """An event of the autoscaler, and how often."""

    about: str
    type: str
    reason: str
    message: str
    count: int


class Log(msgspec.Struct, kw_only=True):
    """One run of a case. ``side``: ``upstream`` or ``kscale``; ``objects`` and ``events`` are those at the end,
    ``status`` the status document at rest, ``changes`` by object in the order in which the API server answered,
    ``refusals`` what was said to the case's own writes that are refused."""

    case: str
    side: str
    version: str
    seconds: float
    calls: list[CloudCall]
    changes: dict[str, list[Change]]
    events: list[EventSeen]
    objects: dict[str, Any]
    status: str
    refusals: list[str] = []


def write_logs(path: Path, logs: Iterable[Log]) -> None:
    """One line a run; zipped if the file's name says so."""
    text = b"".join(msgspec.json.encode(log, order="deterministic") + b"\n" for log in logs)
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


def read_logs(path: str | Path) -> list[Log]:
    """What :func:`write_logs` wrote."""
    data = Path(path).read_bytes()
    lines = (gzip.decompress(data) if str(path).endswith(".gz") else data).splitlines()
    return [msgspec.json.decode(line, type=Log) for line in lines]


def plain(obj: Mapping[str, Any]) -> dict[str, Any]:
    """An object without what differs from run to run by its nature, times apart."""
    fields = {key: value for key, value in obj.items() if key != "metadata"}
    metadata = {key: value for key, value in (obj.get("metadata") or {}).items() if key not in _UNSEEN}
    for owner in metadata.get("ownerReferences") or ():
        owner.pop("uid", None)
    return {"metadata": metadata, **fields}


def changes_of(audit: Iterable[Mapping[str, Any]], user: str) -> dict[str, list[Change]]:
    """The writes of one user, object by object, from an audit log that has all writes with their bodies.

    Leases and events are left out: events have a place of their own.
    """
    versions: dict[str, dict[int, dict[str, Any]]] = {}
    entries = [entry for entry in audit if entry.get("stage") == "ResponseComplete"]
    for entry in entries:
        answer = entry.get("responseObject") or {}
        version = (answer.get("metadata") or {}).get("resourceVersion")
        if version and _subresource(entry) not in ("eviction", "scale"):
            versions.setdefault(_key(entry), {})[int(version)] = answer
    result: dict[str, list[Change]] = {}
    reached: set[tuple[str, str]] = set()
    for entry in entries:
        key = _key(entry)
        version = ((entry.get("responseObject") or {}).get("metadata") or {}).get("resourceVersion", "")
        idle = bool(version) and (key, version) in reached  # a write that changes nothing is none
        reached.add((key, version))
        if idle or user not in entry["user"]["username"] or _resource(entry) in ("leases", "events"):
            continue
        for change in _change(entry, versions.get(key, {})):
            result.setdefault(key, []).append(change)
    return result


def _change(entry: Mapping[str, Any], versions: Mapping[int, dict[str, Any]]) -> Iterator[Change]:
    verb = {"update": "write", "patch": "write"}.get(entry["verb"], entry["verb"])
    if _subresource(entry):
        verb = f"{verb} {_subresource(entry)}"
    code = entry["responseStatus"]["code"]
    if code >= 400:
        yield Change(verb=verb, refused=code)
        return
    if _subresource(entry) == "eviction":
        request = entry.get("requestObject") or {}
        yield Change(verb="evict", changed={"deleteOptions": (None, request.get("deleteOptions"))})
        return
    if verb == "delete":
        yield Change(verb=verb)
        return
    after = entry["responseObject"]
    if _subresource(entry) == "scale":
        yield Change(verb=verb, changed={"/spec/replicas": (None, after["spec"]["replicas"])})
        return
    version = int(after["metadata"]["resourceVersion"])
    earlier = [known for known in versions if known < version]
    before = versions[max(earlier)] if earlier and verb != "create" else {}
    changed = dict(_differences("", plain(before), plain(after)))
    if changed:
        yield Change(verb=verb, changed=changed)


def _differences(path: str, before: Any, after: Any) -> Iterator[tuple[str, tuple[Any, Any]]]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            yield from _differences(f"{path}/{key}", before.get(key), after.get(key))
    elif json.dumps(before, sort_keys=True) != json.dumps(after, sort_keys=True):
        yield path, (before, after)


def _resource(entry: Mapping[str, Any]) -> str:
    return str(entry["objectRef"]["resource"])


def _subresource(entry: Mapping[str, Any]) -> str:
    return str(entry["objectRef"].get("subresource", ""))


def _key(entry: Mapping[str, Any]) -> str:
    at = entry["objectRef"]
    name = at.get("name") or ((entry.get("responseObject") or {}).get("metadata") or {}).get("name", "")
    return "/".join(part for part in (at["resource"], at.get("namespace", ""), name) if part)
