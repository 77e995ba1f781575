"""Files of the user: read up to a limit, written as a whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

__all__ = ["ENDLESS", "MAX_FILE", "is_endless", "read_file", "replace_file", "replacing"]

MAX_FILE: Final = 512 * 1024 * 1024
"""Bytes of a file that is read whole: settings, states, catalogues. Dumps and histories have readers of their own."""
ENDLESS: Final = "a device is no file to read"
_NULL_DEVICE: Final = os.stat(os.devnull).st_rdev
_SECRET: Final = 0o600


def is_endless(status: os.stat_result) -> bool:
    """Return whether a file is a device that may give bytes for ever."""
    device = stat.S_ISBLK(status.st_mode) or stat.S_ISCHR(status.st_mode)
    return device and status.st_rdev != _NULL_DEVICE


def read_file(path: str | os.PathLike[str], limit: int = MAX_FILE) -> bytes:
    """Return the bytes of a file, a pipe or a device.

    Raises OSError, with the path as its filename, where it cannot be read, is a device that may never end
    (``/dev/zero``), or holds more than ``limit`` bytes.
    """
    with open(path, "rb") as file:
        if is_endless(os.fstat(file.fileno())) and not file.isatty():
            raise OSError(errno.EINVAL, ENDLESS, os.fspath(path))
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"longer than the {limit:,} bytes that are read", os.fspath(path))
    return data


def replace_file(path: str | os.PathLike[str], data: bytes, *, secret: bool = False) -> None:
    """Write a file as :func:`replacing` does."""
    with replacing(path, secret=secret) as file:
        file.write(data)


@contextmanager
def replacing(path: str | os.PathLike[str], *, secret: bool = False) -> Iterator[BinaryIO]:
    """Open a binary stream whose content takes the place of a file at the end of the block.

    The content is written to a new file in the same folder, so that a full disk, an error or a signal leaves the old
    file as it was. A symbolic link stays a link, and the mode of an existing file is kept. Pipes and devices, which
    cannot be replaced, are written to directly.

    Parameters
    ----------
    path
        The file.
    secret
        Only the owner may read the new file, whatever the mode of the old one.

    Raises
    ------
    OSError
        If the file cannot be written; its filename is ``path``.
    """
    target = Path(os.path.realpath(path))
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        mode = None
    except OSError as error:
        raise _named(error, path) from None
    if mode is not None and not stat.S_ISREG(mode):
        with _errors_named(path), open(target, "wb") as file:
            yield file
        return
    if mode is not None and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))
    try:
        handle, unfinished = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    except OSError as error:
        raise _named(error, path) from None
    try:
        with _errors_named(path):
            with open(handle, "wb", closefd=False) as file:  # whoever wraps the stream may close it
                yield file
            os.fchmod(handle, _SECRET if secret else _mode_of(mode))
            os.fsync(handle)
            os.replace(unfinished, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(unfinished)
        raise
    finally:
        os.close(handle)


def _mode_of(mode: int | None) -> int:
    """Return the permissions of the old file, or those of a new one."""
    if mode is not None:
        return stat.S_IMODE(mode)
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


@contextmanager
def _errors_named(path: str | os.PathLike[str]) -> Iterator[None]:
    """Name the file in errors of writes, which do not know it."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise _named(error, path) from None


def _named(error: OSError, path: str | os.PathLike[str]) -> OSError:
    return OSError(error.errno, error.strerror, os.fspath(path))
