"""The cheapest nodes for a few pods, in a second way: numbered nodes, and how many pods of each shape are on each.

Nothing here enumerates what a node can hold, unlike :func:`reference.mixes.cheapest`; the two check each other.
"""

from __future__ import annotations

from collections.abc import Mapping

from reference.mixes import Machine, Problem, Shape, exclude, may_run, selects, size_of

__all__ = ["least_cost"]


def least_cost(problem: Problem, nodes: int) -> tuple[float, float] | None:
    """Return (lower bound, cost of the best plan) of nodes that place every pod.

    Both are the optimum unless the search ends after ``nodes`` nodes. None if no plan that
    places every pod was found.
    """
    import highspy

    highs = highspy.Highs()
    for option, value in (
        ("output_flag", False),
        ("mip_rel_gap", 0.0),
        ("mip_abs_gap", 1e-9),
        ("mip_max_nodes", nodes),
    ):
        highs.setOptionValue(option, value)
    infinity = highspy.kHighsInf
    columns = 0

    def variable(most: float, cost: float = 0.0) -> int:
        nonlocal columns
        highs.addVar(0.0, most)
        highs.changeColCost(columns, cost)
        highs.changeColIntegrality(columns, highspy.HighsVarType.kInteger)
        columns += 1
        return columns - 1

    def row(low: float, high: float, terms: Mapping[int, float]) -> None:
        highs.addRow(low, high, len(terms), list(terms), list(terms.values()))

    shapes = problem.shapes
    bins: list[tuple[Machine, int, list[int]]] = []  # (machine, whether it is there, pods of each shape)
    for machine in problem.machines:
        before: tuple[int, list[int]] | None = None
        for number in range(_most_nodes(problem, machine)):
            there = variable(1, machine.price)
            if machine.exists or number < machine.least:
                row(1.0, 1.0, {there: 1.0})
            on = [variable(_most_pods(shape, machine)) for shape in shapes]
            _fill(problem, machine, there, on, (variable, row))
            if before is not None:
                row(0.0, infinity, {before[0]: 1.0, there: -1.0})  # equal nodes: the first ones are used
            before = there, on
            bins.append((machine, there, on))
    for s, shape in enumerate(shapes):
        row(shape.count, shape.count, {on[s]: 1.0 for _, _, on in bins})
    for resource, limit in problem.limits.items():
        row(-infinity, limit, {there: size_of(machine, resource) for machine, there, _ in bins})
    if problem.spot_share is not None:
        share = problem.spot_share
        new = [(machine, there) for machine, there, _ in bins if not machine.exists]
        row(-infinity, 1e-7, {v: m.size[0] * (1.0 - share if m.spot else -share) for m, v in new})
    if problem.max_types is not None:
        types: dict[str, int] = {}
        for machine, there, _ in bins:
            if not machine.exists:
                used = types.setdefault(machine.type, -1)
                used = types[machine.type] = variable(1) if used < 0 else used
                row(0.0, infinity, {used: 1.0, there: -1.0})
        row(0.0, problem.max_types, dict.fromkeys(types.values(), 1.0))
    for s, shape in enumerate(shapes):
        if shape.even:
            _spread(problem, s, bins, (variable, row))
    highs.run()
    status, infos = highs.getModelStatus(), highs.getInfo()
    if status not in (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kSolutionLimit):
        return None
    if not highs.getSolution().value_valid:
        return None
    return float(infos.mip_dual_bound), float(infos.objective_function_value)


def _most_pods(shape: Shape, machine: Machine) -> int:
    if not may_run(shape, machine) or shape.cpu > machine.room[0] or shape.memory > machine.room[1]:
        return 0
    return 1 if shape.alone or shape.port else shape.count


def _most_nodes(problem: Problem, machine: Machine) -> int:
    """How many nodes of a machine a cheapest plan can use: one for each pod, minima, and some to balance spot."""
    if machine.exists:
        return 1
    pods = sum(shape.count for shape in problem.shapes if _most_pods(shape, machine))
    balance = 0 if problem.spot_share is None or machine.spot else sum(m.least for m in problem.machines) + 12
    spread = sum(shape.even for shape in problem.shapes) > 0
    most = max(pods, balance, int(spread)) + machine.least
    return most if machine.most is None else min(most, machine.most)


def _fill(problem: Problem, machine: Machine, there: int, on: list[int], make) -> None:
    """What one node can hold."""
    variable, row = make
    shapes = problem.shapes
    for r, room in enumerate(machine.room):
        terms = {v: float((shape.cpu, shape.memory, 1)[r]) for v, shape in zip(on, shapes, strict=True)}
        row(-float("inf"), 0.0, {**terms, there: -float(room)})
    for v, shape in zip(on, shapes, strict=True):
        row(-float("inf"), 0.0, {v: 1.0, there: -float(_most_pods(shape, machine))})
    some: dict[int, int] = {}
    for s, shape in enumerate(shapes):
        for other in range(s):
            if exclude(shape, shapes[other]):
                for k in (s, other):
                    if k not in some:
                        some[k] = variable(1)
                        row(-float("inf"), 0.0, {on[k]: 1.0, some[k]: -float(shapes[k].count)})
                row(-float("inf"), 1.0, {some[s]: 1.0, some[other]: 1.0})


def _spread(problem: Problem, s: int, nodes, make) -> None:
    """A zone counts if a pod could run on one of its machines, or if it has a node that the selectors admit."""
    variable, row = make
    shape = problem.shapes[s]
    zones = sorted({machine.zone for machine in problem.machines})
    pods = {zone: {on[s]: 1.0 for machine, _, on in nodes if machine.zone == zone} for zone in zones}
    for zone in zones:
        counts = variable(1)
        here = [machine for machine in problem.machines if machine.zone == zone]
        if any(_most_pods(shape, machine) and machine.most != 0 for machine in here):
            row(1.0, 1.0, {counts: 1.0})
        for machine, there, _ in nodes:
            if machine.zone == zone and selects(shape, machine):
                row(0.0, float("inf"), {counts: 1.0, there: -1.0})
        for other in zones:
            if other != zone:
                terms = {**pods[other], **dict.fromkeys(pods[zone], -1.0), counts: float(shape.count)}
                row(-float("inf"), float(shape.skew + shape.count), terms)
