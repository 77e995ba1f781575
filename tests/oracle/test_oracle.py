"""The oracle's driver, without Go: drawing, comparing, making small, and talking to a program."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import golden_support
from oracle.campaign import Difference, compare, input_of, small_example, write_reproducer
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


def test_shrinking_removes_what_does_not_matter() -> None:
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


def test_a_difference_is_made_small_and_written_as_a_recorded_answer(tmp_path: Path) -> None:
    # This upstream refuses every quantity with a 7 in it.
    case = recorded("quantity-0060-parse")
    answer = '{"output": {"error": "seven"} if "7" in asked["input"].get("text", "") else ' + repr(case["want"]) + "}"
    given = {"text": "12345678Ki"}
    verdict = compare(QUANTITY, given, {"error": "seven"})
    assert verdict is not None
    difference = Difference("quantity", 3, given, {"error": "seven"}, *verdict)
    with Oracle(program(tmp_path, answer)) as oracle:
        small = small_example(difference, QUANTITY, oracle, seconds=20)
    assert small.input == {"text": "7"}
    path = write_reproducer(small, tmp_path / "found", seed=9, upstream="upstream")
    assert path.name == "quantity.jsonl.gz"
    (written,) = golden_support.cases(tmp_path / "found", [])
    assert (written["name"], written["kind"]) == ("quantity-seed-9-3", "quantity")
    assert (written["input"], written["want"]) == ({"text": "7"}, {"error": "seven"})


def test_renewing_counts_what_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
