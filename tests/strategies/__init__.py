"""Hypothesis strategies for whole problems, as Kubernetes JSON in the shape of the recorded inputs."""
