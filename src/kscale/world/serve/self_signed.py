"""A certificate for one server, and the authority that signed it, made on the spot."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from kscale.errors import InputError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

__all__ = ["SelfSigned", "self_signed_pair"]

_LIFE: Final = timedelta(days=3650)
_SKEW: Final = timedelta(hours=1)  # clocks differ


@dataclass(frozen=True, slots=True)
class SelfSigned:
    """``authority`` and ``certificate`` in PEM, and the certificate's ``key``, which is not shown. The key of the
    authority is not kept: nothing else is ever signed with it."""

    authority: bytes
    certificate: bytes
    key: bytes = field(repr=False)


def self_signed_pair(host: str, now: datetime) -> SelfSigned:
    """A certificate for ``host``, valid for ten years from ``now``. Raises :class:`~kscale.errors.InputError` where the
    library ``cryptography`` is not installed."""
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
        )

    root, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = named("kscale vpa webhook CA")
    authority = begun(issuer, root).sign(root, hashes.SHA256())
    certificate = (
        begun(named("vpa-webhook"), own)  # a common name has 64 letters at most
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(root, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return SelfSigned(
        authority=authority.public_bytes(pem),
        certificate=certificate.public_bytes(pem),
        key=own.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
