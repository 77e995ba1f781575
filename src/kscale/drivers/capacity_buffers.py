"""The controller of CapacityBuffers: says what pods they are, so that they count, within the quotas of their namespaces
(upstream: ``capacitybuffer/controller``, behind ``--capacity-buffer-controller-enabled``)."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Final

import msgspec

from kscale.ca.capacity_buffers.reconciliation_times import ReconciliationTimes
from kscale.ca.capacity_buffers.reconciling import is_reconciled, reconcile_steps
from kscale.ca.capacity_buffers.scalable_objects import TEMPLATED
from kscale.effects import SECOND, Moment, Progress, Steps
from kscale.objects.base import enc_hook
from kscale.objects.capacity_buffers import CapacityBuffer
from kscale.objects.resource_quotas import ResourceQuota
from kscale.world.protocols import Change, Stores, Watch

__all__ = ["BufferController", "NamespaceSight"]

_log = logging.getLogger(__name__)
_EACH: Final = 5 * SECOND
_RESYNC: Final = 300 * SECOND
_FIRST_RETRY: Final = 5_000_000


class NamespaceSight(msgspec.Struct, frozen=True):
    """The buffers and quotas of a namespace; ``ground``: what makes it worth looking again when it changes."""

    name: str
    buffers: list[CapacityBuffer]
    quotas: list[ResourceQuota]
    ground: Hashable


class _Done(msgspec.Struct, frozen=True):
    """The last look at a namespace: what it went by, when it was, and how often in a row it has failed."""

    ground: Hashable
    at: Moment
    failures: int = 0

    def is_over(self, sight: NamespaceSight, now: Moment) -> bool:
        """Whether it is time for another."""
        wait = min(_FIRST_RETRY << min(self.failures - 1, 40), _RESYNC) if self.failures else _RESYNC
        return sight.ground != self.ground or now - self.at >= wait


class BufferController:
    """Every five seconds, the namespaces in which something has changed that a buffer goes by: buffers, quotas, pod
    templates and workloads of the kinds that upstream watches, too; each again after five minutes, and after an error,
    no later than that (:class:`kscale.drivers.driver.Driver`). Each time it tells how old the oldest look is.

    ``dry_run``: ``--capacity-buffer-pod-dry-run-enabled``.
    """

    name = "capacity-buffers"
    watches: Sequence[Watch] = (
        Watch(kind="CapacityBuffer", api_version="autoscaling.x-k8s.io/v1beta1"),
        Watch(kind="PodTemplate", api_version="v1"),
        Watch(kind="ResourceQuota", api_version="v1"),
        *(Watch(kind=kind, api_version=version) for (_, kind), version in TEMPLATED.items()),
    )

    def __init__(self, *, dry_run: bool = True) -> None:
        self._dry_run = dry_run
        self._due: Moment = 0
        self._done: dict[str, _Done] = {}
        self._times = ReconciliationTimes()

    def notice(self, change: Change, now: Moment) -> None:
        """It goes by the time alone."""

    def next_due(self) -> Moment | None:
        """In five seconds."""
        return self._due

    def observe(self, stores: Stores, now: Moment) -> list[NamespaceSight]:
        """The namespaces with buffers."""
        self._due = now + _EACH
        by_namespace: dict[str, list[CapacityBuffer]] = {}
        for each in stores.objects("CapacityBuffer"):
            if isinstance(each, CapacityBuffer) and is_reconciled(each):
                by_namespace.setdefault(each.namespace, []).append(each)
        quotas: dict[str, list[ResourceQuota]] = {name: [] for name in by_namespace}
        for each in stores.objects("ResourceQuota"):
            if isinstance(each, ResourceQuota) and each.namespace in quotas:
                quotas[each.namespace].append(each)
        return [
            NamespaceSight(
                name=name,
                buffers=buffers,
                quotas=quotas[name],
                ground=(*_grounds(stores, buffers), *map(_ground_of_quota, quotas[name])),
            )
            for name, buffers in by_namespace.items()
        ]

    def steps(self, sights: list[NamespaceSight], now: Moment) -> Steps[None]:
        """Brings the namespaces whose turn it is up to date."""
        p = Progress(now)
        self._done = {sight.name: self._done[sight.name] for sight in sights if sight.name in self._done}
        for sight in sights:
            last = self._done.get(sight.name)
            if last is not None and not last.is_over(sight, p.now):
                continue
            reconciled, errors = yield from reconcile_steps(
                sight.buffers, sight.quotas, now=p.now, dry_run=self._dry_run
            )
            for error in errors:
                _log.warning("capacity buffers of %s: %s", sight.name, error)
            failed = 0 if not errors else 1 if last is None else last.failures + 1
            ended = yield from p.clock()
            self._done[sight.name] = _Done(sight.ground, ended, failed)
            self._times.update(reconciled, ended)
        buffers = [buffer for sight in sights for buffer in sight.buffers]
        self._times.prune(buffers)
        yield from p.observe(*self._times.observed(buffers, p.now))


def _ground_of_quota(quota: ResourceQuota) -> Hashable:
    return quota.metadata.uid, msgspec.json.encode(quota.status, enc_hook=enc_hook, order="sorted")


def _grounds(stores: Stores, buffers: Sequence[CapacityBuffer]) -> Iterator[Hashable]:
    """What is looked at of the buffers, each with its generation (their status is what the controller writes), and of
    what they refer to, each with its version (percentages go by the status of a workload)."""
    for buffer in buffers:
        yield buffer.metadata.uid, buffer.name, buffer.metadata.generation
        spec = buffer.spec
        if spec.pod_template_ref is not None:
            yield _version(stores.get("PodTemplate", buffer.namespace, spec.pod_template_ref.name))
        if spec.scalable_ref is not None and (spec.scalable_ref.api_group, spec.scalable_ref.kind) in TEMPLATED:
            yield _version(stores.get(spec.scalable_ref.kind, buffer.namespace, spec.scalable_ref.name))


def _version(held: Any) -> Hashable:
    return None if held is None else (held.metadata.uid, held.metadata.resource_version)
