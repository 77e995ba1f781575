"""The filter-out-schedulable pod list processor (upstream: ``core/podlistprocessor/filter_out_schedulable.go``)."""

from __future__ import annotations

from kscale.scheduling.place import place as filter_out_schedulable

__all__ = ["filter_out_schedulable"]
