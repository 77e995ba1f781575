"""Decisions of Cluster Autoscaler 1.3 (``profile="legacy"``)."""
