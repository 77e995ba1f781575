"""How an API server is reached and who asks: what a kubeconfig or a pod's service account comes to.

Nothing here prints a secret: tokens, passwords and keys are :class:`Secret`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from kscale.errors import InputError, Problem
from kscale.files import read_file

__all__ = [
    "NO_SECRET",
    "Access",
    "ClientCertificate",
    "ExecConfig",
    "Impersonation",
    "Pem",
    "Secret",
    "server_url",
    "without_password",
]

_PASSWORD: Final = re.compile(r"(://[^/@\s:]*):[^/@\s]*@")


class Secret:
    """A text that is not shown. False when it is empty."""

    __slots__ = ("_text",)

    def __init__(self, text: str = "") -> None:
        self._text = text

    def reveal(self) -> str:
        """The text."""
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return "Secret(...)" if self._text else "Secret()"

    __str__ = __repr__

    def __reduce__(self) -> str:
        raise TypeError("a secret is not pickled")


NO_SECRET: Final = Secret()


@dataclass(frozen=True, slots=True)
class Pem:
    """Certificates or a key: given (``data``), or in a file that may be replaced while it is in use."""

    data: bytes = field(default=b"", repr=False)
    path: str = ""

    def read(self) -> bytes:
        """The text as it is now. Raises OSError."""
        return self.data or read_file(self.path)

    def __bool__(self) -> bool:
        return bool(self.data or self.path)


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """A certificate and its key."""

    certificate: Pem
    key: Pem


@dataclass(frozen=True, slots=True)
class ExecConfig:
    """A program that gives credentials (``client.authentication.k8s.io``)."""

    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, Secret], ...] = ()
    api_version: str = "client.authentication.k8s.io/v1"
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = "IfAvailable"
    config: Any = None
    """What the cluster's entry holds for it."""


@dataclass(frozen=True, slots=True)
class Impersonation:
    """As whom to act."""

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One API server, and one identity there.

    - ``server``: its URL. ``ca``: who may have signed its certificate (empty: the system's authorities);
      ``insecure``: its certificate is not looked at; ``server_name``: the name in it, if it is not the URL's.
    - ``proxy``: the URL of a proxy; empty: as the environment says. ``compress``: ask for compressed answers.
    - Who asks: ``token`` and ``token_file`` (the file goes first, and is read again and again), ``username`` and
      ``password``, ``exec``, ``certificate``; ``impersonate``: as whom.
    - ``context``, ``cluster``, ``user``: the entries that this comes from; ``namespace``: the context's.
    """

    server: str
    ca: Pem = Pem()
    insecure: bool = False
    server_name: str = ""
    proxy: str = ""
    compress: bool = True
    token: Secret = NO_SECRET
    token_file: str = ""
    username: str = ""
    password: Secret = NO_SECRET
    exec: ExecConfig | None = None
    certificate: ClientCertificate | None = None
    impersonate: Impersonation | None = None
    namespace: str = "default"
    context: str = ""
    cluster: str = ""
    user: str = ""

    def at(self, server: str) -> Access:
        """The same identity at another ``server``: a URL, or a host and port. Of what goes over a line that anybody
        reads, nothing identifies us."""
        url = server_url(server, secure=bool(self.ca or self.insecure or self.certificate))
        there = replace(self, server=url)
        if url.startswith("https://"):
            return there
        return replace(
            there, token=NO_SECRET, token_file="", username="", password=NO_SECRET, exec=None, certificate=None
        )


def server_url(text: str, *, secure: bool) -> str:
    """The URL of a server, without query and fragment and without a slash at its end; ``secure``: what is taken where
    no scheme is said. Raises InputError for what is no URL."""
    if "://" not in text:
        text = f"{'https' if secure else 'http'}://{text}"
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError as error:
        raise InputError(Problem(f"the server {without_password(text)} is no URL: {error}")) from None
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))


def without_password(text: str) -> str:
    """A text to be shown: passwords of the URLs in it are hidden, as Go's ``URL.Redacted`` hides them."""
    return _PASSWORD.sub(r"\1:xxxxx@", text)
