"""A realistic generated cluster as Kubernetes objects: for demonstrations and benchmarks without a dump."""

from __future__ import annotations

from kscale.capacity.generate.cluster import GeneratedCluster, generate

__all__ = ["GeneratedCluster", "generate"]
