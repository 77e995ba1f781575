"""Cluster simulated in virtual time, behind the same protocols as a live cluster."""
