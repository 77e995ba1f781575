"""Devices of dynamic resource allocation: what nodes offer, what claims request, and their allocation."""

from __future__ import annotations
