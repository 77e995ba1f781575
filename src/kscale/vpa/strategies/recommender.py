"""Upstream's recommender."""

from __future__ import annotations

from typing import ClassVar

from kscale.objects.base import ResourceList
from kscale.vpa.resources import CPU, MEMORY
from kscale.vpa.strategies.base import Advised, ContainerUsage, Strategy, register

__all__ = ["Recommender"]


@register
class Recommender(Strategy):
    """The Vertical Pod Autoscaler's target, with its bounds."""

    name: ClassVar[str] = "vpa"
    needs_samples: ClassVar[bool] = False

    def advise(self, usage: ContainerUsage) -> Advised:
        """Requests = target."""
        item = usage.recommendation
        if item is None:
            return Advised()

        def cpu(values: ResourceList | None) -> int | None:
            found = (values or {}).get(CPU)
            return found.milli_value() if found is not None else None

        def memory(values: ResourceList | None) -> int | None:
            found = (values or {}).get(MEMORY)
            return found.value() if found is not None else None

        return Advised(
            cpu_request=cpu(item.target),
            memory_request=memory(item.target),
            cpu_lower=cpu(item.lower_bound),
            cpu_upper=cpu(item.upper_bound),
            memory_lower=memory(item.lower_bound),
            memory_upper=memory(item.upper_bound),
            cpu_uncapped=cpu(item.uncapped_target),
            memory_uncapped=memory(item.uncapped_target),
        )
