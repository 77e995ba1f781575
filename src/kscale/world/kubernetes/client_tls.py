"""TLS towards an API server: whom to trust, and with which certificate to come."""

from __future__ import annotations

import os
import ssl
from typing import Final

from kscale.errors import InputError, Problem
from kscale.world.certificates import load_pair
from kscale.world.kubernetes.access import Access, Pem

__all__ = ["ClientTLS"]

_EVERY: Final = 10**9  # nanoseconds between two looks at the files
_Seen = tuple[tuple[int, int, int], ...]


class ClientTLS:
    """The TLS context of an :class:`Access`; another one when the files that it is made of, or the certificate that a
    program gives, are others. Raises :class:`~kscale.InputError` for certificates that cannot be read."""

    __slots__ = ("_access", "_context", "_given", "_looked", "_seen")

    def __init__(self, access: Access) -> None:
        self._access = access
        self._context: ssl.SSLContext | None = None
        self._seen: _Seen = ()
        self._given: tuple[bytes, bytes] | None = None
        self._looked = 0

    def context(self, now: int, given: tuple[bytes, bytes] | None = None) -> ssl.SSLContext:
        """The context of this moment (nanoseconds, monotonic). ``given``: a certificate and its key, of a program."""
        if self._context is not None and given == self._given and now - self._looked < _EVERY:
            return self._context
        seen = self._look()
        self._looked = now
        if self._context is None or seen != self._seen or given != self._given:
            try:
                self._context = self._make(given)
            except InputError:
                if self._context is None or given != self._given:
                    raise
                return self._context  # half written: the old one does, until the next look
            self._seen, self._given = seen, given
        return self._context

    def _look(self) -> _Seen:
        """What the files are known by; a file that is not there is known by nothing."""
        certificate = self._access.certificate
        pems = [self._access.ca, *([] if certificate is None else [certificate.certificate, certificate.key])]
        found = []
        for pem in pems:
            if not pem.path:
                continue
            try:
                status = os.stat(pem.path)
            except OSError:
                found.append((0, 0, 0))
            else:
                found.append((status.st_ino, status.st_mtime_ns, status.st_size))
        return tuple(found)

    def _make(self, given: tuple[bytes, bytes] | None) -> ssl.SSLContext:
        access = self._access
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if access.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif access.ca:
            _trust(context, access.ca)
        else:
            context.load_default_certs()
        # As Go has it: any certificate that is trusted may end a chain, and none is refused for its style.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if given is not None:
            _come_with(context, *given, "the certificate of the exec plug-in")
        elif access.certificate is not None:
            certificate, key = access.certificate.certificate, access.certificate.key
            name = certificate.path or "client-certificate-data"
            _come_with(context, _read(certificate), _read(key), name)
        return context


def _read(pem: Pem) -> bytes:
    try:
        return pem.read()
    except OSError as error:
        raise InputError(Problem(error.strerror or str(error), pem.path)) from None


def _trust(context: ssl.SSLContext, ca: Pem) -> None:
    name = ca.path or "certificate-authority-data"
    try:
        context.load_verify_locations(cadata=_read(ca).decode("ascii", "replace"))
    except ssl.SSLError:
        raise InputError(Problem("there is no certificate in it (PEM is expected)", name)) from None


def _come_with(context: ssl.SSLContext, certificate: bytes, key: bytes, name: str) -> None:
    try:
        load_pair(context, certificate, key)
    except ssl.SSLError as error:
        text = f"certificate and key cannot be used together: {error.reason or 'no PEM'}"
        raise InputError(Problem(text, name)) from None
