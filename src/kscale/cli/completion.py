"""What the shell may complete: nothing is read for it."""

from __future__ import annotations

__all__ = ["expanders", "explained", "schema_kinds", "strategy_names"]


def expanders(incomplete: str) -> list[str]:
    """Chains of expanders: the names that may follow those that stand there."""
    from kscale.ca.expander.registry import EXPANDER_NAMES

    before, comma, last = incomplete.rpartition(",")
    given = set(before.split(","))
    return [f"{before}{comma}{name}" for name in EXPANDER_NAMES if name.startswith(last) and name not in given]


def strategy_names(incomplete: str) -> list[str]:
    """The strategies that kscale brings along."""
    from kscale.vpa.strategies import strategies

    return [name for name in strategies() if name.startswith(incomplete)]


def schema_kinds(incomplete: str) -> list[str]:
    """Documents and input files with a schema."""
    from kscale.schemas import DOCUMENTS, INPUTS

    return sorted(name for name in (*DOCUMENTS, *INPUTS) if name.lower().startswith(incomplete.lower()))


def explained(incomplete: str) -> list[str]:
    """What may stand where a pod is named."""
    return [word for word in ("hpa",) if word.startswith(incomplete)]
