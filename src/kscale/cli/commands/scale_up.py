"""``kscale scale-up``: which node groups would grow, for which pods."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from contextlib import nullcontext
from datetime import timedelta
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import kscale
from kscale.capacity.records import UNLIMITED
from kscale.cli.bounds import BoundSource
from kscale.cli.completion import expanders
from kscale.cli.gpu_label import GpuLabel
from kscale.cli.groups import GroupSource
from kscale.cli.inputs import DUMP_HELP, Source, read
from kscale.cli.loop_memory import LoopMemory
from kscale.cli.output import Answer, Cell, Column, Show, Table, View
from kscale.cli.pictures import scale_up_blocks
from kscale.cli.words import plural, pods, program
from kscale.errors import InputError, Problem

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from kscale.ca.expander.types import ExpanderInput
    from kscale.ca.options import AutoscalingOptions
    from kscale.ca.scale_up.plan import ScaleUpPlan
    from kscale.ca.scale_up.records import ExpanderScore, PendingPods, ScaleUpChoice
    from kscale.cli.terminal import Terminal
    from kscale.drivers.grpc_expander import GrpcExpander
    from kscale.objects.nodegroup import NodeGroup

__all__ = ["EPILOG", "command", "scale_up_view"]

EPILOG = DUMP_HELP
MATTER = ("DaemonSet", "PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSINode", "Namespace")
SHOWN = 20
LONGEST = 9_223_372_036
"""Seconds that a duration may have."""


def command(
    *,
    source: Source,
    group_source: GroupSource,
    memory: LoopMemory,
    gpu: GpuLabel,
    profile: Annotated[
        str,
        typer.Option("--profile", metavar="NAME", help="Whose decision: current, or legacy for release 1.3 of 2019."),
    ] = "current",
    expander: Annotated[
        str | None,
        typer.Option(
            "--expander",
            metavar="NAMES",
            autocompletion=expanders,
            help="How to choose: random, most-pods, least-waste, least-nodes, price, priority, grpc; several with "
            "commas. Default: least-waste.",
        ),
    ] = None,
    priority_config: Annotated[
        Path | None,
        typer.Option("--priority-config", metavar="FILE", help="The ConfigMap of the priority expander, or its text."),
    ] = None,
    grpc_url: Annotated[
        str | None,
        typer.Option("--grpc-expander-url", metavar="HOST:PORT", help="The server that the grpc expander asks."),
    ] = None,
    grpc_cert: Annotated[
        str | None,
        typer.Option(
            "--grpc-expander-cert", metavar="FILE", help="Certificates (PEM) that the server's is checked by."
        ),
    ] = None,
    per_core: Annotated[
        float | None,
        typer.Option(
            "--price-per-core-hour",
            min=0,
            metavar="AMOUNT",
            help="With --expander price: what a core that pods request is worth. Default: as cheap as a node group "
            "sells it.",
        ),
    ] = None,
    per_gib: Annotated[
        float | None,
        typer.Option(
            "--price-per-gib-hour",
            min=0,
            metavar="AMOUNT",
            help="With --expander price: what a GiB of memory is worth. Default: 1/7.5 of a core.",
        ),
    ] = None,
    all_groups: Annotated[
        bool, typer.Option("--all-groups", help="Show every group, and what each says of every kind of pod.")
    ] = False,
    balance: Annotated[
        bool, typer.Option("--balance-similar-node-groups", help="Share new nodes among groups that are alike.")
    ] = False,
    max_nodes_total: Annotated[
        int, typer.Option("--max-nodes-total", min=0, help="The cluster may have so many nodes; 0 = no limit.")
    ] = 0,
    max_nodes_per_scale_up: Annotated[
        int, typer.Option("--max-nodes-per-scaleup", min=0, help="Nodes added at once at most; 0 = no limit.")
    ] = 1000,
    new_pod_delay: Annotated[
        float,
        typer.Option("--new-pod-scale-up-delay", min=0, max=LONGEST, metavar="SECONDS", help="Younger pods wait."),
    ] = 0,
    flags: Annotated[
        list[str] | None,
        typer.Option(
            "--flag",
            metavar="NAME=VALUE",
            help="Any other flag of the Cluster Autoscaler, e.g. cores-total=0:64, salvo-scale-up. Repeatable.",
        ),
    ] = None,
    max_looks: Annotated[
        int | None,
        typer.Option(
            "--max-looks",
            min=0,
            help="With --flag enable-graceful-degradation: time for so many looks at pods only; the others wait.",
        ),
    ] = None,
    bypassed: Annotated[
        list[str] | None,
        typer.Option("--bypassed-scheduler-name", metavar="NAME", help="Do not wait for its verdict. Repeatable."),
    ] = None,
    bounds: BoundSource,
    show: Show,
) -> Answer:
    """Which node groups would grow, for which pods, and what the other pods still wait for.

    One loop of the Cluster Autoscaler as if everything succeeded. Only pods of which the scheduler has said that they
    are unschedulable count, as upstream does; --bypassed-scheduler-name default-scheduler does not wait for it.
    """
    from kscale.ca.flag_parsing import parse_flags
    from kscale.ca.options import AutoscalingOptions
    from kscale.capacity.loop_groups import loop_groups, with_members

    given: dict[str, Any] = {
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
    options = AutoscalingOptions.for_profile(profile, **{**given, **more.values})
    problems = options.problems()
    if problems:
        raise InputError(problems)
    if max_looks is not None and not options.enable_graceful_degradation:
        raise typer.BadParameter("needs --flag enable-graceful-degradation", param_hint="--max-looks")
    _check_expanders(options)
    with _ranker(options) as rank:
        moment, remembered = memory.moment(), memory.remembered()
        cluster, snapshot = read(source, show.terminal, matter=MATTER)
        since = None if options.legacy else moment  # release 1.3 took a node that had just become ready, too
        groups, templates = loop_groups(
            cluster,
            snapshot,
            group_source.described(cluster, snapshot, show.terminal),
            options=options,
            now=since,
            known=remembered.templates if remembered is not None else (),
        )
        groups = with_members(groups, snapshot.columns.objects)
        with show.terminal.step("deciding"):
            plan = kscale.scale_up(
                cluster,
                groups,
                now=moment,
                options=options,
                state=remembered,
                inputs=kscale.ca.ScaleUpInputs(
                    templates=templates,
                    expander_input=_expander_input(options.expander_names, groups, priority_config, per_core, per_gib),
                    pods=source.asked(cluster, snapshot, show.terminal),
                    max_looks=max_looks,
                    gpu_label=gpu.key(snapshot.columns.objects, groups, show.terminal),
                ),
                rank=rank,
            )
    _say(plan, show.terminal)
    memory.save(plan.state)
    again = " ".join([program(), "explain", *source.words(), *group_source.words()])
    unlimited = {group.id for group in groups if group.max_size >= UNLIMITED}
    plan.bound_effort = bounds.effort(len(groups))
    return Answer(
        plan.record(),
        lambda: scale_up_view(plan, again, all_groups=all_groups, unlimited=unlimited),
        exit_code=1 if plan.pending_count or plan.beyond_limits else 0,
        blocks=lambda: scale_up_blocks(plan, snapshot),
    )


def _check_expanders(options: AutoscalingOptions) -> None:
    from kscale.ca.errors import AutoscalerError
    from kscale.ca.expander.registry import EXPANDER_NAMES, GRPC, build_chain

    try:
        build_chain(options.expander_names)
    except AutoscalerError as error:
        raise typer.BadParameter(f"{error}; there are {', '.join(EXPANDER_NAMES)}", param_hint="--expander") from None
    if GRPC in options.expander_names and not options.legacy:
        if not options.grpc_expander_url:
            raise typer.BadParameter("the grpc expander needs --grpc-expander-url", param_hint="--expander")
        if not options.grpc_expander_cert:
            text = "GRPC Expander Cert not specified, insecure connections not allowed: give --grpc-expander-cert"
            raise typer.BadParameter(text, param_hint="--expander")


def _ranker(options: AutoscalingOptions) -> AbstractContextManager[GrpcExpander | None]:
    """Who answers for the grpc expander."""
    if "grpc" not in options.expander_names or options.legacy:  # which release 1.3 did not have
        return nullcontext()
    from kscale.drivers.grpc_expander import GrpcExpander

    return GrpcExpander(options.grpc_expander_url, options.grpc_expander_cert)


def _expander_input(
    names: Iterable[str],
    groups: Iterable[NodeGroup],
    config: Path | None,
    per_core: float | None,
    per_gib: float | None,
) -> ExpanderInput:
    from kscale.ca.expander.types import ExpanderInput

    if "price" in names:
        unpriced = [group.id for group in groups if group.price is None]
        if unpriced:
            raise InputError(
                [
                    Problem("the price expander needs a price", object=f"node group {name}", field="price")
                    for name in unpriced
                ]
            )
    if "priority" in names and config is None:
        raise typer.BadParameter("the priority expander needs --priority-config", param_hint="--expander")
    if "price" not in names and (per_core is not None or per_gib is not None):
        raise typer.BadParameter("needs --expander price", param_hint="--price-per-core-hour, --price-per-gib-hour")
    for option, rate in (("--price-per-core-hour", per_core), ("--price-per-gib-hour", per_gib)):
        if rate is not None and not isfinite(rate):
            raise typer.BadParameter(f"{rate} is no price", param_hint=option)
    return ExpanderInput(
        priorities=None if config is None else _config_map(config),
        price_per_core_hour=per_core,
        price_per_gib_hour=per_gib,
    )


def _config_map(path: Path) -> dict[str, str]:
    """The data of the ConfigMap. A file that is none is the value of its key; what that is worth, the expander says."""
    import yaml

    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise InputError(Problem(f"not UTF-8: {error}", str(path))) from None
    try:
        found: Any = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):  # such as a date that there is not
        found = None
    if not isinstance(found, dict) or found.get("kind") != "ConfigMap":
        return {"priorities": text}
    data = found.get("data") or {}
    if not isinstance(data, dict):
        raise InputError(Problem("is no object", str(path), "ConfigMap", "data"))
    wrong = [key for key, value in data.items() if not isinstance(value, str)]
    if wrong:
        raise InputError([Problem("is no text", str(path), "ConfigMap", f"data[{key}]") for key in wrong])
    return {str(key): value for key, value in data.items()}


def _say(plan: ScaleUpPlan, terminal: Terminal) -> None:
    for text in plan.warnings:
        terminal.warn(text)
    for event in dict.fromkeys((event.reason, event.message) for event in plan.events if event.type == "Warning"):
        terminal.warn(": ".join(event))


_COLUMNS = (
    Column("OPTION"),
    Column("NODES", "right"),
    Column("BOUND", "right", wide=True),
    Column("METHOD", wide=True),
    Column("PODS", "right"),
    Column("SCORE"),
    Column("CHOSEN"),
    Column("SKIPPED BECAUSE"),
)
_LEFT = (Column("PODS", "right"), Column("STILL PENDING"), Column("WHY"))


def scale_up_view(plan: ScaleUpPlan, explain: str, *, all_groups: bool, unlimited: Iterable[str] = ()) -> View:
    """``explain`` is the command line that explains a pod, without the pod; ``unlimited``: groups of unknown bounds."""
    shown = [choice for choice in plan.options if all_groups or choice.nodes or choice.skipped]
    tables = [
        Table(_COLUMNS, [_option_row(choice) for choice in shown], limit=0 if all_groups else SHOWN),
        Table(_LEFT, [_left_row(found) for found in plan.pending], limit=SHOWN),
    ]
    if all_groups and plan.pending:
        tables.append(_matrix(plan))
    return View(
        headline=_headline(plan),
        tables=tables,
        footer=_footer(plan, explain, unlimited),
        names=[
            f"nodegroup/{name}" for name in dict.fromkeys(info.group for info in (*plan.scale_ups, *plan.min_sizes))
        ],
    )


def _headline(plan: ScaleUpPlan) -> str:
    if plan.error is not None:
        return f"The scale-up fails: {plan.error.message}"
    total = plan.lists.asked
    if plan.scale_ups:
        parts = [f"{info.group} {info.current:,} -> {info.new:,}" for info in plan.scale_ups]
        balanced = ", balanced" if len(parts) > 1 else ""
        nodes = f"{plan.new_nodes:,} {plural('node', plan.new_nodes)}{balanced}"
        helped = len(plan.triggered) - len(plan.beyond_limits)
        return f"Scale up {' and '.join(parts)} ({nodes}) for {helped:,} of {pods(total)}."
    return {
        "ScaleUpNotNeeded": "No scale-up is needed.",
        "ScaleUpNotTried": f"No scale-up is tried. {_untried(plan)}",
        "ScaleUpInCooldown": f"No scale-up yet: {pods(total)} so new that more may be on their way."
        if plan.scale_down_disabled
        else f"No scale-up for {pods(total)}: there was no time for others, and this loop is for scale-down.",
        "ScaleUpLimitedByMaxNodesTotal": f"No scale-up for {pods(total)}: the cluster has all the nodes it may have.",
    }.get(plan.result, f"No node group can grow for {pods(total)}.")


def _untried(plan: ScaleUpPlan) -> str:
    """Why the loop ended before it looked at pods."""
    told = [event.message.rstrip(".") for event in plan.events if event.reason == "ClusterUnhealthy"]
    return f"{next(iter(told), 'Cluster is not ready')}."


def _option_row(choice: ScaleUpChoice) -> list[Cell | str | float | None]:
    scores = [_score(score) for score in choice.scores]
    why = ", ".join(choice.skipped) or ("" if choice.nodes else "no pod fits its nodes")
    return [
        choice.group,
        choice.nodes or None,
        choice.bound,
        choice.bound_method or None,
        choice.pods or None,
        "; ".join(scores),
        Cell("yes", "good") if choice.chosen else "",
        why,
    ]


def _score(score: ExpanderScore) -> str:
    if score.score is None:
        return f"{score.expander} {score.not_finite or score.note}".rstrip()
    text = f"{score.expander} {score.score:.3f}"
    parts = score.parts
    if {"all_nodes_price", "pods_price", "suppressed"} <= parts.keys():
        nodes, pods_price, unfit = parts["all_nodes_price"], parts["pods_price"], parts["suppressed"]
        text += f" (nodes {nodes:.3f}, pods {pods_price:.3f}, unfitness {unfit:.3f})"
    return text


def _left_row(found: PendingPods) -> list[Cell | str | float | None]:
    return [len(found.pods), found.pods[0], found.why]


def _matrix(plan: ScaleUpPlan) -> Table:
    """What every node group says of the pods that stay."""
    groups = [choice for choice in plan.options if not choice.skipped]
    rows: list[list[Cell | str | float | None]] = []
    for found in plan.pending:
        row: list[Cell | str | float | None] = [found.pods[0]]
        for choice in groups:
            no = found.rejected.get(choice.group)
            row.append(", ".join(no.reasons) or no.plugin if no is not None else "fits")
        rows.append(row)
    return Table((Column("POD"), *(Column(choice.group) for choice in groups)), rows)


def _footer(plan: ScaleUpPlan, explain: str, unlimited: Iterable[str]) -> list[str]:
    lists, footer = plan.lists, []
    if lists.on_existing:
        needs = "needs no new node: it fits" if lists.on_existing == 1 else "need no new node: they fit"
        footer.append(f"{pods(lists.on_existing)} {needs} on nodes that exist or are coming.")
    if plan.upcoming:
        coming = ", ".join(f"{name} {count:,}" for name, count in plan.upcoming.items())
        footer.append(f"Nodes that are coming already: {coming}.")
    if plan.created_groups:
        made = ", ".join(name for each in plan.created_groups for name in (each.main, *each.extra))
        footer.append(f"Groups that would be made: {made}.")
    if plan.min_sizes:
        raised = ", ".join(f"{info.group} {info.current:,} -> {info.new:,}" for info in plan.min_sizes)
        footer.append(f"Raised to their minimum size: {raised}.")
    if plan.beyond_limits:
        asked = sum(done.best.node_count for done in plan.rounds if done.best is not None)
        footer.append(
            f"No place for {pods(len(plan.beyond_limits))} of the option chosen: limits on the cluster permit "
            f"{plan.new_nodes:,} of the {asked:,} nodes asked for. Upstream says that they triggered the scale-up, too."
        )
    if plan.pending:
        footer.append(f"Still pending: {pods(plan.pending_count)}: {explain} {shlex.quote(plan.pending[0].pods[0])}")
    for count, why in (
        (lists.ignored, "gated, or the scheduler has not called them unschedulable (--bypassed-scheduler-name)"),
        (lists.expendable, "so low a priority that no node is added for them"),
        (lists.out_of_time, "there was no time to look at them (--pending-pods-batching-timeout): they wait"),
        (lists.daemon_set, "of a DaemonSet: no node is added for them"),
        (lists.consuming, "they consume a ProvisioningRequest, which asks for their nodes"),
        (lists.young, "too young (--new-pod-scale-up-delay)"),
    ):
        if count:
            footer.append(f"{pods(count)} not counted: {why}.")
    grown = [info.group for info in plan.scale_ups if info.group in set(unlimited)]
    if grown:
        footer.append(f"How large {' and '.join(grown)} may become is not known: no limit was applied.")
    if plan.unmodelled:
        footer.append(f"Not judged yet: {', '.join(plan.unmodelled)}.")
    return footer
