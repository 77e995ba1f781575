"""Lower bounds: never above the optimum found by exhaustive search, and proven by what they say proves them."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale import InputError
from kscale.errors import MissingExtraError
from kscale.scheduling import bounds
from reference import packing


@st.composite
def instances(draw: st.DrawFn, most_classes: int = 4, most_items: int = 4) -> tuple[list, list, list, list]:
    resources = draw(st.integers(1, 3))
    capacity = draw(st.lists(st.integers(1, 12), min_size=resources, max_size=resources))
    size = st.tuples(*(st.integers(0, c) for c in capacity))
    demand = draw(st.lists(size, min_size=1, max_size=most_classes))
    count = draw(st.lists(st.integers(0, most_items), min_size=len(demand), max_size=len(demand)))
    limit = draw(st.lists(st.integers(1, most_items), min_size=len(demand), max_size=len(demand)))
    return demand, count, capacity, limit


@given(instances())
def test_no_bound_exceeds_the_optimum(instance) -> None:
    demand, count, capacity, limit = instance
    best = packing.optimum(demand, count, capacity, [min(n, m) for n, m in zip(count, limit, strict=True)])
    values = {
        method.__name__: method(demand, count, capacity, limit).value
        for method in (bounds.volume, bounds.per_class, bounds.l2, bounds.column_generation)
    }
    assert max(values.values()) <= best, values
    assert values["volume"] <= values["l2"], values
    assert max(values["volume"], values["per_class"]) <= values["column_generation"], values
    assert (best == 0) == (values["volume"] == 0)


@given(instances(most_classes=3, most_items=3))
def test_column_generation_is_the_linear_program_over_all_patterns(instance) -> None:
    import highspy

    demand, count, capacity, limit = instance
    limit = [min(n, m) for n, m in zip(count, limit, strict=True)]
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    for n in count:
        highs.addRow(float(n), highspy.kHighsInf, 0, [], [])
    for pattern in packing.patterns(demand, limit, capacity):
        rows = [k for k, take in enumerate(pattern) if take]
        if rows:
            highs.addCol(1.0, 0.0, highspy.kHighsInf, len(rows), rows, [float(pattern[k]) for k in rows])
    highs.run()
    optimum = highs.getInfo().objective_function_value if any(count) else 0.0

    bound = bounds.column_generation(demand, count, capacity, limit)
    assert bound.value == int(np.ceil(optimum - 1e-6))
    prices, worth = bound.proof["prices"], bound.proof["pattern_value"]
    assert packing.knapsack(prices, demand, limit, capacity) <= worth, "the prices prove nothing"
    assert bound.value == -(-sum(n * y for n, y in zip(count, prices, strict=True)) // worth)


@given(instances(), st.integers(0, 3), st.integers(0, 3))
def test_column_generation_cut_short_is_still_a_bound(instance, rounds: int, nodes: int) -> None:
    demand, count, capacity, limit = instance
    best = packing.optimum(demand, count, capacity, [min(n, m) for n, m in zip(count, limit, strict=True)])
    bound = bounds.column_generation(demand, count, capacity, limit, effort=rounds * 400 + nodes)
    assert bound.value <= best


@given(st.lists(st.integers(0, 30), max_size=12), st.integers(30, 61))
def test_l2_is_the_textbook_formula(sizes: list[int], capacity: int) -> None:
    items = sorted(set(sizes))
    count = [sizes.count(w) for w in items]
    expected = max(packing.l2(sizes, capacity), int(bool(sizes)))
    assert bounds.l2(np.array(items, dtype=np.int64).reshape(-1, 1), count, [capacity]).value == expected


@given(instances(), st.sampled_from([3, 2**20, 2**33 + 1]))
def test_units_do_not_matter(instance, unit: int) -> None:
    demand, count, capacity, limit = instance
    large = ([[size * unit for size in sizes] for sizes in demand], count, [room * unit for room in capacity], limit)
    for method in (bounds.volume, bounds.per_class, bounds.l2, bounds.column_generation):
        assert method(*large).value == method(demand, count, capacity, limit).value


def test_sizes_in_bytes_without_a_common_factor_take_no_longer() -> None:
    """A unit is sought among some thousand sizes, not among all that there are between one and the bin's."""
    demand, count, capacity = [[2**35 + 1], [3 * 2**34 - 1], [2**33 + 7]], [9, 8, 7], [2**37 + 5]
    small = [[4], [6], [1]], count, [16]  # in units of 2 ** 33, less than what is left over in any bin
    assert bounds.column_generation(demand, count, capacity).value == bounds.column_generation(*small).value


def test_a_known_bound_or_packing_ends_the_search() -> None:
    demand, count, capacity = [[6, 6, 0], [6, 0, 6], [0, 6, 6]], [10, 10, 10], [10, 10, 10]
    bound = bounds.column_generation(demand, count, capacity)
    assert (bound.value, bound.proof["optimal"]) == (30, True)
    known = bounds.column_generation(demand, count, capacity, lower=30)
    assert known.value <= 30
    assert known.proof["effort"] <= bound.proof["effort"]


def test_sums_beyond_int64_are_exact() -> None:
    huge = 2**61
    for method in (bounds.volume, bounds.l2):
        assert method([[huge], [huge]], [10**6, 10**6], [huge + 1]).value == 2 * 10**6
    assert bounds.column_generation([[huge], [1]], [10, 10], [huge + 1]).value == 10


def test_nothing_to_pack() -> None:
    empty = np.zeros((0, 2), dtype=np.int64)
    for method in bounds.METHODS:
        assert bounds.best_bound(empty, [], [1, 1], methods=[method]).value == 0
        assert bounds.best_bound([[1, 1]], [0], [1, 1], methods=[method]).value == 0
        assert bounds.best_bound([[0, 0]], [7], [0, 1], methods=[method]).value == 1


def test_per_bin_limits_count() -> None:
    bound = bounds.best_bound([[1], [1]], [10, 3], [100], [1, 5])
    assert (bound.value, bound.method) == (10, "per_class")
    assert bound.proof == {"class": 0, "count": 10, "per_bin": 1}


def test_column_generation_beats_single_resource_bounds() -> None:
    # No two of these share a bin, each pair for another resource.
    demand, count, capacity = [[6, 6, 0], [6, 0, 6], [0, 6, 6]], [1, 1, 1], [10, 10, 10]
    assert bounds.l2(demand, count, capacity).value == 2
    assert bounds.column_generation(demand, count, capacity).value == 3
    assert packing.optimum(demand, count, capacity, [1, 1, 1]) == 3


def test_best_bound_stops_at_a_known_packing() -> None:
    demand, count, capacity = [[6]], [5], [10]
    bound = bounds.best_bound(demand, count, capacity, methods=["volume", "l2", "column_generation"], upper=5)
    assert (bound.value, bound.method) == (5, "l2")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (([[5]], [1], [4]), "class 0: demand: no item fits"),
        (([[1]], [2], [4], [0]), "class 0: demand: no item fits"),
        (([[1.5]], [1], [4]), "demand must be a 2-dimensional array of integers"),
        (([[1]], [-1], [4]), "count holds a negative"),
        (([[1, 2]], [1], [4]), "demand has shape"),
        (([[1]], [1], [4], [1, 2]), "max_per_bin has 2 entries for 1 classes"),
        (([[1]], [1], np.array([2**63], dtype=np.uint64)), "exceeds int64"),
    ],
)
def test_bad_arrays_are_named(arguments, text: str) -> None:
    with pytest.raises(InputError, match=text.replace("(", r"\(")):
        bounds.best_bound(*arguments)


def test_a_missing_solver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    with pytest.raises(MissingExtraError, match=r"column generation needs the extra \[solver\]"):
        bounds.column_generation([[1]], [1], [1])
    assert bounds.best_bound([[1]], [1], [1]).value == 1


def test_unknown_methods_are_named() -> None:
    with pytest.raises(InputError, match="not magic"):
        bounds.best_bound([[1]], [1], [1], methods=["magic"])


def test_the_solver_writes_nothing_to_stdout() -> None:
    """stdout is the answer alone. In a process of its own: what HiGHS writes it writes past Python, once a process."""
    code = (
        "import numpy as np\nfrom kscale.scheduling.bounds import column_generation\n"
        "assert column_generation([(2,), (3,)], [3, 4], [7], [9, 9]).value == 3\n"
        "import sys\nassert 'highspy' in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_no_masked_arrays_are_imported_for_a_bound() -> None:
    """They take longer to import than such a bound takes."""
    code = (
        "import sys, highspy, numpy; before = 'numpy.ma' in sys.modules; "
        "from kscale.scheduling.bounds import column_generation; "
        "assert column_generation([[3, 4], [5, 2]], [40, 60], [16, 16]).value > 1; "
        "assert ('numpy.ma' in sys.modules) == before"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)
