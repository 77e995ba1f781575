"""Certificates for TLS contexts, as texts: what a file holds at one moment, or what a program gave."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["load_pair"]


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Loads a certificate (with its chain) and its key, both PEM, into a context.

    Raises :class:`ssl.SSLError` where they are none, or do not belong together. The context is spoilt then.
    """
    with _file(certificate) as chain, _file(key) as secret:
        # An encrypted key would be asked for on the terminal.
        context.load_cert_chain(chain, secret, password=_refuse)


def _refuse() -> str:
    raise ssl.SSLError("the key is encrypted")


@contextmanager
def _file(data: bytes) -> Iterator[str]:
    """A path under which the data can be read, without a file on disk where that can be had."""
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("pem", os.MFD_CLOEXEC)
        try:
            os.write(number, data)
            yield f"/proc/self/fd/{number}"
        finally:
            os.close(number)
        return
    with tempfile.NamedTemporaryFile() as file:  # made with mode 0600
        file.write(data)
        file.flush()
        yield file.name
