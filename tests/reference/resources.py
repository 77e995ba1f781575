"""Quantities and requests, exactly as upstream counts them (scheduler-predicates 4.1, 4.5, 6.6.1, 6.6.2)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

Json = dict[str, Any]

DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
TEXT = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(|[numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)")
INT64_MAX = 2**63 - 1


def wrap(number: int) -> int:
    """The low 64 bits, two's complement."""
    return (number + 2**63) % 2**64 - 2**63


@dataclass(frozen=True)
class Quantity:
    """`mantissa * 10**scale`; `big` says which of upstream's two representations holds it (4.1.4)."""

    mantissa: int
    scale: int
    big: bool

    def nano(self) -> int:
        """The exact value in billionths."""
        return self.mantissa * 10 ** (self.scale + 9)

    def scaled(self, digits: int) -> int:
        """The value times `10**digits` as an int64, with upstream's rounding and wrap-around."""
        shift = self.scale + digits
        if not self.big:
            if shift >= 0:
                product = self.mantissa * 10**shift
                if shift in (0, 1, 2, 3, 6, 9):
                    return wrap(product)
                return product if -(2**63) <= product < 2**63 else 0
            ceiling = -(-abs(self.mantissa) // 10**-shift)
            return ceiling if self.mantissa >= 0 else -ceiling
        if shift >= 0:
            return wrap(wrap(self.mantissa) * 10**shift)
        power = 10**-shift
        if self.mantissa >= INT64_MAX:
            quotient, rest = divmod(self.mantissa, power)
            return wrap(wrap(quotient) + (rest != 0))
        low = wrap(self.mantissa)
        quotient = abs(low) // power * (1 if low >= 0 else -1)
        return quotient + (low != quotient * power)

    def value(self) -> int:
        return self.scaled(0)

    def milli(self) -> int:
        return self.scaled(3)

    def as_int64(self) -> int | None:
        """The amount if it is a whole number that upstream holds as such; 1000m is none."""
        if self.big or self.scale < 0:
            return None
        product = self.mantissa * 10**self.scale
        return product if -(2**63) <= product < 2**63 else None

    def approximate(self) -> float:
        """As a double, one rounding for the mantissa and one for the power of ten."""
        return float(self.mantissa) * 10.0**self.scale if self.scale else float(self.mantissa)

    def __add__(self, other: Quantity) -> Quantity:
        if not (self.big or other.big):
            if other.mantissa == 0:
                return self
            if self.mantissa == 0:
                return other
        scale = min(self.scale, other.scale)
        total = self.mantissa * 10 ** (self.scale - scale) + other.mantissa * 10 ** (other.scale - scale)
        fits = all(
            -(2**63) <= number < 2**63
            for number in (
                self.mantissa * 10 ** (self.scale - scale),
                other.mantissa * 10 ** (other.scale - scale),
                total,
            )
        )
        return Quantity(total, scale, self.big or other.big or not fits)


ZERO = Quantity(0, 0, False)


@cache
def parse(text: str) -> Quantity:
    """A quantity from its text; a pure function, remembered only because texts repeat."""
    match = TEXT.fullmatch(text)
    if match is None or not text:
        raise ValueError(text)
    sign, integer, fraction, suffix = match.group(1), match.group(2), match.group(3) or "", match.group(4)
    integer = integer.lstrip("0")
    digits = int((integer + fraction) or "0")
    minus = -1 if sign == "-" else 1
    if suffix in BINARY:
        power = BINARY[suffix]
        if not fraction and 15 - len(integer or "0") - power * 3 // 10 - 1 >= 0:
            return Quantity(minus * digits << power, 0, False)
        nano = -(-digits * 2**power * 10**9 // 10 ** len(fraction))
        if nano > INT64_MAX * 10**9:
            return Quantity(minus * INT64_MAX, 0, True)
        return Quantity(minus * nano, -9, True)
    exponent = DECIMAL[suffix] if suffix in DECIMAL else int(suffix[1:])
    scale = exponent - len(fraction)
    if len(integer or "0") + len(fraction) <= 18 and scale >= -9:
        return Quantity(minus * digits, scale, False)
    nano = digits * 10 ** (scale + 9) if scale >= -9 else -(-digits // 10 ** (-scale - 9))
    return Quantity(minus * nano, -9, True)


def quantity(raw: Any) -> Quantity:
    """A quantity from JSON: text, a bare number, or null (zero)."""
    return ZERO if raw is None else parse(str(raw).strip())


Requests = dict[str, Quantity]


def quantities(raw: Json | None) -> Requests:
    return {name: quantity(text) for name, text in (raw or {}).items()}


def add(total: Requests, more: Requests) -> None:
    for name, amount in more.items():
        total[name] = total[name] + amount if name in total else amount


def largest(first: Requests, second: Requests) -> Requests:
    """Key-wise maximum; a key of either side is a key of the result.

    Upstream's comparison brings an amount to the representation of the other one, and the greater amount stays so.
    """
    result = dict(first)
    for name, amount in second.items():
        if name not in result:
            result[name] = amount
        elif amount.nano() > result[name].nano():
            result[name] = Quantity(amount.mantissa, amount.scale, amount.big or result[name].big)
    return result


def aggregate(pod: Json, requests_of: Callable[[Json], Requests]) -> Requests:
    """Containers added up, against the highest moment while the init containers run in order (6.6.1)."""
    spec = pod.get("spec") or {}
    total: Requests = {}
    for container in spec.get("containers") or []:
        add(total, requests_of(container))
    sidecars: Requests = {}
    peak: Requests = {}
    for container in spec.get("initContainers") or []:
        if container.get("restartPolicy") == "Always":
            add(total, requests_of(container))
            add(sidecars, requests_of(container))
            phase = dict(sidecars)
        else:
            phase = dict(sidecars)
            add(phase, requests_of(container))
        peak = largest(peak, phase)
    return largest(total, peak)


def spec_requests(container: Json) -> Requests:
    return quantities((container.get("resources") or {}).get("requests"))


def is_pod_level(name: str) -> bool:
    """Resources that may be requested for the pod as a whole."""
    return name in ("cpu", "memory") or name.startswith("hugepages-")


def pod_level_requests(pod: Json) -> Requests:
    raw = ((pod.get("spec") or {}).get("resources") or {}).get("requests")
    return {name: amount for name, amount in quantities(raw).items() if is_pod_level(name)}


def overhead(pod: Json) -> Requests:
    return quantities((pod.get("spec") or {}).get("overhead"))


def demand(pod: Json) -> Requests:
    """What an incoming pod asks for: its spec alone, never its status."""
    total = aggregate(pod, spec_requests)
    total.update(pod_level_requests(pod))
    add(total, overhead(pod))
    return total


def resize_is_infeasible(pod: Json) -> bool:
    for condition in (pod.get("status") or {}).get("conditions") or []:
        if condition.get("type") == "PodResizePending":
            return condition.get("reason") == "Infeasible"
    return False


def occupancy(pod: Json) -> Requests:
    """What a placed pod occupies: the maximum of spec, allocated and actuated (6.6.2, Kubernetes 1.37)."""
    status = pod.get("status") or {}
    infeasible = resize_is_infeasible(pod)
    statuses: dict[str, Json] = {}
    for entry in (status.get("containerStatuses") or []) + (status.get("initContainerStatuses") or []):
        statuses.setdefault(entry.get("name"), entry)

    def desired(container: Json) -> Requests:
        return {} if infeasible else spec_requests(container)

    def allocated(container: Json) -> Requests:
        entry = statuses.get(container.get("name")) or {}
        raw = entry.get("allocatedResources")
        return quantities(raw) if raw is not None else desired(container)

    def actuated(container: Json) -> Requests:
        entry = statuses.get(container.get("name")) or {}
        raw = (entry.get("resources") or {}).get("requests")
        return quantities(raw) if raw is not None else allocated(container)

    pod_allocated = status.get("allocatedResources")
    pod_actuated = (status.get("resources") or {}).get("requests")
    if pod_allocated is not None and pod_actuated is not None:
        granted, in_effect = quantities(pod_allocated), quantities(pod_actuated)
    else:
        granted, in_effect = aggregate(pod, allocated), aggregate(pod, actuated)
    total: Requests = {} if infeasible else aggregate(pod, spec_requests)
    for requests in (in_effect, granted):
        total = largest(total, requests)

    pod_level = pod_level_requests(pod)
    if pod_level:
        if status.get("resources") is not None:
            pod_level = {} if infeasible else pod_level
            for raw in (pod_actuated, pod_allocated):
                pod_level = largest(pod_level, quantities(raw))
        total.update({name: amount for name, amount in pod_level.items() if is_pod_level(name)})
    add(total, overhead(pod))
    return total


QUALIFIED_PART = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def is_qualified_name(name: str) -> bool:
    prefix, slash, part = name.rpartition("/")
    if slash and not (len(prefix) <= 253 and SUBDOMAIN.fullmatch(prefix)):
        return False
    return len(part) <= 63 and QUALIFIED_PART.fullmatch(part) is not None


def is_extended(name: str) -> bool:
    if "/" not in name or "kubernetes.io/" in name or name.startswith("requests."):
        return False
    return is_qualified_name("requests." + name)


def is_scalar(name: str) -> bool:
    """Resources that NodeResourcesFit checks by name; everything else it does not know is ignored (4.5)."""
    return is_extended(name) or name.startswith(("hugepages-", "attachable-volumes-")) or "kubernetes.io/" in name


NATIVE = ("cpu", "memory", "ephemeral-storage")


def as_integers(amounts: Requests, *, with_pods: bool = False) -> dict[str, int]:
    """Milli-CPU, bytes and counts; resources that are not checked are dropped."""
    numbers: dict[str, int] = {}
    for name, amount in amounts.items():
        if name == "cpu":
            numbers[name] = amount.milli()
        elif name in NATIVE or is_scalar(name) or (with_pods and name == "pods"):
            numbers[name] = amount.value()
    return numbers


def total_occupied(pods: Iterable[Json]) -> dict[str, int]:
    """Each pod rounded up by itself, then added as (wrapping) integers."""
    used: dict[str, int] = {}
    for pod in pods:
        for name, number in as_integers(occupancy(pod)).items():
            used[name] = wrap(used.get(name, 0) + number)
    return used
