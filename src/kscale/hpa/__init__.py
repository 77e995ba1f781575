"""Horizontal Pod Autoscaler decisions."""
