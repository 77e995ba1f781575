"""TLS of servers: reloaded certificates, self-signed certificates, and Go's names of versions and cipher suites."""

from __future__ import annotations

import logging
import os
import re
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from kscale.errors import InputError, Problem
from kscale.files import read_input
from kscale.world.rpc import load_authorities, load_pair

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

__all__ = ["CIPHER_SUITES", "ReloadingContext", "SelfSigned", "cipher_suites", "self_signed_pair", "tls_version"]


_VERSIONS: Final = {"": ssl.TLSVersion.TLSv1_2, "tls1_2": ssl.TLSVersion.TLSv1_2, "tls1_3": ssl.TLSVersion.TLSv1_3}

CIPHER_SUITES: Final[Mapping[str, str]] = {
    f"TLS_ECDHE_{key}_WITH_{suite}": f"ECDHE-{key}-{openssl}"
    for key in ("ECDSA", "RSA")
    for suite, openssl in (
        ("AES_128_CBC_SHA", "AES128-SHA"),
        ("AES_256_CBC_SHA", "AES256-SHA"),
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
    )
}
"""Cipher suites of TLS 1.2 that Go considers secure -> OpenSSL's names. Those of TLS 1.3 cannot be selected."""


def tls_version(text: str) -> ssl.TLSVersion:
    """Parse ``tls1_2`` or ``tls1_3``; an empty text means TLS 1.2.

    Raises :class:`~kscale.InputError` with the message of the VPA's admission controller for any other text.
    """
    version = _VERSIONS.get(text)
    if version is None:
        why = f"unable to determine value for --min-tls-version ({text}), must be either tls1_2 or tls1_3"
        raise InputError(why)
    return version


def cipher_suites(text: str) -> list[str]:
    """Return OpenSSL's names for cipher suites separated by commas or colons.

    Unknown names are ignored, as in upstream. An empty result selects the default suites.
    """
    return [CIPHER_SUITES[name] for name in re.split("[,:]", text) if name in CIPHER_SUITES]


_LIFE: Final = timedelta(days=3650)
_SKEW: Final = timedelta(hours=1)  # tolerance for clocks that differ


@dataclass(frozen=True, slots=True)
class SelfSigned:
    """CA certificate (``authority``), server ``certificate``, and its ``key`` (hidden in repr), all in PEM.

    The CA's key is discarded, so nothing else can be signed with it.
    """

    authority: bytes
    certificate: bytes
    key: bytes = field(repr=False)


def self_signed_pair(host: str, now: datetime) -> SelfSigned:
    """Create a certificate for ``host``, valid for ten years from ``now``, and the CA that signs it.

    Raises :class:`~kscale.errors.InputError` if the library ``cryptography`` is not installed.
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
    except ImportError:
        raise InputError(
            "a certificate is made with the library cryptography: pip install 'kscale-core[certificates]'"
        ) from None

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    def begun(subject: x509.Name, key: EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _SKEW)
            .not_valid_after(now + _LIFE)
            .add_extension(x509.BasicConstraints(ca=key is root, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(root.public_key()), critical=False)
        )

    root, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = named("kscale vpa webhook CA")
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    authority = begun(issuer, root).add_extension(usage, critical=True).sign(root, hashes.SHA256())
    certificate = (
        begun(named("vpa-webhook"), key)  # a common name may have at most 64 characters
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(root, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return SelfSigned(
        authority=authority.public_bytes(pem),
        certificate=certificate.public_bytes(pem),
        key=key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


_log = logging.getLogger(__name__)
_Seen = tuple[tuple[int, int, int], ...]
_CHECK_SECONDS: Final = 1.0


class ReloadingContext:
    """TLS context of a server whose certificate files may be replaced.

    A new connection gets the newest certificate that can be loaded. Between two
    writes the files may contain a certificate and the key of another, and a context that has loaded such a pair
    fails every handshake. Therefore changed files are loaded into a new context, which replaces the old one only if the
    pair is valid.

    - ``minimum``: minimum TLS version. ``ciphers``: suites of TLS 1.2 by OpenSSL's names (empty: the defaults).
    - ``client_ca``: clients need a certificate that it has signed.
    - ``reload`` False: files are read once.

    Raises :class:`~kscale.InputError` if there is no usable certificate at the beginning.
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
        self._seen = self._read_signatures()
        self._current = self._load()
        self._checked = time.monotonic()

    @property
    def context(self) -> ssl.SSLContext:
        """Return the context with the newest certificate that has been loaded."""
        return self._current

    def refresh(self) -> bool:
        """Load the files again if they have changed. Returns whether a new certificate is in use.

        Files that cannot be used are logged and tried again at the next call; the previous certificate stays.
        """
        signatures = self._read_signatures()
        if signatures == self._seen:
            return False
        try:
            self._current = self._load()
        except InputError as error:
            _log.warning("the certificate stays as it was: %s", error)
            return False
        self._seen = signatures
        return True

    def context_of_connection(self) -> ssl.SSLContext:
        """Return the context of a new connection, after loading changed files. They are checked at most once a second.

        Nothing watches the files between connections: a server that nobody calls is not woken.
        """
        now = time.monotonic()
        if self._reload and now - self._checked >= _CHECK_SECONDS:
            self._checked = now
            self.refresh()
        return self._current

    def _read_signatures(self) -> _Seen:
        """Return (inode, modification time in ns, size) of each file; zeros if the file is missing."""
        signatures = []
        for path in self._paths:
            try:
                status = os.stat(path)
            except OSError:
                signatures.append((0, 0, 0))
            else:
                signatures.append((status.st_ino, status.st_mtime_ns, status.st_size))
        return tuple(signatures)

    def _load(self) -> ssl.SSLContext:
        """Build a context with the certificate of the files. Raises InputError if it cannot be used."""
        context = self._empty()
        try:
            load_pair(context, read_input(self._certificate), read_input(self._key))
        except ssl.SSLError as error:
            text = f"certificate and key cannot be used together: {error.reason or 'no PEM'}"
            raise InputError(Problem(text, self._certificate)) from None
        if self._client_ca:
            load_authorities(context, read_input(self._client_ca), self._client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _empty(self) -> ssl.SSLContext:
        """Build a context without a certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = self._minimum
        # API servers and Prometheus keep no tickets, and each new certificate would make them useless.
        context.num_tickets = 0
        if self._ciphers:
            context.set_ciphers(self._ciphers)
        context.set_alpn_protocols(["http/1.1"])
        return context
