"""What a loop goes by besides the cluster, the groups, the state and the options."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta

import msgspec

from kscale.ca.errors import AutoscalerError
from kscale.ca.expander.types import ExpanderInput, Rng
from kscale.ca.gpu import DEFAULT_GPU_LABEL
from kscale.ca.options import ResourceLimiter
from kscale.ca.pod_lists.enforcer import ScaleUpEnforcer
from kscale.ca.quota import Quota
from kscale.ca.scale_down.actuation.actuator import Actuator
from kscale.ca.similarity import Comparator
from kscale.objects.nodegroup import NodeTemplate
from kscale.scheduling.profile import SchedulerProfile

__all__ = ["LoopInputs"]


class LoopInputs(msgspec.Struct, kw_only=True, frozen=True):
    """All of it may be left out.

    - ``actuator``: carries deletions on from loop to loop; a process has one. Without one the loop makes its own, for
      which the deletions of the state are under way as long as their nodes are there.
    - ``templates`` replace what would be found out for a group; ``gpu_label``: the node label that names the type of
      GPU (a cloud provider's), ``gpu_types``: the types that the cloud lists (for metrics).
    - ``expander_input``, ``quotas``, ``comparator``, ``rng``, ``enforcer``, ``max_looks``, ``process_age``, ``profile``
      as in :class:`kscale.ca.ScaleUpInputs`; ``limits``, ``max_simulations``, ``threads`` as in
      :class:`kscale.ca.ScaleDownInputs`.
    """

    actuator: Actuator | None = None
    templates: Mapping[str, NodeTemplate] = {}
    gpu_label: str = DEFAULT_GPU_LABEL
    gpu_types: Collection[str] = ()
    profile: SchedulerProfile | None = None
    process_age: timedelta | None = None
    # scale-up
    expander_input: ExpanderInput | None = None
    quotas: Sequence[Quota] | AutoscalerError | None = None
    comparator: Comparator | None = None
    rng: Rng | None = None
    enforcer: ScaleUpEnforcer | None = None
    max_looks: int | None = None
    # scale-down
    limits: ResourceLimiter | None = None
    max_simulations: int | None = None
    threads: int | None = None
