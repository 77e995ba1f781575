"""``kscale recommend``: requests from recorded usage."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from kscale.cli.groups import catalogue_of
from kscale.cli.inputs import kind_of, log_read_objects
from kscale.cli.live_inputs import Clusters
from kscale.cli.options import Switch
from kscale.cli.output import Answer
from kscale.cli.prometheus_options import UsageFlags
from kscale.cli.recommend_options import (
    Advice,
    History,
    Settings,
    Shape,
    ShowAdvice,
    fail_level,
    recommender_options,
    setting_of,
    view_of,
)
from kscale.cli.registry import strategy_names
from kscale.objects.nodegroup import NodeGroup
from kscale.objects.workloads import WORKLOADS
from kscale.snapshot.cluster import Cluster
from kscale.vpa.advice import recommend
from kscale.vpa.advice.records import SEVERITIES, RecommendationReport, with_quality
from kscale.vpa.strategies import find_strategy, list_strategies

if TYPE_CHECKING:
    from kscale.cli.terminal import Terminal
    from kscale.series.usage_reader import UsageBatch

__all__ = ["EPILOG", "command"]

_THREADS = 2

EPILOG = """A history comes from Prometheus, Thanos, Mimir or VictoriaMetrics itself

\b
kscale recommend -f cluster.json --prometheus-url http://prometheus:9090

or from files (what one is of, its name says)

\b
ask() { curl -sG "$PROMETHEUS/api/v1/query_range" -d step=5m \\
          -d start="$(date -d '-8 days' +%s)" -d end="$(date +%s)" --data-urlencode "query=$1"; }
by='by (namespace, pod, container)'
ask "sum $by (rate(container_cpu_usage_seconds_total{container!=''}[5m]))" > cpu.json
ask "max $by (container_memory_working_set_bytes{container!=''})" > memory.json
kscale recommend -f cluster.json --history cpu.json --history memory.json

or from kscale generate --usage, to try it."""


def command(
    *,
    source: Clusters,
    history: History,
    prometheus: UsageFlags,
    show: ShowAdvice,
    settings: Settings,  # type: ignore[valid-type]  # a class that is built at run time
    namespace: Annotated[list[str] | None, typer.Option("-n", "--namespace")] = None,
    all_namespaces: Annotated[bool, typer.Option("-A", "--all-namespaces")] = False,
    kind: Annotated[list[str] | None, typer.Option("-r", "--kind")] = None,
    selector: Annotated[str, typer.Option("-l", "--selector")] = "",
    strategy: Annotated[
        str,
        typer.Option(
            autocompletion=strategy_names,
            help=f"One of {', '.join(list_strategies())}; or your own: module:Class, file.py:Class.",
        ),
    ] = "vpa",
    setting: list[str] | None = None,
    min_cpu: float | None = None,
    min_memory: float | None = None,
    margin: float | None = None,
    checkpoints: Switch = True,
    fail_on: str = "",
    effect: bool = False,
    catalogue: str | None = None,
    groups: Annotated[str | None, typer.Option("-g", "--groups")] = None,
) -> Answer:
    """Recommend the requests of every workload, from what its containers used.

    The default strategy is the Vertical Pod Autoscaler's recommender, exact to the last digit. A workload without a VPA
    object is treated as if it had one in mode Off. Deleted pods are assigned to their workload by the history's
    workload column, by the labels of Prometheus series (label_app), or else by their name.

    Parameters
    ----------
    namespace
        Only workloads of this namespace, or of namespaces that match a pattern such as 'team-*'. Repeatable.
    all_namespaces
        All namespaces (the default).
    kind
        Only workloads of this kind, e.g. deployments. Repeatable.
    selector
        Only workloads with these pod labels.
    setting : NAME=VALUE
        Setting of the strategy, by its name. Repeatable.
    min_cpu
        Minimum CPU of a pod, in millicores (vpa; default 25).
    min_memory
        Minimum memory of a pod, in MiB (vpa; default 250).
    margin
        Margin that is added to usage: 0.15 is 15 % (vpa; default 0.15).
    checkpoints
        Start from the dump's VPA checkpoints.
    fail_on : severity=S
        Exit with status 1 if a container has this severity or a worse one.
    effect
        Also show how many nodes the running pods need when packed, before and after the change.
    catalogue : NAME|FILE
        With --effect: instance types and their prices.
    groups : FILE
        With --effect: node groups with prices.

    Raises
    ------
    typer.BadParameter
        If options contradict each other, or there are no samples and no checkpoints.
    InputError
        If the input or the history cannot be read, or the strategy is unknown or fails.
    """
    if namespace and all_namespaces:
        raise typer.BadParameter("-n and -A exclude each other", param_hint="-n")
    worst = fail_level(fail_on)
    setting_values = {name: value for name, value in vars(settings).items() if value is not None}
    setting_values |= dict(setting_of(text) for text in setting or ())
    chosen = find_strategy(strategy, setting_values)
    options = recommender_options(chosen, {"--min-cpu": min_cpu, "--min-memory": min_memory, "--margin": margin})
    terminal = show.terminal
    source.check()
    source.check_alone(("-o", show.output if show.output in (Shape.VPA, Shape.PATCH) else None))
    threads = source.threads or _THREADS
    with terminal.step(f"reading {source.source_names}") as update:
        cluster = source.load_with_owners(terminal, update)
    if cluster.report is not None:
        log_read_objects(cluster.report, source.source_names, terminal)
    saved = list(cluster.all("VerticalPodAutoscalerCheckpoint")) if checkpoints and chosen.uses_recommendation else []
    history.check()
    prometheus.check()
    if prometheus.prometheus_url and history.history:
        raise typer.BadParameter("it excludes --history", param_hint="--prometheus-url")
    if not history.history and not saved and not prometheus.prometheus_url:
        needed = "name a history" + (", or dump checkpoints" if chosen.uses_recommendation else "")
        raise typer.BadParameter(f"nothing to recommend from: {needed}", param_hint="--history")
    if (catalogue or groups) and not effect:
        raise typer.BadParameter("--catalogue and -g are about the price of nodes: they need --effect")
    if show.qos is not None and show.output is Shape.VPA:
        raise typer.BadParameter("a VPA object has neither requests nor limits", param_hint="--qos")
    spaces = _namespaces(cluster, namespace or ())
    moment = history.moment()
    if prometheus.prometheus_url:
        usage: Iterable[UsageBatch] = prometheus.batches(spaces, moment, terminal)
    else:
        usage = history.batches(threads)
    with terminal.step("reading the history") as update:
        advice = recommend(
            cluster,
            usage,
            options=options,
            strategy=chosen,
            now=moment,
            checkpoints=saved,
            namespaces=spaces,
            kinds=[kind_of(text) for text in kind or ()],
            selector=selector,
            points_required=history.points_required,
            threads=threads,
            progress=lambda rows: update(f"reading the history: {rows:,} rows"),
        )
    if show.qos is not None:
        advice = with_quality(advice, show.qos.value)
    if effect:
        from kscale.capacity.right_sizing import effect_of

        price = _prices(cluster, catalogue, groups)
        with terminal.step("packing"):
            advice = msgspec.structs.replace(advice, effect=effect_of(cluster, advice, price=price))
        if price is not None and advice.effect is not None and advice.effect.node_price is None:
            terminal.warn(f"no price for nodes like {advice.effect.node}")
        pools = _pools(cluster, catalogue, groups, terminal)
        if advice.effect is not None and pools:
            from kscale.capacity.right_sizing import effect_on_pools

            with terminal.step("packing the pools"):
                before, after = effect_on_pools(cluster, advice, pools)
            with_pools = msgspec.structs.replace(advice.effect, pools_before=before, pools_after=after)
            advice = msgspec.structs.replace(advice, effect=with_pools)
    _log_counts(advice, terminal)
    bad = worst is not None and any(SEVERITIES.index(one.severity) >= worst for one in advice.containers)
    own = {(vpa.namespace, vpa.name): vpa for vpa in cluster.all("VerticalPodAutoscaler")}
    return Advice(record=advice, view=lambda: view_of(advice), exit_code=1 if bad else 0, own=own)


def _namespaces(cluster: Cluster, patterns: Sequence[str]) -> list[str]:
    """Return the selected namespaces.

    A pattern stands for the input's namespaces that match it, or for itself if none matches.
    """
    if not any(char in text for text in patterns for char in "*?["):
        return list(patterns)
    existing = {item.name for item in cluster.all("Namespace")}
    existing |= {item.namespace for kind in (*WORKLOADS, "VerticalPodAutoscaler") for item in cluster.all(kind)}
    return [name for text in patterns for name in sorted(fnmatch.filter(existing, text)) or [text]]


def _prices(cluster: Any, catalogue: str | None, groups: str | None) -> Callable[[Any], float | None] | None:
    """Return a function from a node to its price per hour (None: unknown); None without catalogue and groups.

    Raises InputError if one of them cannot be read.
    """
    if catalogue is None and groups is None:
        return None
    from kscale.capacity.catalogue import read_catalogue
    from kscale.capacity.cost import price_of
    from kscale.capacity.groups import read_groups

    types = read_catalogue(catalogue) if catalogue is not None else None
    names = {node.metadata.name: i for i, node in enumerate(cluster.nodes())}
    priced_groups = read_groups(groups, node_names=names, catalogue=catalogue) if groups is not None else []
    return lambda node: price_of(node, priced_groups, types)


def _pools(cluster: Cluster, catalogue: str | None, groups: str | None, terminal: Terminal) -> list[NodeGroup]:
    """Return the cluster's node pools with prices, from the groups file or else recognised by node labels.

    Empty without a catalogue or groups file. Empty with a warning if some pool has no price. Raises InputError if a
    file cannot be read, or if a group has no node to model new ones on.
    """
    if catalogue is None and groups is None:
        return []
    from kscale.capacity.cost import set_prices
    from kscale.capacity.group_templates import with_templates
    from kscale.capacity.groups import read_groups, recognise_groups

    snapshot = cluster.snapshot(dra=True)
    nodes = snapshot.columns.objects
    if groups is not None:
        named = read_groups(groups, node_names=snapshot.columns.index, catalogue=catalogue)
    else:
        named = [each.group for each in recognise_groups(nodes).groups]
    with_template = with_templates(cluster, snapshot, named)
    priced_groups = set_prices(with_template, None if catalogue is None else catalogue_of(catalogue, terminal))
    if lacking := [group.id for group in priced_groups if group.price is None]:
        terminal.warn(f"no price for {', '.join(lacking)}: the cost of all pools before and after is unknown")
        return []
    return priced_groups


def _log_counts(advice: RecommendationReport, terminal: Any) -> None:
    """Log the counts and notes of the report; warn about missing samples and HPAs that scale by these resources.

    Unless the terminal is verbose, at most 5 notes are logged. A warning names at most 5 HPAs' workloads.
    """
    for name, count in advice.counts.items():
        (terminal.note if name == "samples" else terminal.warn)(f"{count:,} {name}")
    if advice.containers and not advice.counts.get("samples") and not any(one.samples for one in advice.containers):
        terminal.warn("no samples of these workloads")
    both = sorted({f"{one.namespace}/{one.workload}" for one in advice.containers if "HPA detected" in one.info})
    if both:
        terminal.warn(f"an HPA scales by a resource that these requests are of: {', '.join(both[:5])}")
    for note in advice.notes[: None if terminal.verbose else 5]:
        terminal.note(note)
