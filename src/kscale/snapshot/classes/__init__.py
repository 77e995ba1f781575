"""Equivalence classes of pods."""
