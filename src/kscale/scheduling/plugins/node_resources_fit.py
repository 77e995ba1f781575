"""NodeResourcesFit: pod count, cpu, memory, ephemeral storage and scalar resources (``plugins/noderesources``).

Decided in C++: ``engine/node_resources_fit.hpp``.
"""

from __future__ import annotations

from collections.abc import Mapping

from kscale.objects.pod_resources import CPU, EPHEMERAL_STORAGE, MEMORY
from kscale.scheduling.plugins.base import ExplainContext, Numbers, Plugin
from kscale.scheduling.status import UNRESOLVABLE, UNSCHEDULABLE, Status
from kscale.snapshot.classes.interner import PodClass

__all__ = ["NodeResourcesFit"]

_FIXED = (CPU, MEMORY, EPHEMERAL_STORAGE)


def _insufficient(
    demand: Mapping[str, int], free: Mapping[str, int], allocatable: Mapping[str, int], slots: int
) -> tuple[Status | None, Numbers]:
    """Return the status and the amounts that are short; (None, ()) if everything fits.

    Reasons: pod count, cpu, memory, ephemeral storage, then scalar resources by name (upstream: map order).
    """
    reasons = ["Too many pods"] if slots < 1 else []
    short = [{"resource": "pods", "asked": 1, "free": slots}] if slots < 1 else []
    never = False
    for name in (*_FIXED, *sorted(set(demand) - set(_FIXED))):
        requested = demand.get(name, 0)
        if requested > 0 and requested > free.get(name, 0):
            reasons.append(f"Insufficient {name}")
            short.append({"resource": name, "asked": requested, "free": free.get(name, 0)})
            never = never or requested > allocatable.get(name, 0)
    if not reasons:
        return None, ()
    return Status(UNRESOLVABLE if never else UNSCHEDULABLE, tuple(reasons)), tuple(short)


class NodeResourcesFit(Plugin):
    """The requested amounts are free."""

    name = "NodeResourcesFit"
    checks_plain_pods = True

    def explain(
        self, pod: PodClass, class_number: int, node: int, context: ExplainContext
    ) -> tuple[Status | None, Numbers]:
        """Return the status (None: the pod fits) and, for each ``resource`` that is short, ``asked`` and ``free``.

        CPU is in milli-units.
        """
        free, slots = context.room(node)
        return _insufficient(context.demand(class_number, node), free, context.allocatable(node), slots)
