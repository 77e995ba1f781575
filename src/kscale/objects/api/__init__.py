"""Typed structs of the Kubernetes API groups."""
