"""Which node is best: kube-scheduler's Score plug-ins."""

from __future__ import annotations
