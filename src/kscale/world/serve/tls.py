"""TLS of a server whose certificate is replaced while it serves."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Sequence
from typing import Any

from kscale.errors import InputError, Problem
from kscale.files import read_file
from kscale.world.certificates import load_pair

__all__ = ["ReloadingContext"]

_log = logging.getLogger(__name__)
_Seen = tuple[tuple[int, int, int], ...]


class ReloadingContext:
    """``context`` is what a server listens with; each handshake takes the newest certificate that could be loaded.

    A context into which a certificate with the key of another was loaded fails every handshake from then on, and that
    is what the files hold between two writes; so a new one is made, and takes the old one's place only if all is well.
    ``minimum``: the oldest TLS that is spoken; ``ciphers``: of TLS 1.2, by OpenSSL's names (empty: the usual ones).
    ``client_ca``: clients have to show a certificate that it has signed. ``reload`` False: files are read once.

    Raises :class:`~kscale.InputError` if there is no usable certificate at first.
    """

    def __init__(
        self,
        certificate: str,
        key: str,
        *,
        client_ca: str = "",
        minimum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
        ciphers: Sequence[str] = (),
        reload: bool = True,
    ) -> None:
        self._minimum, self._ciphers, self._reload = minimum, ":".join(ciphers), reload
        self._paths = tuple(path for path in (certificate, key, client_ca) if path)
        self._certificate, self._key, self._client_ca = certificate, key, client_ca
        self._seen = self._look()
        self._current = self._load()
        self.context = self._empty()
        self.context.sni_callback = self._choose  # called without a server name, too
        if client_ca:  # whether a certificate is wanted goes by the context that a connection began with
            self.context.verify_mode = ssl.CERT_REQUIRED

    def refresh(self) -> bool:
        """Looks whether the files are others, and loads them; whether a new certificate is in use."""
        seen = self._look()
        if seen == self._seen:
            return False
        try:
            self._current = self._load()
        except InputError as error:
            _log.warning("the certificate stays as it was: %s", error)
            return False
        self._seen = seen
        return True

    async def watch(self, seconds: float = 1.0) -> None:
        """Looks again and again, for ever."""
        while True:
            await asyncio.sleep(seconds)
            if self._reload:
                self.refresh()

    def _choose(self, connection: Any, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._current

    def _look(self) -> _Seen:
        found = []
        for path in self._paths:
            try:
                status = os.stat(path)
            except OSError:
                found.append((0, 0, 0))
            else:
                found.append((status.st_ino, status.st_mtime_ns, status.st_size))
        return tuple(found)

    def _load(self) -> ssl.SSLContext:
        context = self._empty()
        try:
            load_pair(context, _read(self._certificate), _read(self._key))
        except ssl.SSLError as error:
            text = f"certificate and key cannot be used together: {error.reason or 'no PEM'}"
            raise InputError(Problem(text, self._certificate)) from None
        if self._client_ca:
            try:
                context.load_verify_locations(cadata=_read(self._client_ca).decode("ascii", "replace"))
            except ssl.SSLError:
                raise InputError(Problem("there is no certificate in it (PEM is expected)", self._client_ca)) from None
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _empty(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = self._minimum
        if self._ciphers:
            context.set_ciphers(self._ciphers)
        context.set_alpn_protocols(["http/1.1"])
        return context


def _read(path: str) -> bytes:
    try:
        return read_file(path)
    except OSError as error:
        raise InputError(Problem(error.strerror or str(error), path)) from None
