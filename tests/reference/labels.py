"""Label selectors, node selectors, taints and tolerations (scheduler-predicates 4.2 to 4.4)."""

from __future__ import annotations

import json
import re
from typing import Any

from reference.resources import QUALIFIED_PART, SUBDOMAIN

Json = dict[str, Any]
# key, operator, values; a selector is a list of them, all of which must hold; None is "matches nothing".
Requirement = tuple[str, str, list[str]]
Selector = list[Requirement] | None

LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
VALUE_MESSAGE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
NAME_MESSAGE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
PREFIX_MESSAGE = (
    "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and "
    "must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
TOO_MANY_SLASHES = (
    "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' "
    "(e.g. 'example.com/MyName')"
)


class SelectorError(Exception):
    """A selector that upstream refuses to build."""


def key_problems(key: str) -> list[str]:
    problems = []
    parts = key.split("/")
    if len(parts) > 2:
        return [TOO_MANY_SLASHES]
    name = parts[-1]
    if len(parts) == 2:
        if not parts[0]:
            problems.append("prefix part must be non-empty")
        else:
            if len(parts[0]) > 253:
                problems.append("prefix part must be no more than 253 bytes")
            if not SUBDOMAIN.fullmatch(parts[0]):
                problems.append(PREFIX_MESSAGE)
    if not name:
        problems.append("name part must be non-empty")
    elif len(name) > 63:
        problems.append("name part must be no more than 63 bytes")
    if not QUALIFIED_PART.fullmatch(name):
        problems.append(NAME_MESSAGE)
    return problems


def value_problems(value: str) -> list[str]:
    problems = []
    if len(value) > 63:
        problems.append("must be no more than 63 bytes")
    if not LABEL_VALUE.fullmatch(value):
        problems.append(VALUE_MESSAGE)
    return problems


def quote(value: Any) -> str:
    """Return the text as Go quotes it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def check_requirement(key: str, operator: str, values: list[str] | None) -> None:
    """Raises SelectorError with upstream's text for a requirement that cannot be built."""
    problems = []
    if reasons := key_problems(key):
        problems.append(f"key: Invalid value: {quote(key)}: {'; '.join(reasons)}")
    listed = quote(values or None)  # upstream copies the list: an empty one becomes nil
    if operator in ("In", "NotIn") and not values:
        problems.append(f"values: Invalid value: {listed}: for 'in', 'notin' operators, values set can't be empty")
    if operator in ("Exists", "DoesNotExist") and values:
        problems.append(f"values: Invalid value: {listed}: values set must be empty for exists and does not exist")
    if operator in ("Gt", "Lt"):
        if len(values or []) != 1:
            problems.append(f"values: Invalid value: {listed}: for 'Gt', 'Lt' operators, exactly one value is required")
        for index, value in enumerate(values or []):
            if as_int64(value) is None:
                text = "for 'Gt', 'Lt' operators, the value must be an integer"
                problems.append(f"values[{index}]: Invalid value: {quote(value)}: {text}")
    for index, value in enumerate(values or []):
        if reasons := value_problems(value):
            problems.append(f"values[{index}][{key}]: Invalid value: {quote(value)}: {'; '.join(reasons)}")
    if problems:
        problems = list(dict.fromkeys(problems))
        raise SelectorError(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")


def label_selector(raw: Json | None) -> Selector:
    """A LabelSelector object as requirements: absent matches nothing, `{}` everything."""
    if raw is None:
        return None
    requirements: list[Requirement] = []
    for key, value in sorted((raw.get("matchLabels") or {}).items()):
        check_requirement(key, "In", [value])
        requirements.append((key, "In", [value]))
    for expression in raw.get("matchExpressions") or []:
        key, operator, values = expression.get("key", ""), expression.get("operator", ""), expression.get("values")
        if operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            raise SelectorError(f"{quote(operator)} is not a valid label selector operator")
        check_requirement(key, operator, values)
        requirements.append((key, operator, values or []))
    return requirements


def matches(selector: Selector, labels: Json | None) -> bool:
    if selector is None:
        return False
    return all(requirement_holds(requirement, labels or {}) for requirement in selector)


def requirement_holds(requirement: Requirement, labels: Json) -> bool:
    key, operator, values = requirement
    match operator:
        case "In":
            return key in labels and labels[key] in values
        case "NotIn":
            return key not in labels or labels[key] not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case _:
            have, want = as_int64(labels.get(key)), as_int64(values[0])
            if have is None or want is None:
                return False
            return have > want if operator == "Gt" else have < want


def as_int64(text: str | None) -> int | None:
    """Go's strconv.ParseInt(text, 10, 64)."""
    if text is None or not re.fullmatch(r"[+-]?[0-9]+", text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def matches_map(selected: Json | None, labels: Json | None) -> bool:
    """The plain map form: exact equality, nothing is validated."""
    return all((labels or {}).get(key) == value for key, value in (selected or {}).items())


def node_selector_matches(selector: Json, labels: Json | None, name: str) -> bool:
    """A NodeSelector: its terms are alternatives; an empty or invalid term matches nothing (4.3)."""
    return any(node_term_matches(term, labels or {}, name) for term in selector.get("nodeSelectorTerms") or [])


def node_term_matches(term: Json, labels: Json, name: str) -> bool:
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not fields:
        return False
    requirements: list[Requirement] = []
    for expression in expressions:
        operator, values = expression.get("operator", ""), expression.get("values")
        if operator not in ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"):
            return False
        try:
            check_requirement(expression.get("key", ""), operator, values)
        except SelectorError:
            return False
        requirements.append((expression["key"], operator, values or []))
    for field in fields:
        if field.get("operator") not in ("In", "NotIn") or len(field.get("values") or []) != 1:
            return False
    if not all(requirement_holds(requirement, labels) for requirement in requirements):
        return False
    if not name:
        return True
    for field in fields:
        have = name if field.get("key") == "metadata.name" else ""
        if (have == field["values"][0]) != (field["operator"] == "In"):
            return False
    return True


def tolerates(toleration: Json, taint: Json) -> bool:
    """Lt and Gt sit behind a gate that is off: such a toleration matches nothing (4.4)."""
    if (toleration.get("effect") or "") not in ("", taint.get("effect") or ""):
        return False
    if (toleration.get("key") or "") not in ("", taint.get("key") or ""):
        return False
    match toleration.get("operator") or "Equal":
        case "Equal":
            return (toleration.get("value") or "") == (taint.get("value") or "")
        case "Exists":
            return True
        case _:
            return False


def first_untolerated(pod: Json, node: Json) -> Json | None:
    """The first taint of the node, NoSchedule or NoExecute, that no toleration of the pod tolerates."""
    tolerations = pod["spec"].get("tolerations") or []
    for taint in (node.get("spec") or {}).get("taints") or []:
        if taint.get("effect") in ("NoSchedule", "NoExecute") and not any(tolerates(t, taint) for t in tolerations):
            return taint
    return None
