"""Strategies turn usage into requests: base class and registry, percentiles, upstream's recommender, and strategies
compiled by numba.

The settings of a strategy become command-line flags. Not in upstream.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from operator import index
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, ClassVar, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from kscale.errors import InputError, KscaleError, NativeError, Problem
from kscale.imports import library
from kscale.objects.api.meta import ResourceList
from kscale.objects.api.vpa import RecommendedContainerResources
from kscale.objects.argument_types import typed
from kscale.vpa.resources import CPU, MEMORY

__all__ = [
    "CompiledStrategy",
    "ContainerUsage",
    "PercentileLimitStrategy",
    "PercentileStrategy",
    "RecommenderStrategy",
    "Strategy",
    "StrategyAdvice",
    "find_strategy",
    "get_checked_advice",
    "list_strategies",
    "register_strategy",
]


SampleArray = npt.NDArray[np.float64]


@dataclass(slots=True)
class ContainerUsage:
    """All data about one container name of a workload.

    ``cpu`` (cores) and ``memory`` (bytes): pod -> its samples in time order; empty unless the strategy needs them.
    """

    cpu: dict[str, SampleArray] = field(default_factory=dict)
    memory: dict[str, SampleArray] = field(default_factory=dict)
    oom_memory: int = 0
    """Largest memory request of a container that was killed, in bytes."""
    recommendation: RecommendedContainerResources | None = None
    """Recommendation of upstream's recommender."""


class StrategyAdvice(NamedTuple):
    """Advice of a strategy for a container: CPU in millicores, memory in bytes; None for no advice.

    The bounds are those of upstream's recommender if there are any.

    The targets are ``cpu_request`` (millicores) and ``memory_request`` (bytes), the matching limits ``cpu_limit``
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
    """Settings of a strategy without settings."""


class Strategy:
    """Base class of strategies. A subclass sets ``name``, ``needs_samples`` and ``Settings``, and implements
    ``advise``.

    ``uses_recommendation``: whether it reads upstream's recommendation (``usage.recommendation``). Each field of
    ``Settings``, the numbers that a user may change, becomes a flag.
    """

    name: ClassVar[str] = ""
    needs_samples: ClassVar[bool] = True
    uses_recommendation: ClassVar[bool] = True

    Settings: ClassVar[type[msgspec.Struct]] = NoSettings

    def __init__(self, settings: Any = None) -> None:
        self.settings = settings if settings is not None else self.Settings()

    def advise(self, usage: ContainerUsage) -> StrategyAdvice:
        """Return the advice for one container. Subclasses must override it: here it raises NotImplementedError."""
        raise NotImplementedError


_REGISTRY: dict[str, type[Strategy]] = {}


def register_strategy(strategy: type[Strategy]) -> type[Strategy]:
    """Add a ``strategy`` under its name (usable as a class decorator). Raises ValueError for one without a name."""
    if not strategy.name:
        raise ValueError(f"{strategy.__name__} has no name")
    _REGISTRY[strategy.name] = strategy
    return strategy


@cache
def _load_installed_strategies() -> None:
    """Register the strategies of other packages: entry points of the group ``kscale.strategies``, once per process.

    A registered name is not replaced. Raises InputError if an entry point cannot be loaded.
    """
    for point in entry_points(group="kscale.strategies"):
        try:
            _REGISTRY.setdefault(point.name, point.load())
        except Exception as error:
            raise InputError(Problem(_format_error(f"no strategy {point.name!r}", error), point.value)) from error


def list_strategies() -> Mapping[str, type[Strategy]]:
    """Return all strategies by name: built-in, registered, and those of installed packages.

    Raises InputError if a strategy of an installed package cannot be loaded.
    """
    _load_installed_strategies()
    return dict(_REGISTRY)


def _import_file(path: Path) -> ModuleType:
    """Import a Python file as the module ``kscale_strategy_<stem>``. Raises ImportError if it is not a Python file."""
    name = f"kscale_strategy_{path.stem}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no module")
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _load_strategy_class(name: str) -> type[Strategy]:
    """Import a class from ``package.module:Class`` or ``file.py:Class``.

    Raises InputError if that fails, or the class is no strategy.
    """
    place, _, attribute = name.rpartition(":")
    try:
        module = _import_file(Path(place)) if place.endswith(".py") else import_module(place)
    except (Exception, SystemExit) as error:
        raise InputError(Problem(_format_error(f"no strategy {name!r}", error))) from error
    strategy_class = getattr(module, attribute, None)
    if not (isinstance(strategy_class, type) and issubclass(strategy_class, Strategy)):
        raise InputError(Problem(f"no strategy {name!r}: {attribute} is no subclass of Strategy", place))
    return strategy_class


@typed
def find_strategy(name: str, settings: Mapping[str, Any] | None = None) -> Strategy:
    """Create a strategy with settings, by its name or its class (``package.module:Class``, ``file.py:Class``).

    Values of settings are numbers or texts of numbers. Raises ``InputError`` for an unknown name or setting, an invalid
    value, and a class that cannot be loaded or created.
    """
    known = list_strategies()
    strategy_class = known.get(name) or (_load_strategy_class(name) if ":" in name else None)
    if strategy_class is None:
        raise InputError(f"no strategy {name!r}; there are {', '.join(sorted(known))}")
    unknown = set(settings or {}) - set(strategy_class.Settings.__struct_fields__)
    if unknown:
        raise InputError(f"strategy {name} has no setting {', '.join(sorted(unknown))}")
    try:
        converted = msgspec.convert(dict(settings or {}), strategy_class.Settings, strict=False)
    except msgspec.ValidationError as error:
        raise InputError(f"strategy {name}: {error}") from None
    for setting in strategy_class.Settings.__struct_fields__:
        value = getattr(converted, setting)
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"strategy {name}: {setting} is {value}, not a finite number")
    try:
        return strategy_class(converted)
    except KscaleError:
        raise
    except Exception as error:
        raise InputError(_format_error(f"strategy {name}", error)) from error


def get_checked_advice(strategy: Strategy, usage: ContainerUsage, where: str) -> StrategyAdvice:
    """Return a strategy's advice for the ``usage`` of a container, and check that it consists of valid amounts.

    Each amount is None or an integer from 0 to 2^63-1. ``where``: the container's name in messages. Raises
    ``InputError`` if the strategy returns anything else or raises an exception, and ``NativeError`` if it raises one.
    """
    source = f"strategy {strategy.name or type(strategy).__name__}"
    try:
        advised = strategy.advise(usage)
    except NativeError as error:
        raise NativeError(f"{where}: {error}") from error
    except Exception as error:
        raise InputError(Problem(_format_error("failed", error), source, where)) from error
    if not isinstance(advised, StrategyAdvice):
        raise InputError(Problem(f"returned {type(advised).__name__}, not StrategyAdvice", source, where))
    amounts: list[int | None] = []
    for name, value in zip(StrategyAdvice._fields, advised, strict=True):
        try:
            amount = None if value is None else index(value)
        except TypeError:
            amount = -1
        if amount is not None and not 0 <= amount < 2**63:
            raise InputError(Problem(f"{value!r} is no whole number from 0 to 2**63-1", source, where, name))
        amounts.append(amount)
    return StrategyAdvice(*amounts)


def _format_error(what: str, error: BaseException) -> str:
    """Return ``what``, the type and the text of an error in one line."""
    return f"{what}: {type(error).__name__}: {error}"


class CompiledStrategy(Strategy):
    """Base class of strategies with a compiled ``kernel``; a subclass sets ``name``, ``Settings`` and ``kernel``.

    ``kernel(cpu, memory, settings)`` is a static method in the part of Python that numba compiles. ``cpu`` (cores) and
    ``memory`` (bytes) are float64 arrays of the samples of all pods, pod after pod; ``settings`` is a tuple of the
    settings in their order, or ``(0.0,)`` without any. It returns (CPU request, memory request, CPU limit, memory
    limit) in cores and bytes; NaN for no advice. Amounts are rounded up to whole millicores and bytes.
    """

    uses_recommendation: ClassVar[bool] = False
    kernel: ClassVar[Callable[..., tuple[float, float, float, float]]]

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        self._compiled = library("numba", "a compiled strategy").njit(nogil=True)(type(self).kernel)
        self._numbers = tuple(map(float, msgspec.structs.astuple(self.settings))) or (0.0,)

    def advise(self, usage: ContainerUsage) -> StrategyAdvice:
        """Run the kernel on the samples of all pods, and return its advice.

        Raises :class:`kscale.errors.NativeError` if the kernel fails or does not return four numbers.
        """
        try:
            answer = self._compiled(
                _concatenate_samples(usage.cpu.values()), _concatenate_samples(usage.memory.values()), self._numbers
            )
        except Exception as error:
            raise NativeError(f"strategy {self.name}: {type(error).__name__}: {error}") from error
        try:
            cpu, memory, cpu_limit, memory_limit = map(float, answer)
        except (TypeError, ValueError):
            raise NativeError(f"strategy {self.name}: the kernel returned {answer!r}, not four numbers") from None
        return StrategyAdvice(
            cpu_request=_to_whole_amount(cpu * 1000),
            memory_request=_to_whole_amount(memory),
            cpu_limit=_to_whole_amount(cpu_limit * 1000),
            memory_limit=_to_whole_amount(memory_limit),
        )


def _concatenate_samples(pods: Iterable[SampleArray]) -> SampleArray:
    """Return the samples of all pods in one array."""
    return np.concatenate([np.empty(0), *pods])


def _to_whole_amount(amount: float) -> int | None:
    """Round up to an integer; None for NaN and infinite numbers (no advice)."""
    return math.ceil(amount) if math.isfinite(amount) else None


_MEBIBYTE: Final = 1024**2

Percent = Annotated[float, msgspec.Meta(ge=0, le=100)]
Buffer = Annotated[float, msgspec.Meta(ge=0, le=10_000)]
MinAmount = Annotated[int, msgspec.Meta(ge=0, le=10**9)]


def _to_millicores(cores: float, minimum: int) -> int:
    """Convert cores to millicores, rounded up, at least ``minimum`` (millicores)."""
    return max(math.ceil(cores * 1000), minimum)


def _to_bytes(size: float, minimum_mebibytes: int) -> int:
    """Round bytes up to whole MiB, at least ``minimum_mebibytes``. Returns bytes."""
    return max(math.ceil(size / _MEBIBYTE), minimum_mebibytes) * _MEBIBYTE


def _drop_empty(pods: Iterable[SampleArray]) -> list[SampleArray]:
    """Return the samples of those pods that have any."""
    return [samples for samples in pods if len(samples)]


class PercentileSettings(msgspec.Struct, frozen=True):
    """Settings of percentiles: ``cpu_percentile`` in percent; memory is the peak plus ``memory_buffer_percentage``;
    minimum requests.
    """

    cpu_percentile: Percent = 95.0
    memory_buffer_percentage: Buffer = 15.0
    oom_memory_buffer_percentage: Buffer = 25.0
    cpu_min_millicores: MinAmount = 10
    memory_min_mib: MinAmount = 100


@register_strategy
class PercentileStrategy(Strategy):
    """CPU request = the largest pod's percentile, no CPU limit; memory request = limit = peak plus a buffer."""

    name: ClassVar[str] = "percentile"
    uses_recommendation: ClassVar[bool] = False
    Settings: ClassVar[type[msgspec.Struct]] = PercentileSettings
    settings: PercentileSettings

    def advise(self, usage: ContainerUsage) -> StrategyAdvice:
        """Return the CPU percentile of the pod with the highest one as CPU request, without a CPU limit.

        The memory request and limit are the memory peak of all pods plus a buffer. The setting ``cpu_percentile`` is
        rounded to a whole number. A resource without samples gets no advice. The memory is at least
        ``usage.oom_memory`` plus the buffer for OOM kills. Amounts are rounded up to millicores and MiB, and are at
        least the minimums of the settings.
        """
        how = self.settings
        cpu = _drop_empty(usage.cpu.values())
        memory = _drop_empty(usage.memory.values())
        millicores = None
        if cpu:
            share = round(how.cpu_percentile / 100, 2)
            cores = max(float(np.quantile(samples, share)) for samples in cpu)
            millicores = _to_millicores(cores, how.cpu_min_millicores)
        size = None
        if memory:
            peak = max(float(samples.max()) for samples in memory) * (1 + how.memory_buffer_percentage / 100)
            peak = max(peak, usage.oom_memory * (1 + how.oom_memory_buffer_percentage / 100))
            size = _to_bytes(peak, how.memory_min_mib)
        return StrategyAdvice(cpu_request=millicores, memory_request=size, memory_limit=size)


class PercentileLimitSettings(msgspec.Struct, frozen=True):
    """Percentiles in percent, the buffer on the memory peak, and minimum requests."""

    cpu_request_percentile: Percent = 66.0
    cpu_limit_percentile: Percent = 96.0
    memory_buffer_percentage: Buffer = 15.0
    oom_memory_buffer_percentage: Buffer = 25.0
    cpu_min_millicores: MinAmount = 10
    memory_min_mib: MinAmount = 100


@register_strategy
class PercentileLimitStrategy(Strategy):
    """CPU request and limit = two percentiles over the samples of all pods together; memory as ``percentile``."""

    name: ClassVar[str] = "percentile-limit"
    uses_recommendation: ClassVar[bool] = False
    Settings: ClassVar[type[msgspec.Struct]] = PercentileLimitSettings
    settings: PercentileLimitSettings

    def advise(self, usage: ContainerUsage) -> StrategyAdvice:
        """Return two percentiles over the CPU samples of all pods as CPU request and limit, and the memory of
        :class:`PercentileStrategy`.

        A resource without samples gets no advice.
        """
        how = self.settings
        memory = PercentileStrategy(
            PercentileSettings(
                memory_buffer_percentage=how.memory_buffer_percentage,
                oom_memory_buffer_percentage=how.oom_memory_buffer_percentage,
                memory_min_mib=how.memory_min_mib,
            )
        ).advise(ContainerUsage(memory=usage.memory, oom_memory=usage.oom_memory))
        cpu = _drop_empty(usage.cpu.values())
        if not cpu:
            return memory
        request, limit = np.percentile(
            np.concatenate(cpu), [how.cpu_request_percentile, how.cpu_limit_percentile]
        ).tolist()
        return memory._replace(
            cpu_request=_to_millicores(request, how.cpu_min_millicores),
            cpu_limit=_to_millicores(limit, how.cpu_min_millicores),
        )


@register_strategy
class RecommenderStrategy(Strategy):
    """The Vertical Pod Autoscaler's target, with its bounds."""

    name: ClassVar[str] = "vpa"
    needs_samples: ClassVar[bool] = False

    def advise(self, usage: ContainerUsage) -> StrategyAdvice:
        """Return the target of ``usage.recommendation`` as the advised requests, with its bounds and uncapped target.

        No advice without a recommendation.
        """
        item = usage.recommendation
        if item is None:
            return StrategyAdvice()

        def cpu(values: ResourceList | None) -> int | None:
            quantity = (values or {}).get(CPU)
            return quantity.milli_value() if quantity is not None else None

        def memory(values: ResourceList | None) -> int | None:
            quantity = (values or {}).get(MEMORY)
            return quantity.value() if quantity is not None else None

        return StrategyAdvice(
            cpu_request=cpu(item.target),
            memory_request=memory(item.target),
            cpu_lower=cpu(item.lower_bound),
            cpu_upper=cpu(item.upper_bound),
            memory_lower=memory(item.lower_bound),
            memory_upper=memory(item.upper_bound),
            cpu_uncapped=cpu(item.uncapped_target),
            memory_uncapped=memory(item.uncapped_target),
        )
