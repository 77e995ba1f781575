"""What a strategy is, and where they are kept. kscale's own."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from operator import index
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from kscale.errors import InputError, KscaleError, NativeError, Problem
from kscale.objects.vpa import RecommendedContainerResources

__all__ = ["Advised", "ContainerUsage", "Strategy", "checked_advice", "find_strategy", "register", "strategies"]

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
    """What a strategy says of a container: CPU in millicores, memory in bytes; None = no advice. The bounds are those
    of upstream's recommender where there are any.

    The targets are ``cpu_request`` (millicores) and ``memory_request`` (bytes), limits that go with them ``cpu_limit``
    (millicores) and ``memory_limit`` (bytes). A request may stay from ``cpu_lower`` to ``cpu_upper`` (millicores), from
    ``memory_lower`` to ``memory_upper`` (bytes). ``cpu_uncapped`` (millicores) and ``memory_uncapped`` (bytes) are
    targets before a policy caps them.
    """

    cpu_request: int | None = None
    memory_request: int | None = None
    cpu_limit: int | None = None
    memory_limit: int | None = None
    cpu_lower: int | None = None
    cpu_upper: int | None = None
    memory_lower: int | None = None
    memory_upper: int | None = None
    cpu_uncapped: int | None = None
    memory_uncapped: int | None = None


class NoSettings(msgspec.Struct, frozen=True):
    """Nothing to change."""


class Strategy:
    """Base of strategies. A subclass sets ``name``, ``needs_samples`` and ``Settings``, and implements ``advise``.

    ``uses_recommendation``: whether it looks at what upstream's recommender says (``usage.recommendation``).

    ``Settings`` holds the numbers that the user may change: each field becomes a flag.
    """

    name: ClassVar[str] = ""
    needs_samples: ClassVar[bool] = True
    uses_recommendation: ClassVar[bool] = True

    Settings: ClassVar[type[msgspec.Struct]] = NoSettings

    def __init__(self, settings: Any = None) -> None:
        self.settings = settings if settings is not None else self.Settings()

    def advise(self, usage: ContainerUsage) -> Advised:
        """The advice for one container."""
        raise NotImplementedError


_REGISTRY: dict[str, type[Strategy]] = {}


def register(strategy: type[Strategy]) -> type[Strategy]:
    """Add a ``strategy`` under its name (usable as a class decorator). Raises ValueError for one without a name."""
    if not strategy.name:
        raise ValueError(f"{strategy.__name__} has no name")
    _REGISTRY[strategy.name] = strategy
    return strategy


@cache
def _installed() -> None:
    """Strategies of other packages: entry points of the group ``kscale.strategies``."""
    for point in entry_points(group="kscale.strategies"):
        try:
            _REGISTRY.setdefault(point.name, point.load())
        except Exception as error:
            raise InputError(Problem(_said(f"no strategy {point.name!r}", error), point.value)) from error


def strategies() -> Mapping[str, type[Strategy]]:
    """All strategies by name: ours, the registered ones, and those of installed packages."""
    _installed()
    return dict(_REGISTRY)


def _load_file(path: Path) -> ModuleType:
    name = f"kscale_strategy_{path.stem}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no module")
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _load(name: str) -> type[Strategy]:
    """``package.module:Class`` or ``file.py:Class``."""
    place, _, attribute = name.rpartition(":")
    try:
        module = _load_file(Path(place)) if place.endswith(".py") else import_module(place)
    except (Exception, SystemExit) as error:
        raise InputError(Problem(_said(f"no strategy {name!r}", error))) from error
    found = getattr(module, attribute, None)
    if not (isinstance(found, type) and issubclass(found, Strategy)):
        raise InputError(Problem(f"no strategy {name!r}: {attribute} is no subclass of Strategy", place))
    return found


def find_strategy(name: str, settings: Mapping[str, Any] | None = None) -> Strategy:
    """A strategy with settings, by its name or by where its class is (``package.module:Class``, ``file.py:Class``).

    Values of settings are numbers, or texts to be read as such. Raises ``InputError`` for an unknown name or setting.
    """
    known = strategies()
    found = known.get(name) or (_load(name) if ":" in name else None)
    if found is None:
        raise InputError(f"no strategy {name!r}; there are {', '.join(sorted(known))}")
    unknown = set(settings or {}) - set(found.Settings.__struct_fields__)
    if unknown:
        raise InputError(f"strategy {name} has no setting {', '.join(sorted(unknown))}")
    try:
        made = msgspec.convert(dict(settings or {}), found.Settings, strict=False)
    except msgspec.ValidationError as error:
        raise InputError(f"strategy {name}: {error}") from None
    for setting in found.Settings.__struct_fields__:
        value = getattr(made, setting)
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"strategy {name}: {setting} is {value}, not a finite number")
    try:
        return found(made)
    except KscaleError:
        raise
    except Exception as error:
        raise InputError(_said(f"strategy {name}", error)) from error


def checked_advice(strategy: Strategy, usage: ContainerUsage, where: str) -> Advised:
    """What a strategy advises upon ``usage`` of a container (``where``: its name for messages): whole numbers that are
    not negative.

    Raises ``InputError`` for anything else, and for whatever the strategy raises (``NativeError`` stays one).
    """
    source = f"strategy {strategy.name or type(strategy).__name__}"
    try:
        advised = strategy.advise(usage)
    except NativeError as error:
        raise NativeError(f"{where}: {error}") from error
    except Exception as error:
        raise InputError(Problem(_said("failed", error), source, where)) from error
    if not isinstance(advised, Advised):
        raise InputError(Problem(f"returned {type(advised).__name__}, not Advised", source, where))
    amounts: list[int | None] = []
    for name, value in zip(Advised._fields, advised, strict=True):
        try:
            amount = None if value is None else index(value)
        except TypeError:
            amount = -1
        if amount is not None and not 0 <= amount < 2**63:
            raise InputError(Problem(f"{value!r} is no whole number from 0 to 2**63-1", source, where, name))
        amounts.append(amount)
    return Advised(*amounts)


def _said(what: str, error: BaseException) -> str:
    return f"{what}: {type(error).__name__}: {error}"
