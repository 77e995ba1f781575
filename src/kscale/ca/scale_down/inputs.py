"""What a scale-down goes by besides the cluster, the groups, the state and the options."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from kscale.ca.gpu import DEFAULT_GPU_LABEL
from kscale.ca.options import ResourceLimiter
from kscale.ca.scale_down.budgets import NodeInGroup
from kscale.objects.core import Pod
from kscale.scheduling.profile import SchedulerProfile

__all__ = ["ScaleDownInputs"]


class ScaleDownInputs(msgspec.Struct, kw_only=True, frozen=True):
    """All of it may be left out.

    - ``limits``: the cluster-wide minima (None: what the options say).
    - ``deleting`` and ``draining``: nodes whose deletion is under way. ``upcoming``: nodes of the snapshot that do not
      exist yet (besides those annotated so): they take no pods. ``recent_evictions``: pods that were evicted a moment
      ago, which are to find a place first. ``disabled``: nodes are judged, none is chosen.
    - ``max_simulations`` stands for upstream's timer on simulations (``--scale-down-simulation-timeout``), which a pure
      function cannot have: after so many candidates the time is up, and the others are skipped; without any time, all.
    - ``threads``: how many judge nodes alone (None: as many as there are CPUs); no answer depends on it.
    - ``pods_placed``: the pods that a loop places before its scale-down are in the snapshot already (a loop says so).
      Otherwise ``capacity_buffer_pod_injection_enabled`` places unschedulable pods and those of capacity buffers first.
    - ``gpu_label``: the node label that names the type of GPU.
    """

    limits: ResourceLimiter | None = None
    deleting: Sequence[NodeInGroup] = ()
    draining: Sequence[NodeInGroup] = ()
    upcoming: Collection[str] = ()
    recent_evictions: Sequence[Pod] = ()
    disabled: bool = False
    max_simulations: int | None = None
    threads: int | None = None
    pods_placed: bool = False
    gpu_label: str = DEFAULT_GPU_LABEL
    profile: SchedulerProfile | None = None
