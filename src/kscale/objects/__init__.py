"""Kubernetes API objects as typed data."""
