"""Moves drawn nodes to where a comparison changes its answer: the pod fits exactly, or a share is exactly a threshold.

Amounts that are drawn independently are almost never equal to their sum. What the pods request is therefore summed
here, in a simple way: it need not be upstream's sum in every case, since the next unit is drawn as well.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Any

from oracle.drawing import EXTENDED, chance

__all__ = ["amount", "meet_edges"]

Json = dict[str, Any]

_QUANTITY = re.compile(r"([0-9.]+)(?:[eE]([0-9]+)|([a-zA-Z]*))")
_SUFFIXES = {
    **{suffix: Fraction(1000) ** power for suffix, power in zip("num kMGTPE", range(-3, 7), strict=True)},
    **{f"{suffix}i": Fraction(1024) ** power for power, suffix in enumerate("KMGTPE", 1)},
    "": Fraction(1),
}


def amount(text: str) -> Fraction:
    """Return a quantity of the alphabets as a number."""
    match = _QUANTITY.fullmatch(text)
    assert match is not None, text
    number, exponent, suffix = match.groups()
    return Fraction(number) * (10 ** int(exponent) if exponent else _SUFFIXES[suffix or ""])


def _requested(pod: Json, resource: str) -> Fraction:
    spec = pod["spec"]
    level = spec.get("resources", {}).get("requests", {}).get(resource)
    lasting, peak = Fraction(0), Fraction(0)
    for init in spec.get("initContainers", ()):
        requested = amount(init.get("resources", {}).get("requests", {}).get(resource, "0"))
        if init.get("restartPolicy") == "Always":
            lasting += requested
        peak = max(peak, lasting + (0 if init.get("restartPolicy") == "Always" else requested))
    for container in spec["containers"]:
        lasting += amount(container.get("resources", {}).get("requests", {}).get(resource, "0"))
    total = max(lasting, peak) if level is None else amount(level)
    return total + amount(spec.get("overhead", {}).get(resource, "0"))


def meet_edges(random: Random, objects: Sequence[Json], pod: Json, *, shares: Sequence[int] = ()) -> None:
    """Let some nodes have exactly what their pods and another pod request, or one unit more or less.

    Parameters
    ----------
    random
        Where the numbers come from.
    objects
        Objects of the cluster. The allocatable amounts of nodes are changed.
    pod
        The other pod.
    shares
        Percentages of the allocatable amounts that the requests may be instead of all.
    """
    for node in objects:
        if node["kind"] != "Node" or chance(random, 3):
            continue
        placed = [
            each
            for each in objects
            if each["kind"] == "Pod" and each["spec"].get("nodeName") == node["metadata"]["name"]
        ]
        allocatable = node["status"]["allocatable"]
        for resource in ("cpu", "memory", "ephemeral-storage", EXTENDED, "pods"):
            if chance(random, 2):
                continue
            if resource == "pods":
                allocatable[resource] = str(len(placed) + random.choice((0, 1, 1, 2)))
                continue
            scale = 1000 if resource == "cpu" else 1
            share = random.choice((100, *shares))
            units = math.ceil(sum(_requested(each, resource) for each in (*placed, pod)) * scale * 100 / share)
            edge = min(max(0, units + random.choice((-1, 0, 0, 1))), 2**63 - 1)
            allocatable[resource] = f"{edge}m" if resource == "cpu" else str(edge)
