"""What a strategy is, and where they are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from kscale.errors import InputError
from kscale.objects.vpa import RecommendedContainerResources

__all__ = ["Advised", "ContainerUsage", "Strategy", "find_strategy", "register", "strategies"]

Samples = npt.NDArray[np.float64]


@dataclass(slots=True)
class ContainerUsage:
    """All that is known of one container name of a workload.

    ``cpu`` (cores) and ``memory`` (bytes): pod -> its samples in time order; empty unless the strategy asks for them.
    """

    cpu: dict[str, Samples] = field(default_factory=dict)
    memory: dict[str, Samples] = field(default_factory=dict)
    oom_memory: int = 0
    """The largest memory that a killed container had asked for, in bytes."""
    recommendation: RecommendedContainerResources | None = None
    """What upstream's recommender says."""


class Advised(NamedTuple):
    """Millicores and bytes; None = no advice. The bounds are those of upstream's recommender where there are any."""

    cpu_request: int | None = None
    memory_request: int | None = None
    cpu_limit: int | None = None
    memory_limit: int | None = None
    cpu_lower: int | None = None
    cpu_upper: int | None = None
    memory_lower: int | None = None
    memory_upper: int | None = None


class NoSettings(msgspec.Struct, frozen=True):
    """Nothing to change."""


class Strategy:
    """Base of strategies. A subclass sets ``name``, ``needs_samples`` and ``Settings``, and implements ``advise``.

    ``Settings`` holds the numbers that the user may change: each field becomes a flag.
    """

    name: ClassVar[str] = ""
    needs_samples: ClassVar[bool] = True

    Settings: ClassVar[type[msgspec.Struct]] = NoSettings

    def __init__(self, settings: Any = None) -> None:
        self.settings = settings if settings is not None else self.Settings()

    def advise(self, usage: ContainerUsage) -> Advised:
        """The advice for one container."""
        raise NotImplementedError


_REGISTRY: dict[str, type[Strategy]] = {}


def register(strategy: type[Strategy]) -> type[Strategy]:
    """Add a strategy under its name (usable as a class decorator)."""
    if not strategy.name:
        raise ValueError(f"{strategy.__name__} has no name")
    _REGISTRY[strategy.name] = strategy
    return strategy


def strategies() -> Mapping[str, type[Strategy]]:
    """All strategies by name."""
    return dict(_REGISTRY)


def find_strategy(name: str, settings: Mapping[str, Any] | None = None) -> Strategy:
    """A strategy with settings; raises ``InputError`` for an unknown name or setting."""
    found = _REGISTRY.get(name)
    if found is None:
        raise InputError(f"no strategy {name!r}; there are {', '.join(sorted(_REGISTRY))}")
    unknown = set(settings or {}) - set(found.Settings.__struct_fields__)
    if unknown:
        raise InputError(f"strategy {name} has no setting {', '.join(sorted(unknown))}")
    return found(found.Settings(**(settings or {})))
