"""TLS contexts of the connections to an API server."""

from __future__ import annotations

import os
import ssl
from typing import Final

from kscale.errors import InputError, Problem
from kscale.world.kubernetes.kubeconfig import Access, Pem
from kscale.world.rpc import load_authorities, load_pair

__all__ = ["ClientTLS"]


_EVERY: Final = 10**9  # nanoseconds between two checks of the files
_Seen = tuple[tuple[int, int, int], ...]


class ClientTLS:
    """TLS context of an :class:`Access`, renewed when its certificate files or the exec plug-in's certificate change.

    Raises :class:`~kscale.InputError` if a certificate cannot be read.
    """

    __slots__ = ("_access", "_context", "_given", "_looked", "_seen")

    def __init__(self, access: Access) -> None:
        self._access = access
        self._context: ssl.SSLContext | None = None
        self._seen: _Seen = ()
        self._given: tuple[bytes, bytes] | None = None
        self._looked = 0

    def context(self, now: int, exec_certificate: tuple[bytes, bytes] | None = None) -> ssl.SSLContext:
        """Return the TLS context for requests that are sent now.

        The files are checked at most once a second. If changed files cannot be read, the previous context is returned.

        Parameters
        ----------
        now : int
            Monotonic time in nanoseconds.
        exec_certificate : tuple of bytes, optional
            Certificate and key (PEM) that an exec plug-in returned. They replace those of the :class:`Access`.

        Returns
        -------
        ssl.SSLContext
            The context, cached until a file or the plug-in's certificate changes.

        Raises
        ------
        InputError
            If a certificate cannot be read and there is no earlier context for the same plug-in certificate.
        """
        if self._context is not None and exec_certificate == self._given and now - self._looked < _EVERY:
            return self._context
        signatures = self._read_signatures()
        self._looked = now
        if self._context is None or signatures != self._seen or exec_certificate != self._given:
            try:
                self._context = self._build_context(exec_certificate)
            except InputError:
                if self._context is None or exec_certificate != self._given:
                    raise
                return self._context  # a file may be half written: use the old context until the next check
            self._seen, self._given = signatures, exec_certificate
        return self._context

    def _read_signatures(self) -> _Seen:
        """Return (inode, modification time, size) of each file of authorities, certificate and key.

        Zeros if the file is missing; inline data has no entry.
        """
        certificate = self._access.certificate
        pems = [self._access.ca, *([] if certificate is None else [certificate.certificate, certificate.key])]
        signatures = []
        for pem in pems:
            if not pem.path:
                continue
            try:
                status = os.stat(pem.path)
            except OSError:
                signatures.append((0, 0, 0))
            else:
                signatures.append((status.st_ino, status.st_mtime_ns, status.st_size))
        return tuple(signatures)

    def _build_context(self, exec_certificate: tuple[bytes, bytes] | None) -> ssl.SSLContext:
        """Build the TLS context. Raises InputError if authorities, certificate or key cannot be used."""
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
        # As in Go: any trusted certificate may end a chain, and X.509 strictness checks are off.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if exec_certificate is not None:
            _load_certificate(context, *exec_certificate, "the certificate of the exec plug-in")
        elif access.certificate is not None:
            certificate, key = access.certificate.certificate, access.certificate.key
            name = certificate.path or "client-certificate-data"
            _load_certificate(context, _read(certificate), _read(key), name)
        return context


def _read(pem: Pem) -> bytes:
    """Return the PEM text. Raises InputError if the file cannot be read."""
    try:
        return pem.read()
    except OSError as error:
        raise InputError(Problem(error.strerror or str(error), pem.path)) from None


def _trust(context: ssl.SSLContext, ca: Pem) -> None:
    """Make a context trust the authorities. Raises InputError if they cannot be read."""
    load_authorities(context, _read(ca), ca.path or "certificate-authority-data")


def _load_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes, name: str) -> None:
    """Load a client certificate and its key (PEM). Raises InputError, which names ``name``, if they cannot be used."""
    try:
        load_pair(context, certificate, key)
    except ssl.SSLError as error:
        text = f"certificate and key cannot be used together: {error.reason or 'no PEM'}"
        raise InputError(Problem(text, name)) from None
