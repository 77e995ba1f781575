"""Prices of Google's machine types as the Cluster Autoscaler has them (``gce_price_info.go``), as a CSV of
``table,key,value``: what a machine has follows from its name where a rule is published
(https://cloud.google.com/compute/docs/machine-resource)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from kscale.capacity.catalogue.machine import Kept, Machine
from kscale.capacity.catalogue.overhead import Overhead
from kscale.capacity.catalogue.table import price_in, rows_of
from kscale.capacity.catalogue.types import Catalogue
from kscale.errors import InputError, Problem

__all__ = ["HEADER", "read_google_prices", "shape_of"]

HEADER = ("table", "key", "value")
_REGION = "us_central1"
_ON_DEMAND, _SPOT = "instancePrices", "preemptiblePrices"
_NAME = re.compile(r"([a-z]\d+[a-z]?)-(standard|highmem|highcpu)-(\d+)(?:-[a-z]+)?")
_ARM = ("t2a", "c4a", "n4a")
_MIB_A_CORE: dict[str, dict[str, float]] = {
    "n1": {"standard": 3840, "highmem": 6656, "highcpu": 921.6},
    "n2": {"standard": 4096, "highmem": 8192, "highcpu": 1024},
    "n2d": {"standard": 4096, "highmem": 8192, "highcpu": 1024},
    "e2": {"standard": 4096, "highmem": 8192, "highcpu": 1024},
    "n4": {"standard": 4096, "highmem": 8192, "highcpu": 2048},
    "c2": {"standard": 4096},
    "c2d": {"standard": 4096, "highmem": 8192, "highcpu": 2048},
    "c3": {"standard": 4096, "highmem": 8192, "highcpu": 2048},
    "c3d": {"standard": 4096, "highmem": 8192},
    "t2d": {"standard": 4096},
    "t2a": {"standard": 4096},
    "z3": {"highmem": 8192},
    "g2": {"standard": 4096},
}
_OTHERS = {"n2-highmem-128": 864 * 1024}
_L4 = {4: 1, 8: 1, 12: 1, 16: 1, 24: 2, 32: 1, 48: 4, 96: 8}
_A2 = re.compile(r"a2-(highgpu|megagpu|ultragpu)-(\d+)g")


def shape_of(name: str) -> tuple[int, int, int, str] | None:
    """(cores, MiB, GPUs, their name) of a machine type by its name; None where no rule says it."""
    if found := _A2.fullmatch(name):
        gpus = int(found[2])
        if found[1] == "megagpu":
            return 96, 1360 * 1024, gpus, "nvidia-tesla-a100"
        gib, gpu = (85, "nvidia-tesla-a100") if found[1] == "highgpu" else (170, "nvidia-a100-80gb")
        return 12 * gpus, gib * 1024 * gpus, gpus, gpu
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    family, kind, cores = found[1], found[2], int(found[3])
    each = _MIB_A_CORE.get(family, {}).get(kind)
    if each is None or (family == "g2" and cores not in _L4):
        return None
    memory = _OTHERS.get(name, int(cores * each))
    return (cores, memory, _L4[cores], "nvidia-l4") if family == "g2" else (cores, memory, 0, "")


def read_google_prices(text: str, source: str, kept: Kept) -> Catalogue:
    """The machine types with a price. Those whose shape their name does not say are left out and counted."""
    prices: dict[str, dict[str, float]] = {_ON_DEMAND: {}, _SPOT: {}}
    problems: list[Problem] = []
    for place, cells in rows_of(text, source, HEADER):
        table, key, value = (cells.get(column) for column in HEADER)
        if table not in prices:
            continue  # of disks, GPUs and single cores
        price = price_in(value) if isinstance(value, str) else None
        if not key or price is None:
            problems.append(Problem(f'"{value}" is not a price', source, place, "value"))
        else:
            prices[table][key] = price
    if problems:
        raise InputError(problems)
    found = list(_machines(prices[_ON_DEMAND], prices[_SPOT]))
    left_out = Counter("the name does not say what it has" for each in found if isinstance(each, str))
    types = [each.instance_type(kept, Overhead.GKE) for each in found if isinstance(each, Machine)]
    return Catalogue({each.name: each for each in types}, source, left_out)


def _machines(on_demand: dict[str, float], spot: dict[str, float]) -> Iterable[Machine | str]:
    for name in dict.fromkeys((*on_demand, *spot)):
        shape = shape_of(name)
        if shape is None:
            yield name
            continue
        cores, memory, gpus, gpu_name = shape
        yield Machine(
            name,
            "arm64" if name.partition("-")[0] in _ARM else "amd64",
            cores,
            memory,
            gpus,
            gpu_name,
            prices={_REGION: on_demand[name]} if name in on_demand else {},
            spot_prices={_REGION: spot[name]} if name in spot else {},
        )
