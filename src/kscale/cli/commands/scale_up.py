"""``kscale scale-up``: which node groups would grow, for which pods."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec.structs import replace

import kscale
from kscale.capacity.records import UNLIMITED
from kscale.cli.estimate_options import BoundSource, GpuLabel, LoopMemory, check_expanders, expander_input, ranker
from kscale.cli.groups import GroupSource
from kscale.cli.inputs import DUMP_HELP, read, workloads_without_pods
from kscale.cli.karpenter import Provisioner, chosen_offers, karpenter_plan_view, refuse_autoscaler_options
from kscale.cli.live_inputs import AskedClusters
from kscale.cli.output import Answer, Show
from kscale.cli.pictures import scale_up_blocks
from kscale.cli.registry import expanders
from kscale.cli.scale_up_view import scale_up_view, starting_hints
from kscale.cli.terminal import expendable_room, program
from kscale.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kscale.ca.scale_up.plan import ScaleUpPlan
    from kscale.capacity.karpenter import PoolOffers
    from kscale.cli.terminal import Terminal
    from kscale.snapshot.cluster import Cluster

__all__ = ["EPILOG", "command"]

EPILOG = DUMP_HELP
MATTER = ("DaemonSet", "PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSINode", "Namespace")
LONGEST = 9_223_372_036
"""Seconds that a duration may have."""
_MOST_AT_ONCE = 1000


def command(
    *,
    source: AskedClusters,
    group_source: GroupSource,
    memory: LoopMemory,
    gpu: GpuLabel,
    provisioner: Provisioner | None = None,
    profile: str = "current",
    expander: Annotated[str | None, typer.Option(autocompletion=expanders)] = None,
    priority_config: Path | None = None,
    grpc_url: Annotated[str | None, typer.Option("--grpc-expander-url")] = None,
    grpc_cert: Annotated[str | None, typer.Option("--grpc-expander-cert")] = None,
    per_core: Annotated[float | None, typer.Option("--price-per-core-hour", min=0)] = None,
    per_gib: Annotated[float | None, typer.Option("--price-per-gib-hour", min=0)] = None,
    all_groups: bool = False,
    balance: Annotated[bool, typer.Option("--balance-similar-node-groups")] = False,
    max_nodes_total: Annotated[int, typer.Option(min=0)] = 0,
    max_nodes_per_scale_up: Annotated[int, typer.Option("--max-nodes-per-scaleup", min=0)] = _MOST_AT_ONCE,
    new_pod_delay: Annotated[float, typer.Option("--new-pod-scale-up-delay", min=0, max=LONGEST)] = 0,
    flags: Annotated[list[str] | None, typer.Option("--flag")] = None,
    max_looks: Annotated[int | None, typer.Option(min=0)] = None,
    bypassed: Annotated[list[str] | None, typer.Option("--bypassed-scheduler-name")] = None,
    bounds: BoundSource,
    show: Show,
) -> Answer:
    """Which node groups would grow, for which pods, and what the other pods still wait for.

    One loop of the Cluster Autoscaler as if everything succeeded; with NodePools, Karpenter's rule. Only pods that the
    scheduler has reported as unschedulable count, as upstream does; with --bypassed-scheduler-name default-scheduler,
    other pending pods count, too.

    Parameters
    ----------
    provisioner : NAME
        Program that decides: karpenter (the default with NodePools) or cluster-autoscaler.
    profile : NAME
        Release to decide as: current, or legacy for release 1.3 of 2019.
    expander : NAMES
        How to choose a node group: random, most-pods, least-waste, least-nodes, price, priority, grpc; several with
        commas. Default: least-waste.
    priority_config : FILE
        File of the priority expander's ConfigMap, or its text.
    grpc_url : HOST:PORT
        Address of the gRPC expander's server.
    grpc_cert : FILE
        PEM file of the certificates that the gRPC expander's server certificate is checked against.
    per_core : AMOUNT
        With --expander price: price per hour of a requested core. Default: the lowest price of a core among the node
        groups.
    per_gib : AMOUNT
        With --expander price: price per hour of a requested GiB of memory. Default: 1/7.5 of that of a core.
    all_groups
        Show every node group, and its verdict on each set of equivalent pods.
    balance
        Spread new nodes over similar node groups.
    max_nodes_total
        Maximum number of nodes in the cluster; 0 = no limit.
    max_nodes_per_scale_up
        Maximum number of nodes added at once; 0 = no limit.
    new_pod_delay : SECONDS
        Age in seconds below which pods do not cause a scale-up.
    flags : NAME=VALUE
        Any other flag of the Cluster Autoscaler, e.g. cores-total=0:64, salvo-scale-up. Repeatable.
    max_looks
        With --flag enable-graceful-degradation: stop after this many checks of pods; the other pods wait.
    bypassed : NAME
        Count pods of this scheduler before the scheduler has tried them. Repeatable.

    Raises
    ------
    InputError
        If a flag is unknown or malformed, or the input cannot be read.
    typer.BadParameter
        If options contradict each other or have no effect.

    Returns
    -------
    Answer
        The exit status is 1 if a pod stays unschedulable, or if limits leave too few nodes.
    """
    from kscale.ca.flag_parsing import parse_flags
    from kscale.ca.options import AutoscalingOptions
    from kscale.ca.pod_lists import find_expendable_placed_pods
    from kscale.capacity.group_templates import loop_groups, starting_nodes, with_members

    own_flags: dict[str, Any] = {
        "balance_similar_node_groups": balance,
        "max_nodes_total": max_nodes_total,
        "max_nodes_per_scaleup": max_nodes_per_scale_up,
        "new_pod_scale_up_delay": timedelta(seconds=new_pod_delay),
        "bypassed_scheduler_names": list(bypassed or ()),
        **({} if expander is None else {"expander": expander}),
        **({} if grpc_url is None else {"grpc_expander_url": grpc_url}),
        **({} if grpc_cert is None else {"grpc_expander_cert": grpc_cert}),
    }
    more = parse_flags(flags or ())
    for name, why in more.idle.items():
        show.terminal.warn(f"--flag {name} has no effect here: {why}")
    options = AutoscalingOptions.for_profile(profile, **{**own_flags, **more.values})
    problems = options.problems()
    if problems:
        raise InputError(problems)
    if max_looks is not None and not options.enable_graceful_degradation:
        raise typer.BadParameter("needs --flag enable-graceful-degradation", param_hint="--max-looks")
    check_expanders(options)
    source.check_alone(("--state", memory.state), ("--save-state", memory.save_state))
    with ranker(options) as rank:
        moment, remembered = memory.moment(), memory.load_state()
        cluster, snapshot = read(source, show.terminal, matter=MATTER)
        since = None if options.legacy else moment  # release 1.3 also copied a node that had just become ready
        described = group_source.read_groups(cluster, snapshot, show.terminal)
        if (offers := chosen_offers(group_source, provisioner)) is not None:
            refuse_autoscaler_options(
                [
                    ("--profile", profile != "current"),
                    ("--expander", expander),
                    ("--priority-config", priority_config),
                    ("--grpc-expander-url", grpc_url),
                    ("--grpc-expander-cert", grpc_cert),
                    ("--price-per-core-hour", per_core is not None),
                    ("--price-per-gib-hour", per_gib is not None),
                    ("--all-groups", all_groups),
                    ("--balance-similar-node-groups", balance),
                    ("--max-nodes-total", max_nodes_total),
                    ("--max-nodes-per-scaleup", max_nodes_per_scale_up != _MOST_AT_ONCE),
                    ("--new-pod-scale-up-delay", new_pod_delay),
                    ("--flag", flags),
                    ("--state", memory.state),
                    ("--save-state", memory.save_state),
                ]
            )
            return _answer_by_karpenter(cluster, offers, source.select_pods(cluster, snapshot, show.terminal), bypassed)
        groups, templates = loop_groups(
            cluster,
            snapshot,
            described,
            options=options,
            now=since,
            known=remembered.templates if remembered is not None else (),
        )
        without_target = {group.id for group in described if group.target_size is None}
        groups = [
            replace(group, target_size=None)
            if group.id in without_target and (group.nodes or group.node_selector)
            else group
            for group in with_members(groups, snapshot.columns.objects)
        ]
        with show.terminal.step("deciding"):
            plan = kscale.scale_up(
                cluster,
                groups,
                now=moment,
                options=options,
                state=remembered,
                inputs=kscale.ca.LoopInputs(
                    templates=templates,
                    expander_input=expander_input(options.expander_names, groups, priority_config, per_core, per_gib),
                    pods=source.select_pods(cluster, snapshot, show.terminal),
                    max_looks=max_looks,
                    gpu_label=gpu.key(snapshot.columns.objects, groups, show.terminal),
                ),
                rank=rank,
            )
    _log_warnings(plan, show.terminal)
    memory.save(plan.state)
    again = " ".join([program(), "explain", *source.words(), *group_source.words()])
    unlimited = {group.id for group in groups if group.max_size >= UNLIMITED}
    plan.bound_effort = bounds.effort(len(groups))
    hints = []
    if remembered is None and not options.legacy:
        grown = {info.group for info in plan.scale_ups}
        starting = starting_nodes(groups, snapshot.columns.objects, now=moment, options=options)
        hints = starting_hints({name: nodes for name, nodes in starting.items() if name in grown})
    cutoff = options.expendable_pods_priority_cutoff
    if plan.lists.on_existing and (expendable := len(find_expendable_placed_pods(snapshot, cutoff))):
        hints.append(expendable_room(expendable, cutoff))
    if hint := workloads_without_pods(cluster):
        hints.append(hint)
    return Answer(
        plan.record(),
        lambda: scale_up_view(plan, again, all_groups=all_groups, unlimited=unlimited, hints=hints),
        exit_code=1 if plan.unschedulable_count or plan.beyond_limits else 0,
        blocks=lambda: scale_up_blocks(plan, snapshot),
    )


def _answer_by_karpenter(
    cluster: Cluster, offers: PoolOffers, pods: Sequence[str] | None, bypassed: Sequence[str] | None
) -> Answer:
    """Decide by Karpenter's rule; the exit status is 1 if a pod stays unschedulable.

    Raises InputError if a named pod is not in the cluster.
    """
    from kscale.capacity.karpenter import karpenter_plan

    plan = karpenter_plan(cluster, offers, pods=pods, bypassed=bypassed or ())
    return Answer(plan, lambda: karpenter_plan_view(plan), exit_code=1 if plan.choice.unschedulable else 0)


def _log_warnings(plan: ScaleUpPlan, terminal: Terminal) -> None:
    """Print the plan's warnings and the messages of its Warning events."""
    for text in plan.warnings:
        terminal.warn(text)
    for event in dict.fromkeys((event.reason, event.message) for event in plan.events if event.type == "Warning"):
        terminal.warn(": ".join(event))
