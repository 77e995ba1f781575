"""The packing engine through its binding only: arrays in, arrays out, against a few obvious lines of Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale._native import _engine
from kscale._native._engine import ORDINALS
from kscale.errors import NativeError

Problem = dict[str, Any]


def build(p: Problem) -> _engine.Engine:
    """An engine with one zone key, one hostname key, a spread row and an anti-affinity row."""
    free = np.array(p["free"], dtype=np.int64).reshape(2, -1)
    n = free.shape[1]
    engine = _engine.Engine(2, 2, 1)
    engine.set_statics(np.array(p["static"], dtype=np.uint16).reshape(2, 3))
    engine.append_nodes(
        free,
        np.array(p["slots"], dtype=np.int64),
        np.array(p["classes"], dtype=np.int32),
        np.array(p["cordoned"], dtype=np.uint8),
    )
    zone = engine.add_key(np.array(p["zones"], dtype=np.int32), 3)
    host = engine.add_key(np.arange(n, dtype=np.int32), n)
    engine.set_eligibility(np.ones((1, 3), dtype=np.uint8))
    spread = engine.add_row(zone, np.zeros(3, dtype=np.int64), eligibility=0)
    anti = engine.add_row(host, np.zeros(n, dtype=np.int64))
    driver = engine.add_driver(np.ones(n, dtype=np.int32))
    claim = engine.add_claim()
    of_kind: dict[str, dict[str, Any] | None] = {
        "plain": None,
        "spread": {"spread": [(spread, p["skew"], 1, 1)], "spread_touch": [spread]},
        "anti": {"own_anti": [anti], "touch": [anti]},
        "port": {"ports": [(0, -1)]},
        "specific": {"ports": [(0, 0)]},
        "disk": {"disks": [(0, False)], "claims": [claim], "rwop": [claim]},
        "volume": {"volumes": [(0, driver, -1), (1, driver, -1)]},
    }
    extras = [of_kind[kind] for kind in p["kinds"]]
    count = len(extras)
    request = np.array(p["requests"], dtype=np.int64).reshape(count, 2)
    engine.add_classes(
        request,
        request,
        np.array(p["rows"], dtype=np.int32),
        np.zeros(count, dtype=np.uint8),
        np.array([kind == "spread" for kind in p["kinds"]], dtype=np.uint8),
        extras,
    )
    return engine


class Slow:
    """The same rules without any cleverness."""

    def __init__(self, p: Problem) -> None:
        self.p = p
        self.free = [list(row) for row in p["free"]]
        self.slots = list(p["slots"])
        self.pods: list[list[str]] = [[] for _ in p["slots"]]
        self.cursor = 0

    def fits(self, c: int, n: int) -> bool:
        p, kind = self.p, self.p["kinds"][c]
        if p["static"][p["rows"][c]][p["classes"][n]]:
            return False
        if kind in ("port", "specific") and any(k in ("port", "specific") for k in self.pods[n]):
            return False
        if self.slots[n] < 1:
            return False
        if any(want > 0 and want > self.free[r][n] for r, want in enumerate(p["requests"][c])):
            return False
        if kind == "anti" and "anti" in self.pods[n]:
            return False
        if kind == "spread":
            if p["zones"][n] < 0:
                return False
            counts = {z: 0 for z in p["zones"] if z >= 0}
            for m, pods in enumerate(self.pods):
                if p["zones"][m] >= 0:
                    counts[p["zones"][m]] += pods.count("spread")
            return counts[p["zones"][n]] + 1 - min(counts.values()) <= p["skew"]
        return True

    def any_node(self, c: int) -> int:
        n = len(self.slots)
        for step in range(n):
            node = (self.cursor + 1 + step) % n
            if not self.p["cordoned"][node] and self.fits(c, node):
                self.cursor = node
                return node
        return -1

    def place(self, c: int, n: int) -> None:
        self.pods[n].append(self.p["kinds"][c])
        self.slots[n] -= 1
        for r, want in enumerate(self.p["requests"][c]):
            self.free[r][n] -= want


@st.composite
def problems(draw: st.DrawFn, *, storage: bool = False) -> Problem:
    n = draw(st.integers(1, 80))
    known = ["plain", "spread", "anti", "port", "specific", *(["disk", "volume"] if storage else [])]
    kinds = draw(st.lists(st.sampled_from(known), min_size=1, max_size=5))

    def column(elements: st.SearchStrategy[int]) -> list[int]:
        return draw(st.lists(elements, min_size=n, max_size=n))

    return {
        "free": [column(st.integers(-1, 9)), column(st.integers(0, 9))],
        "slots": column(st.integers(0, 4)),
        "classes": column(st.integers(0, 2)),
        "cordoned": column(st.sampled_from([0, 0, 0, 1])),
        "zones": column(st.integers(-1, 2)),
        "static": [draw(st.lists(st.sampled_from([0, 0, 1 << 3, 1 << 10]), min_size=3, max_size=3)) for _ in range(2)],
        "kinds": kinds,
        "rows": draw(st.lists(st.integers(0, 1), min_size=len(kinds), max_size=len(kinds))),
        "requests": [[draw(st.integers(0, 3)), draw(st.integers(0, 3))] for _ in kinds],
        "skew": draw(st.integers(1, 2)),
        "pods": draw(st.lists(st.integers(0, len(kinds) - 1), max_size=60)),
    }


@given(problems())
def test_scans_and_placements_match_the_slow_rules(problem: Problem) -> None:
    engine, slow = build(problem), Slow(problem)
    for c in problem["pods"]:
        expected = slow.any_node(c)
        assert engine.any_node(c) == expected
        assert engine.cursor == slow.cursor
        if expected >= 0:
            slow.place(c, expected)
            engine.place(c, expected)
        assert [engine.check(c, n) == 0 for n in range(engine.nodes)] == [slow.fits(c, n) for n in range(engine.nodes)]


@given(problems(storage=True), st.data())
def test_revert_restores_the_engine(problem: Problem, data: st.DataObject) -> None:
    engine = build(problem)
    template = _engine.Template(
        engine, node_class=0, unschedulable=False, slots=3, free=[5, 5], domain=[1, -2], pods=[0], limits=[2]
    )
    sums = []
    placed: list[tuple[int, int]] = []
    for step in data.draw(
        st.lists(st.sampled_from(["fork", "revert", "commit", "place", "unplace", "add"]), max_size=25)
    ):
        if step == "fork":
            sums.append((engine.checksum(), list(placed)))
            engine.fork()
        elif step == "revert" and sums:
            engine.revert()
            before, placed = sums.pop()
            assert engine.checksum() == before
        elif step == "commit" and sums:
            engine.commit()
            sums.pop()
        elif step == "place":
            node = data.draw(st.integers(0, engine.nodes - 1))
            pod = data.draw(st.integers(0, engine.n_classes - 1))
            engine.place(pod, node)
            placed.append((pod, node))
        elif step == "unplace" and placed and problem["kinds"][placed[-1][0]] not in ("port", "specific"):
            before = engine.checksum()
            engine.fork()
            engine.unplace(*placed[-1])
            if data.draw(st.booleans()):
                engine.place(*placed[-1])
                assert engine.checksum() == before
            engine.revert()
            assert engine.checksum() == before
        elif step == "add":
            engine.add(template, engine.nodes)
    while sums:
        engine.revert()
        assert engine.checksum() == sums.pop()[0]


@given(problems(storage=True))
def test_unplace_is_the_inverse_of_place(problem: Problem) -> None:
    engine = build(problem)
    before = engine.checksum()
    counted = [i for i, c in enumerate(problem["pods"]) if problem["kinds"][c] not in ("port", "specific")]
    chosen = [problem["pods"][i] for i in counted]
    for i, c in enumerate(chosen):
        engine.place(c, i % engine.nodes)
    for i, c in reversed(list(enumerate(chosen))):
        engine.unplace(c, i % engine.nodes)
    assert engine.checksum() == before


@given(problems(), st.booleans())
def test_a_vacated_node_is_one_that_was_emptied_and_removed(problem: Problem, honoured: bool) -> None:
    vacated, emptied = build(problem), build(problem)
    counted = [c for c in problem["pods"] if problem["kinds"][c] not in ("port", "specific")]
    for engine in (vacated, emptied):
        for c in counted:
            engine.place(c, 0)
    vacated.set_ghost_rows(np.full(vacated.n_rows, honoured, dtype=np.uint8))
    before = vacated.checksum()
    vacated.fork()
    vacated.vacate(0, np.array(counted, dtype=np.int32))
    assert vacated.alive(0)
    vacated.remove_ghost(0)
    emptied.fork()
    for c in counted:
        emptied.unplace(c, 0)
    emptied.remove_node(0)
    assert vacated.checksum() == emptied.checksum()
    assert not vacated.alive(0)
    vacated.revert()
    assert vacated.checksum() == before
    assert vacated.alive(0)


@given(problems(storage=True), st.sampled_from([1, 2, 3, 7]))
def test_verdicts_are_checks_for_any_thread_count(problem: Problem, threads: int) -> None:
    engine = build(problem)
    for i, c in enumerate(problem["pods"]):
        engine.place(c, i % engine.nodes)
    pods = np.arange(engine.n_classes, dtype=np.int32)
    verdicts = engine.verdicts(pods, threads=threads)
    assert verdicts.tolist() == [[engine.check(c, n) for n in range(engine.nodes)] for c in pods]
    for n in range(engine.nodes):
        assert engine.fits(np.array(pods, np.int32), n).tolist() == [engine.check(c, n) == 0 for c in pods]


@given(problems(storage=True))
def test_pods_that_are_there_count_as_pods_that_were_placed(problem: Problem) -> None:
    """But for room, which columns of free amounts know."""
    free = {**problem, "requests": [[0, 0]] * len(problem["kinds"])}
    placed, there = build(free), build(free)
    nodes = [i % placed.nodes for i in range(len(free["pods"]))]
    for c, node in zip(free["pods"], nodes, strict=True):
        placed.place(c, node)
    there.populate(np.array(free["pods"], dtype=np.int32), np.array(nodes, dtype=np.int32))
    for row in range(placed.n_rows):
        (counts, registered, *shape), expected = there.row(row), placed.row(row)
        assert counts.tolist() == expected[0].tolist()
        assert registered.tolist() == expected[1].tolist()
        assert tuple(shape) == expected[2:]
    assert there.claim_users(0) == placed.claim_users(0)
    for plugin in ORDINALS.values():
        for c in range(placed.n_classes):
            for node in range(placed.nodes):
                assert there.check_alone(plugin, c, node) == placed.check_alone(plugin, c, node)


SMALL: Problem = {
    "free": [[4, 4], [4, 4]], "slots": [2, 2], "classes": [0, 1], "cordoned": [0, 0], "zones": [0, 1],
    "static": [[0, 0, 0], [0, 0, 0]], "kinds": ["plain"], "rows": [0], "requests": [[1, 1]], "skew": 1, "pods": [],
}  # fmt: skip


@pytest.mark.parametrize(
    "call",
    [
        lambda e: e.check(1, 0),
        lambda e: e.fits(np.array([1], np.int32), 0),
        lambda e: e.fits(np.array([0], np.int32), 2),
        lambda e: e.check(0, 2),
        lambda e: e.check(-1, 0),
        lambda e: e.place(0, 99),
        lambda e: e.place(5, 0),
        lambda e: e.unplace(0, -1),
        lambda e: e.remove_node(2),
        lambda e: e.revert(),
        lambda e: e.commit(),
        lambda e: e.any_node(7),
        lambda e: e.any_node(0, np.ones(5, dtype=np.uint8)),
        lambda e: e.row(9),
        lambda e: e.total(0),
        lambda e: e.add_row(5, np.zeros(1, dtype=np.int64)),
        lambda e: e.add_row(0, np.zeros(50, dtype=np.int64)),
        lambda e: e.add_row(0, np.array([2**31 - 1])),  # a table of the counts there are was made of it: 8 GiB
        lambda e: e.add_row(0, np.array([-1])),
        lambda e: e.use_port(0, (9, 0)),
        lambda e: e.attach(0, 1, 1),
        lambda e: e.add_rows(*(np.array(v, np.int32) for v in ([0], [0, 0], [0]))),
        lambda e: e.add_rows(*(np.array([v], np.int32) for v in (9, -1, -1))),
        lambda e: e.add_rows(*(np.array([v], np.int32) for v in (0, 0, -1))),
        lambda e: e.add_rows(*(np.array([v], np.int32) for v in (0, -1, 1))),
        lambda e: e.populate(np.array([0], np.int32), np.array([2], np.int32)),
        lambda e: e.populate(np.array([1], np.int32), np.array([0], np.int32)),
        lambda e: e.populate(np.array([0], np.int32), np.array([0, 1], np.int32)),
        lambda e: e.check_alone(0, 0, 0),
        lambda e: e.check_alone(15, 0, 0),
        lambda e: e.check_alone(5, 0, 2),
        lambda e: e.set_classes(np.array([0, 9], dtype=np.int32)),
        lambda e: e.set_classes(np.array([0], dtype=np.int32)),
        lambda e: e.verdicts(np.array([3], dtype=np.int32)),
        lambda e: setattr(e, "cursor", -1),
        lambda e: _engine.Template(e, node_class=9, unschedulable=False, slots=1, free=[1, 1], domain=[0, 0]),
        lambda e: _engine.Template(e, node_class=0, unschedulable=False, slots=1, free=[1], domain=[0, 0]),
        lambda e: _engine.Template(e, node_class=0, unschedulable=False, slots=1, free=[1, 1], domain=[9, 0]),
        lambda e: e.add(good(build(SMALL))),
        lambda e: _engine.estimate(e, np.array([0], np.int32), np.array([0, 2], np.int32), good(e)),
        lambda e: _engine.estimate(e, np.array([0], np.int32), np.array([1, 1], np.int32), good(e)),
        lambda e: _engine.estimate(e, np.array([4], np.int32), np.array([0, 1], np.int32), good(e)),
        lambda e: _engine.try_schedule(e, *(np.array([0], np.int32),) * 4, np.array([0, 2], np.int32)),
        lambda e: _engine.try_schedule(
            e, *(np.array([v], np.int32) for v in (0, 9, -1, -1)), np.array([0, 1], np.int32)
        ),
    ],
)
def test_out_of_range_arguments_are_refused(call: Any) -> None:
    engine = build(SMALL)
    before = engine.checksum()
    with pytest.raises(NativeError):
        call(engine)
    assert engine.checksum() == before


@pytest.mark.parametrize(
    "extra",
    [
        {"ports": [(2, -1)]},
        {"ports": [(0, 1)]},
        {"ports": [(-1, -1)]},
        {"spread": [(1, 1, 1, 1)]},
        {"spread": [(2, 1, 1, 1)]},
        {"spread_touch": [1]},
        {"spread_touch": [2]},
        {"affinity_group": 0, "self_affine": False, "affinity": []},
        {"own_anti": [2]},
        {"blocked_by": [-1]},
        {"touch": [2]},
        {"rwop": [1]},
        {"claims": [1]},
        {"disks": [(-1, False)]},
        {"volumes": [(0, 1, -1)]},
        {"volumes": [(0, 0, 32)]},
        {"devices": True},
    ],
    ids=str,
)
def test_class_extras_must_exist_in_the_engine(extra: dict[str, Any]) -> None:
    """Row 1 counts no spread, and there are two rows, one claim, one driver, no group and no ledger."""
    engine = build(SMALL)
    one, none = np.zeros((1, 2), dtype=np.int64), np.zeros(1, dtype=np.uint8)
    with pytest.raises(NativeError):
        engine.add_classes(one, one, np.zeros(1, dtype=np.int32), none, none, [extra])
    assert engine.n_classes == 1


def test_extras_are_shared_and_replaced_for_later_engines_only() -> None:
    extras = _engine.Extras([None, {"ports": [(0, -1)]}])
    engines = []
    for _ in range(2):
        engine = build(SMALL)
        zeros, none = np.zeros((2, 2), dtype=np.int64), np.zeros(2, dtype=np.uint8)
        engine.add_classes(zeros, zeros, np.zeros(2, dtype=np.int32), none, none, extras)
        engine.use_port(0, (0, -1))
        engines.append(engine)
        extras.set(1, None)
    assert [engine.check(2, 0) for engine in engines] == [ORDINALS["NodePorts"], 0]
    assert len(extras) == 2
    with pytest.raises(NativeError):
        extras.set(2, None)


def good(engine: _engine.Engine) -> _engine.Template:
    return _engine.Template(
        engine, node_class=0, unschedulable=False, slots=1, free=[1, 1], domain=[0, -2], limits=[-1]
    )


def test_unplacing_an_unplaced_pod_can_be_reverted() -> None:
    for kind in ("disk", "volume", "spread", "anti"):
        engine = build({**SMALL, "kinds": [kind]})
        before = engine.checksum()
        engine.fork()
        engine.unplace(0, 1)
        engine.revert()
        assert engine.checksum() == before


def test_forced_placement_may_satisfy_another_pod() -> None:
    engine = build({**SMALL, "kinds": ["volume", "volume"], "rows": [0, 0], "requests": [[1, 1], [1, 1]]})
    assert [engine.any_node(0) for _ in range(3)] == [-1, -1, -1]  # two volumes, and room for one
    engine.place(1, 1)
    assert engine.any_node(0) == 1


def test_old_templates_are_refused() -> None:
    engine = build({**SMALL, "kinds": ["plain", "plain"], "rows": [0, 0], "requests": [[1, 1], [1, 1]]})
    template = _engine.Template(
        engine, node_class=0, unschedulable=False, slots=1, free=[1, 1], domain=[0, -2], pods=[1], limits=[-1]
    )
    with pytest.raises(NativeError, match="rows know"):
        engine.set_statics(np.zeros((2, 9), dtype=np.uint16))
    engine.reset_classes()
    with pytest.raises(NativeError, match="other classes"):
        engine.add(template)
    engine.fork()
    with pytest.raises(NativeError, match="outside forks"):
        good(engine)


def test_a_copy_may_have_the_host_name_of_a_node() -> None:
    engine = build({**SMALL, "kinds": ["anti"]})
    template = _engine.Template(
        engine, node_class=0, unschedulable=False, slots=1, free=[1, 1], domain=[0, -2], limits=[-1], named_key=1,
        taken={3: 0},
    )  # fmt: skip
    engine.place(0, 0)
    assert engine.check(0, engine.add(template, 2)) == 0
    assert engine.check(0, engine.add(template, 3)) != 0
    with pytest.raises(NativeError):
        _engine.Template(
            engine, node_class=0, unschedulable=False, slots=1, free=[1, 1], domain=[0, -2], limits=[-1], named_key=1,
            taken={3: 99},
        )  # fmt: skip


@given(
    nodes=st.sampled_from([63, 64, 65, 4_095, 4_096, 4_097, 9_000]),
    full=st.sampled_from([0.0, 0.9, 0.999]),
    skew=st.integers(1, 3),
    seed=st.integers(0, 1 << 16),
)
def test_cached_scan_results_follow_domain_counts(nodes: int, full: float, skew: int, seed: int) -> None:
    """A zone's count lets nodes in again that it kept out, and no others; new nodes are looked at as well."""
    draw = np.random.default_rng(seed)
    zone = draw.choice(3, nodes, p=[0.9, 0.09, 0.01]).astype(np.int32)
    slots = np.where(draw.random(nodes) < full, 0, draw.integers(1, 3, nodes))
    engine = _engine.Engine(1)
    engine.set_statics(np.zeros((1, 1), dtype=np.uint16))
    engine.append_nodes(
        np.full((1, nodes), 100), slots, np.zeros(nodes, dtype=np.int32), np.zeros(nodes, dtype=np.uint8)
    )
    key = engine.add_key(zone, 3)
    engine.set_eligibility(np.ones((1, 1), dtype=np.uint8))
    row = engine.add_row(key, np.zeros(3, dtype=np.int64), eligibility=0)
    none, extra = np.zeros(1, dtype=np.uint8), {"spread": [(row, skew, 1, 1)], "spread_touch": [row]}
    engine.add_classes(np.array([[1]]), np.array([[1]]), np.zeros(1, dtype=np.int32), none, none, [extra])
    template = _engine.Template(engine, node_class=0, unschedulable=False, slots=2, free=[100], domain=[1])
    counts = np.zeros(3, dtype=np.int64)
    for step in range(60):
        if step % 20 == 19:
            engine.add(template, step)
            zone, slots = np.append(zone, 1), np.append(slots, 2)
        there = np.unique(zone)
        fits = (slots >= 1) & (counts[zone] + 1 - counts[there].min() <= skew)
        after = np.roll(fits, -engine.cursor - 1)
        expected = (int(np.argmax(after)) + engine.cursor + 1) % len(zone) if fits.any() else -1
        assert engine.any_node(0) == expected
        if expected >= 0:
            engine.place(0, expected)
            slots[expected] -= 1
            counts[zone[expected]] += 1


@given(
    hosts=st.sampled_from(["in order", "from the middle", "shuffled", "some missing"]),
    nodes=st.integers(1, 200),
    counters=st.integers(0, 250),
    seed=st.integers(0, 1 << 16),
)
def test_scan_skips_domains_with_anti_affinity_pods(hosts: str, nodes: int, counters: int, seed: int) -> None:
    """Nodes are looked at 64 at a time, and in another way where their domains are in order."""
    draw = np.random.default_rng(seed)
    domain = np.arange(nodes, dtype=np.int32)
    if hosts == "from the middle":
        domain = np.roll(domain, nodes // 2)
    elif hosts == "shuffled":
        domain = draw.integers(0, nodes, nodes, dtype=np.int32)
    elif hosts == "some missing":
        domain[draw.random(nodes) < 0.1] = -1
    counts = np.where(draw.random(min(counters, nodes)) < 0.95, draw.integers(1, 3), 0)
    free, slots = draw.integers(0, 4, (2, nodes)), draw.integers(0, 8, nodes)
    engine = _engine.Engine(2)
    engine.set_statics(np.zeros((1, 1), dtype=np.uint16))
    engine.append_nodes(free, slots, np.zeros(nodes, dtype=np.int32), np.zeros(nodes, dtype=np.uint8))
    row = engine.add_row(engine.add_key(domain, nodes), counts)
    request, none = np.array([[1, 2]]), np.zeros(1, dtype=np.uint8)
    for extra in ({"own_anti": [row]}, {"blocked_by": [row]}):
        engine.add_classes(request, request, np.zeros(1, dtype=np.int32), none, none, [extra])
    occupied = np.array([0 <= each < len(counts) and counts[each] > 0 for each in domain])
    fits = np.flatnonzero((slots >= 1) & (free[0] >= 1) & (free[1] >= 2) & ~occupied)
    for number in range(2):
        engine.cursor = nodes - 1
        assert engine.any_node(number) == (fits[0] if len(fits) else -1)


def test_other_dtypes_are_refused() -> None:
    with pytest.raises(ValueError, match="Buffer dtype mismatch"):
        build(SMALL).verdicts(np.zeros(1, dtype=np.int64))


class Ledger:
    """One device on every node; what happened, in order."""

    def __init__(self) -> None:
        self.operations: list[tuple[str, int, int]] = []
        self.reservations: list[tuple[int, int]] = []

    def check(self, pod: int, node: int) -> bool:
        return all(there != node for _, there in self.reservations)

    def place(self, pod: int, node: int) -> bool:
        self.operations.append(("place", pod, node))
        self.reservations.append((pod, node))
        return False

    def unplace(self, pod: int, node: int) -> None:
        self.operations.append(("unplace", pod, node))
        self.reservations.remove((pod, node))

    def add(self, template: int, copy: int) -> None:
        self.operations.append(("add", template, copy))

    def fork(self) -> None:
        self.operations.append(("fork", 0, 0))

    def revert(self) -> None:
        self.operations.append(("revert", 0, 0))

    def commit(self) -> None:
        self.operations.append(("commit", 0, 0))

    def checksum(self) -> int:
        return hash(tuple(self.reservations)) & (2**63 - 1)


def with_ledger(ledger: Ledger | None, *, devices: bool = True) -> _engine.Engine:
    engine = _engine.Engine(1)
    if ledger is not None:
        engine.set_devices(ledger)
    engine.set_statics(np.zeros((1, 1), dtype=np.uint16))
    engine.append_nodes(np.full((1, 2), 10), np.full(2, 10), np.zeros(2, dtype=np.int32), np.zeros(2, dtype=np.uint8))
    one = np.ones((1, 1), dtype=np.int64)
    none = np.zeros(1, dtype=np.uint8)
    engine.add_classes(one, one, np.zeros(1, dtype=np.int32), none, none, [{"devices": devices}])
    return engine


def test_ledger_is_checked_last_and_gets_every_operation() -> None:
    ledger = Ledger()
    engine = with_ledger(ledger)
    assert not engine.is_local(0)
    before = engine.checksum()
    result = engine.any_node(0)
    engine.fork()
    engine.place(0, result)
    assert engine.check(0, result) == 13
    assert engine.any_node(0) == 1 - result
    assert engine.checksum() != before
    engine.unplace(0, result)
    engine.commit()
    assert engine.checksum() == before
    assert [what for what, _, _ in ledger.operations] == ["fork", "place", "unplace", "commit"]


def test_invalid_ledger_use_is_refused() -> None:
    with pytest.raises(NativeError, match="ledger that this engine does not have"):
        with_ledger(None)
    engine = with_ledger(Ledger(), devices=False)
    with pytest.raises(NativeError, match="before classes are added"):
        engine.set_devices(Ledger())
