"""The cheapest nodes for a few pods, slow and obvious: every content of every node, and an integer program over them.

Nothing here is shared with ``kscale.capacity.mix``. :func:`cheapest` gives the optimum, :func:`faults` looks at a plan
in plain Python.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Machine", "Problem", "Shape", "cheapest", "exclude", "faults", "may_run", "selects", "size_of"]

Amounts = tuple[int, int, int]  # milli-cores, MiB, pods


@dataclass(frozen=True)
class Shape:
    """Equal pods. ``selector``: labels that a node must have; ``affine``: required node affinity, as (key, operator,
    values); ``port``: a host port (0 = none); ``alone``: no two on a node; ``apart``: not on a node with pods of these
    shapes; ``even``: over the zones where one could run they differ by at most ``skew``."""

    name: str
    count: int
    cpu: int
    memory: int
    selector: Mapping[str, str] = field(default_factory=dict)
    tolerates: bool = False
    port: int = 0
    alone: bool = False
    even: bool = False
    affine: Sequence[tuple[str, str, tuple[str, ...]]] = ()
    apart: frozenset[str] = frozenset()
    skew: int = 1


@dataclass(frozen=True)
class Machine:
    """What may be bought, or a node that exists (``exists``; ``room`` is then what pods there leave).

    ``size``: capacity in milli-cores and MiB, which limits and the share of spot count; ``room``: what pods of the
    problem find, without DaemonSets.
    """

    name: str
    type: str
    size: tuple[int, int]
    room: Amounts
    price: float
    labels: Mapping[str, str]
    tainted: bool = False
    spot: bool = False
    least: int = 0
    most: int | None = None
    exists: bool = False

    @property
    def zone(self) -> str:
        return self.labels.get("topology.kubernetes.io/zone", "")


@dataclass(frozen=True)
class Problem:
    """``limits``: of ``cpu`` (milli-cores), ``memory`` (MiB) and ``nodes``, those that exist included."""

    shapes: Sequence[Shape]
    machines: Sequence[Machine]
    limits: Mapping[str, int] = field(default_factory=dict)
    spot_share: float | None = None
    max_types: int | None = None


def selects(shape: Shape, machine: Machine) -> bool:
    """Check selector and node affinity."""
    for key, operator, values in shape.affine:
        value = machine.labels.get(key)
        holds = {
            "In": value in values,
            "NotIn": value not in values,  # also without the label
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }
        if not holds[operator]:
            return False
    return all(machine.labels.get(key) == value for key, value in shape.selector.items())


def may_run(shape: Shape, machine: Machine) -> bool:
    """Check selector, node affinity and taint."""
    return (shape.tolerates or not machine.tainted) and selects(shape, machine)


def exclude(first: Shape, second: Shape) -> bool:
    """Check whether pods of two shapes may not share a node."""
    same_port = first.port and first.port == second.port
    return bool(same_port) or second.name in first.apart or first.name in second.apart


def contents(problem: Problem, machine: Machine, first: int = 0, room: Amounts | None = None) -> Iterator[list[int]]:
    """Every content of a node: how many pods of each shape, from shape ``first`` on."""
    room = machine.room if room is None else room
    if first == len(problem.shapes):
        yield []
        return
    shape = problem.shapes[first]
    most = shape.count if may_run(shape, machine) else 0
    if shape.alone or shape.port:
        most = min(most, 1)
    for number in range(most + 1):
        rest = (room[0] - number * shape.cpu, room[1] - number * shape.memory, room[2] - number)
        if min(rest) < 0:
            return
        for tail in contents(problem, machine, first + 1, rest):
            others = [other for other, n in zip(problem.shapes[first + 1 :], tail, strict=True) if n]
            if not (number and any(exclude(shape, other) for other in others)):
                yield [number, *tail]


def largest(patterns: list[list[int]]) -> list[list[int]]:
    """Those that no other includes."""
    return [
        one
        for one in patterns
        if not any(other != one and all(a <= b for a, b in zip(one, other, strict=True)) for other in patterns)
    ]


def size_of(machine: Machine, resource: str) -> int:
    """What a limit counts of a machine."""
    return {"cpu": machine.size[0], "memory": machine.size[1], "nodes": 1}[resource]


def cheapest(problem: Problem) -> tuple[int, float] | None:
    """Return (fewest pods without a place, least cost of new nodes then); None if the limits contradict each other.

    Variables: nodes of each machine with each content (empty ones included), pods of each shape in each zone, pods
    without a place, types and zones that are used.
    """
    import highspy

    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("mip_rel_gap", 0.0)
    highs.setOptionValue("mip_abs_gap", 1e-9)
    infinity = highspy.kHighsInf
    costs: list[float] = []

    def variable(most: float, cost: float = 0.0) -> int:
        highs.addVar(0.0, most)
        costs.append(cost)
        highs.changeColIntegrality(len(costs) - 1, highspy.HighsVarType.kInteger)
        return len(costs) - 1

    def row(low: float, high: float, terms: Mapping[int, float]) -> None:
        highs.addRow(low, high, len(terms), list(terms), list(terms.values()))

    shapes, machines = problem.shapes, problem.machines
    zones = sorted({machine.zone for machine in machines})
    pods = sum(shape.count for shape in shapes)
    big = 4.0 * pods + 4.0 * sum(machine.least for machine in machines) + 40.0
    missing = [variable(shape.count) for shape in shapes]
    there = [[variable(shape.count) for _ in zones] for shape in shapes]
    for s, shape in enumerate(shapes):
        row(shape.count, shape.count, {missing[s]: 1.0, **dict.fromkeys(there[s], 1.0)})
    nodes: list[list[int]] = []  # the variables of each machine
    cover: list[list[dict[int, float]]] = [[{} for _ in zones] for _ in shapes]
    for machine in machines:
        mine = []
        for pattern in [*largest(list(contents(problem, machine))), [0] * len(shapes)]:
            mine.append(variable(infinity, machine.price))
            for s, number in enumerate(pattern):
                if number:
                    cover[s][zones.index(machine.zone)][mine[-1]] = float(number)
        nodes.append(mine)
        least = 1 if machine.exists else machine.least
        most = 1 if machine.exists else infinity if machine.most is None else machine.most
        row(least, most, dict.fromkeys(mine, 1.0))
    for s in range(len(shapes)):
        for z in range(len(zones)):
            row(0.0, infinity, {**cover[s][z], there[s][z]: -1.0})
    _limit(problem, nodes, row)
    if problem.max_types is not None:
        types = {machine.type: variable(1) for machine in machines if not machine.exists}
        row(0, problem.max_types, dict.fromkeys(types.values(), 1.0))
        for machine, mine in zip(machines, nodes, strict=True):
            if not machine.exists:
                row(-infinity, 0.0, {**dict.fromkeys(mine, 1.0), types[machine.type]: -big})
    for s, shape in enumerate(shapes):
        if shape.even:
            _spread(shape, there[s], zones, machines, nodes, (variable, row), big)
    for v in range(len(costs)):
        highs.changeColCost(v, float(v in missing))
    highs.run()
    if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    fewest = round(highs.getInfo().objective_function_value)
    row(0, fewest, dict.fromkeys(missing, 1.0))
    for v, cost in enumerate(costs):
        highs.changeColCost(v, cost)
    highs.run()
    assert highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return fewest, float(highs.getInfo().objective_function_value)


def _limit(problem: Problem, nodes, row) -> None:
    for resource, most in problem.limits.items():
        terms, room = {}, float(most)
        for machine, mine in zip(problem.machines, nodes, strict=True):
            if machine.exists:
                room -= size_of(machine, resource)
            else:
                terms.update(dict.fromkeys(mine, float(size_of(machine, resource))))
        row(-float("inf"), room, terms)
    if problem.spot_share is not None:
        terms = {}
        for machine, mine in zip(problem.machines, nodes, strict=True):
            if not machine.exists:
                part = (1.0 - problem.spot_share) if machine.spot else -problem.spot_share
                terms.update(dict.fromkeys(mine, machine.size[0] * part))
        row(-float("inf"), 1e-7, terms)


def _spread(shape: Shape, there, zones, machines, nodes, make, big) -> None:
    """At most ``skew`` more in a zone than in any other where a pod could run, or with a node that selectors admit."""
    variable, row = make
    for z, zone in enumerate(zones):
        admitted = [
            mine
            for machine, mine in zip(machines, nodes, strict=True)
            if machine.zone == zone and selects(shape, machine)
        ]
        could_run = any(
            may_run(shape, machine) and machine.most != 0
            and shape.cpu <= machine.room[0] and shape.memory <= machine.room[1]
            for machine in machines if machine.zone == zone
        )  # fmt: skip
        is_domain = variable(1)
        row(float(could_run), 1.0, {is_domain: 1.0})
        for mine in admitted:
            row(-float("inf"), 0.0, {**dict.fromkeys(mine, 1.0), is_domain: -big})
        for other in range(len(zones)):
            if other != z:
                terms = {there[other]: 1.0, there[z]: -1.0, is_domain: float(shape.count)}
                row(-float("inf"), float(shape.skew + shape.count), terms)


def faults(
    problem: Problem,
    new: Sequence[tuple[str, Sequence[str]]],
    existing: Mapping[str, Sequence[str]],
    unplaced: set[str],
) -> list[str]:
    """Return what is wrong with a plan.

    ``new``: the machine and the pods of each new node; ``existing``: pods on nodes that exist; ``unplaced``: pods
    without a place. A pod is named by its shape, a dash and its number.
    """
    machines = {machine.name: machine for machine in problem.machines}
    shape_of = {f"{shape.name}-{i}": shape for shape in problem.shapes for i in range(shape.count)}
    every = [
        *((machines[name], pods) for name, pods in new),
        *((machines[name], pods) for name, pods in existing.items()),
    ]
    result = []
    places = Counter(pod for _, pods in every for pod in pods)
    places.update(unplaced)
    if places != Counter(dict.fromkeys(shape_of, 1)):
        result.append(f"pods are not in one place each: {places}")
    for machine, pods in every:
        shapes = [shape_of[pod] for pod in pods]
        sums = sum(s.cpu for s in shapes), sum(s.memory for s in shapes), len(shapes)
        if any(used > room for used, room in zip(sums, machine.room, strict=True)):
            result.append(f"{machine.name} has room for {machine.room}, not for {sums}")
        result += [f"{shape.name} may not run on {machine.name}" for shape in shapes if not may_run(shape, machine)]
        ports = Counter(shape.port for shape in shapes if shape.port)
        alone = Counter(shape.name for shape in shapes if shape.alone)
        apart = any(exclude(one, other) for one in shapes for other in shapes if one is not other)
        if max([*ports.values(), *alone.values()], default=0) > 1 or apart:
            result.append(f"{machine.name} has pods that exclude each other")
    count = Counter(name for name, _ in new)
    for machine in problem.machines:
        if not machine.exists and not machine.least <= count[machine.name] <= (machine.most or count[machine.name]):
            result.append(f"{count[machine.name]} nodes of {machine.name}: {machine.least} to {machine.most} may be")
    bought = [machines[name] for name, _ in new]
    for resource, most in problem.limits.items():
        total = sum(size_of(each, resource) for each in [*bought, *(m for m in problem.machines if m.exists)])
        if total > most:
            result.append(f"{total} {resource}, and {most} are the limit")
    spot, cpu = sum(m.size[0] for m in bought if m.spot), sum(m.size[0] for m in bought)
    if problem.spot_share is not None and spot > problem.spot_share * cpu + 1e-6:
        result.append(f"{spot} of {cpu} are spot, more than {problem.spot_share}")
    if problem.max_types is not None and len({each.type for each in bought}) > problem.max_types:
        result.append(f"more than {problem.max_types} types")
    for shape in problem.shapes:
        if shape.even:
            there = [*((m, pods) for m, pods in every), *((m, ()) for m in problem.machines if m.exists)]
            zones: Counter[str] = Counter()
            for machine, pods in there:
                if selects(shape, machine):
                    zones[machine.zone] += sum(shape_of[pod] is shape for pod in pods)
            if zones and max(zones.values()) - min(zones.values()) > shape.skew:
                result.append(f"{shape.name} is spread {dict(zones)}")
    return result
