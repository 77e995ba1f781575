"""Pods of a cluster as rows of a table."""
