"""TLS of a server as Go's programs are told it: versions and cipher suites by their names."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from typing import Final

from kscale.errors import InputError

__all__ = ["CIPHER_SUITES", "cipher_suites", "tls_version"]

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
"""Those of TLS 1.2 that Go thinks secure, and OpenSSL's names for them. Those of TLS 1.3 cannot be chosen."""


def tls_version(text: str) -> ssl.TLSVersion:
    """``tls1_2`` or ``tls1_3``; raises :class:`~kscale.InputError` in the words of the VPA's admission controller."""
    found = _VERSIONS.get(text)
    if found is None:
        why = f"unable to determine value for --min-tls-version ({text}), must be either tls1_2 or tls1_3"
        raise InputError(why)
    return found


def cipher_suites(text: str) -> list[str]:
    """OpenSSL's names of suites that are listed with commas or colons. Unknown ones are passed over, as upstream does;
    none at all: the usual ones."""
    return [CIPHER_SUITES[name] for name in re.split("[,:]", text) if name in CIPHER_SUITES]
