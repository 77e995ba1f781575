"""The oracle's driver, without Go: drawing, comparing, making small, and talking to a program."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import pytest

import golden_support
from oracle.campaign import Difference, compare, input_of, small_example, write_reproducer
from oracle.edges import amount, meet_edges
from oracle.families import Kind, find_kinds
from oracle.process import Oracle, OracleError
from oracle.record import renew
from oracle.shrinking import candidates, shrink

KINDS = find_kinds()
QUANTITY = KINDS["quantity"]

PROGRAM = """#!{python}
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    answer = {answer}
    print(json.dumps({{"id": asked["id"], **answer}}), flush=True)
"""


def program(folder: Path, answer: str) -> Path:
    """Write an oracle program whose answer is a Python expression of ``asked``."""
    path = folder / "program"
    path.write_text(PROGRAM.format(python=sys.executable, answer=answer))
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("kind", KINDS.values(), ids=str)
def test_an_input_depends_on_seed_kind_and_index_alone(kind: Kind) -> None:
    inputs = [json.dumps(input_of(kind, 7, index)) for index in range(20)]
    assert inputs == [json.dumps(input_of(kind, 7, index)) for index in range(20)]
    assert len(set(inputs)) > 10
    assert inputs != [json.dumps(input_of(kind, 8, index)) for index in range(20)]


def compares_equal_numbers(inputs: dict[str, Any]) -> bool:
    labels = {node["labels"].get("cores") for node in inputs["nodes"]}
    items = [item for term in inputs["selector"]["nodeSelectorTerms"] for item in term.get("matchExpressions", ())]
    return any(
        item["operator"] in ("Gt", "Lt") and item["values"][:1] and item["values"][0] in labels for item in items
    )


def has_many_of_both(inputs: dict[str, Any]) -> bool:
    return len(inputs["taints"]) > 8 and len(inputs["tolerations"]) > 8 and bool(inputs["comparison_operators"])


def constrains_several_requests(inputs: dict[str, Any]) -> bool:
    claims = [each["spec"]["devices"] for each in inputs["objects"] if each["kind"] == "ResourceClaim"]
    return any(
        "matchAttribute" in constraint and not constraint.get("requests") and len(claim["requests"]) > 1
        for claim in claims
        for constraint in claim.get("constraints", ())
    )


def has_capacities_of_several_classes(inputs: dict[str, Any]) -> bool:
    return len({each["storageClassName"] for each in inputs["objects"] if each["kind"] == "CSIStorageCapacity"}) > 1


def differs_by_the_threshold(inputs: dict[str, Any]) -> bool:
    items = inputs["vpa"]["status"].get("recommendation", {}).get("containerRecommendations", ())
    return any(item["target"].get("cpu") == "1100m" for item in items)


@pytest.mark.parametrize(
    ("kind", "reaches"),
    [
        ("node-selector", compares_equal_numbers),
        ("tolerations", has_many_of_both),
        ("fit", constrains_several_requests),
        ("scores", has_capacities_of_several_classes),
        ("vpa-priority", differs_by_the_threshold),
    ],
)
def test_drawn_values_meet_where_rules_compare_them(kind: str, reaches: Callable[[dict[str, Any]], bool]) -> None:
    assert any(reaches(input_of(KINDS[kind], 7, index)) for index in range(400))


def test_amounts_of_the_alphabets_are_numbers() -> None:
    texts = ("100.5m", "1n", "0.1Gi", "1e9", "10E", "2")
    numbers = [Fraction(201, 2000), Fraction(1, 10**9), Fraction(2**30, 10), Fraction(10**9), Fraction(10**19), 2]
    assert [amount(text) for text in texts] == numbers


def test_a_node_is_left_with_exactly_what_a_pod_requests_or_a_unit_beside_it() -> None:
    def container(cpu: str) -> dict[str, Any]:
        return {"name": "c", "resources": {"requests": {"cpu": cpu}}}

    placed = {"kind": "Pod", "spec": {"nodeName": "n", "containers": [container("250m")]}}
    pod = {"kind": "Pod", "spec": {"containers": [container("1"), container("0.5")]}}
    drawn = set()
    for seed in range(200):
        node: dict[str, Any] = {"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4"}}}
        meet_edges(Random(seed), [node, placed], pod, shares=(50,))
        drawn.add(node["status"]["allocatable"]["cpu"])
    assert drawn == {"4", "1749m", "1750m", "1751m", "3499m", "3500m", "3501m"}


def recorded(name: str) -> dict[str, Any]:
    cases = golden_support.cases(golden_support.VECTORS, ["quantity"])
    return next(case for case in cases if case["name"] == name)


def test_a_recorded_answer_is_the_same_and_a_changed_one_differs_where_it_was_changed() -> None:
    case = recorded("quantity-0060-parse")
    assert compare(QUANTITY, case["input"], case["want"]) is None
    difference = compare(QUANTITY, case["input"], {**case["want"], "sign": -1})
    assert difference is not None
    where, details = difference
    assert where.startswith("quantity.py:")
    assert ".sign: kscale 1, upstream -1" in details


def test_an_error_of_kscale_is_a_difference() -> None:
    difference = compare(QUANTITY, {"op": "add", "a": "1"}, {"error": None})
    assert difference is not None
    assert difference[0].startswith("KeyError at quantity.py:")


def test_shrinking_removes_irrelevant_values() -> None:
    def differs(values: Sequence[Any]) -> list[bool]:
        return [any("bad" in str(each) for each in value.get("items", [])) for value in values]

    value = {"items": [{"name": f"n{i}", "labels": {"a": "b"}} for i in range(40)] + ["a bad one"], "options": {"x": 9}}
    assert shrink(value, differs) == {"items": ["bad"]}


def test_fixed_keys_are_left_alone() -> None:
    for candidate in candidates({"name": "web", "spec": {"name": "x", "cpu": 4}}, frozenset({"name"})):
        assert candidate.get("name") == "web"
        assert candidate.get("spec", {"name": "x"}).get("name") == "x"


def test_answers_come_in_the_order_of_the_questions(tmp_path: Path) -> None:
    path = program(tmp_path, '{"output": asked["input"]} if asked["kind"] == "echo" else {"error": "unknown"}')
    with Oracle(path) as oracle:
        first, second = oracle.send([("echo", i) for i in range(3000)]), oracle.send([("other", 1)])
        assert [reply.output for reply in oracle.receive(first)] == list(range(3000))
        assert [reply.error for reply in oracle.receive(second)] == ["unknown"]


def test_a_program_that_ends_is_an_error(tmp_path: Path) -> None:
    path = program(tmp_path, 'sys.exit(3) if asked["input"] else {"output": 1}')
    with Oracle(path) as oracle, pytest.raises(OracleError, match="status 3 before answer 1 of 2"):
        oracle.ask([("any", 0), ("any", 1)])


def test_an_answer_that_is_cut_off_is_an_error(tmp_path: Path) -> None:
    path = program(tmp_path, '[sys.stdout.write(\'{"id": 0, "out\'), sys.stdout.flush(), sys.exit(4)]')
    with Oracle(path) as oracle, pytest.raises(OracleError, match="status 4 before answer 0 of 1"):
        oracle.ask([("any", 0)])


def test_a_difference_is_made_small_and_written_as_a_recorded_answer(tmp_path: Path) -> None:
    # This upstream refuses every quantity with a 7 in it.
    case = recorded("quantity-0060-parse")
    answer = '{"output": {"error": "seven"} if "7" in asked["input"].get("text", "") else ' + repr(case["want"]) + "}"
    inputs = {"text": "12345678Ki"}
    verdict = compare(QUANTITY, inputs, {"error": "seven"})
    assert verdict is not None
    difference = Difference("quantity", 3, inputs, {"error": "seven"}, *verdict)
    with Oracle(program(tmp_path, answer)) as oracle:
        small = small_example(difference, QUANTITY, oracle, seconds=20)
    assert small.input == {"text": "7"}
    path = write_reproducer(small, tmp_path / "found", seed=9, upstream="upstream")
    assert path.name == "quantity.jsonl.gz"
    (written,) = golden_support.cases(tmp_path / "found", [])
    assert (written["name"], written["kind"]) == ("quantity-seed-9-3", "quantity")
    assert (written["input"], written["want"]) == ({"text": "7"}, {"error": "seven"})


def test_renewing_counts_changed_cases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases: list[dict[str, Any]] = [
        {"name": "same", "input": {"text": "1"}, "want": {"error": "1"}},
        {"name": "other", "input": {"text": "2"}, "want": {"error": "before"}},
        {"name": "kept", "input": {"text": "4"}, "want": {"error": "then"}, "tags": ["older"]},
        {"name": "drawn", "input": {"text": "3"}, "want": None},
    ]
    path = program(tmp_path, '{"output": {"error": asked["input"]["text"]}}')
    assert renew(QUANTITY, cases, path, "upstream 2", known=3) == 1
    assert [case["want"] for case in cases] == [{"error": "1"}, {"error": "2"}, {"error": "then"}, {"error": "3"}]
    output = capsys.readouterr().out
    assert "other" in output
    assert "quantity, upstream 2: 1 of an older release, 1 as recorded, 1 changed, 1 added" in output


def test_random_answers_are_not_recorded(tmp_path: Path) -> None:
    (tmp_path / "asked").write_text("")
    count = f"open({str(tmp_path / 'asked')!r}, 'a').write('x')"
    often = f"len(open({str(tmp_path / 'asked')!r}).read())"
    path = program(tmp_path, f"({count}) and {{'output': {{'error': str(asked['input']['text'] * {often})}}}}")
    cases: list[dict[str, Any]] = [
        {"name": "stable", "input": {"text": ""}, "want": None},
        {"name": "chance", "input": {"text": "1"}, "want": None},
    ]
    assert renew(QUANTITY, cases, path, "upstream 2", known=0, times=3) == 0
    assert [case["want"] for case in cases] == [{"error": ""}, None]


def test_an_answer_that_is_left_to_chance_is_found_by_asking_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "asked").write_text("")
    count = f"open({str(tmp_path / 'asked')!r}, 'a').write('x')"
    often = f"len(open({str(tmp_path / 'asked')!r}).read())"
    path = program(tmp_path, f"({count}) and {{'output': {{'error': str(asked['input']['text'] * {often})}}}}")
    cases: list[dict[str, Any]] = [
        {"name": "stable", "input": {"text": ""}, "want": {"error": ""}},
        {"name": "chance", "input": {"text": "1"}, "want": {"error": "11"}},
    ]
    assert renew(QUANTITY, cases, path, "upstream 2", known=2, times=3) == 1
    output = capsys.readouterr().out
    assert "  chance: not always the same answer" in output
    assert "stable" not in output
