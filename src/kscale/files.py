"""User files: reads with a size limit, and atomic writes."""

from __future__ import annotations

import errno
import os
import signal
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, Final

from kscale.errors import InputError, Problem

__all__ = [
    "ENDLESS",
    "MAX_FILE",
    "is_endless",
    "open_file",
    "read_file",
    "read_input",
    "removed_on_termination",
    "replace_file",
    "replacing",
]

MAX_FILE: Final = 512 * 1024 * 1024
"""Maximum size in bytes of settings, states and catalogues. Dumps and histories have readers of their own."""
ENDLESS: Final = "a device is no file to read"
_NULL_DEVICE: Final = os.stat(os.devnull).st_rdev
_SECRET: Final = 0o600
_NAME: Final = 50
"""Characters of a file's name in the name of its temporary file, which may be 255 bytes long."""
_TERMINATION: Final = (signal.SIGTERM, signal.SIGHUP)


def is_endless(status: os.stat_result) -> bool:
    """Check whether reading a file may never end: it is a block or character device other than the null device."""
    device = stat.S_ISBLK(status.st_mode) or stat.S_ISCHR(status.st_mode)
    return device and status.st_rdev != _NULL_DEVICE


def open_file(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file for reading bytes.

    Raises OSError if the file cannot be opened, also for a name that no file can have (with a null character).
    """
    try:
        return open(os.fspath(path), "rb")
    except ValueError as error:  # a null character, or half a surrogate pair
        raise OSError(errno.EINVAL, f"no name of a file: {error}", ascii(os.fspath(path))) from None


def read_file(path: str | os.PathLike[str], limit: int = MAX_FILE) -> bytes:
    """Return the bytes of a file, a pipe or a device.

    Raises OSError, with the path as its filename, if the file cannot be read, is a device that may never end
    (such as ``/dev/zero``, but not a terminal), or has more than ``limit`` bytes.
    """
    with open_file(path) as file:
        if is_endless(os.fstat(file.fileno())) and not file.isatty():
            raise OSError(errno.EINVAL, ENDLESS, os.fspath(path))
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"longer than the {limit:,} bytes that are read", os.fspath(path))
    return data


def read_input(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a file as :func:`read_file` does. Raises InputError, with the path, if it cannot be read."""
    try:
        return read_file(path)
    except OSError as error:
        raise InputError(Problem(error.strerror or str(error), str(path))) from None


def replace_file(path: str | os.PathLike[str], data: bytes, *, secret: bool = False) -> None:
    """Replace the content of a file by ``data``, or create the file. Parameters and errors as for :func:`replacing`."""
    with replacing(path, secret=secret) as file:
        file.write(data)


@contextmanager
def replacing(path: str | os.PathLike[str], *, secret: bool = False) -> Iterator[BinaryIO]:
    """Open a binary stream whose content replaces a file at the end of the block.

    The content is written to a temporary file in the same folder, which is renamed if the block ends without an error.
    After an error or a signal the old file is unchanged, and the temporary file is removed. Only a signal that ends the
    process at once, such as SIGKILL, leaves the temporary file behind, as ``.NAME.*.tmp``. A symbolic link stays a
    link, and the mode of an existing file is kept. Pipes and devices, which cannot be replaced, are written to
    directly.

    Parameters
    ----------
    path
        The file.
    secret
        Whether only the owner may read the new file, whatever the mode of the old one. No effect on pipes and devices.

    Raises
    ------
    OSError
        If the file cannot be written; the error's ``filename`` is ``path``. An OSError that the block itself raises
        without a file name gets ``path``, too.
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
    unfinished = target.with_name(f".{target.name[:_NAME]}.{os.urandom(8).hex()}.tmp")
    handle = -1
    with removed_on_termination(unfinished), _errors_named(path):
        try:
            try:
                handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _SECRET)
            except OSError as error:  # names the new file
                raise _named(error, path) from None
            with open(handle, "wb", closefd=False) as file:  # a wrapper of the stream may close it
                yield file
            os.fchmod(handle, _SECRET if secret else _mode_of(mode))
            os.fsync(handle)
            os.replace(unfinished, target)
        except BaseException:
            with suppress(OSError):
                os.unlink(unfinished)
            raise
        finally:
            if handle >= 0:
                os.close(handle)


@contextmanager
def removed_on_termination(path: str | os.PathLike[str]) -> Iterator[None]:
    """Remove a temporary file if SIGTERM or SIGHUP ends the process within the block.

    These signals end a process without running ``finally`` blocks, so a signal handler removes the file. A signal for
    which the program has its own handler is left to that handler. Outside the main thread, no handler is installed.
    """
    name = os.fspath(path)
    _temporary.add(name)
    _change_handlers(signal.SIG_DFL, _remove_temporary)
    try:
        yield
    finally:
        _temporary.discard(name)
        if not _temporary:
            _change_handlers(_remove_temporary, signal.SIG_DFL)


_temporary: set[str] = set()


def _change_handlers(before: Any, after: Any) -> None:
    """Set the handler ``after`` for SIGTERM and SIGHUP, as far as they have the handler ``before``.

    Does nothing outside the main thread.
    """
    if threading.current_thread() is threading.main_thread():  # other threads must not set signal handlers
        for each in _TERMINATION:
            if signal.getsignal(each) == before:
                signal.signal(each, after)


def _remove_temporary(number: int, _: FrameType | None) -> None:
    """Remove the temporary files, and end the process by the signal ``number``."""
    for each in _temporary:
        with suppress(OSError):
            os.unlink(each)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _mode_of(mode: int | None) -> int:
    """Return the permission bits of a file's ``mode``; for None (no such file), those that a new file gets."""
    if mode is not None:
        return stat.S_IMODE(mode)
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


@contextmanager
def _errors_named(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise an OSError of the block that has an ``errno`` but no file name again, with ``path`` as its file name."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise _named(error, path) from None


def _named(error: OSError, path: str | os.PathLike[str]) -> OSError:
    """Return a copy of the error that names the file."""
    return OSError(error.errno, error.strerror, os.fspath(path))
