"""What an orchestrator decided and did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from kscale.ca.balancing import ScaleUpInfo
from kscale.ca.cluster_state import ClusterStateRegistry
from kscale.ca.errors import ErrorRecord
from kscale.ca.expander.chain import Expansion
from kscale.ca.expander.types import ExpanderInput, Option
from kscale.ca.scale_up.creation import AsyncInitializer
from kscale.ca.scale_up.expansion import ExpansionOption
from kscale.ca.scale_up.pod_groups import PodGroups
from kscale.ca.scale_up.status import (
    ScaleUpStatus,
)
from kscale.effects import (
    Event,
    Moment,
    Observation,
)
from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.nodegroups import Groups

__all__ = ["Orchestration"]


class Orchestration(msgspec.Struct, kw_only=True):
    """What was decided and done: the status, every option, the choice, the cluster state after.

    ``expansion``: what the expander chose, and by which steps; None: it was not asked, because there was no option or
    something failed before. ``skipped``: upstream's reasons, by id, of the groups that were sorted out before any
    estimate.

    ``cursor`` is where the scan over nodes stands; ``pod_groups`` what was found out about like pods;
    ``asked_groups`` are all groups that were looked at, ``groups`` and ``templates`` what there is afterwards, with new
    target sizes and with groups that were made. ``unmodelled``: what pods use that no rule here looks at.
    ``compared``: pods that an outside ranker was shown without environment, and will be. ``initializers``: what groups
    that are still being made shall get. ``resized``: the groups that were, and when;
    ``exceeded``: for which resources quotas held groups back; ``expander_options``, ``expander_input``: what the
    expander could choose from, and what it went by (None: it was not asked). ``observations``: what is to be counted
    of estimates and groups that were made. ``sharing``: the groups among which the new nodes were divided, the best
    option's first.

    ``failure``: an error that upstream returns beside a status that tells of success; the scale-up does not count then.
    ``existing``: pod -> node, for pods of a provisioning request for which there is room already. ``waiting_turn``:
    pods (``namespace/name``) that this scale-up was not for: requests and other pods take turns.

    ``events``: what upstream would have sent, if it was run as if everything succeeded.
    """

    status: ScaleUpStatus
    state: ClusterStateRegistry
    options: list[ExpansionOption]
    expansion: Expansion | None
    skipped: dict[str, list[str]]
    cursor: int
    pod_groups: PodGroups
    asked_groups: list[str]
    groups: Groups
    templates: Mapping[str, NodeTemplate]
    unmodelled: list[str] = []
    compared: frozenset[str] = frozenset()
    initializers: Mapping[str, AsyncInitializer] = {}
    resized: Sequence[tuple[ScaleUpInfo, Moment]] = ()
    exceeded: Mapping[str, list[str]] = {}
    expander_options: Sequence[Option] = ()
    expander_input: ExpanderInput | None = None
    observations: Sequence[Observation] = ()
    sharing: Sequence[str] = ()
    failure: ErrorRecord | None = None
    existing: Mapping[str, str] = {}
    waiting_turn: Sequence[str] = ()
    events: Sequence[Event] = ()

    @classmethod
    def without_options(
        cls,
        status: ScaleUpStatus,
        state: ClusterStateRegistry,
        groups: Groups,
        templates: Mapping[str, NodeTemplate],
        initializers: Mapping[str, AsyncInitializer],
    ) -> Orchestration:
        """Of a scale-up that looked at no group."""
        return cls(
            status=status,
            state=state,
            options=[],
            expansion=None,
            skipped={},
            cursor=0,
            pod_groups=PodGroups(np.zeros(0, np.int32), lambda _: []),
            asked_groups=[],
            groups=groups,
            templates=templates,
            initializers=initializers,
        )

    @property
    def best(self) -> ExpansionOption | None:
        """The option that was chosen, if one was."""
        best = self.expansion.best if self.expansion is not None else None
        return next((option for option in self.options if best is not None and option.group == best.group), None)
