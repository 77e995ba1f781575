"""What the oracle can be asked: one module per family, each with its ``KINDS``."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from types import ModuleType
from typing import Any, Literal

from golden_support import adapter

__all__ = ["Kind", "find_kinds"]

Json = dict[str, Any]


def _unchanged(answer: Any) -> Any:
    return answer


@dataclass(frozen=True)
class Kind:
    """A kind of question: how to draw one, whom to ask, and how to compare kscale's answer.

    ``name`` is the kind of the recorded answers in ``tests/golden``, whose adapter compares. ``draw`` returns an input
    that depends on nothing but the random numbers that it takes. ``weight`` is the share of cases in a campaign of
    several kinds. ``fixed``: keys of objects that are left alone when a case is made small.
    ``comparable`` returns an answer without the parts that are not compared, such as debug information.
    """

    name: str
    family: str
    draw: Callable[[Random], Json]
    program: Literal["kubernetes", "vpa", "karpenter"] = "kubernetes"
    weight: int = 1
    fixed: frozenset[str] = frozenset()
    comparable: Callable[[Any], Any] = _unchanged

    def __str__(self) -> str:
        return self.name

    @property
    def adapter(self) -> ModuleType:
        """The module in ``tests/golden/adapters`` that calls kscale and compares."""
        module = adapter(self.name)
        assert module is not None, f"no adapter for {self.name}"
        return module


def find_kinds() -> dict[str, Kind]:
    """Return all kinds of all families by name."""
    kinds: dict[str, Kind] = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        for kind in module.KINDS:
            assert kind.name not in kinds, kind.name
            kinds[kind.name] = kind
    return kinds
