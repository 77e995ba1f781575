"""``kscale run cluster-autoscaler``: its flags, and what it refuses to begin with."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kscale.ca.options import AutoscalingOptions
from kscale.cli.app import command_of
from kscale.cli.cluster_autoscaler_flags import IDLE, REFUSED, AutoscalerFlags, LoopFlags
from kscale.cli.commands.run.cluster_autoscaler import _read_from_server, build
from kscale.cli.options import fields
from kscale.cli.registry import find
from kscale.drivers.cluster_autoscaler import ClusterAutoscaler
from kscale.drivers.process import Program, ProgramContext
from kscale.effects import ApiError, Outcome
from kscale.effects.virtual_time import VirtualTime
from kscale.errors import InputError
from kscale.objects.kinds import ServedResource
from kscale.objects.nodegroup import NodeGroup, ProviderError
from kscale.world.clock import SystemClock, VirtualLoop
from kscale.world.kubernetes.client import Client, RequestFailedError
from kscale.world.kubernetes.resources import Resources
from kscale.world.nodegroups.external_server import ExternalServer
from kscale.world.nodegroups.provider import Provider
from kscale.world.protocols import Clock
from kscale.world.rpc import channel
from kscale.world.serve.metrics import MetricStore
from unit.cli.support import kscale as run
from unit.world.fake_api_server import FakeApiServer

UPSTREAM = Path(__file__).with_name("upstream_flags.txt")
RUN = ("run", "cluster-autoscaler")
GROUP = "cluster.x-k8s.io"


def test_every_option_of_a_decision_is_a_flag() -> None:
    assert LoopFlags().options() == AutoscalingOptions()
    assert {*AutoscalingOptions.__struct_fields__} - {*fields(LoopFlags)} == {"predicate_parallelism"}


def test_the_legacy_profile_takes_the_flags_and_defaults_of_release_1_3() -> None:
    options = LoopFlags(profile="legacy", estimator="basic", max_empty_bulk_delete=3).options()
    assert (options.legacy, options.estimator, options.max_empty_bulk_delete) == (True, "basic", 3)
    assert (options.expander, options.expendable_pods_priority_cutoff) == ("random", 0)
    with pytest.raises(InputError) as caught:
        LoopFlags(profile="legacy", salvo_scale_up=True, startup_taint=["x"]).options()
    assert [(each.field, each.message) for each in caught.value.problems] == [
        ("--salvo-scale-up", "release 1.3 has no such flag"),
        ("--startup-taint", "release 1.3 has no such flag"),
    ]
    with pytest.raises(InputError, match=r"--max-empty-bulk-delete: it belongs to release 1.3 \(--profile legacy\)"):
        LoopFlags(max_empty_bulk_delete=3).options()
    with pytest.raises(InputError, match="unknown profile 'old'; there are current, legacy"):
        LoopFlags(profile="old").options()


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--frequent-loops-enabled"], "--frequent-loops-enabled: release 1.3 has no such flag"),
        (["--max-startup-time=5m"], "--max-startup-time: release 1.3 has no such flag"),
        (["--leader-elect-resource-lock=endpoints"], "--leader-elect-resource-lock: Invalid lock-type endpoints"),
        (["--expander=least-waste", "--grpc-expander-url=x"], "--grpc-expander-url: release 1.3 has no such flag"),
    ],
)
def test_legacy_profile_refuses_flags_unknown_to_release_1_3(tmp_path: Path, flags: list[str], why: str) -> None:
    config = tmp_path / "config"
    config.write_text(json.dumps({"clusters": [], "contexts": [], "users": []}))
    ended = run(*RUN, "--profile=legacy", f"--kubeconfig={config}", "--address=", *flags)
    assert ended.code == 2
    assert why in ended.stderr


def test_flags_are_read_as_upstream_reads_them() -> None:
    result = LoopFlags(
        scale_down_unneeded_time="1h30m",
        cores_total="1:20",
        gpu_total=["nvidia-tesla-t4:0:4"],
        bypassed_scheduler_names="a,b",
        startup_taint=["x", "y"],
    ).options()
    assert result.scale_down_unneeded_time.total_seconds() == 5400
    assert (result.cores_total.min, result.cores_total.max) == (1, 20)
    assert [gpu.max for gpu in result.gpu_total] == [4]
    assert (result.bypassed_scheduler_names, result.startup_taint) == (["a", "b"], ["x", "y"])
    with pytest.raises(InputError, match="--cores-total: Failed to parse flags: wrong nodes configuration: 5"):
        LoopFlags(cores_total="5").options()


def accepted_flags() -> set[str]:
    entry = find(" ".join(RUN))
    assert entry is not None
    return {name.removeprefix("--") for option in command_of(entry).params for name in option.opts}


def test_every_flag_of_upstream_is_taken_or_refused_by_name() -> None:
    """The file has what ``cluster-autoscaler --help`` lists; an end-to-end test holds it against the binary."""
    known = set(UPSTREAM.read_text().split())
    assert len(known) > 150
    assert known - {"help"} - accepted_flags() - REFUSED.keys() - IDLE.keys() == set()
    assert accepted_flags() & REFUSED.keys() == set()
    assert (accepted_flags() | REFUSED.keys()) & IDLE.keys() == set()


class Management(Client):
    """The API server of a management cluster."""

    def __init__(self, served: FakeApiServer, clock: Clock) -> None:
        super().__init__(served, clock, qps=-1)
        self.served, self.clock, self.closed = served, clock, 0

    async def close(self) -> None:
        self.closed += 1


def managed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str = GROUP
) -> tuple[Management, list[Mapping[str, object]]]:
    """A management cluster of one group, with its access in the file ``management``, and how it was connected to."""
    clock, connections = SystemClock(), list[Mapping[str, object]]()
    kinds = [("MachineDeployment", "autoscaling/v1"), ("MachineSet", "autoscaling/v1"), ("Machine", "")]
    served = [ServedResource(group, "v1beta2", kind, f"{kind.lower()}s", True, scale) for kind, scale in kinds]
    server = FakeApiServer(clock, resources=served)
    notes = {
        f"{group}/cluster-api-autoscaler-node-group-{which}-size": size for which, size in (("min", "0"), ("max", "3"))
    }
    capacity = {
        f"capacity.cluster-autoscaler.kubernetes.io/{what}": amount
        for what, amount in (("cpu", "2"), ("memory", "4Gi"))
    }
    metadata = {"name": "md", "namespace": "fleet", "annotations": {**notes, **capacity}}
    server.put(f"machinedeployments.{group}", {"metadata": metadata, "spec": {"replicas": 0}})
    management = Management(server, clock)

    def connect(access: object, clock: object, **options: object) -> Client:
        connections.append(options)
        return management

    monkeypatch.setattr("kscale.world.kubernetes.aiohttp_transport.connect", connect)
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "http://there"}}],
        "users": [{"name": "c", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        "current-context": "c",
    }
    (tmp_path / "management").write_text(json.dumps(config))
    return management, connections


@pytest.mark.parametrize(
    ("variables", "architecture"),
    [
        ({}, "amd64"),
        ({"CAPI_VERSION": "v1beta2", "CAPI_GROUP": "cluster.x-k8s.io"}, "amd64"),
        ({"CAPI_SCALE_ZERO_DEFAULT_ARCH": "arm64", "CAPI_GROUP": ""}, "arm64"),
        ({"CAPI_SCALE_ZERO_DEFAULT_ARCH": "vax"}, "amd64"),
        ({"CAPI_GROUP": "cluster.example.com"}, "amd64"),
        ({"CAPI_GROUP": "cluster.example.com", "CAPI_VERSION": "v1beta2"}, "amd64"),
    ],
)
def test_a_management_cluster_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], architecture: str
) -> None:
    for name in ("CAPI_GROUP", "CAPI_VERSION", "CAPI_SCALE_ZERO_DEFAULT_ARCH"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    group = variables.get("CAPI_GROUP") or GROUP
    management, connections = managed(tmp_path, monkeypatch, group)
    clock, server = management.clock, management.served
    process = AutoscalerFlags(cloud_provider="clusterapi", cloud_config=str(tmp_path / "management"))

    async def main() -> None:
        created = build(process, AutoscalingOptions())(surroundings(clock))
        assert not isinstance(created, Program)
        program = await created
        assert program.groups is not None
        (result,) = await asyncio.to_thread(program.groups.refresh)
        assert result.template is not None
        assert (result.template.node.metadata.labels or {})["kubernetes.io/arch"] == architecture
        paths = {call.path for call in server.calls}
        assert f"/apis/{group}/v1beta2/machinedeployments" in paths
        assert ("/apis" in paths) is ("CAPI_VERSION" not in variables)  # only then it is asked which it prefers
        await asyncio.to_thread(program.close)

    asyncio.run(main())
    assert management.closed == len(connections) == 1
    assert all(
        (each["qps"], each["burst"]) == (process.kube_client_qps, process.kube_client_burst) for each in connections
    )


def surroundings(clock: Clock) -> ProgramContext:
    own = Client(FakeApiServer(clock), clock, qps=-1)
    return ProgramContext(
        client=own, resources=Resources(own), clock=clock, steady=clock, metrics=MetricStore([]), dry_run=False
    )


class Ranker:
    """A server of the grpc expander that is never asked."""

    closed = 0

    def __init__(self, url: str, cert: str) -> None:
        pass

    def close(self) -> None:
        Ranker.closed += 1


def test_connections_are_closed_when_startup_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kscale.drivers.grpc_expander.GrpcExpander", Ranker)
    monkeypatch.setattr(Ranker, "closed", 0)
    management, _ = managed(tmp_path, monkeypatch)
    process = AutoscalerFlags(
        cloud_provider="clusterapi",
        cloud_config=str(tmp_path / "management"),
        scheduler_config_file=str(tmp_path / "nowhere.yaml"),
    )

    async def main() -> None:
        created = build(process, AutoscalingOptions(expander="grpc"))(surroundings(management.clock))
        assert not isinstance(created, Program)
        with pytest.raises(InputError, match=r"nowhere\.yaml"):
            await created

    asyncio.run(main())
    assert (management.closed, Ranker.closed) == (1, 1)


class Remote(Provider):
    """What is asked over gRPC."""

    def __init__(self) -> None:
        self.cleaned = 0

    def refresh(self) -> list[NodeGroup]:
        return []

    def close(self) -> None:
        self.cleaned += 1


@pytest.mark.parametrize("end", ["not built", "no signal", "signal"])
@pytest.mark.parametrize("expander", ["price", "least-waste"])
def test_the_connection_to_a_provider_ends_with_the_program(
    end: str, expander: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("grpc", reason="the extra [grpc] is not installed")
    closed: list[str] = []

    def connect(url: str, credentials: object, *, what: str, **options: object) -> Any:
        created = channel(url, credentials, what=what, **options)
        close = created.close

        def closes() -> None:
            closed.append(url)
            close()

        created.close = closes
        return created

    monkeypatch.setattr("kscale.world.nodegroups.external.channel", connect)
    cloud, config = Remote(), tmp_path / "cloud.yaml"
    nowhere = str(tmp_path / "nowhere.yaml") if end == "not built" else ""
    process = AutoscalerFlags(cloud_provider="externalgrpc", cloud_config=str(config), scheduler_config_file=nowhere)

    async def main() -> None:
        created = build(process, AutoscalingOptions(expander=expander))(surroundings(SystemClock()))
        assert not isinstance(created, Program)
        if end == "not built":
            with pytest.raises(InputError, match=r"nowhere\.yaml"):
                await created
            return
        program = await created
        assert isinstance(program.driver, ClusterAutoscaler)
        assert (program.driver.process.prices is not None) is (expander == "price")
        if end == "signal":
            assert program.at_end is not None
            program.at_end(0)
        await asyncio.to_thread(program.close)

    with ExternalServer(cloud, "127.0.0.1:0") as server:
        config.write_text(f"address: {server.url}")
        asyncio.run(main())
        assert closed == [server.url]
    assert cloud.cleaned == (end == "signal")


def test_groups_that_cannot_be_closed_keep_nothing_else_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kscale.drivers.grpc_expander.GrpcExpander", Ranker)
    monkeypatch.setattr(Ranker, "closed", 0)
    management, _ = managed(tmp_path, monkeypatch)
    process = AutoscalerFlags(cloud_provider="clusterapi", cloud_config=str(tmp_path / "management"))

    async def main() -> None:
        created = build(process, AutoscalingOptions(expander="grpc"))(surroundings(management.clock))
        assert not isinstance(created, Program)
        program = await created
        assert program.at_end is not None

        def broken() -> None:
            raise OSError("away")

        monkeypatch.setattr(program.groups, "close", broken)
        program.at_end(0)
        with pytest.raises(OSError, match="away"):
            await asyncio.to_thread(program.close)

    asyncio.run(main())
    assert (management.closed, Ranker.closed) == (1, 1)


@pytest.mark.parametrize("name", sorted(IDLE))
def test_flags_without_effect_are_taken(name: str) -> None:
    value = "true" if IDLE[name].switch else "loop=4" if name == "vmodule" else "4"
    result = run(*RUN, f"--{name}={value}", "--nothing-like-it")
    assert "No such option: --nothing-like-it" in result.stderr


def test_a_parallelism_that_upstream_refuses() -> None:
    result = run(*RUN, "--predicate-parallelism=0")
    assert result.code == 2
    assert "Invalid value for --predicate-parallelism flag: 0" in result.stderr


def test_unknown_estimator_is_refused_before_any_request() -> None:
    result = run(*RUN, "--estimator=foo")
    assert result.code == 2
    assert "--estimator: Unknown estimator: foo" in result.stderr


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_flags_that_ask_for_something_else_are_refused_by_name(name: str) -> None:
    result = run(*RUN, f"--{name}=1")
    assert result.code == 2
    assert f"--{name} is not taken: {REFUSED[name]}" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cloud-provider", "gce"], "there is no cloud provider 'gce' here"),
        (["--cloud-provider", "static"], "node groups of a file are for --dry-run"),
        (["--cloud-provider", "externalgrpc"], "externalgrpc needs one"),
        (["--cloud-provider", "kwok", "--nodes=1:3:a"], "--nodes: groups come from the cloud provider kwok"),
        (["--cloud-provider", "aws", "--nodes=1:3"], "--nodes: failed to parse node group spec"),
        (
            ["--cloud-provider", "aws", "--node-group-auto-discovery=clusterapi:namespace=x"],
            "--node-group-auto-discovery: unsupported discoverer specified: clusterapi",
        ),
        (["--cloud-provider", "aws", "--aws-use-static-instance-list"], "--aws-use-static-instance-list: there is no"),
        (["--cloud-provider", "aws", "--aws-instance-types=nowhere"], "nowhere"),
        (["--cloud-provider", "aws", "--cloud-config=nowhere"], "nowhere"),
        (["--expander=price", "--cloud-provider", "aws"], "--expander: couldn't access cloud provider pricing"),
        (["--enable-dynamic-resource-allocation=false"], "flag must be true: false"),
        (["--scan-interval", "soon"], "--scan-interval"),
        (
            ["--expander=price", "--cloud-provider=static", "--dry-run", "--cloud-config=GROUPS"],
            "node group pool: price: couldn't access cloud provider pricing for price expander",
        ),
        (["--expander=price", "--cloud-provider", "kwok"], "--expander: couldn't access cloud provider pricing"),
        (["--expander=price", "--cloud-provider", "clusterapi"], "--expander: couldn't access cloud provider pricing"),
        (["--scheduler-config-file", "nowhere"], "nowhere"),
        (["--scheduler-config-file", __file__], "test_run_cluster_autoscaler.py: --scheduler-config-file: line 1"),
        (["--scheduler-config-file", "DEEP"], "--scheduler-config-file: nested too deeply to be read"),
        (["--scheduler-config-file", "TWO"], "--scheduler-config-file: one YAML document expected, 2 found"),
        (["--leader-elect-renew-deadline", "20s"], "leaseDuration must be greater than renewDeadline"),
        (["--max-inactivity", "x", "--cloud-provider", "static", "--dry-run"], "--cloud-config"),
    ],
)
def test_invalid_startup_arguments_are_refused(arguments: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "groups.yaml").write_text("- {id: pool, min: 0, max: 3, nodeSelector: {pool: a}}")
    (tmp_path / "deep.yaml").write_text("[" * 5_000)
    (tmp_path / "two.yaml").write_text("{}\n---\n{}\n")
    for name in ("groups", "deep", "two"):
        arguments = [each.replace(name.upper(), str(tmp_path / f"{name}.yaml")) for each in arguments]
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "x"}}],
    }
    (tmp_path / "config").write_text(json.dumps(config))
    result = run(*RUN, "--kubeconfig", str(tmp_path / "config"), "--address=", *arguments)
    assert result.code == 2
    assert message in result.stderr


def test_help_has_every_flag() -> None:
    result = run(*RUN, "--help-all")
    assert result.code == 0
    for name in fields(LoopFlags):
        assert f"--{name.replace('_', '-')}" in result.stdout


def test_switches_of_the_other_release_may_be_off() -> None:
    result = run(*RUN, "--node-autoprovisioning-enabled=false", "--nothing-like-it")
    assert "No such option: --nothing-like-it" in result.stderr
    refused: list[list[str]] = []
    for flag in ("--node-autoprovisioning-enabled=false", "--node-autoprovisioning-enabled=true"):
        result = run(*RUN, flag, "--kubeconfig=/does/not/exist")
        refused.append([line for line in result.stderr.splitlines() if "belongs to release 1.3" in line])
    assert [len(each) for each in refused] == [0, 1]


def test_a_flag_that_upstream_ignores_is_taken() -> None:
    result = run(*RUN, "--cluster-snapshot-parallelism=8", "--nothing-like-it")
    assert "No such option: --nothing-like-it" in result.stderr


@pytest.mark.parametrize(
    "error",
    [RequestFailedError(ApiError("the answer cannot be read", reason="InternalError")), ProviderError("odd nodes")],
    ids=["response", "cloud"],
)
def test_no_response_ends_the_start(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """What the program reads before its first loop is read again, with longer and longer pauses."""
    moments: list[int] = []

    async def read() -> str:
        moments.append(round(asyncio.get_running_loop().time()))
        if len(moments) < 8:
            raise error
        return "read"

    virtual = VirtualTime(lambda action, now: Outcome(at=now), now=0)
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(virtual)) as runner:
        assert runner.run(_read_from_server(read)) == "read"
    assert [after - before for before, after in pairwise(moments)] == [1, 2, 4, 8, 16, 30, 30]
    assert caplog.messages[0] == f"{error}; the next attempt is in 1 s"


def test_a_start_without_a_server_ends() -> None:
    async def read() -> str:
        raise RequestFailedError(ApiError("connection refused"), refused=True)

    with pytest.raises(RequestFailedError, match="connection refused"):
        asyncio.run(_read_from_server(read))


@pytest.mark.parametrize(
    ("expander", "text"),
    [("x", "--expander: Expander x not supported"), ("random,price", "--expander: Expander price came after")],
)
def test_an_expander_that_upstream_does_not_start_with_is_refused_before_connecting(expander: str, text: str) -> None:
    got = run("run", "cluster-autoscaler", f"--expander={expander}", "--kubeconfig=/does/not/exist")
    assert (got.code, text in got.stderr) == (2, True), got.stderr
