"""Reading a dump: objects of files and data, and metrics lists beside them. kscale's own."""

from __future__ import annotations

from collections.abc import Iterable

from kscale.errors import InputError, Problem
from kscale.hpa.dump import Dump
from kscale.hpa.dump_json import is_usage
from kscale.hpa.dump_pods import records_of
from kscale.hpa.dump_records import named
from kscale.hpa.external_lists import MetricsScope
from kscale.objects.decode import describe
from kscale.objects.kinds import group_of
from kscale.snapshot.collector import collector_paused
from kscale.snapshot.pod_batch import PodBatch
from kscale.snapshot.pod_reader import ScannedList
from kscale.snapshot.sources import RawObject, Source, read_scanned

__all__ = ["read_dump"]


@collector_paused()
def read_dump(*sources: Source, metrics: Iterable[tuple[str | None, Source]] = (), strict: bool = True) -> Dump:
    """Read HPAs (v1, v2), ScaledObjects, scale targets, definitions, pods and metrics lists from all
    ``sources``, which are as :func:`kscale.load` takes them.

    ``metrics`` adds (scope, source) pairs. The scope is what an external list is for, which the list does not say:
    ``NS``, ``NS/HPA`` or ``NS:SELECTOR`` (the selector that it was requested with); None: the namespace of the HPAs if
    they share one. Everything that cannot be read is raised as one ``InputError``;
    without ``strict`` damaged objects, but not damaged files, are left out and kept in ``problems``.
    """
    reading = _Reading()
    for text, source in [*((None, each) for each in sources), *metrics]:
        scope = None if text is None else MetricsScope.parse(text)
        for record in read_scanned(source, scan=reading.scan, empty_lists=True):
            reading.take(record, scope)
    return reading.end(strict=strict)


class _Reading:
    """A dump under way. ``usage``: usage of pods in a row, not taken in yet; ``external``: external metrics, which wait
    until all HPAs are known, with the number of their list."""

    def __init__(self) -> None:
        self.dump = Dump()
        self.usage: list[RawObject] = []
        self.external: list[tuple[int, RawObject, MetricsScope | None]] = []
        self._number = 0
        self._last = ("", "", -1)  # source, place and number in the list of what came last

    def scan(self, view: memoryview, source: str, place: str) -> ScannedList | None:
        """A list whose pods are read as columns; one of usage is read as a whole."""
        found = self.dump.pods.scan(view, source, place)
        if found is None or found.kind != "PodMetricsList" or group_of(found.api_version) != "metrics.k8s.io":
            return found
        self._take_usage()
        if not self.dump.add_usage_items(found.text):
            return found
        self.dump.total += len(found)
        self._moved(source, place, len(found) - 1)
        return found.emptied()

    def take(self, record: RawObject | Problem | PodBatch, scope: MetricsScope | None) -> None:
        """What comes next."""
        dump = self.dump
        if isinstance(record, RawObject) and is_usage(record):
            self.usage.append(record)
            dump.total += 1
            return
        self._take_usage()
        if isinstance(record, Problem):
            dump.total += 1
            dump.problems.append(record)
        elif isinstance(record, PodBatch):
            dump.total += len(record)
            if not dump.add_pods(record):
                for each in records_of(record):
                    _take(dump, each, None)
            self._moved(record.source, record.place, int(record.column("where")[-1]))
        else:
            dump.total += not record.empty
            place, _, index = record.where.rpartition("[")
            at = int(index[:-1]) if index[:-1].isdigit() else -1
            self._moved(record.source, place, at, again=at <= self._last[2])
            if group_of(record.api_version) == "external.metrics.k8s.io":
                self.external.append((self._number, record, scope))
            else:
                _take(dump, record, scope)

    def _moved(self, source: str, place: str, at: int, *, again: bool = False) -> None:
        """To another list, or the same once more."""
        self._number += again or (source, place) != self._last[:2]
        self._last = (source, place, at)

    def _take_usage(self) -> None:
        records, self.usage = self.usage, []
        if records and not self.dump.add_usage(records):
            for record in records:
                _take(self.dump, record, None)

    def end(self, *, strict: bool) -> Dump:
        """What was read. Raises ``InputError``."""
        self._take_usage()
        dump = self.dump
        namespaces = {hpa.metadata.namespace for hpa in dump.hpas.values()}
        namespaces |= {(each.get("metadata") or {}).get("namespace", "") for each in dump.scaled_objects.values()}
        only = next(iter(namespaces), "") if len(namespaces) < 2 else None
        for dump.list_number, record, scope in self.external:
            if scope is None and only is None and not record.empty:
                text = "an external list does not say its namespace, and the HPAs are of several: give it as NS=FILE"
                dump.problems.append(Problem(text, record.source, record.where or record.kind))
            else:
                _take(dump, record, scope or MetricsScope(only or ""))
        try:
            dump.finish()
        except InputError as error:
            dump.problems.extend(error.problems)
        fatal = [problem for problem in dump.problems if strict or problem.of_source]
        if fatal:
            raise InputError(fatal, total=dump.total)
        return dump


def _take(dump: Dump, record: RawObject, scope: MetricsScope | None) -> None:
    try:
        dump.add(record, scope)
    except InputError as error:
        name = describe(record.where, record.kind, named(record))
        dump.problems.extend(Problem(each.message, record.source, name, each.field) for each in error.problems)
