"""What happens to a recommendation before it is written (upstream: ``pkg/recommender/routines/*postprocessor*``)."""

from __future__ import annotations

from kscale.vpa.postprocess.capping import apply_policy
from kscale.vpa.postprocess.integer_cpu import integer_cpu, integer_cpu_containers

__all__ = ["apply_policy", "integer_cpu", "integer_cpu_containers"]
