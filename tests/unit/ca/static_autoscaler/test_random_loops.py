"""Loop after loop in a world where anything may be refused, be late, or have happened although it was refused.

Nothing is lost, nothing is done twice, every request ends, and a state that goes through JSON between loops is as good
as one that was kept. Each example is 30 random loops and 24 quiet ones; the ``thorough`` profile runs 50
of them: 2,700 loops.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from random import Random
from typing import Any, Final, get_args, get_type_hints

from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from builders import N0, container, node, owner, pod, template
from ca_loops import Cloud, Life
from ca_world import NOT_FOUND
from kscale import ca
from kscale.ca.legacy.run_once import LegacyLoopAction
from kscale.ca.nodes import TO_BE_DELETED_TAINT, has_taint, is_ready
from kscale.ca.provisioning_requests import BEST_EFFORT_ATOMIC_CLASS, CHECK_CAPACITY_CLASS
from kscale.ca.scale_down.actuation.batch_deletion import delete_nodes_async
from kscale.ca.static_autoscaler.loop import LoopAction
from kscale.effects import (
    LEGAL_OUTCOMES,
    SECOND,
    Action,
    ApiError,
    Create,
    CreateGroup,
    DecreaseTargetSize,
    Delete,
    DeleteGroup,
    DeleteNodes,
    Discover,
    Emit,
    Evict,
    Get,
    GetMetric,
    GetPrices,
    GetScale,
    GetUnstructured,
    InBackground,
    IncreaseSize,
    Moment,
    Observe,
    Patch,
    Preview,
    Prices,
    PutScale,
    QueryPrometheus,
    Ranking,
    RankOptions,
    ReadStores,
    Resize,
    Together,
    Wait,
    Within,
    WriteStatus,
    from_text,
    to_text,
)
from kscale.effects.actions import ALREADY_EXISTS, CONFLICT
from kscale.objects.api.cluster_autoscaler import (
    PodSet,
    PodTemplateRef,
    ProvisioningRequest,
    ProvisioningRequestSpec,
    ProvisioningRequestStatus,
)
from kscale.objects.api.core import Pod, PodSpec, PodTemplate, PodTemplateSpec
from kscale.objects.api.meta import Condition, ObjectMeta
from kscale.objects.conditions import find
from kscale.objects.nodegroup import InstanceError, InstanceStatus, NodeGroup

MINUTE = 60 * SECOND
DAY = 24 * 60 * MINUTE
WEB = owner("ReplicaSet", "web", "apps/v1")
SIZES = {"small": 1000, "large": 3000, "made": 6000, "spare": 2000}
ON_DEMAND = ("made", "spare")
"""Groups that are made when they are wanted, and go when they are not."""
NO_LUCK = ApiError("no luck", reason="InternalError")
TEMPLATE = PodTemplate(
    metadata=ObjectMeta(name="web", namespace="shop"),
    template=PodTemplateSpec(spec=PodSpec(containers=[container(300, 1)])),
)
LOOPS = 30
MANY = settings().max_examples
FLAGS: dict[str, Any] = {
    "scale_down_unneeded_time": timedelta(seconds=30),
    "scale_down_utilization_threshold": 0.8,
    "scale_down_unready_time": timedelta(minutes=3),
    "scale_down_delay_after_add": timedelta(seconds=5),
    "scale_down_delay_after_failure": timedelta(seconds=5),
    "max_node_provision_time": timedelta(minutes=4),
    "max_node_startup_time": timedelta(minutes=3),
    "initial_node_group_backoff_duration": timedelta(minutes=2),
    "max_node_group_backoff_duration": timedelta(minutes=4),
    "unremovable_node_recheck_timeout": timedelta(seconds=30),
    "skip_nodes_with_custom_controller_pods": False,
    "ok_total_unready_count": 50,
    "max_drain_parallelism": 2,
    "parallel_scale_up": True,
    "balance_similar_node_groups": True,
    "node_autoprovisioning_enabled": True,
    "enable_provisioning_requests": True,
}

IN_LOOPS: Final = {
    *get_args(LoopAction),
    *get_args(LegacyLoopAction),
    *get_args(get_args(get_type_hints(delete_nodes_async)["return"])[0]),
}
"""What a loop asks for, and the deletions that it starts in the background."""
NOT_IN_LOOPS: Final = {
    GetUnstructured: "asked by the controller of capacity buffers, beside the loop",
    Discover: "likewise",
    Preview: "likewise",
    GetScale: "likewise, and by HPA and VPA",
    PutScale: "done by HPA",
    GetMetric: "asked by HPA and VPA",
    QueryPrometheus: "asked by VPA",
    ReadStores: "asked by HPA, after slow answers",
    Resize: "done by VPA",
    Within: "of VPA's rounds: nothing in a loop has a context with a deadline",
}
NEVER_REFUSED: Final = {
    Emit: "reports are taken",
    Observe: "reports are taken",
    Together: "a runner's own: what its machines ask for is refused, and takes its time",
    InBackground: "likewise",
    Wait: "a runner's own: it ends with an error only with the process (test_run_once_rows.py holds that)",
}


class Storm(Cloud):
    """A cloud with machines that take their time, fail, or never register, under a scheduler that works all the time.

    An action may be refused, take its time, or be refused and happen all the same, at once or later (of a question: its
    refusal takes time). ``calm``: from now on everything succeeds at once.
    """

    def __init__(self, seed: int) -> None:
        groups = [
            NodeGroup(
                id=name,
                min_size=0 if name in ON_DEMAND else 1,
                max_size=6,
                nodes=[] if name in ON_DEMAND else [f"{name}-0"],
                template=template(node(name, cpu, 4000)),
                autoprovisioned=name in ON_DEMAND,
                exists=name not in ON_DEMAND,
            )
            for name, cpu in SIZES.items()
        ]
        there = [name for name in SIZES if name not in ON_DEMAND]
        super().__init__(groups, [node(f"{name}-0", SIZES[name], 4000, ready=True) for name in there])
        self.random = Random(seed)
        self.calm = False
        self.failing: dict[str, str] = {}
        self.sizes = Counter(SIZES)
        self.replicas = 0
        self.fate = self.draw
        self.life: Life
        self.grown = self.boot
        self.trace: list[tuple[Moment, str]] = []
        self.action_counts: Counter[type] = Counter()
        self.ways: Counter[tuple[type, str]] = Counter()
        self.surviving: set[str] = set()

    # -- the cloud -------------------------------------------------------------------------------------------------

    def draw(self, action: Action, now: Moment) -> tuple[ApiError | None, int, bool]:
        kind, random = type(action), self.random
        if isinstance(action, RankOptions):  # its nodes and pods are as long as the cluster
            self.trace.append((now, repr([option.group for option in action.options])))
        elif isinstance(action, GetPrices):
            self.trace.append((now, repr([each.name for each in action.nodes])))
        else:
            self.trace.append((now, repr(action)))
        if isinstance(action, DeleteNodes):
            for name in action.nodes:
                self.may_go(name, now)
        if self.calm:
            return None, 0, True
        early = 0.5 / (1 + self.action_counts[kind])  # what is asked for but seldom has its share
        self.action_counts[kind] += 1
        takes = random.randrange(1, 8) * SECOND if random.random() < 0.2 + early else 0
        if random.random() > 0.12 + early:
            if takes:
                self.ways[kind, "delayed"] += 1
            return None, takes, True
        if isinstance(action, Get | Patch) and action.kind == "Node":
            self.surviving.add(action.name)
        late = random.random() < 0.4
        self.ways[kind, "late" if late else "refused"] += 1
        if late and LEGAL_OUTCOMES[kind].reads:
            takes = takes or 5 * SECOND
        elif late:
            time = self.life.time
            time.at(now + random.randrange(3) * 10 * SECOND, lambda: self.happens_late(action))
        return NO_LUCK, takes, False

    def happens_late(self, action: Action) -> None:
        self._do(action, self.life.time.now)

    def view(self) -> list[NodeGroup]:
        error = InstanceError(class_="OutOfResource", code="STOCKOUT", message="none left")
        return [
            replace(
                group,
                instance_status={
                    name: InstanceStatus(state="creating", error=error)
                    for name in self.members[group.id]
                    if self.failing.get(name)
                },
            )
            for group in super().view()
        ]

    def boot(self, group: str, count: int) -> None:
        time, random = self.life.time, self.random
        for _ in range(count):
            self.sizes[group] += 1
            name = f"{group}-{self.sizes[group]}"
            luck = 1.0 if self.calm else random.random()
            if luck < 0.15:
                continue  # the cloud forgets it: there is never a machine
            appears = time.now + random.randrange(1, 30) * SECOND
            time.at(appears, lambda name=name, luck=luck: self.appear(group, name, luck))

    def appear(self, group: str, name: str, luck: float) -> None:
        if len(self.members[group]) >= self.targets[group]:
            return  # nobody wants it any more
        self.members[group].append(name)
        if luck < 0.2:
            self.failing[name] = "stockout"
        elif luck > 0.25:  # else it never registers
            time = self.life.time
            time.at(time.now + self.random.randrange(10, 60) * SECOND, lambda: self.register(group, name))

    def register(self, group: str, name: str) -> None:
        if name not in self.members[group]:
            return
        time = self.life.time
        self.nodes[name] = node(name, SIZES[group], 4000, ready=False, creation_timestamp=to_text(time.now))
        time.at(time.now + self.random.randrange(5, 60) * SECOND, lambda: self.be_ready(name))

    def be_ready(self, name: str) -> None:
        if name in self.nodes:
            ready = [Condition(type="Ready", status="True", last_transition_time=to_text(self.life.time.now))]
            old = self.nodes[name]
            self.nodes[name] = replace(old, status=replace(old.status, conditions=ready))

    def _do(self, action: Action, now: Moment) -> tuple[Any, ApiError | str | None]:
        refusal = self._stands_against(action, now)
        if refusal is not None:
            return None, refusal
        match action:
            case RankOptions(options=options):
                names: list[str | None] = [each.group for each in options]
                if not self.calm:
                    self.random.shuffle(names)
                    names = [*names[self.random.randrange(2) :], *self.random.choice(([], [None], ["unheard-of"]))]
                return Ranking(groups=tuple(names)), None
            case GetPrices(nodes=nodes, pods=pods):
                return Prices(nodes=(*map(self.price, nodes),), pods=(*map(self.price, pods),)), None
            case DeleteGroup(group=group):
                self.calls.append(("delete", group))
                self.groups[group] = replace(self.groups[group], exists=False)
                return None, None
            case WriteStatus(object=written):
                version = str(int(written.metadata.resource_version or 0) + 1)
                metadata = replace(written.metadata, resource_version=version)
                self.objects[written.key] = replace(written, metadata=metadata)
                return version, None
        before = {group: set(members) for group, members in self.members.items()}
        result = super()._do(action, now)
        if isinstance(action, DeleteNodes):
            for group, members in before.items():
                for name in members - set(self.members[group]):
                    self.failing.pop(name, None)
                    time = self.life.time
                    deleted_at = max(time.now, now) + self.random.randrange(1, 30) * SECOND
                    time.at(deleted_at, lambda name=name: self.nodes.pop(name, None))
        if isinstance(action, IncreaseSize | DecreaseTargetSize):
            assert 0 <= self.targets[action.group] <= self.groups[action.group].max_size
        return result

    def price(self, _what: object) -> float | ApiError:
        return NO_LUCK if not self.calm and self.random.random() < 0.2 else self.random.random()

    def _stands_against(self, action: Action, now: Moment) -> ApiError | None:
        """Why the world itself refuses it."""
        match action:
            case Patch(kind="Node", name=name):
                return None if name in self.nodes else NOT_FOUND
            case Patch(kind="ConfigMap", name=name):
                return None if name in self.config_maps else NOT_FOUND
            case Create(object=made):
                return ApiError("it is there", reason=ALREADY_EXISTS) if made.name in self.config_maps else None
            case Delete(namespace=namespace, name=name):
                return None if f"{namespace}/{name}" in self.objects else NOT_FOUND
            case WriteStatus(object=written):
                there = self.objects.get(written.key)
                if there is None:
                    return NOT_FOUND
                same = there.metadata.resource_version == written.metadata.resource_version
                return None if same else ApiError("it has been changed", reason=CONFLICT)
            case Evict(namespace=namespace, name=name):
                key = f"{namespace}/{name}"
                return None if key in self.pods and not self._is_gone(key, now) else NOT_FOUND
            case CreateGroup(group=group):
                return ApiError("it exists") if self.groups[group].exists else None
            case DeleteGroup(group=group):
                return ApiError("it is in use") if self.targets[group] or self.members[group] else None
            case IncreaseSize(group=group) | DecreaseTargetSize(group=group):
                return None if self.groups[group].exists else ApiError("there is no such group")
        return None

    def may_go(self, name: str, now: Moment) -> None:
        """A node that has an object was marked before, and nobody who would be missed runs there."""
        if name in self.nodes:
            assert has_taint(self.nodes[name], TO_BE_DELETED_TAINT), name
            assert self.on(name, now) == [], name

    # -- the pods --------------------------------------------------------------------------------------------------

    def on(self, name: str, now: Moment) -> list[str]:
        return [key for key, each in self.pods.items() if each.spec.node_name == name and not self._is_gone(key, now)]

    def tick(self) -> None:
        """Controllers and the scheduler, every seven seconds."""
        now = self.life.time.now
        for key in [key for key in self.pods if self._is_gone(key, now)]:
            lost = self.pods.pop(key)
            self.add(lost.spec.containers[0].resources.requests["cpu"].milli_value())
        for key, each in list(self.pods.items()):
            if each.spec.node_name and each.spec.node_name not in self.nodes:
                del self.pods[key]
                self.add(each.spec.containers[0].resources.requests["cpu"].milli_value())
        for each in self.pods.values():
            if not each.spec.node_name:
                self.schedule(each, now)
        self.life.time.at(now + 7 * SECOND, self.tick)

    def schedule(self, each: Pod, now: Moment) -> None:
        need = cpu(each)
        places = list(self.nodes.items())
        self.random.shuffle(places)
        for name, place in places:
            if not is_ready(place) or place.spec.unschedulable or has_taint(place, TO_BE_DELETED_TAINT):
                continue
            room = SIZES[name.partition("-")[0]] - sum(cpu(self.pods[key]) for key in self.on(name, now))
            if need <= room:
                each.spec.node_name = name
                each.status.conditions = []
                return
        each.status.conditions = [Condition(type="PodScheduled", status="False", reason="Unschedulable")]

    def add(self, amount: int) -> None:
        self.replicas += 1
        created = pod(
            f"p{self.replicas}", amount, 1, owner_references=WEB, creation_timestamp=to_text(self.life.time.now)
        )
        self.pods[created.key] = created

    def change(self) -> None:
        """Somebody's doing."""
        luck = self.random.random()
        if luck < 0.25:
            for _ in range(self.random.randrange(1, 9)):
                self.add(self.random.choice((100, 200, 400, 900, 1500, 2500, 5000)))
        elif luck < 0.5:
            for key in self.random.sample(sorted(self.pods), len(self.pods) // 3):
                del self.pods[key]
        if self.random.random() < 0.3:
            self.request(
                self.random.choice((CHECK_CAPACITY_CLASS, BEST_EFFORT_ATOMIC_CLASS)), ended=self.random.random() < 0.8
            )
        if self.random.random() < 0.3:
            self.config_maps.clear()

    def request(self, of: str, *, ended: bool) -> None:
        """A provisioning request; one that has ``ended`` did so more than a week ago."""
        now = self.life.time.now
        self.replicas += 1
        over = Condition(type="Provisioned", status="True", last_transition_time=to_text(now - 8 * DAY))
        name = f"r{self.replicas}"
        created = ProvisioningRequest(
            api_version="autoscaling.x-k8s.io/v1",
            kind="ProvisioningRequest",
            metadata=ObjectMeta(name=name, namespace="shop", uid=name, creation_timestamp=to_text(now)),
            spec=ProvisioningRequestSpec(
                pod_sets=[PodSet(pod_template_ref=PodTemplateRef(name="web"), count=self.random.randrange(1, 4))],
                provisioning_class_name=of,
            ),
            status=ProvisioningRequestStatus(conditions=[over] if ended else []),
        )
        self.objects[created.key] = created


def cpu(each: Pod) -> int:
    requests = each.spec.containers[0].resources.requests
    assert requests is not None
    return requests["cpu"].milli_value()


def is_old(each: ProvisioningRequest, now: Moment) -> bool:
    ended = find(each.status.conditions, "Provisioned")
    return ended is not None and from_text(ended.last_transition_time) < now - 7 * DAY


def begun(seed: int, *, saved: bool = True) -> Storm:
    storm = Storm(seed)
    expander = "grpc,least-waste" if seed % 2 else "grpc,price,least-waste"
    storm.life = Life(storm, N0, saved=saved, expander=expander, **FLAGS)
    storm.life.others = [TEMPLATE]
    storm.tick()
    return storm


def stormy(storm: Storm, loops: int) -> Moment:
    now = storm.life.time.now
    known = set(storm.nodes)
    for _ in range(loops):
        storm.change()
        now = max(now, storm.life.time.now) + storm.random.randrange(10, 60) * SECOND
        report = storm.life.loop(now)
        known |= set(storm.nodes)
        names = set(storm.life.state.deletions.empty) | set(storm.life.state.deletions.drained)
        assert report.error is None or report.error.message
        assert names <= known  # nodes that are there, or were
    return max(now, storm.life.time.now)


@settings(max_examples=MANY // 20 if MANY > 100 else 2)
@given(st.integers(0, 2**32))
@example(33)  # a group is left without a machine, and with a target
def test_everything_ends_well(seed: int) -> None:
    storm = begun(seed)
    now = stormy(storm, LOOPS)
    storm.calm = True
    for number in range(24):
        if number == 20:  # a node that could not be freed of its taint keeps it until the process begins anew
            assert {
                name for name, each in storm.nodes.items() if has_taint(each, TO_BE_DELETED_TAINT)
            } <= storm.surviving
            storm.life.state = ca.reset_for_new_process(storm.life.state)
        now = max(now, storm.life.time.now) + 2 * MINUTE
        storm.life.loop(now)
    state = storm.life.state
    assert state.cluster.scale_up_requests == {}
    # Without force no group falls below its minimum: a machine that never registered stays there.
    strange = {name: item.group for name, item in state.cluster.unregistered.items()}
    assert all(storm.targets[group] == storm.groups[group].min_size for group in strange.values())
    assert state.deletions == ca.LoopState().deletions
    down = [call for call in storm.calls if call[0] == "down"]
    assert len(down) == len(set(down))
    assert len(storm.evicted) == len(set(storm.evicted))
    assert storm.failing == {}
    # Upstream does not look at the size of a group of which there is no machine (updateIncorrectNodeGroupSizes: no
    # readiness): a cloud that has lost the last one keeps its target.
    sizes = {name: len(members) for name, members in storm.members.items() if members}
    assert sizes == {name: storm.targets[name] for name in sizes}
    for group in storm.groups.values():
        assert group.min_size <= storm.targets[group.id] <= group.max_size
        assert not group.autoprovisioned or group.exists == (storm.targets[group.id] > 0)
    members = {name for names in storm.members.values() for name in names}
    assert set(storm.nodes) == members - set(strange)
    assert [name for name, each in storm.nodes.items() if has_taint(each, TO_BE_DELETED_TAINT)] == []
    # Such a group is not healthy either (IsNodeGroupHealthy), so it does not grow.
    lost = {name for name, names in storm.members.items() if storm.targets[name] and not names}
    full = {name for name, group in storm.groups.items() if storm.targets[name] == group.max_size}
    for each in storm.pods.values():
        assert each.spec.node_name or {name for name, size in SIZES.items() if size >= cpu(each)} <= full | lost
    requests = [each for each in storm.objects.values() if isinstance(each, ProvisioningRequest)]
    assert all(
        find(each.status.conditions, "Provisioned") or find(each.status.conditions, "Failed") for each in requests
    )
    assert [each.name for each in requests if is_old(each, now)] == []
    assert storm.config_maps.keys() == {"cluster-autoscaler-status"}


@settings(max_examples=MANY // 60 if MANY > 100 else 1)
@given(st.integers(0, 2**32))
def test_saved_state_equals_live_state(seed: int) -> None:
    one, other = begun(seed, saved=True), begun(seed, saved=False)
    stormy(one, LOOPS)
    stormy(other, LOOPS)
    assert one.trace == other.trace
    assert one.life.state == other.life.state


def test_storms_are_storms() -> None:
    """What the examples above are made of does happen: each action of a loop, in each of the three ways."""
    assert not IN_LOOPS & NOT_IN_LOOPS.keys()
    assert IN_LOOPS | NOT_IN_LOOPS.keys() == LEGAL_OUTCOMES.keys()
    assert {kind for kind, answer in LEGAL_OUTCOMES.items() if not answer.refusable} - {Within, ReadStores} == (
        NEVER_REFUSED.keys() - {Wait}
    )
    missing = {(kind, way) for kind in IN_LOOPS - NEVER_REFUSED.keys() for way in ("refused", "delayed", "late")}
    calls, evicted = {"up", "down", "target", "create", "delete"}, False
    for seed in (32, 44, 17, *range(60)):  # the first three do, or 20 of the others
        storm = begun(seed)
        stormy(storm, LOOPS)
        calls -= {call[0] for call in storm.calls}
        missing -= storm.ways.keys()
        evicted |= bool(storm.evicted)
        if not missing and not calls and evicted:
            return
    raise AssertionError([(kind.__name__, way) for kind, way in missing], calls, evicted)
