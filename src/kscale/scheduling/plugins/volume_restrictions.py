"""VolumeRestrictions: inline disks and ReadWriteOncePod claims (``plugins/volumerestrictions``).

Decided in C++: ``engine/volume_restrictions.hpp`` counts disks in use per node and users of a claim anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from kscale._native import _engine
from kscale.scheduling.plugins.base import MAX_PODS, NOTHING, ExplainContext, Numbers, Part, Plugin, PreFilter, Rows
from kscale.scheduling.profile import Context
from kscale.scheduling.status import unresolvable, unschedulable
from kscale.scheduling.volumes import ClaimUsers, Volumes, claim_names, not_found
from kscale.snapshot.classes.interner import PodClass

__all__ = ["VolumeRestrictions"]

_DiskUse = tuple[tuple[str, ...], bool]
"""(identity, read only): two pods on a node must not share an identity unless both only read."""


def _disks(pod: PodClass) -> tuple[_DiskUse, ...]:
    """Return (identity, whether read-only) of each inline disk of the pod.

    An EBS volume never counts as read-only; an RBD image has an identity per monitor.
    """
    disks: list[_DiskUse] = []
    for volume in pod.volumes:
        if (gce := volume.gce_persistent_disk) is not None:
            disks.append((("gce", gce.pd_name), gce.read_only))
        if (aws := volume.aws_elastic_block_store) is not None:
            disks.append((("aws", aws.volume_id), False))
        if (iscsi := volume.iscsi) is not None:
            disks.append((("iscsi", iscsi.iqn), iscsi.read_only))
        if (rbd := volume.rbd) is not None:
            disks.extend(
                (("rbd", monitor, rbd.pool, rbd.image), rbd.read_only) for monitor in dict.fromkeys(rbd.monitors)
            )
    return tuple(disks)


def _exclusive_claims(pod: PodClass, ctx: Context) -> tuple[str, ...]:
    """Return the names of the pod's exclusive claims (access mode ReadWriteOncePod), each once."""
    volumes = Volumes.of(ctx)
    names = []
    for name, ephemeral in claim_names(pod):
        claim = None if ephemeral else volumes.claim(pod.namespace, name)
        if claim is not None and "ReadWriteOncePod" in claim.spec.access_modes:
            names.append(name)
    return tuple(dict.fromkeys(names))


class DiskNumbers(Part):
    """Numbers of the inline disks and the exclusive claims that some class uses."""

    def __init__(self) -> None:
        self._disks: dict[tuple[str, ...], int] = {}
        self._claims: dict[tuple[str, str], int] = {}

    def add_class(self, pod: PodClass, counters: Any) -> None:
        """Assign numbers to the class's inline disks and exclusive claims."""
        disks, claims = counters
        for identity, _ in disks:
            self._disks.setdefault(identity, len(self._disks))
        for name in claims:
            self._claims.setdefault((pod.namespace, name), len(self._claims))

    def is_used(self) -> bool:
        """Return whether any added class uses an inline disk or an exclusive claim."""
        return bool(self._disks or self._claims)

    def may_count(self, pod: PodClass) -> bool:
        """Return whether pods of the class have volumes."""
        return bool(pod.volumes)

    def entry(self, pod: PodClass, ctx: Context, *, checked: bool) -> dict[str, Any]:
        """Return the class's ``disks`` as (number, whether read-only), and the numbers of its exclusive ``claims``.

        Disks and claims are left out if no added class has them. If the class may be ``checked``, ``rwop`` are the
        claims that no other pod may use.
        """
        entry: dict[str, Any] = {}
        if not pod.volumes:
            return entry
        disks = [(self._disks[identity], read_only) for identity, read_only in _disks(pod) if identity in self._disks]
        used = dict.fromkeys(name for name, ephemeral in claim_names(pod) if not ephemeral)
        claims = [self._claims[pod.namespace, name] for name in used if (pod.namespace, name) in self._claims]
        if disks:
            entry["disks"] = disks
        if claims:
            entry["claims"] = claims
        if checked and claims:
            entry["rwop"] = [self._claims[pod.namespace, name] for name in _exclusive_claims(pod, ctx)]
        return entry

    def declare(self, engine: _engine.Engine, ctx: Context) -> None:
        """Declare one counter for each exclusive claim to the engine."""
        for _ in self._claims:
            engine.add_claim()


class VolumeRestrictions(Plugin):
    """There is no disk conflict on the node, and no exclusive claim is in use on any node."""

    name = "VolumeRestrictions"
    statuses: ClassVar = {
        _engine.DISK_CONFLICT: unschedulable("node(s) had no available disk"),
        _engine.CLAIM_IN_USE: unschedulable(
            "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by "
            "another pod"
        ),
    }

    def prefilter(self, pod: PodClass, ctx: Context) -> PreFilter:
        """Return a failure if a claim that the pod names does not exist."""
        if pod.has_claims:
            volumes = Volumes.of(ctx)
            for name, ephemeral in claim_names(pod):
                if not ephemeral and volumes.claim(pod.namespace, name) is None:
                    return PreFilter(failure=unresolvable(not_found("persistentvolumeclaim", name)))
        return NOTHING

    def skips(self, pod: PodClass, ctx: Context) -> bool:
        """Return whether the pod has no inline disks, and no exclusive claim that placed pods use."""
        if not pod.volumes:
            return True
        users = ClaimUsers.of(ctx.snapshot)
        in_use = any(users.get((pod.namespace, name), 0) > 0 for name in _exclusive_claims(pod, ctx))
        return not (in_use or _disks(pod) or any(v.rbd is not None for v in pod.volumes))

    def part(self, rows: Rows) -> Part:
        """Return a new part that counts inline disks and exclusive claims."""
        return DiskNumbers()

    def get_counters(self, pod: PodClass, ctx: Context) -> tuple[tuple[_DiskUse, ...], tuple[str, ...]] | None:
        """Return the pod's inline disks and the names of its exclusive claims; None if it has neither."""
        uses = (_disks(pod), _exclusive_claims(pod, ctx)) if pod.volumes else ((), ())
        return uses if any(uses) else None

    def get_dependencies(self, pod: PodClass, ctx: Context) -> tuple[Any, ...]:
        """Return the pod's claims, their volumes and all storage classes (one object); empty without claims."""
        return Volumes.of(ctx).get_dependencies(pod) if pod.has_claims else ()

    def get_shared_dependencies(self, ctx: Context) -> tuple[Any, ...]:
        """Return the index of all claims, volumes and classes."""
        return (Volumes.of(ctx),)

    def get_part_dependencies(self, storage: Sequence[PodClass], ctx: Context) -> Iterable[Any]:
        """Return the claims of the classes ``storage``, their volumes and all storage classes (one object)."""
        return Volumes.of(ctx).list_dependencies(storage)

    def explain_failure(
        self, code: int, failed_index: int, pod: PodClass, node: int, context: ExplainContext
    ) -> Numbers:
        """Return one dict per ``disk`` or ``claim`` in conflict, with the keys of the first ``pods`` that use it."""
        return (
            self._explain_disk_conflicts(pod, node, context)
            if code == _engine.DISK_CONFLICT
            else self._explain_claim_conflicts(pod, context)
        )

    def _explain_disk_conflicts(self, pod: PodClass, node: int, context: ExplainContext) -> Numbers:
        """Return one dict per ``disk`` in conflict, with the keys of the first ``pods`` of the node that use it."""
        conflicts = []
        for identity, read_only in _disks(pod):

            def uses(other: PodClass, identity: tuple[str, ...] = identity, read_only: bool = read_only) -> bool:
                return any(disk == identity and not (read_only and only) for disk, only in _disks(other))

            pods = context.pods_on(node, uses)
            if pods:
                conflicts.append({"disk": "/".join(identity), "pods": pods[:MAX_PODS]})
        return tuple(conflicts)

    def _explain_claim_conflicts(self, pod: PodClass, context: ExplainContext) -> Numbers:
        """Return one dict per exclusive ``claim`` in use, with the keys of the first ``pods`` that use it."""
        conflicts = []
        for name in _exclusive_claims(pod, context.ctx):

            def uses(other: PodClass, name: str = name) -> bool:
                return other.namespace == pod.namespace and any(
                    used == name and not ephemeral for used, ephemeral in claim_names(other)
                )

            users = context.pods_anywhere(uses)
            if users:
                conflicts.append({"claim": f"{pod.namespace}/{name}", "pods": users[:MAX_PODS]})
        return tuple(conflicts)
