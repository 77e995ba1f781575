"""Memory-mapped files, objects in their text, and files compressed with gzip or zstd."""

from __future__ import annotations

import io
import mmap
import os
import weakref
import zlib
from collections.abc import Callable
from threading import Lock
from typing import Any, BinaryIO, Final, TypeAlias, TypeVar

import msgspec

from kscale.errors import InputError, Problem
from kscale.imports import library
from kscale.objects.api.meta import KubeObject

__all__ = ["Buffer", "MappedFile", "UndecodedObject", "decompress", "file_of"]

T = TypeVar("T")


class MappedFile(mmap.mmap):
    """A memory-mapped file, with its size and time when it was mapped.

    Reading beyond the end of a file that was truncated ends the process (SIGBUS), and a file that was written to has
    other contents, so call :meth:`check` before later reads. The mapping of a deleted or replaced file stays valid.
    """

    source: str
    _descriptor: int
    _stamp: tuple[int, int]

    @classmethod
    def of(cls, file: BinaryIO, source: str) -> MappedFile:
        """Map a file. Raises ValueError or OSError if it cannot be mapped (empty, a pipe, a device)."""
        self = cls(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.source = source
        self._descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._descriptor)
        self._stamp = self._get_signature()
        return self

    def _get_signature(self) -> tuple[int, int]:
        """Return (size in bytes, modification time in nanoseconds) of the file now."""
        status = os.fstat(self._descriptor)
        return status.st_size, status.st_mtime_ns

    def check(self) -> None:
        """Raise InputError if the file was modified since it was mapped."""
        if self._get_signature() != self._stamp:
            raise InputError(Problem("the file was changed after it was read: load it again", self.source))

    def release(self) -> None:
        """Give the memory of pages that were read back to the system. Pages that are read later are mapped again."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self.madvise(mmap.MADV_DONTNEED)


def file_of(view: memoryview) -> MappedFile | None:
    """Return the mapped file that a view belongs to, or None."""
    return view.obj if isinstance(view.obj, MappedFile) else None


class UndecodedObject(msgspec.Struct, gc=False, eq=False):
    """An object as its JSON ``text``, which was checked: ``decode`` is called when the object is needed first."""

    text: memoryview
    decode: Callable[[memoryview], KubeObject]
    decoded: KubeObject | None = None

    def get(self) -> KubeObject:
        """Decode the object on the first call, and return the same object on every call. Thread-safe.

        Raises InputError if the object's file was changed after the scan.
        """
        if self.decoded is None:
            with _DECODING:  # several threads may use snapshots of one cluster
                if self.decoded is None:
                    if (file := file_of(self.text)) is not None:
                        file.check()
                    self.decoded = self.decode(self.text)
        return self.decoded

    def __reduce__(self) -> tuple[Any, ...]:
        return _identity, (self.get(),)


_DECODING: Final = Lock()


def _identity(value: T) -> T:
    """Return the value. Unpickles an :class:`UndecodedObject` as the object that it was decoded to."""
    return value


Buffer: TypeAlias = "bytes | bytearray | memoryview | MappedFile | msgspec.Raw"

_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_PIECE: Final = 1 << 24
_PIECE_OF_ZSTD: Final = 1 << 12  # bytes of compressed data, which may decompress to 32,768 times as much
_MOST_OF_GZIP: Final = 1032
"""Maximum compression ratio of deflate."""
_MOST_OF_TEXT: Final = 300
"""Limit of the compression ratio of API objects. Even equal, pretty-printed objects stay far below it."""
_SUSPICIOUS: Final = 1 << 30


def _gunzip(buffer: Buffer) -> bytes:
    """Return the decompressed data.

    Raises EOFError if the data are truncated, OSError or zlib.error if they are damaged, and OSError if they are too
    large for a dump.
    """
    import gzip  # slow to import, and most dumps are not compressed

    if len(buffer) * _MOST_OF_GZIP <= _SUSPICIOUS:
        return gzip.decompress(buffer)
    parts, size = [], 0
    with gzip.GzipFile(fileobj=io.BytesIO(buffer)) as file:
        while part := file.read(_PIECE):
            parts.append(part)
            size += len(part)
            _refuse_endless(size, buffer)
    return b"".join(parts)


def decompress(buffer: Buffer, source: str) -> Buffer | Problem:
    """Return the buffer, decompressed if it is gzip or zstd.

    Returns a Problem if the data are damaged, truncated, or decompress to more than a dump can have. Raises
    MissingExtraError for zstd without the library.
    """
    start = bytes(memoryview(buffer)[:4])
    packing = "gzip" if start[:2] == _GZIP else "zstd"
    try:
        if start[:2] == _GZIP:
            return _gunzip(buffer)
        if start == _ZSTD:
            return _zstd(buffer)
    except EOFError:
        return Problem(f"the {packing} data ends too early: the file is truncated", source)
    except (OSError, zlib.error) as error:
        return Problem(f"damaged {packing} data: {error}", source)
    return buffer


def _zstd(buffer: Buffer) -> bytes:
    """Return the decompressed data.

    Raises EOFError if the data are truncated, and OSError if they are damaged or too large for a dump.
    """
    zstandard = library("zstandard", "reading .zst files")
    view, parts, at, size = memoryview(buffer), list[bytes](), 0, 0
    while at < len(view):  # frame by frame, as a stream reader would not notice that a file is truncated
        frame = zstandard.ZstdDecompressor().decompressobj()
        while not frame.eof:
            piece = view[at : at + _PIECE_OF_ZSTD]
            if not piece:
                raise EOFError
            try:
                parts.append(frame.decompress(piece))
            except zstandard.ZstdError as error:
                raise OSError(str(error)) from None
            at += len(piece)
            size += len(parts[-1])
            _refuse_endless(size, buffer)
        at -= len(frame.unused_data)
    return b"".join(parts)


def _refuse_endless(size: int, buffer: Buffer) -> None:
    """Raise OSError if ``size`` decompressed bytes of ``buffer`` are too many for a dump."""
    if size > max(_SUSPICIOUS, _MOST_OF_TEXT * len(buffer)):
        raise OSError(f"it unpacks to more than {_MOST_OF_TEXT} times its size")
