"""``kscale run cluster-autoscaler --cloud-provider=aws`` as a whole process: a real control plane, an emulated account
of AWS behind the official SDK, and the rights that the manifests give."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.control_plane import ControlPlane
from e2e.e2e_cluster_autoscaler import Autoscaler, evictions, holds, nodes, running
from e2e.ec2_nodes import Ec2Nodes
from e2e.kubelet import FakeKubelet
from e2e.real_api import RealApi, cleared, connected
from e2e.rights import installed
from emulated_aws import ENABLED, REGION, EmulatedAws
from unit.world.writer_cases import deployment

DISCOVERY = f"--node-group-auto-discovery=asg:tag={ENABLED}"
WORDS = ("--cloud-provider=aws",)
PATIENCE = 300.0
"""Seconds after which a test gives up. The autoscaler describes the groups once a minute."""
POOL = "k8s.io/cluster-autoscaler/node-template/label/pool"
WRITES = ("SetDesiredCapacity", "TerminateInstanceInAutoScalingGroup")
NO_CAPACITY = (
    "We currently do not have sufficient m5.large capacity in the Availability Zone you requested (us-east-1a). "
    "Launching EC2 instance failed. InsufficientInstanceCapacity"
)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("aws-plane"), scheduler=True, controllers=True, audit=True) as plane:
        yield plane


@pytest.fixture(scope="module")
def kubeconfig(plane: ControlPlane) -> str:
    access = installed(plane, "cluster-autoscaler", DISCOVERY, words=WORDS)
    path = plane.directory / "aws.kubeconfig"
    path.write_text(json.dumps(plane.config(user={"token": access.token.reveal()})))
    return str(path)


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedAws]:
    with EmulatedAws(tmp_path_factory.mktemp("aws")) as account:
        yield account


class Scene:
    """A control plane, an account and their stand-ins; :meth:`autoscaler` starts the program under test."""

    def __init__(self, plane: ControlPlane, kubeconfig: str, aws: EmulatedAws, directory: Path) -> None:
        self.plane, self.aws = plane, aws
        self._kubeconfig, self._directory = kubeconfig, directory

    def start(self, *flags: str) -> Autoscaler:
        """Start an autoscaler of the account."""
        words = (*WORDS, "--cloud-config=", DISCOVERY, *flags)
        return Autoscaler(self._kubeconfig, "", self._directory, *words, environment=self.aws.environment)

    @asynccontextmanager
    async def autoscaler(self, *flags: str) -> AsyncIterator[Autoscaler]:
        """Run an autoscaler of the account, which ends with status 0."""
        autoscaler = self.start(*flags)
        try:
            yield autoscaler
            assert await asyncio.to_thread(autoscaler.end) == 0, autoscaler.output()[-3000:]
        finally:
            if autoscaler.process.poll() is None:
                autoscaler.end(signal.SIGKILL)
        output = autoscaler.output()
        assert " forbidden" not in output.lower(), output[-3000:]
        assert "Traceback" not in output, output[-3000:]

    @asynccontextmanager
    async def stand_ins(self, **options: Any) -> AsyncIterator[RealApi]:
        """Run kubelets: of pods, and of instances."""
        async with connected(self.plane) as api:
            tasks = [
                asyncio.create_task(FakeKubelet(api.client, api.clock).run()),
                asyncio.create_task(Ec2Nodes(self.plane, self.aws, **options).run()),
            ]
            try:
                yield api
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)

    def writes(self) -> list[tuple[str, str]]:
        """Return the changes that were requested of the account: the group and its size, or the instance that ends."""
        return [
            (call.group, call.parameters["DesiredCapacity"])
            if call.action == "SetDesiredCapacity"
            else ("terminate", call.parameters["InstanceId"])
            for call in self.aws.actions(*WRITES)
        ]

    def reasons(self) -> set[str]:
        """Return the reasons of all events."""
        return {event["reason"] for event in self.plane.ask("GET", "/api/v1/events")["items"]}


@pytest.fixture
def scene(plane: ControlPlane, kubeconfig: str, account: EmulatedAws, tmp_path: Path) -> Scene:
    cleared(plane)
    account.reset()
    return Scene(plane, kubeconfig, account, tmp_path)


def web(replicas: int, cpu: str = "1500m", pool: str = "") -> dict[str, Any]:
    """A deployment whose pods end at once when they are evicted. ``pool``: the label of nodes that it needs."""
    result = deployment("web", replicas)
    spec = result["spec"]["template"]["spec"]
    spec |= {"terminationGracePeriodSeconds": 1, **({"nodeSelector": {"pool": pool}} if pool else {})}
    spec["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    return result


async def until(test: Callable[[], Any], seconds: float = PATIENCE) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(seconds):
        while not await asyncio.to_thread(test):
            await asyncio.sleep(0.1)


@pytest.mark.smoke
def test_scale_from_zero(scene: Scene) -> None:
    """Tags alone say that nodes of an empty group have the label that pods need."""
    scene.aws.create_group("others")
    scene.aws.create_group("web", tags={POOL: "web"})

    async def main() -> None:
        async with scene.stand_ins() as api, scene.autoscaler() as autoscaler:
            await api.create("deployments.apps", web(2, pool="web"))
            await holds(lambda: running(scene.plane) == 2, autoscaler, PATIENCE)

    asyncio.run(main())
    assert scene.writes() == [("web", "2")]
    (call,) = scene.aws.actions("SetDesiredCapacity")
    assert call.parameters["HonorCooldown"] == "false"
    assert {"TriggeredScaleUp", "ScaledUpGroup"} <= scene.reasons()
    assert {node["spec"]["providerID"] for node in nodes(scene.plane)} == {*scene.aws.instances("web")}


@pytest.mark.smoke
def test_balance_over_three_zones(scene: Scene) -> None:
    """Groups of three zones are similar, also in the label of the zone that the EBS driver adds."""
    names = [f"web-{zone}" for zone in "abc"]
    for name in names:
        scene.aws.create_group(name, zones=[f"{REGION}{name[-1]}"])

    async def main() -> None:
        async with scene.stand_ins() as api, scene.autoscaler("--balance-similar-node-groups=true") as autoscaler:
            await api.create("deployments.apps", web(6))
            await holds(lambda: running(scene.plane) == 6, autoscaler, PATIENCE)

    asyncio.run(main())
    assert {name: scene.aws.desired(name) for name in names} == dict.fromkeys(names, 2)
    assert sorted(scene.writes()) == [(name, "2") for name in names]


@pytest.mark.smoke
def test_a_node_is_drained_and_its_instance_terminated_with_decrement(scene: Scene) -> None:
    """Of two nodes that run a worker each, one is drained, and the size of the group shrinks with its instance."""
    scene.aws.create_group("web", minimum=1, desired=2)
    terminating: list[list[str]] = []

    async def main() -> None:
        async with scene.stand_ins() as api:
            await until(lambda: len(nodes(scene.plane)) == 2)
            await api.create("deployments.apps", web(2, cpu="600m"))
            await until(lambda: running(scene.plane) == 2)
            before = len(evictions(scene.plane))
            async with scene.autoscaler() as autoscaler:
                await holds(lambda: scene.aws.actions(WRITES[1]), autoscaler, PATIENCE)
                terminating.append(evictions(scene.plane)[before:])
                await holds(lambda: len(nodes(scene.plane)) == 1, autoscaler, PATIENCE)
                await holds(lambda: running(scene.plane) == 2, autoscaler, PATIENCE)

    asyncio.run(main())
    assert terminating == [["web"]]
    (call,) = scene.aws.actions(*WRITES)
    assert call.parameters["ShouldDecrementDesiredCapacity"] == "true"
    assert (scene.aws.desired("web"), len(scene.aws.instances("web"))) == (1, 1)
    assert call.parameters["InstanceId"] not in scene.aws.instances("web")[0]


def test_a_capacity_error_falls_back_to_another_group(scene: Scene) -> None:
    """The cheapest group gets no instances. Its request is taken back, and another group grows."""
    scene.aws.create_group("small")
    scene.aws.create_group("large", instance_type="m5.xlarge")
    scene.aws.hold("small", NO_CAPACITY)

    async def main() -> None:
        async with scene.stand_ins() as api, scene.autoscaler("--expander=least-waste") as autoscaler:
            await api.create("deployments.apps", web(1))
            await holds(lambda: running(scene.plane) == 1, autoscaler, PATIENCE)
            await holds(lambda: scene.aws.desired("small") == 0, autoscaler, PATIENCE)

    asyncio.run(main())
    assert scene.writes() == [("small", "1"), ("small", "0"), ("large", "1")]
    assert "ScaleUpFailed" in scene.reasons()


def test_a_placeholder_that_never_comes(scene: Scene) -> None:
    """Nothing is reported to fail, but no instance comes. After the provisioning time another group grows, and the
    request is taken back. The provisioning time is longer than a minute: until the next refresh, new instances are
    unknown."""
    scene.aws.create_group("small")
    scene.aws.create_group("large", instance_type="m5.xlarge")
    scene.aws.hold("small")

    async def main() -> None:
        flags = ("--expander=least-waste", "--max-node-provision-time=90s")
        async with scene.stand_ins() as api, scene.autoscaler(*flags) as autoscaler:
            await api.create("deployments.apps", web(1))
            await holds(lambda: running(scene.plane) == 1, autoscaler, PATIENCE)
            await holds(lambda: scene.aws.desired("small") == 0, autoscaler, PATIENCE)

    asyncio.run(main())
    assert scene.writes()[0] == ("small", "1")
    assert sorted(scene.writes()[1:]) == [("large", "1"), ("small", "0")]


def test_capacity_that_comes_late_is_not_requested_again(scene: Scene) -> None:
    """The group's Launch process is suspended for a while: the first request is the only one."""
    scene.aws.create_group("web")
    scene.aws.suspend("web", "Launch")

    async def main() -> None:
        async with scene.stand_ins() as api, scene.autoscaler() as autoscaler:
            await api.create("deployments.apps", web(2))
            await holds(lambda: scene.aws.desired("web") == 2, autoscaler, PATIENCE)
            described = len(scene.aws.actions("DescribeAutoScalingGroups"))
            await holds(lambda: len(scene.aws.actions("DescribeAutoScalingGroups")) > described, autoscaler, PATIENCE)
            scene.aws.release("web")
            await holds(lambda: running(scene.plane) == 2, autoscaler, PATIENCE)

    asyncio.run(main())
    assert scene.writes() == [("web", "2")]


@pytest.mark.smoke
def test_throttled_requests_are_retried(scene: Scene) -> None:
    """Reads and writes that AWS throttles once succeed at the SDK's next attempt; nobody notices."""
    scene.aws.create_group("web")
    scene.aws.throttle("DescribeAutoScalingGroups", 1)
    scene.aws.throttle("SetDesiredCapacity", 1)

    async def main() -> None:
        async with scene.stand_ins() as api, scene.autoscaler() as autoscaler:
            await api.create("deployments.apps", web(1))
            await holds(lambda: running(scene.plane) == 1, autoscaler, PATIENCE)
            assert '"level": "error"' not in autoscaler.output(), autoscaler.output()[-3000:]

    asyncio.run(main())
    assert scene.writes() == [("web", "1")] * 2  # the second is the SDK's
    assert scene.aws.desired("web") == 1
    assert "FailedToScaleUpGroup" not in scene.reasons()


def test_a_group_backs_off_while_aws_throttles(scene: Scene) -> None:
    """The error has AWS's code, the group backs off, and it grows when AWS accepts requests again."""
    scene.aws.create_group("web")
    refusal = scene.aws.throttle("SetDesiredCapacity", 1_000_000)

    async def main() -> None:
        flags = ("--initial-node-group-backoff-duration=2s", "--max-node-group-backoff-duration=4s")
        async with scene.stand_ins() as api, scene.autoscaler(*flags) as autoscaler:
            await api.create("deployments.apps", web(1))
            await holds(lambda: "Throttling" in autoscaler.output(), autoscaler, PATIENCE)
            assert scene.aws.desired("web") == 0
            scene.aws.accept(refusal)
            await holds(lambda: running(scene.plane) == 1, autoscaler, PATIENCE)

    asyncio.run(main())
    assert {*scene.writes()} == {("web", "1")}
    assert scene.aws.desired("web") == 1


def test_expired_credentials_lose_no_scale_up(scene: Scene) -> None:
    """While the session's credentials are expired nothing changes and the log names the error; then the pods get their
    nodes, once."""
    scene.aws.create_group("web")

    async def main() -> None:
        flags = ("--initial-node-group-backoff-duration=2s", "--max-node-group-backoff-duration=4s")
        async with scene.stand_ins() as api, scene.autoscaler(*flags) as autoscaler:
            await holds(lambda: scene.aws.actions("DescribeAutoScalingGroups"), autoscaler, PATIENCE)
            expired = scene.aws.expire_credentials()
            await api.create("deployments.apps", web(2))
            await holds(lambda: "ExpiredToken" in autoscaler.output(), autoscaler, PATIENCE)
            assert scene.aws.desired("web") == 0
            assert scene.aws.instances("web") == []
            scene.aws.accept(expired)
            await holds(lambda: running(scene.plane) == 2, autoscaler, PATIENCE)

    asyncio.run(main())
    assert {*scene.writes()} == {("web", "2")}
    assert scene.aws.desired("web") == 2


def test_expired_credentials_lose_no_deletion(scene: Scene) -> None:
    """An instance that could not be terminated keeps its node without the deletion taint, and ends when the credentials
    are renewed. The size shrinks by one."""
    scene.aws.create_group("web", minimum=1, desired=2)

    async def main() -> None:
        async with scene.stand_ins() as api:
            await until(lambda: len(nodes(scene.plane)) == 2)
            await api.create("deployments.apps", web(1, cpu="600m"))
            await until(lambda: running(scene.plane) == 1)
            expired = scene.aws.refuse(WRITES[1], "ExpiredToken", "The security token is expired", status=403)
            flags = ("--scale-down-delay-after-failure=1s",)
            async with scene.autoscaler(*flags) as autoscaler:
                await holds(lambda: "ExpiredToken" in autoscaler.output(), autoscaler, PATIENCE)
                assert scene.aws.desired("web") == 2
                scene.aws.accept(expired)
                await holds(lambda: len(nodes(scene.plane)) == 1, autoscaler, PATIENCE)
                await holds(lambda: running(scene.plane) == 1, autoscaler, PATIENCE)

    asyncio.run(main())
    assert scene.aws.desired("web") == 1
    (node,) = nodes(scene.plane)
    taints = {taint["key"] for taint in node["spec"].get("taints", ())}
    assert "ToBeDeletedByClusterAutoscaler" not in taints


@pytest.mark.smoke
def test_a_program_without_valid_credentials_does_not_start(scene: Scene) -> None:
    """As upstream. The error is AWS's."""
    scene.aws.create_group("web")
    scene.aws.expire_credentials()
    autoscaler = scene.start()
    assert autoscaler.process.wait(PATIENCE) == 2
    assert "DescribeAutoScalingGroups: ExpiredToken: The security token" in autoscaler.output()
    assert "Traceback" not in autoscaler.output()
    assert scene.writes() == []
