"""Controllers beside the Cluster Autoscaler: CapacityBuffers and CapacityQuotas."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Final

import msgspec

from kscale.ca.capacity_buffers.controller import ReconciliationTimes, is_managed_buffer, reconcile_buffers_steps
from kscale.ca.capacity_buffers.pod_templates import TEMPLATE_API_VERSIONS
from kscale.ca.quota import build_quota_status, build_quota_status_patch
from kscale.effects import SECOND, Moment, Progress, Steps
from kscale.objects.api.cluster_autoscaler import CapacityBuffer, CapacityQuota
from kscale.objects.api.core import Node
from kscale.objects.api.policy import ResourceQuota
from kscale.objects.decode import enc_hook
from kscale.world.protocols import Change, Stores, Watch

__all__ = ["BufferController", "NamespaceView", "QuotaController"]


_log = logging.getLogger(__name__)
_INTERVAL: Final = 5 * SECOND
_RESYNC: Final = 300 * SECOND
_FIRST_RETRY: Final = 5_000_000


class NamespaceView(msgspec.Struct, frozen=True):
    """The buffers and quotas of a namespace; ``version`` changes with the inputs of a reconcile."""

    name: str
    buffers: list[CapacityBuffer]
    quotas: list[ResourceQuota]
    version: Hashable


class _LastReconcile(msgspec.Struct, frozen=True):
    """Last reconcile of a namespace: version of its inputs, time, and number of failures in a row."""

    version: Hashable
    at: Moment
    failures: int = 0

    def is_over(self, view: NamespaceView, now: Moment) -> bool:
        """Check whether a namespace must be reconciled again: its inputs have changed, or the wait has passed.

        The wait is five minutes. After a failure it is 5 ms, and it doubles with each further failure up to five
        minutes.
        """
        wait = min(_FIRST_RETRY << min(self.failures - 1, 40), _RESYNC) if self.failures else _RESYNC
        return view.version != self.version or now - self.at >= wait


class BufferController:
    """Driver that reconciles capacity buffers every five seconds (:class:`kscale.drivers.driver.Driver`).

    It reconciles the namespaces whose buffers, quotas, pod templates or workloads (of the kinds that upstream watches)
    have changed. Each namespace is reconciled again after five minutes, and after an error at the latest then. Each
    round observes the age of the oldest reconcile. ``dry_run``: ``--capacity-buffer-pod-dry-run-enabled``.
    """

    name = "capacity-buffers"
    watches: Sequence[Watch] = (
        Watch(kind="CapacityBuffer", api_version="autoscaling.x-k8s.io/v1beta1"),
        Watch(kind="PodTemplate", api_version="v1"),
        Watch(kind="ResourceQuota", api_version="v1"),
        *(Watch(kind=kind, api_version=version) for (_, kind), version in TEMPLATE_API_VERSIONS.items()),
    )

    def __init__(self, *, dry_run: bool = True) -> None:
        self._dry_run = dry_run
        self._due: Moment = 0
        self._done: dict[str, _LastReconcile] = {}
        self._times = ReconciliationTimes()

    def notice(self, change: Change, now: Moment) -> None:
        """Discard the change; rounds depend on the time only."""

    def next_due(self) -> Moment | None:
        """Return when the next round is due: five seconds after the last observation, or 0 (at once) before it."""
        return self._due

    def observe(self, stores: Stores, now: Moment) -> list[NamespaceView]:
        """Return the namespaces with managed buffers, with their buffers and quotas.

        Sets the time of the next round.
        """
        self._due = now + _INTERVAL
        by_namespace: dict[str, list[CapacityBuffer]] = {}
        for each in stores.objects("CapacityBuffer"):
            if isinstance(each, CapacityBuffer) and is_managed_buffer(each):
                by_namespace.setdefault(each.namespace, []).append(each)
        quotas: dict[str, list[ResourceQuota]] = {name: [] for name in by_namespace}
        for each in stores.objects("ResourceQuota"):
            if isinstance(each, ResourceQuota) and each.namespace in quotas:
                quotas[each.namespace].append(each)
        return [
            NamespaceView(
                name=name,
                buffers=buffers,
                quotas=quotas[name],
                version=(*_input_versions(stores, buffers), *map(_quota_version, quotas[name])),
            )
            for name, buffers in by_namespace.items()
        ]

    def steps(self, views: list[NamespaceView], now: Moment) -> Steps[None]:
        """Reconcile the namespaces that are due, and observe the age of the oldest reconcile.

        Errors are logged; their namespaces are reconciled again soon.
        """
        p = Progress(now)
        self._done = {view.name: self._done[view.name] for view in views if view.name in self._done}
        for view in views:
            last = self._done.get(view.name)
            if last is not None and not last.is_over(view, p.now):
                continue
            reconciled, errors = yield from reconcile_buffers_steps(
                view.buffers, view.quotas, now=p.now, dry_run=self._dry_run
            )
            for error in errors:
                _log.warning("capacity buffers of %s: %s", view.name, error)
            failed = 0 if not errors else 1 if last is None else last.failures + 1
            ended = yield from p.clock()
            self._done[view.name] = _LastReconcile(view.version, ended, failed)
            self._times.update(reconciled, ended)
        buffers = [buffer for view in views for buffer in view.buffers]
        self._times.prune(buffers)
        yield from p.observe(*self._times.build_observations(buffers, p.now))


def _quota_version(quota: ResourceQuota) -> Hashable:
    """Return a value that changes with the identity or the status of a quota."""
    return quota.metadata.uid, msgspec.json.encode(quota.status, enc_hook=enc_hook, order="sorted")


def _input_versions(stores: Stores, buffers: Sequence[CapacityBuffer]) -> Iterator[Hashable]:
    """Yield the values whose change makes a reconcile necessary.

    Buffers count with their generation, as the controller itself writes their status. Referenced objects count with
    their version, as percentages depend on a workload's status. Workloads of kinds without a known pod template
    (:data:`TEMPLATE_API_VERSIONS`) do not count.
    """
    for buffer in buffers:
        yield buffer.metadata.uid, buffer.name, buffer.metadata.generation
        spec = buffer.spec
        if spec.pod_template_ref is not None:
            yield _version(stores.get("PodTemplate", buffer.namespace, spec.pod_template_ref.name))
        if (
            spec.scalable_ref is not None
            and (spec.scalable_ref.api_group, spec.scalable_ref.kind) in TEMPLATE_API_VERSIONS
        ):
            yield _version(stores.get(spec.scalable_ref.kind, buffer.namespace, spec.scalable_ref.name))


def _version(item: Any) -> Hashable:
    """Return (UID, resource version) of an object; None if it does not exist."""
    return None if item is None else (item.metadata.uid, item.metadata.resource_version)


class QuotaController(msgspec.Struct, eq=False):
    """Driver that updates the status of CapacityQuotas every five seconds (:class:`kscale.drivers.driver.Driver`).

    It reads what the autoscaler watches.
    """

    name = "capacity-quotas"
    watches: Sequence[Watch] = ()

    _due: Moment = 0

    def notice(self, change: Change, now: Moment) -> None:
        """Discard the change; rounds depend on the time only."""

    def next_due(self) -> Moment | None:
        """Return when the next round is due: five seconds after the last observation, or 0 (at once) before it."""
        return self._due

    def observe(self, stores: Stores, now: Moment) -> tuple[Sequence[CapacityQuota], Sequence[Node]]:
        """Return (quotas, nodes); the nodes are empty if there are no quotas. Sets the time of the next round."""
        self._due = now + _INTERVAL
        quotas = [each for each in stores.objects("CapacityQuota") if isinstance(each, CapacityQuota)]
        return quotas, stores.snapshot().columns.objects if quotas else ()

    def steps(self, view: tuple[Sequence[CapacityQuota], Sequence[Node]], now: Moment) -> Steps[None]:
        """Write each status that differs. A failed write is retried in the next round."""
        p = Progress(now)
        quotas, nodes = view
        for quota in quotas:
            status = build_quota_status(quota, nodes, p.now)
            if status is quota.status:
                continue
            done = yield from p.act(build_quota_status_patch(quota, status))
            if done.error is not None:
                _log.warning("the status of CapacityQuota %s: %s", quota.name, done.error.message)
