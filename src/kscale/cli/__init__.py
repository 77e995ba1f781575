"""The command line."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    raise SystemExit("the command line is being built")
