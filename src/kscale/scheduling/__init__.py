"""Scheduling simulation: filter plug-ins, profiles, fit checks, placement of pods, equivalence groups and bounds."""
