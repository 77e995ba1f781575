"""Which objects a watch is of: namespace, labels, and fields as field selectors have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kscale.errors import InputError
from kscale.objects.core import Event, Pod
from kscale.objects.meta import KubeObject
from kscale.objects.selector_text import parse_selector
from kscale.world.protocols import Watch

__all__ = ["Wanted", "wanted"]

Wanted = Callable[[KubeObject], bool]
"""Whether an object is one that is meant."""

_Read = Callable[[KubeObject], str]


def _of_pod(read: Callable[[Pod], str]) -> _Read:
    return lambda item: read(item) if isinstance(item, Pod) else ""


_FIELDS: Final[dict[str, _Read]] = {
    "metadata.name": lambda item: item.metadata.name,
    "metadata.namespace": lambda item: item.metadata.namespace,
    "spec.nodeName": _of_pod(lambda pod: pod.spec.node_name),
    "status.phase": _of_pod(lambda pod: pod.status.phase),
    "reason": lambda item: item.reason if isinstance(item, Event) else "",
}


def wanted(watch: Watch) -> Wanted | None:
    """What a watch selects; None: all. Raises InputError for a field that this world cannot select by."""
    tests: list[Wanted] = []
    if watch.namespace:
        tests.append(lambda item: item.metadata.namespace == watch.namespace)
    if watch.label_selector:
        selector = parse_selector(watch.label_selector)
        tests.append(lambda item: selector.matches(item.metadata.labels or {}))
    tests += [_requirement(text) for text in watch.field_selector.split(",") if text]
    if len(tests) < 2:
        return tests[0] if tests else None

    def is_wanted(item: KubeObject) -> bool:
        for test in tests:  # noqa: SIM110 - asked for every change of a pod: a generator would cost as much again
            if not test(item):
                return False
        return True

    return is_wanted


def _requirement(text: str) -> Wanted:
    name, equals, value = text.partition("=")
    unequal = name.endswith("!")
    read = _FIELDS.get(name.removesuffix("!"))
    if not equals or read is None:
        raise InputError(f"the simulated world cannot select by {text!r}")
    value = value.removeprefix("=")
    return lambda item: (read(item) == value) is not unequal
