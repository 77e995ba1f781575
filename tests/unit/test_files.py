"""Files of the user: read up to a limit, written as a whole or not at all."""

from __future__ import annotations

import errno
import io
import os
import resource
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kscale.files import read_file, replace_file, replacing


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let writes beyond ``size`` bytes of a file fail, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_new_file_has_the_usual_permissions(tmp_path: Path) -> None:
    replace_file(tmp_path / "a", b"new")
    usual = tmp_path / "usual"
    usual.touch()
    assert (tmp_path / "a").read_bytes() == b"new"
    assert (tmp_path / "a").stat().st_mode == usual.stat().st_mode
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "usual"]


def test_a_replaced_file_keeps_its_permissions_and_its_link(tmp_path: Path) -> None:
    file, link = tmp_path / "a", tmp_path / "link"
    file.write_bytes(b"old")
    file.chmod(0o640)
    link.symlink_to("a")
    replace_file(link, b"new")
    assert (link.is_symlink(), file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (True, b"new", 0o640)
    replace_file(file, b"secret", secret=True)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_an_error_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"old")

    def interrupted() -> None:
        with replacing(file) as stream:
            stream.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a", b"old")]


def test_a_full_disk_leaves_the_old_file_and_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"old")
    with files_of_at_most(1000), pytest.raises(OSError, match="File too large") as caught:
        replace_file(file, b"x" * 100_000)
    assert caught.value.filename == str(file)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a", b"old")]


def test_wrapped_stream_may_be_closed(tmp_path: Path) -> None:
    with replacing(tmp_path / "a") as raw, io.TextIOWrapper(raw, encoding="utf-8") as text:
        text.write("ä")
    assert (tmp_path / "a").read_bytes() == "ä".encode()


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(read_file(tmp_path / "pipe")))
    reader.start()
    replace_file(tmp_path / "pipe", b"through")
    reader.join()
    assert (got, stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)) == ([b"through"], True)


@pytest.mark.parametrize(("path", "code"), [("nowhere/a", errno.ENOENT), (".", errno.EISDIR)])
def test_unwritable_path_is_named(tmp_path: Path, path: str, code: int) -> None:
    with pytest.raises(OSError) as caught:  # noqa: PT011  # its number is looked at
        replace_file(tmp_path / path, b"")
    assert (caught.value.errno, caught.value.filename) == (code, str(tmp_path / path))


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert read_file(tmp_path / "a", 5) == b"12345"
    with pytest.raises(OSError, match="longer than the 4 bytes that are read") as caught:
        read_file(tmp_path / "a", 4)
    assert caught.value.filename == str(tmp_path / "a")


def test_a_device_that_never_ends_is_not_read() -> None:
    with pytest.raises(OSError, match="a device is no file to read"):
        read_file("/dev/zero")
    assert read_file(os.devnull) == b""
