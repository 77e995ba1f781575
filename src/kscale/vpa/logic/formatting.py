"""Amounts as they are shown: rounding and human-readable memory (``model/types.go``)."""

from __future__ import annotations

import math

from kscale.objects.base import ResourceList
from kscale.objects.quantity import Quantity
from kscale.vpa.options import RecommenderOptions
from kscale.vpa.resources import CPU, MEMORY, cpu_quantity, memory_quantity

__all__ = ["format_resources", "humanize", "round_up_to_scale"]


def round_up_to_scale(value: int, scale: int) -> int:
    """The next multiple of ``scale``; raises ValueError with upstream's text for a scale that is not positive."""
    if scale <= 0:
        raise ValueError("scale must be greater than zero")
    return math.ceil(float(value) / float(scale)) * scale


def humanize(size: int) -> str:
    """Bytes with two decimals in the largest binary unit that fits: ``4.65Gi``."""
    for power, unit in ((4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
        if size >= 1024**power:
            return f"{float(size) / float(1024**power):.2f}{unit}"
    return str(size)


def format_resources(cpu: int, memory: int, controlled: tuple[str, ...], options: RecommenderOptions) -> ResourceList:
    """The controlled ones of CPU (millicores) and memory (bytes) as quantities, rounded as the options say."""
    result: ResourceList = {}
    if CPU in controlled:
        result[CPU] = cpu_quantity(_rounded(cpu, options.round_cpu_millicores))
    if MEMORY in controlled:
        memory = _rounded(memory, options.round_memory_bytes)
        humanized = options.humanize_memory and memory != 0
        result[MEMORY] = Quantity(humanize(memory)) if humanized else memory_quantity(memory)
    return result


def _rounded(value: int, scale: int) -> int:
    if scale == 1 or value == 0 or scale <= 0:  # a scale that is not positive changes nothing, as upstream
        return value
    return round_up_to_scale(value, scale)
