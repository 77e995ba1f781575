"""Kubernetes manifests that run kscale's programs in a cluster."""
