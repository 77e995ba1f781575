"""Cluster Autoscaler decisions."""
