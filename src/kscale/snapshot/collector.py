"""The cyclic garbage collector, while very many objects and no cycles are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["collector_at_ease", "collector_paused"]

_AT_EASE: Final = 50_000


@contextmanager
def collector_paused(*, stays: bool = False) -> Iterator[None]:
    """No cyclic garbage collection meanwhile: it would walk the same objects again and again, and find nothing.

    ``stays``: what is made stays for long. It goes to the oldest generation unwalked, as if it had been looked at; not
    where the program has frozen objects, which would be thawed."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if stays and not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()


@contextmanager
def collector_at_ease() -> Iterator[None]:
    """Cyclic garbage is looked for after so many more objects, meanwhile: for what makes millions of them, few in
    cycles, on top of very many that stay. A collector that is off, or is more at ease already, stays as it is."""
    first, *others = gc.get_threshold()
    if first:
        gc.set_threshold(max(first, _AT_EASE), *others)
    try:
        yield
    finally:
        gc.set_threshold(first, *others)
