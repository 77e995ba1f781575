"""A file that is read where it lies, the guard before it is read again, and what is no file to read."""

from __future__ import annotations

import mmap
import os
import weakref
from typing import BinaryIO

from kscale.errors import InputError, Problem

__all__ = ["MappedFile", "file_of"]


class MappedFile(mmap.mmap):
    """A mapped file, and what it was when it was mapped.

    To touch what is behind the end of a file that became shorter ends the process (SIGBUS), and what is read from one
    that was written to is something else: whoever reads later calls :meth:`check` first. A file that was deleted, or
    replaced by another under its name, is still there for the mapping.
    """

    source: str
    _descriptor: int
    _stamp: tuple[int, int]

    @classmethod
    def of(cls, file: BinaryIO, source: str) -> MappedFile:
        """Map a file. Raises ValueError or OSError for what cannot be mapped (empty, a pipe, a device)."""
        self = cls(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.source = source
        self._descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._descriptor)
        self._stamp = self._now()
        return self

    def _now(self) -> tuple[int, int]:
        found = os.fstat(self._descriptor)
        return found.st_size, found.st_mtime_ns

    def check(self) -> None:
        """Raises InputError if the file was written to since it was mapped."""
        if self._now() != self._stamp:
            raise InputError(Problem("the file was changed after it was read: load it again", self.source))


def file_of(view: memoryview) -> MappedFile | None:
    """The file that a view shows, if it is mapped."""
    return view.obj if isinstance(view.obj, MappedFile) else None
