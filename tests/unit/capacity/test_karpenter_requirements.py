"""Requirements on labels: the outcomes that Karpenter's own tests expect for the same inputs, as tables.

Of ``pkg/scheduling`` in sigs.k8s.io/karpenter v1.14.0, all rows agree that can be expressed:

===============================================  ===========================================================
``requirement_test.go``: Intersect requirements  590 pairs, as ``INTERSECTIONS`` and the larger ``minValues``
``requirement_test.go``: Has                     70 rows, as ``ALLOWED``
``requirement_test.go``: Operator                14 rows, as ``OPERATORS``
``requirement_test.go``: Gte and Lte Operators   13 tests, without ``Any``
``requirements_test.go``: Compatibility          450 pairs, as ``COMPATIBLE``
``hostportusage_test.go``                        4 tests, in ``test_karpenter_scheduler.py``
===============================================  ===========================================================

Not expressed, since kscale has no such function: Len, Any, String, the conversion to NodeSelectorRequirements, and the
hints at typing errors.
"""

from __future__ import annotations

import pytest

from kscale.capacity.karpenter.requirements import Operator, Requirement, Requirements, requirement

KEY = "topology.kubernetes.io/zone"
INPUTS = {
    "*": (Operator.EXISTS,),
    "-": (Operator.DOES_NOT_EXIST,),
    "A": (Operator.IN, "A"),
    "B": (Operator.IN, "B"),
    "AB": (Operator.IN, "A", "B"),
    "!A": (Operator.NOT_IN, "A"),
    "1": (Operator.IN, "1"),
    "9": (Operator.IN, "9"),
    "19": (Operator.IN, "1", "9"),
    "!12": (Operator.NOT_IN, "1", "2"),
    ">=2": (Operator.GT, "1"),
    ">=10": (Operator.GT, "9"),
    "<=0": (Operator.LT, "1"),
    "<=8": (Operator.LT, "9"),
}
# What each requirement leaves of each other one, in the order of the inputs.
INTERSECTIONS = """
*      *       -       A       B       AB      !A      1       9       19      !12     >=2     >=10    <=0     <=8
-      -       -       -       -       -       -       -       -       -       -       -       -       -       -
A      A       -       A       -       A       -       -       -       -       A       -       -       -       -
B      B       -       -       B       B       B       -       -       -       B       -       -       -       -
AB     AB      -       A       B       AB      B       -       -       -       AB      -       -       -       -
!A     !A      -       -       B       B       !A      1       9       19      !12A    >=2     >=10    <=0     <=8
1      1       -       -       -       -       1       1       -       1       -       -       -       -       1
9      9       -       -       -       -       9       -       9       9       9       9       -       -       -
19     19      -       -       -       -       19      1       9       19      9       9       -       -       1
!12    !12     -       A       B       AB      !12A    -       9       9       !12     !2>=2   >=10    <=0     !12<=8
>=2    >=2     -       -       -       -       >=2     -       9       9       !2>=2   >=2     >=10    -       >=2<=8
>=10   >=10    -       -       -       -       >=10    -       -       -       >=10    >=10    >=10    -       -
<=0    <=0     -       -       -       -       <=0     -       -       -       <=0     -       -       <=0     <=0
<=8    <=8     -       -       -       -       <=8     1       -       1       !12<=8  >=2<=8  -       <=0     <=8
"""
# Whether each can meet each other one (1), nothing first; the label is well known.
COMPATIBLE = """
none 111111111111111
*    110111111111111
-    101000100010000
A    110101000010000
B    110011100010000
AB   110111100010000
!A   111011111111111
1    110000110100001
9    110000101111000
19   110000111111001
!12  111111101111111
>=2  110000101111101
>=10 110000100011100
<=0  110000100010011
<=8  110000110111011
"""
STRICT_OF_NOTHING = "101000100010000"
"""The first row for a label that is not well known; the other rows are equal."""
ALLOWED = """
*    11111
-    00000
A    10000
B    01000
AB   11000
!A   01111
1    00100
9    00001
19   00101
!12  11001
>=2  00011
>=10 00000
<=0  00000
<=8  00110
"""
"""Whether each allows the values A, B, 1, 2 and 9."""
OPERATORS = """
* Exists
- DoesNotExist
A In
B In
AB In
!A NotIn
1 In
9 In
19 In
!12 NotIn
>=2 Exists
>=10 Exists
<=0 Exists
<=8 Exists
"""


def make_requirement(name: str, min_values: int | None = None) -> Requirement:
    operator, *values = INPUTS[name]
    return requirement(KEY, operator, values, min_values)


def written(each: Requirement) -> str:
    text = ("!" if each.complement and each.values else "") + "".join(sorted(each.values))
    text += "" if each.least is None else f">={each.least}"
    text += "" if each.most is None else f"<={each.most}"
    return text or ("*" if each.complement else "-")


def test_inputs_match_their_names() -> None:
    assert [written(make_requirement(name)) for name in INPUTS] == list(INPUTS)


@pytest.mark.parametrize("row", INTERSECTIONS.strip().splitlines(), ids=list(INPUTS))
def test_intersections(row: str) -> None:
    name, *expected = row.split()
    assert [written(make_requirement(name).intersection(make_requirement(other))) for other in INPUTS] == expected
    for other, result in zip(INPUTS, expected, strict=True):
        assert make_requirement(name).intersects(make_requirement(other)) == (result != "-")


@pytest.mark.parametrize("row", COMPATIBLE.strip().splitlines(), ids=["none", *INPUTS])
def test_compatibility(row: str) -> None:
    name, expected = row.split()
    own = Requirements() if name == "none" else Requirements([make_requirement(name)])
    others = [Requirements(), *(Requirements([make_requirement(other)]) for other in INPUTS)]

    def answers(undefined: frozenset[str]) -> str:
        return "".join(str(int(own.is_compatible(other, undefined=undefined))) for other in others)

    assert answers(frozenset({KEY})) == expected
    assert answers(frozenset()) == (STRICT_OF_NOTHING if name == "none" else expected)


@pytest.mark.parametrize("row", ALLOWED.strip().splitlines(), ids=list(INPUTS))
def test_allowed_values(row: str) -> None:
    name, expected = row.split()
    assert "".join(str(int(make_requirement(name).allows(value))) for value in ("A", "B", "1", "2", "9")) == expected


@pytest.mark.parametrize("row", OPERATORS.strip().splitlines(), ids=list(INPUTS))
def test_operators(row: str) -> None:
    name, expected = row.split()
    assert make_requirement(name).operator == expected


@pytest.mark.parametrize(
    ("first", "second", "expected"), [(2, None, 2), (None, 1, 1), (1, 2, 2), (3, 1, 3), (None, None, None)]
)
def test_the_larger_number_of_minimum_values_counts(
    first: int | None, second: int | None, expected: int | None
) -> None:
    assert make_requirement("AB", first).intersection(make_requirement("A", second)).min_values == expected
    assert make_requirement(">=10", first).intersection(make_requirement("<=0", second)).min_values == expected


@pytest.mark.parametrize(
    ("operator", "value", "expected"),
    [
        ("Gt", "1", {"2", "3", "100"}),
        ("Gte", "2", {"2", "3", "100"}),
        ("Lt", "3", {"0", "1", "2"}),
        ("Lte", "2", {"0", "1", "2"}),
        ("Gte", "0", {"0", "1", "2", "3", "100"}),
        ("Lte", "0", {"0"}),
        ("Gt", str(2**63 - 1), set()),
    ],
)
def test_bounds_allow_integers_only(operator: str, value: str, expected: set[str]) -> None:
    bound = requirement(KEY, operator, [value])
    values = ["0", "1", "2", "3", "100", "A", "", "1.5", "2 ", "9" * 20]
    assert {each for each in values if bound.allows(each)} == expected


def test_redundant_bounds_collapse() -> None:
    def both(*bounds: tuple[str, str]) -> str:
        return written(Requirements(requirement(KEY, operator, [value]) for operator, value in bounds)[KEY])

    assert both(("Gt", "5"), ("Gte", "3")) == ">=6"
    assert both(("Gte", "9"), ("Gt", "5")) == ">=9"
    assert both(("Lt", "5"), ("Lte", "8")) == "<=4"
    assert both(("Gte", "2"), ("Lte", "8")) == ">=2<=8"
    assert both(("Gte", "9"), ("Lte", "8")) == "-"


def test_labels_in_beta_spelling_are_the_same() -> None:
    for beta, stable in (
        ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
        ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
        ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
        ("beta.kubernetes.io/os", "kubernetes.io/os"),
        ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
    ):
        assert list(Requirements([requirement(beta, "In", ["test"])])) == [stable]
