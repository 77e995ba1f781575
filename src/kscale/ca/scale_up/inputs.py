"""Inputs of a scale-up besides the cluster and the options."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import msgspec

from kscale.ca.capacity_buffers.injection import InjectedFakePods
from kscale.ca.cluster_state import ClusterStateRegistry
from kscale.ca.errors import AutoscalerError
from kscale.ca.expander.types import ExpanderFilter, ExpanderInput, Rng
from kscale.ca.node_group_set import Comparator
from kscale.ca.options import AutoscalingOptions
from kscale.ca.pod_lists.should_scale_up import ScaleUpEnforcer
from kscale.ca.quota import Quota
from kscale.ca.state.loop_state import AsyncInitializer
from kscale.objects.api.apps import DaemonSet
from kscale.objects.api.core import Node
from kscale.objects.nodegroup import NodeGroup, NodeTemplate
from kscale.objects.nodegroups import Groups
from kscale.scheduling.profile import SchedulerProfile

__all__ = ["OrchestratorInputs", "ScaleUpContext", "ScaleUpInputs"]


class OrchestratorInputs(msgspec.Struct, kw_only=True, frozen=True):
    """Inputs of an orchestrator besides the cluster and the options.

    - ``expanders`` default to those of the options, ``filters`` are further ones by name; ``expander_input`` needs no
      nodes. ``rng`` breaks ties, else the first option wins.
    - ``quotas`` default to the cluster-wide maxima of the options (an error: they could not be read), ``comparator`` to
      upstream's default.
    - ``candidates``: groups that could be created (``exists`` False), whose templates are included. An error: they
      could not be listed. ``daemonsets`` run on templates of created groups. ``initializers``: by group, those
      of groups that are still being created.
    - ``known_templates`` as in :func:`kscale.ca.scale_up.node_groups.filter_valid_scale_up_groups`;
      ``stop_after_options``: no further estimates once there are so many options (0 = all); ``all_or_nothing``: all
      pods at once or none.
    - ``made_up``: fake pods, which are not reported.
    """

    expanders: Sequence[str] | None = None
    filters: Mapping[str, ExpanderFilter] | None = None
    expander_input: ExpanderInput | None = None
    quotas: Sequence[Quota] | AutoscalerError | None = None
    comparator: Comparator | None = None
    profile: SchedulerProfile | None = None
    candidates: Sequence[NodeGroup] | AutoscalerError = ()
    daemonsets: Sequence[DaemonSet] = ()
    initializers: Mapping[str, AsyncInitializer] = {}
    known_templates: Container[str] | None = None
    all_or_nothing: bool = False
    made_up: InjectedFakePods = InjectedFakePods()
    stop_after_options: int = 0
    rng: Rng | None = None


class ScaleUpInputs(msgspec.Struct, kw_only=True, frozen=True):
    """Further inputs of a loop of scale-up; all are optional.

    - ``templates`` replace the computed templates of groups; others are built from real nodes, from the saved state, or
      from the group's own description, in this order.
    - ``gpu_label``: the node label that names the type of GPU (a cloud provider's; None: that of ``expander_input``).
      Nodes that have it and show no device are not ready yet, and limits by type (``gpu_total``) use it.
    - ``expander_input``: without ``prices``, and if none are requested, ``price`` uses the prices of the groups
      (:func:`~kscale.ca.expander.price.build_group_prices`). ``rng`` breaks ties, else the first option wins.
    - ``quotas`` default to the limits in the options and, with ``capacity_quotas_enabled``, the cluster's CapacityQuota
      objects (an error: they could not be read); ``comparator`` to that of the options.
    - ``draining``: nodes whose pods are being moved. ``pods``: names; other pending pods are ignored.
      ``all_or_nothing``: all pods at once or none (as provisioning requests demand).
    - ``enforcer`` may force a scale-up that other rules prevent. ``max_looks`` replaces upstream's timeout on pending
      pods (``--pending-pods-batching-timeout``), which a pure function cannot have: with
      ``enable_graceful_degradation`` so many pods are checked (see :func:`kscale.place`), and the others wait for
      another loop. ``process_age``: how long the autoscaler has been running (None: long enough).
    """

    templates: Mapping[str, NodeTemplate] = {}
    gpu_label: str | None = None
    profile: SchedulerProfile | None = None
    expander_input: ExpanderInput | None = None
    quotas: Sequence[Quota] | AutoscalerError | None = None
    comparator: Comparator | None = None
    rng: Rng | None = None
    draining: Sequence[str] = ()
    pods: Collection[str] | None = None
    all_or_nothing: bool = False
    enforcer: ScaleUpEnforcer | None = None
    max_looks: int | None = None
    process_age: timedelta | None = None


@dataclass(frozen=True, kw_only=True)
class ScaleUpContext:
    """Context of a scale-up.

    ``nodes``: all nodes that count for limits, including upcoming ones; ``templates``: the template of each group's new
    nodes; ``cursor``: where the search for a node continues.
    """

    groups: Groups
    nodes: Sequence[Node]
    templates: Mapping[str, NodeTemplate]
    state: ClusterStateRegistry
    options: AutoscalingOptions = field(default_factory=AutoscalingOptions)
    inputs: OrchestratorInputs = field(default_factory=OrchestratorInputs)
    cursor: int = 0
