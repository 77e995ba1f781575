"""Vertical Pod Autoscaler decisions."""
