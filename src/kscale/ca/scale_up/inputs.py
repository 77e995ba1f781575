"""What a scale-up goes by besides the cluster and the options."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence

import msgspec

from kscale.ca.errors import AutoscalerError
from kscale.ca.expander.types import ExpanderInput, Filter, Rng
from kscale.ca.quota import Quota
from kscale.ca.scale_up.creation import AsyncInitializer
from kscale.ca.similarity import Comparator
from kscale.objects.apps import DaemonSet
from kscale.objects.nodegroup import NodeGroup
from kscale.scheduling.profile import SchedulerProfile

__all__ = ["OrchestratorInputs"]


class OrchestratorInputs(msgspec.Struct, kw_only=True, frozen=True):
    """What an orchestrator goes by besides the cluster and the options.

    - ``expanders`` default to those of the options, ``filters`` are further ones by name; ``expander_input`` needs no
      nodes. ``rng`` breaks ties, else the first option wins.
    - ``quotas`` default to the cluster-wide maxima of the options (an error: they could not be read), ``comparator`` to
      upstream's default.
    - ``candidates``: groups that could be made (``exists`` False); theirs are among the templates too. An error: they
      could not be listed. ``daemonsets`` run on templates of groups that were made. ``initializers``: by group, those
      of groups that are still being made.
    - ``known_templates`` as in :func:`kscale.ca.scale_up.group_filter.filter_groups`; ``stop_after_options``: no
      further estimates once there are so many options (0 = all); ``all_or_nothing``: all pods at once or none.
    - ``made_up``: names of pods that nobody has made yet; nothing is told of them.
    """

    expanders: Sequence[str] | None = None
    filters: Mapping[str, Filter] | None = None
    expander_input: ExpanderInput | None = None
    quotas: Sequence[Quota] | AutoscalerError | None = None
    comparator: Comparator | None = None
    profile: SchedulerProfile | None = None
    candidates: Sequence[NodeGroup] | AutoscalerError = ()
    daemonsets: Sequence[DaemonSet] = ()
    initializers: Mapping[str, AsyncInitializer] = {}
    known_templates: Container[str] | None = None
    all_or_nothing: bool = False
    made_up: Collection[str] = frozenset()
    stop_after_options: int = 0
    rng: Rng | None = None
