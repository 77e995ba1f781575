"""Reading a dump: objects of files and data, and metrics lists beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kscale.errors import InputError, Problem
from kscale.hpa.dump import Dump
from kscale.hpa.dump_json import is_usage
from kscale.hpa.dump_pods import DumpPods, records_of
from kscale.hpa.dump_records import named
from kscale.objects.decode import describe
from kscale.objects.kinds import group_of
from kscale.snapshot.collector import collector_paused
from kscale.snapshot.pod_batch import PodBatch
from kscale.snapshot.sources import RawObject, Source, read_scanned

__all__ = ["read_dump"]


@collector_paused()
def read_dump(*sources: Source, metrics: Iterable[tuple[str | None, Source]] = (), strict: bool = True) -> Dump:
    """Read HPAs (v1, v2), ScaledObjects, scale targets, definitions, pods and metrics lists.

    ``metrics`` adds (namespace, source) pairs: the namespace of an external list, which does not say its own; without
    one it is that of the HPAs if they share one. Everything that cannot be read is raised as one ``InputError``;
    without ``strict`` damaged objects, but not damaged files, are left out and kept in ``problems``.
    """
    dump = Dump()
    external: list[tuple[int, RawObject, str | None]] = []
    number, last = 0, ("", "", -1)
    usage: list[RawObject] = []
    for record, namespace in _records(dump.pods, sources, metrics):
        if isinstance(record, RawObject) and is_usage(record):
            usage.append(record)
            dump.total += 1
            continue
        usage = _take_usage(dump, usage)
        if isinstance(record, Problem):
            dump.total += 1
            dump.problems.append(record)
            continue
        if isinstance(record, PodBatch):
            dump.total += len(record)
            if not dump.add_pods(record):
                for each in records_of(record):
                    _take(dump, each, None)
            place, at = record.place, int(record.where[-1])
            number += (record.source, place) != last[:2]
            last = (record.source, place, at)
            continue
        dump.total += not record.empty
        place, _, index = record.where.rpartition("[")
        at = int(index[:-1]) if index[:-1].isdigit() else -1
        if (record.source, place) != last[:2] or at <= last[2]:
            number += 1  # another list, or the same once more
        last = (record.source, place, at)
        if group_of(record.api_version) == "external.metrics.k8s.io":
            external.append((number, record, namespace))
        else:
            _take(dump, record, namespace)
    _take_usage(dump, usage)
    namespaces = {hpa.metadata.namespace for hpa in dump.hpas.values()}
    namespaces |= {(each.get("metadata") or {}).get("namespace", "") for each in dump.scaled_objects.values()}
    only = next(iter(namespaces), "") if len(namespaces) < 2 else None
    for dump.list_number, record, namespace in external:
        if namespace is None and only is None and not record.empty:
            text = "an external list does not say its namespace, and the HPAs are of several: give it as NS=FILE"
            dump.problems.append(Problem(text, record.source, record.where or record.kind))
        else:
            _take(dump, record, namespace or only)
    try:
        dump.finish()
    except InputError as error:
        dump.problems.extend(error.problems)
    fatal = [problem for problem in dump.problems if strict or problem.of_source]
    if fatal:
        raise InputError(fatal, total=dump.total)
    return dump


def _records(
    pods: DumpPods, sources: Sequence[Source], metrics: Iterable[tuple[str | None, Source]]
) -> Iterator[tuple[RawObject | Problem | PodBatch, str | None]]:
    for namespace, source in [*((None, each) for each in sources), *metrics]:
        for record in read_scanned(source, scan=pods.scan, empty_lists=True):
            yield record, namespace


def _take_usage(dump: Dump, records: list[RawObject]) -> list[RawObject]:
    """All of a run, of which nothing is left."""
    if records and not dump.add_usage(records):
        for record in records:
            _take(dump, record, None)
    return []


def _take(dump: Dump, record: RawObject, namespace: str | None) -> None:
    try:
        dump.add(record, namespace)
    except InputError as error:
        name = describe(record.where, record.kind, named(record))
        dump.problems.extend(Problem(each.message, record.source, name, each.field) for each in error.problems)
