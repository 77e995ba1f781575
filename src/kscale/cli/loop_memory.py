"""What one run of the autoscaler's loop hands to the next on the command line, and the time of the decision."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kscale.cli.moments import parse_moment
from kscale.cli.options import OptionGroup
from kscale.errors import StateError
from kscale.files import read_file, replace_file

if TYPE_CHECKING:
    from kscale.ca.state import LoopState

__all__ = ["LoopMemory"]


@dataclass
class LoopMemory(OptionGroup):
    """The options that say when a loop is run, and what is remembered from run to run."""

    state: Annotated[
        Path | None,
        typer.Option("--state", metavar="FILE", help="File with the state of an earlier run; read if it exists."),
    ] = None
    save_state: Annotated[
        Path | None, typer.Option("--save-state", metavar="FILE", help="File to write the state for the next run to.")
    ] = None
    now: Annotated[
        str | None, typer.Option("--now", metavar="TIME", help="The time of the decision, RFC 3339; default: now.")
    ] = None

    def moment(self) -> datetime:
        """When the loop is run."""
        return datetime.now(UTC) if self.now is None else parse_moment(self.now)

    def remembered(self) -> LoopState | None:
        """What an earlier run left; None for the first. Raises StateError for a file that is none of it."""
        from kscale.ca.state import LoopState

        if self.state is None or not self.state.exists():
            return None
        try:
            return LoopState.from_json(read_file(self.state))
        except StateError as error:
            raise StateError(f"{self.state}: {error}") from None

    def save(self, state: LoopState) -> None:
        """Leaves it to the next run, if one is meant to follow."""
        if self.save_state is not None:
            replace_file(self.save_state, state.to_json())
