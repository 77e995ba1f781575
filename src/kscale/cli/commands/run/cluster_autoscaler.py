"""``kscale run cluster-autoscaler``."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kscale.cli.cluster_autoscaler_flags import IDLE, REFUSED, AutoscalerFlags, AutoscalerLease, LoopFlags
from kscale.cli.commands.run import run_if_simulated
from kscale.cli.go_flags import GoCommand, flags_given_of, go_duration
from kscale.cli.process import run_program
from kscale.cli.process_flags import WorldFlags, host_name
from kscale.errors import InputError, Problem
from kscale.files import read_file

if TYPE_CHECKING:
    from kscale.ca.options import AutoscalingOptions
    from kscale.drivers.cluster_autoscaler import CurrentNodes
    from kscale.drivers.driver import Driver
    from kscale.drivers.process import Build, Program, ProgramContext
    from kscale.effects import Steps
    from kscale.scheduling.profile import SchedulerProfile
    from kscale.world.kubernetes.client import Client
    from kscale.world.protocols import NodeGroups

__all__ = ["COMMAND", "command"]

_FLAGS_NEWER_THAN_1_3: Final = frozenset(
    {
        "--capacity-buffer-controller-enabled",
        "--capacity-buffer-pod-dry-run-enabled",
        "--debugging-snapshot-enabled",
        "--frequent-loops-enabled",
        "--max-startup-time",
        "--record-duplicated-events",
    }
)
"""Flags of the process that release 1.3 did not have."""
CLOUDS = ("aws", "externalgrpc", "kwok", "clusterapi", "static")
_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class COMMAND(GoCommand):
    """The typer command, with upstream's flags."""

    refused = REFUSED
    idle = IDLE


def command(*, process: AutoscalerFlags, lease: AutoscalerLease, loop: LoopFlags, world: WorldFlags) -> None:
    """Run the Cluster Autoscaler: upstream's flags, decisions and writes.

    Beside a stock Cluster Autoscaler, --dry-run shows what it would do. Exit status: 0 ended by a signal; 1 it could
    not go on (another leads, no API server); 2 flags or files that cannot be used.

    Raises
    ------
    InputError
        If flags or files cannot be used.
    """
    options = loop.options()
    if options.legacy and (too_new := _FLAGS_NEWER_THAN_1_3 & {*flags_given_of(process)}):
        text = "release 1.3 has no such flag"
        raise InputError([Problem(text, field=flag) for flag in sorted(too_new)])
    frequent = process.frequent_loops_enabled and not options.legacy
    allowed = ["--frequent-loops-enabled"]
    if run_if_simulated(
        world, "cluster_autoscaler", options, idle=[process, lease], allowed=allowed, frequent_loops=frequent
    ):
        return
    _profile(process.scheduler_config_file)
    if process.cloud_provider not in CLOUDS:
        text = f"there is no cloud provider {process.cloud_provider!r} here; there are {', '.join(CLOUDS)}"
        raise InputError(Problem(text, field="--cloud-provider"))
    if process.static_sizes and process.cloud_provider != "static":
        raise InputError(Problem("has an effect only with --cloud-provider=static", field="--static-sizes"))
    if process.cloud_provider == "static" and not (process.dry_run or process.static_sizes):
        text = "node groups of a file are for --dry-run; --static-sizes says where changes of their sizes are written"
        raise InputError(Problem(text, field="--cloud-provider"))
    if process.cloud_provider in ("static", "externalgrpc") and not process.cloud_config:
        raise InputError(Problem(f"{process.cloud_provider} needs one", field="--cloud-config"))
    _check_aws_flags(process)
    run_program(
        "cluster-autoscaler",
        process,
        build(process, options),
        # As in upstream, the candidate's identity is its host name, and the lease is in the status' namespace.
        election=lease.election(identity=host_name(), namespace=options.namespace),
        qps=process.kube_client_qps,
        burst=process.kube_client_burst,
        user_agent=process.user_agent,
        server=process.kubernetes,
    )


def _check_aws_flags(process: AutoscalerFlags) -> None:
    """Raise InputError for unusable flags of the provider aws, and for ``--nodes`` with another provider."""
    if process.cloud_provider == "aws":
        from kscale.cli.aws import check_flags

        check_flags(process)
    elif process.nodes:
        raise InputError(Problem(f"groups come from the cloud provider {process.cloud_provider}", field="--nodes"))


def build(process: AutoscalerFlags, options: AutoscalingOptions) -> Build:
    """Return the function that assembles the Cluster Autoscaler once the process has connected."""
    return partial(_build, process, options)


async def _build(process: AutoscalerFlags, options: AutoscalingOptions, context: ProgramContext) -> Program:
    """Assemble the program. If that fails, release what was opened."""
    resources = ExitStack()
    try:
        return await _create_program(process, options, context, resources)
    except BaseException:
        await asyncio.to_thread(resources.close)
        raise


async def _create_program(
    process: AutoscalerFlags, options: AutoscalingOptions, context: ProgramContext, resources: ExitStack
) -> Program:
    """Build the program. ``resources`` collects what must be released at the end; releasing may block.

    Raises InputError for flags or files that cannot be used, and RequestFailedError if a cluster cannot be reached.
    """
    from kscale.ca.expander.chain import build_expander_chain
    from kscale.ca.gpu import DEFAULT_GPU_LABEL
    from kscale.ca.legacy.metrics import LEGACY_GPU_LABEL
    from kscale.drivers.cluster_autoscaler import (
        AutoscalerProcess,
        ClusterAutoscaler,
        CurrentNodes,
        is_small_cluster,
        reach_nodes,
        served_metrics,
        shutdown_steps,
    )
    from kscale.drivers.cluster_autoscaler_controllers import BufferController, QuotaController
    from kscale.drivers.event_correlator import CLUSTER_AUTOSCALER
    from kscale.drivers.grpc_expander import GrpcExpander
    from kscale.drivers.process import HealthCheck, HealthCheckOptions, Program
    from kscale.world.serve.app import DebuggingSnapshotService

    chain = build_expander_chain(options.expander_names)
    ranker = GrpcExpander(options.grpc_expander_url, options.grpc_expander_cert) if "grpc" in chain else None
    if ranker is not None:
        resources.callback(ranker.close)
    current_nodes = CurrentNodes()
    groups = await _cloud(process, options, context, current_nodes, resources)
    gpu_label, gpu_types = await asyncio.to_thread(lambda: (groups.gpu_label, groups.gpu_types))
    devices = not options.legacy and await _read_from_server(lambda: context.resources.serves("resource.k8s.io/v1"))
    health = HealthCheck(
        HealthCheckOptions(
            max_inactivity=go_duration(process.max_inactivity, "--max-inactivity"),
            max_failing_time=go_duration(process.max_failing_time, "--max-failing-time"),
            max_startup_time=None if options.legacy else go_duration(process.max_startup_time, "--max-startup-time"),
        ),
        context.steady.now(),
    )
    driver = ClusterAutoscaler(
        options,
        AutoscalerProcess(
            frequent_loops=process.frequent_loops_enabled,
            dry_run=context.dry_run,
            dra=devices,
            gpu_label=LEGACY_GPU_LABEL if options.legacy else gpu_label or DEFAULT_GPU_LABEL,
            gpu_types=gpu_types,
            rank=ranker,
            prices=groups.prices if "price" in chain and process.cloud_provider == "externalgrpc" else None,
            profile=_profile(process.scheduler_config_file),
            on_aws=process.cloud_provider == "aws" and not options.legacy,
        ),
        context.steady,
        health,
        current_nodes,
        desk=DebuggingSnapshotService() if process.debugging_snapshot_enabled else None,
    )
    others: list[Driver[Any]] = [QuotaController()] if options.capacity_quotas_enabled else []
    if process.capacity_buffer_controller_enabled:
        others.append(BufferController(dry_run=process.capacity_buffer_pod_dry_run_enabled))
    ended: list[bool] = []

    def monitored() -> None:
        health.start_monitoring(context.steady.now())
        driver.on_started_leading()

    def close() -> None:
        with resources:
            # As in upstream, clean up only after a signal, and only if a status is written.
            if ended and options.write_status_configmap and not context.dry_run:
                groups.close()

    def at_end(now: int) -> Steps[None]:
        ended.append(True)
        return shutdown_steps(options, now)

    return Program(
        driver=driver,
        metrics=served_metrics(options),
        health=health,
        monitored=monitored,
        groups=groups,
        ranker=ranker,
        desk=driver.desk,
        others=others,
        clock_set=driver.clock_set,
        is_small=is_small_cluster,
        correlation=None if process.record_duplicated_events else CLUSTER_AUTOSCALER,
        csi=options.enable_csi_node_aware_scheduling,
        dra=devices and options.enable_dynamic_resource_allocation,
        before=reach_nodes,
        at_end=at_end,
        releases=False,
        close=close,
    )


def _profile(path: str) -> SchedulerProfile | None:
    """Return the profile of the scheduler's configuration file; None if no file is named.

    Raises InputError if the file cannot be read.
    """
    if not path:
        return None
    from kscale.scheduling.configuration import scheduler_profile
    from kscale.snapshot.text.documents import only_document

    try:
        document = only_document(read_file(path), path)
    except OSError as error:
        raise InputError(Problem(error.strerror or str(error), path, field="--scheduler-config-file")) from None
    except InputError as error:
        raise InputError([replace(each, field="--scheduler-config-file") for each in error.problems]) from None
    return scheduler_profile(document)


_NO_PRICING: Final = "couldn't access cloud provider pricing for price expander"
"""As upstream, which does not start with the price expander and a provider without ``Pricing``."""


async def _cloud(
    process: AutoscalerFlags,
    options: AutoscalingOptions,
    context: ProgramContext,
    current_nodes: CurrentNodes,
    held: ExitStack,
) -> NodeGroups:
    """Return the node groups of the cloud provider. ``held`` collects what must be released at the end.

    Raises InputError if the price expander is set and the provider has no prices, or lacks the price of a group.
    """
    wants_prices = "price" in options.expander_names
    if process.cloud_provider == "static":
        from kscale.capacity.groups import read_groups
        from kscale.world.nodegroups.static import StaticGroups

        groups = read_groups(process.cloud_config)
        without = [group.id for group in groups if group.price is None] if wants_prices else []
        if without:
            text = f"{_NO_PRICING}: it has none"
            raise InputError([Problem(text, process.cloud_config, f"node group {name}", "price") for name in without])
        return StaticGroups(groups, current_nodes, sizes=process.static_sizes)
    if wants_prices and process.cloud_provider != "externalgrpc":
        text = f"{_NO_PRICING}: {process.cloud_provider} does not report prices"
        raise InputError(Problem(text, field="--expander"))
    if process.cloud_provider == "externalgrpc":
        from kscale.world.nodegroups.external import ExternalGroups, read_config
        from kscale.world.nodegroups.provider import NodeInstancesCache

        cache = NodeInstancesCache(context.clock.monotonic, lambda: current_nodes.scaling_up)
        config = read_config(process.cloud_config)
        external = ExternalGroups(config, current_nodes, defaults=options.node_group_defaults, cache=cache)
        held.callback(external.disconnect)
        return external
    if process.cloud_provider == "aws":
        from kscale.cli.aws import build_provider

        provider, client = await asyncio.to_thread(build_provider, process, context.clock, current_nodes)
        held.callback(client.close)
        return provider
    from kscale.world.kubernetes.performer import Performer
    from kscale.world.nodegroups.provider import blocking

    loop = asyncio.get_running_loop()
    if process.cloud_provider == "kwok":
        from kscale.world.nodegroups.kwok import CONFIG_MAP, KwokGroups

        ask = blocking(Performer(context.client, context.clock, resources=context.resources), loop)
        create_groups = partial(
            KwokGroups,
            ask,
            namespace=os.environ.get("POD_NAMESPACE") or options.namespace,
            config_map=os.environ.get("KWOK_PROVIDER_CONFIGMAP") or CONFIG_MAP,
            watched=current_nodes,
        )
        return await _read_from_server(lambda: asyncio.to_thread(create_groups))
    return await _machines(process, context, current_nodes, held)


_LONGEST_PAUSE: Final = 30.0
"""Seconds between attempts to read at the start."""


async def _read_from_server(read: Callable[[], Awaitable[_T]]) -> _T:
    """Return the result of ``read``, which is called again, after a growing pause, when server or provider fail.

    Raises RequestFailedError if the server does not respond at all.
    """
    from kscale.objects.nodegroup import ProviderError
    from kscale.world.kubernetes.client import RequestFailedError

    pause = 1.0
    while True:
        try:
            return await read()
        except (RequestFailedError, ProviderError) as error:
            if isinstance(error, RequestFailedError) and not (error.error.code or error.error.reason):
                raise
            _log.error("%s; the next attempt is in %.0f s", error, pause)
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


_ARCHITECTURES: Final = ("amd64", "arm64", "ppc64le", "s390x")


async def _machines(
    process: AutoscalerFlags, context: ProgramContext, current_nodes: CurrentNodes, held: ExitStack
) -> NodeGroups:
    """Return the machine groups of the management cluster. ``held`` collects what must be released at the end.

    Raises InputError if a kubeconfig or flag cannot be used, and RequestFailedError if the management cluster cannot be
    reached.
    """
    architecture = os.environ.get("CAPI_SCALE_ZERO_DEFAULT_ARCH", "")
    if architecture not in _ARCHITECTURES:
        if architecture:
            _log.error("Unrecognized architecture '%s', falling back to %s", architecture, _ARCHITECTURES[0])
        architecture = _ARCHITECTURES[0]
    from kscale.objects.machine_groups import CLUSTER_API
    from kscale.world.kubernetes.aiohttp_transport import connect
    from kscale.world.kubernetes.kubeconfig import in_cluster, load_access
    from kscale.world.kubernetes.performer import Performer
    from kscale.world.kubernetes.resources import Resources
    from kscale.world.nodegroups.cluster_api import MachineGroupsCloud, read_discovery
    from kscale.world.nodegroups.provider import blocking

    client, resources = context.client, context.resources
    access = load_access(process.cloud_config) if process.cloud_config else None
    if access is None and process.clusterapi_cloud_config_authoritative:
        access = in_cluster()
        if access is None:
            raise InputError(
                Problem("kscale does not run in a pod, and --cloud-config is not set", field="--cloud-config")
            )
    if access is not None:
        client = connect(
            access,
            context.clock,
            user_agent=process.user_agent,
            qps=process.kube_client_qps,
            burst=process.kube_client_burst,
            limits=process.limits(),
        )
        held.callback(_close_client, client, asyncio.get_running_loop())
        resources = Resources(client)
    group = os.environ.get("CAPI_GROUP") or CLUSTER_API
    if version := os.environ.get("CAPI_VERSION"):
        api_version = f"{group}/{version}"
    else:
        api_version = (await resources.find_name(f"machinedeployments.{group}")).api_version
    return MachineGroupsCloud(
        blocking(Performer(client, context.clock, resources=resources), asyncio.get_running_loop()),
        current_nodes,
        api_version=api_version,
        now=context.clock.now,
        discovery=[read_discovery(text) for text in process.node_group_auto_discovery or ()],
        architecture=architecture,
    )


def _close_client(client: Client, loop: asyncio.AbstractEventLoop) -> None:
    """Close a client that belongs to the event loop ``loop``, from another thread, and wait until it is closed."""
    asyncio.run_coroutine_threadsafe(client.close(), loop).result()
