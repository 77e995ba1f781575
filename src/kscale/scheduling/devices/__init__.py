"""Devices of dynamic resource allocation: what nodes offer, what claims want, and whether the two meet."""

from __future__ import annotations
