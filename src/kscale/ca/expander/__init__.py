"""Expanders: which of several possible scale-ups to make. One file each, one registry, one chain."""
