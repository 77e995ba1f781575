"""Scores of nodes: kube-scheduler's Score plug-ins."""

from __future__ import annotations
