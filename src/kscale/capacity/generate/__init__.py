"""Generate a realistic cluster from a seed, for load tests and examples."""

from __future__ import annotations

from kscale.capacity.generate.cluster import GeneratedCluster, generate
from kscale.capacity.generate.workloads import write_usage

__all__ = ["GeneratedCluster", "generate", "write_usage"]
