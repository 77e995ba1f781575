"""Kubeconfig files and in-cluster access, read as kubectl reads them (upstream: ``client-go/tools/clientcmd``).

Tokens, passwords and keys are :class:`Secret`, so they are never printed. Keys that kubectl ignores are rejected
by name in the entries that are used, because an unknown key may decide which identity is used.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import msgspec

from kscale.errors import InputError, Problem
from kscale.files import read_file
from kscale.imports import lazy_pattern
from kscale.objects.names import dns_label_errors, go_quote
from kscale.snapshot.text.documents import documents

__all__ = [
    "ANY",
    "BASE64",
    "FLAG",
    "NO_SECRET",
    "SERVICE_ACCOUNT",
    "TEXT",
    "TEXTS",
    "TEXT_LISTS",
    "Access",
    "ClientCertificate",
    "Entry",
    "ExecConfig",
    "Impersonation",
    "Pem",
    "Secret",
    "check_entry",
    "in_cluster",
    "load_access",
    "named_entries",
    "read_contexts",
    "read_document",
    "server_url",
    "without_password",
]


_PASSWORD: Final = lazy_pattern(r"(://[^/@\s:]*):[^/\s]*@")


class Secret:
    """Text that is hidden in repr and str. False if empty."""

    __slots__ = ("_text",)

    def __init__(self, text: str = "") -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the secret text, which ``repr`` hides."""
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
    """Certificates or a key in PEM: inline (``data``), or in a file that may be replaced while in use."""

    data: bytes = field(default=b"", repr=False)
    path: str = ""

    def read(self) -> bytes:
        """Return the current PEM text. Raises OSError if the file cannot be read."""
        return self.data or read_file(self.path)

    def __bool__(self) -> bool:
        return bool(self.data or self.path)


class ClientCertificate(msgspec.Struct, frozen=True):
    """Client certificate and its key."""

    certificate: Pem
    key: Pem


class ExecConfig(msgspec.Struct, frozen=True):
    """Exec plug-in that returns credentials (``client.authentication.k8s.io``)."""

    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, Secret], ...] = ()
    api_version: str = "client.authentication.k8s.io/v1"
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = "IfAvailable"
    config: Any = None
    """Configuration of the plug-in in the cluster's entry."""


class Impersonation(msgspec.Struct, frozen=True):
    """User, groups and extra fields to impersonate."""

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """Address of an API server and an identity there.

    - ``server``: URL of the server. ``ca``: certificate authorities (empty: the system's); ``insecure``: the server's
      certificate is not verified; ``server_name``: host name in the certificate, if it differs from the URL's.
    - ``proxy``: URL of a proxy (empty: from the environment). ``compress``: request compressed responses.
    - Identity: ``token`` and ``token_file`` (the file takes precedence and is read repeatedly), ``username`` and
      ``password``, ``exec``, ``certificate``. ``impersonate``: the user to act as.
    - ``context``, ``cluster``, ``user``: names of the kubeconfig entries; ``namespace``: the context's namespace.
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

    def with_server(self, server: str) -> Access:
        """Return the same access for another ``server``, a URL or host and port.

        Without HTTPS, the credentials are removed from the result (tokens, password, plug-in, certificate); the
        impersonated user stays. Raises InputError if ``server`` is not a URL.
        """
        url = server_url(server, secure=bool(self.ca or self.insecure or self.certificate))
        access = msgspec.structs.replace(self, server=url)
        if url.startswith("https://"):
            return access
        return msgspec.structs.replace(
            access, token=NO_SECRET, token_file="", username="", password=NO_SECRET, exec=None, certificate=None
        )


def server_url(text: str, *, secure: bool) -> str:
    """Normalize the URL of a server: no query, no fragment, no trailing slash.

    ``secure`` selects https if the text has no scheme. Raises InputError if the text is not a URL.
    """
    if "://" not in text:
        text = f"{'https' if secure else 'http'}://{text}"
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError as error:
        raise InputError(Problem(f"the server {without_password(text)} is no URL: {error}")) from None
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))


def without_password(text: str) -> str:
    """Return the text with passwords of URLs replaced by ``xxxxx``, as Go's ``URL.Redacted`` does."""
    return _PASSWORD.sub(r"\1:xxxxx@", text)


TEXT, FLAG, BASE64, TEXTS, TEXT_LISTS, ANY = "a text", "true or false", "base64", "a list of texts", "lists", ""
_TOP: Final = {
    "kind": TEXT, "apiVersion": TEXT, "current-context": TEXT, "clusters": ANY, "users": ANY, "contexts": ANY,
    "preferences": ANY, "extensions": ANY,
}  # fmt: skip


class Entry(msgspec.Struct, frozen=True):
    """Named entry of a kubeconfig, and its file, to which paths in the entry are relative."""

    data: Mapping[str, Any]
    source: str
    where: str

    def problem(self, message: str, key: str = "") -> Problem:
        """Return a problem of this entry, or of one of its keys."""
        return Problem(message, self.source, self.where, key)

    def path(self, key: str) -> str:
        """Return the absolute path in a key's value; empty if the key is not set.

        Relative paths start at the file's directory.
        """
        text: str = self.data.get(key) or ""
        return str((Path(self.source).parent / text).absolute()) if text else ""

    def pem(self, key: str) -> Pem:
        """Return the inline data (``KEY-data``) or the file (``KEY``) of a key; the data wins."""
        data: bytes = self.data.get(f"{key}-data") or b""
        return Pem(data) if data else Pem(path=self.path(key))


def read_document(path: str, problems: list[Problem]) -> Mapping[str, Any]:
    """Read one kubeconfig file as plain data, with checked top-level keys.

    Problems are appended to ``problems``. The result is empty if the file cannot be read or is not one YAML mapping.
    """
    try:
        text = read_file(path)
    except OSError as error:
        problems.append(Problem(error.strerror or str(error), path))
        return {}
    contents = list(documents(text, path))
    problems += [document for document in contents if isinstance(document, Problem)]
    if any(isinstance(document, Problem) for document in contents) or not contents:
        return {}
    top = contents[0]
    if len(contents) > 1 or not isinstance(top, Mapping):
        problems.append(Problem("it is not one kubeconfig", path))
        return {}
    data = check_entry(Entry(top, path, ""), _TOP, problems).data
    for key, value in (("kind", "Config"), ("apiVersion", "v1")):
        if (data.get(key) or value) != value:
            problems.append(Problem(f"{value} is expected, not {data[key]}", path, field=key))
    return data


def named_entries(
    top: Mapping[str, Any], plural: str, path: str, problems: list[Problem]
) -> Iterator[tuple[str, Entry]]:
    """Yield (name, entry) for each valid entry of a named list.

    ``plural`` is the list's key (``clusters``, ``contexts``, ``users``). Unknown keys beside name and entry become keys
    of the entry, for :func:`check_entry` to report. Invalid and repeated entries are left out, and their problems
    appended to ``problems``.
    """
    listed = top.get(plural)
    if listed is None:
        return
    if not isinstance(listed, list):
        problems.append(Problem("a list is expected", path, field=plural))
        return
    singular, names = plural[:-1], set()
    for i, item in enumerate(listed):
        name = item.get("name") if isinstance(item, Mapping) else None
        data = item.get(singular) if isinstance(item, Mapping) else None
        if not isinstance(name, str) or not isinstance(data, Mapping | None):
            problems.append(Problem(f"an entry with name and {singular} is expected", path, field=f"{plural}[{i}]"))
            continue
        if name in names:
            problems.append(Problem(f"the name {go_quote(name)} comes twice", path, field=f"{plural}[{i}].name"))
            continue
        names.add(name)
        unknown = [key for key in item if key not in ("name", singular)]
        yield name, Entry({**(data or {}), **dict.fromkeys(unknown)}, path, f"{singular} {go_quote(name)}")


def check_entry(entry: Entry, keys: Mapping[str, str], problems: list[Problem]) -> Entry:
    """Return a copy of the entry with converted values.

    ``keys`` maps each allowed key to its type. Empty (null) values are left out. So are unknown keys and values of
    another type, and a problem of each is appended to ``problems``.
    """
    values: dict[str, Any] = {}
    for key, value in entry.data.items():
        expected = keys.get(key)
        if expected is None:
            hint = " (use an exec plug-in)" if key == "auth-provider" else ""
            problems.append(entry.problem(f"this key is not understood{hint}", key))
        elif value is not None:
            try:
                values[key] = _value(value, expected)
            except (TypeError, ValueError):
                problems.append(entry.problem(f"{expected} is expected", key))
    return Entry(values, entry.source, entry.where)


def _value(value: Any, expected: str) -> Any:
    """Convert a value to the expected type.

    Raises TypeError or ValueError without a text: the value may be a secret.
    """
    if expected in (TEXT, BASE64) and not isinstance(value, str):
        raise TypeError
    if expected == FLAG and not isinstance(value, bool):
        raise TypeError
    if expected == BASE64:
        try:
            return base64.b64decode("".join(value.split()), validate=True)
        except binascii.Error:
            raise ValueError from None
    if expected == TEXTS:
        return _texts(value)
    if expected == TEXT_LISTS:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise TypeError
        return {key: _texts(texts) for key, texts in value.items()}
    return value


def _texts(value: Any) -> tuple[str, ...]:
    """Return a list of texts as a tuple. Raises TypeError for any other value."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise TypeError
    return tuple(value)


SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Directory with a pod's token, namespace and the cluster's certificate authority."""

_EXEC_EXTENSION: Final = "client.authentication.k8s.io/exec"
_EXEC_VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_INTERACTIVE: Final = ("Never", "IfAvailable", "Always")
_NO_CONFIGURATION: Final = "no configuration has been provided: no kubeconfig names a cluster"

_CLUSTER: Final = {
    "server": TEXT, "tls-server-name": TEXT, "insecure-skip-tls-verify": FLAG, "certificate-authority": TEXT,
    "certificate-authority-data": BASE64, "proxy-url": TEXT, "disable-compression": FLAG, "extensions": ANY,
}  # fmt: skip
_USER: Final = {
    "client-certificate": TEXT, "client-certificate-data": BASE64, "client-key": TEXT, "client-key-data": BASE64,
    "token": TEXT, "tokenFile": TEXT, "as": TEXT, "as-uid": TEXT, "as-groups": TEXTS, "as-user-extra": TEXT_LISTS,
    "username": TEXT, "password": TEXT, "exec": ANY, "extensions": ANY,
}  # fmt: skip
_CONTEXT: Final = {"cluster": TEXT, "user": TEXT, "namespace": TEXT, "extensions": ANY}
_EXEC: Final = {
    "command": TEXT, "args": TEXTS, "env": ANY, "apiVersion": TEXT, "installHint": TEXT,
    "provideClusterInfo": FLAG, "interactiveMode": TEXT,
}  # fmt: skip


def load_access(path: str = "", *, context: str = "", environ: Mapping[str, str] | None = None) -> Access:
    """Load the API server and identity that a kubeconfig selects.

    Parameters
    ----------
    path : str, optional
        Kubeconfig file, which must exist. Default: the files in ``KUBECONFIG`` (the first file with an entry wins),
        else ``~/.kube/config``. If these select nothing, the pod's service account is used.
    context : str, optional
        Name of the context. Default: the current context.
    environ : mapping, optional
        Environment variables. Default: ``os.environ``.

    Returns
    -------
    Access
        Server and identity.

    Raises
    ------
    InputError
        With all problems of the configuration, and without secrets.
    """
    environ = os.environ if environ is None else environ
    config = _Config.read(_paths(path, environ), explicit=bool(path))
    try:
        return config.access(context)
    except InputError as error:
        if not path and not context and config.is_empty and (pod := in_cluster(environ)) is not None:
            return pod
        raise error


def in_cluster(environ: Mapping[str, str] | None = None, account: Path | None = None) -> Access | None:
    """Return the access of a pod's service account, or None outside a pod or without a service account.

    ``environ`` defaults to ``os.environ``, ``account`` to the standard directory of the service account. Raises
    InputError if the file of the namespace cannot be read.
    """
    environ = os.environ if environ is None else environ
    account = SERVICE_ACCOUNT if account is None else account
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "")
    token, authority = account / "token", account / "ca.crt"
    if not host or not port or not token.is_file():
        return None
    namespace = environ.get("POD_NAMESPACE", "")
    if not namespace and (account / "namespace").is_file():
        try:
            namespace = read_file(account / "namespace").decode().strip()
        except OSError as error:
            raise InputError(Problem(error.strerror or str(error), str(account / "namespace"))) from None
        except UnicodeDecodeError as error:
            raise InputError(Problem(f"not UTF-8: {error}", str(account / "namespace"))) from None
    return Access(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        ca=Pem(path=str(authority)) if authority.is_file() else Pem(),
        token_file=str(token),
        namespace=namespace or "default",
    )


def read_contexts(path: str = "", *, environ: Mapping[str, str] | None = None) -> tuple[list[str], str]:
    """Return the names of all contexts in the order of the files, and the name of the current context (empty: none).

    ``path``, ``environ``: as for :func:`load_access`. Raises InputError if a file cannot be read.
    """
    config = _Config.read(_paths(path, os.environ if environ is None else environ), explicit=bool(path))
    return list(config.contexts), config.current


def _paths(path: str, environ: Mapping[str, str]) -> list[str]:
    """Return the files to read: ``path``, or the files in ``KUBECONFIG``, or ``~/.kube/config``."""
    if path:
        return [path]
    listed = environ.get("KUBECONFIG", "")
    if listed:
        return list(dict.fromkeys(path for path in listed.split(os.pathsep) if path))
    home = environ.get("HOME", "") or str(Path.home())
    return [str(Path(home) / ".kube" / "config")]


class _Config(msgspec.Struct, frozen=True):
    """Merged kubeconfig files; the first definition of an entry wins."""

    current: str
    contexts: Mapping[str, Entry]
    clusters: Mapping[str, Entry]
    users: Mapping[str, Entry]

    @staticmethod
    def read(paths: Sequence[str], *, explicit: bool) -> _Config:
        """Read and merge kubeconfig files; of a name that several files have, the first entry counts.

        Unless ``explicit``, missing files are skipped. Raises InputError with all problems of all files.
        """
        current = ""
        named: dict[str, dict[str, Entry]] = {"contexts": {}, "clusters": {}, "users": {}}
        problems: list[Problem] = []
        for path in paths:
            if not explicit and not Path(path).exists():
                continue
            top = read_document(path, problems)
            current = current or top.get("current-context") or ""
            for plural, entries in named.items():
                for name, entry in named_entries(top, plural, path, problems):
                    entries.setdefault(name, entry)
        if problems:
            raise InputError(problems)
        return _Config(current, named["contexts"], named["clusters"], named["users"])

    @property
    def is_empty(self) -> bool:
        """Return whether no current context is set."""
        return not self.current

    def access(self, wanted: str) -> Access:
        """Return the access of a context (empty: the current context).

        Raises InputError if there is no such context, or with all problems of its entries.
        """
        name = wanted or self.current
        entry = self.contexts.get(name)
        if entry is None:
            if not name:
                raise InputError(
                    _NO_CONFIGURATION if not self.clusters else "no context is chosen, and none is current"
                )
            raise InputError(f"context {go_quote(name)} does not exist")
        problems: list[Problem] = []
        context = check_entry(entry, _CONTEXT, problems)
        selected = {}
        for kind, entries, keys in (("cluster", self.clusters, _CLUSTER), ("user", self.users, _USER)):
            named = context.data.get(kind) or ""
            if not named:
                problems.append(entry.problem(f"{kind} was not specified for context {go_quote(name)}"))
            elif named not in entries:
                text = f"{kind} {go_quote(named)} was not found for context {go_quote(name)}"
                problems.append(entry.problem(text, kind))
            else:
                selected[kind] = check_entry(entries[named], keys, problems)
        namespace = context.data.get("namespace") or ""
        if namespace and dns_label_errors(namespace):
            problems.append(entry.problem(f"{go_quote(namespace)} is no name of a namespace", "namespace"))
        if problems:
            raise InputError(problems)
        cluster, user = selected["cluster"], selected["user"]
        problems += [*_cluster_problems(cluster), *_user_problems(user)]
        exec_ = _exec(user, cluster, problems)
        if problems:
            raise InputError(problems)
        return _access(name, namespace, context, cluster, user, exec_)


def _cluster_problems(cluster: Entry) -> Iterator[Problem]:
    """Yield the problems that upstream's ``validateClusterInfo`` reports, and one for a SOCKS proxy."""
    data = cluster.data
    if not data.get("server"):
        yield cluster.problem("no server found", "server")
    proxy = data.get("proxy-url") or ""
    if proxy:
        try:
            scheme = urlsplit(proxy).scheme
        except ValueError as error:
            yield cluster.problem(f"parse error: {error}", "proxy-url")
            scheme = "http"
        if scheme == "socks5":
            yield cluster.problem("SOCKS proxies are not supported: http or https is expected", "proxy-url")
        elif scheme not in ("http", "https"):
            yield cluster.problem(f"unsupported scheme {go_quote(scheme)}, must be http or https", "proxy-url")
    if data.get("certificate-authority") and data.get("certificate-authority-data"):
        yield cluster.problem("certificate-authority-data and certificate-authority are both specified")
    if data.get("insecure-skip-tls-verify") and cluster.pem("certificate-authority"):
        text = "specifying a root certificates file with the insecure flag is not allowed"
        yield cluster.problem(text, "insecure-skip-tls-verify")
    yield from _unreadable(cluster, "certificate-authority")


def _user_problems(user: Entry) -> Iterator[Problem]:
    """Yield the problems that upstream's ``validateAuthInfo`` reports."""
    data = user.data
    certificate, key = user.pem("client-certificate"), user.pem("client-key")
    if certificate:
        for name in ("client-certificate", "client-key"):
            if data.get(name) and data.get(f"{name}-data"):
                yield user.problem(f"{name}-data and {name} are both specified")
        if not key:
            yield user.problem("client-key-data or client-key must be specified to use the clientCert method")
        yield from _unreadable(user, "client-certificate", "client-key")
    if data.get("token") and (data.get("username") or data.get("password")):
        yield user.problem("more than one authentication method found: [token basicAuth], only one is allowed")
    if any(data.get(key_name) for key_name in ("as-uid", "as-groups", "as-user-extra")) and not data.get("as"):
        yield user.problem("requesting uid, groups or user-extra without impersonating a user", "as")
    if not data.get("token"):
        yield from _unreadable(user, "tokenFile")


def _unreadable(entry: Entry, *keys: str) -> Iterator[Problem]:
    """Yield a problem for each of the keys whose file cannot be opened. Keys with inline data are skipped."""
    for key in keys:
        path = entry.path(key)
        if not path or entry.data.get(f"{key}-data"):
            continue
        try:
            Path(path).open("rb").close()
        except OSError as error:
            yield entry.problem(f"{path}: {error.strerror}", key)


def _exec(user: Entry, cluster: Entry, problems: list[Problem]) -> ExecConfig | None:
    """Read the exec plug-in of a user; None if there is none, or if ``exec`` is not a mapping.

    ``cluster``: the entry whose extension configures the plug-in. Problems are appended to ``problems``; wrong
    environment variables are left out. A relative path of the command starts at the folder of the kubeconfig.
    """
    raw = user.data.get("exec")
    if raw is None:
        return None
    where = f"{user.where}: exec"
    if not isinstance(raw, Mapping):
        problems.append(Problem("a command is expected", user.source, where))
        return None
    entry = check_entry(Entry(raw, user.source, where), _EXEC, problems)
    data, version = entry.data, entry.data.get("apiVersion") or ""
    if not data.get("command"):
        problems.append(entry.problem("command must be specified", "command"))
    if version not in _EXEC_VERSIONS:
        text = f"invalid apiVersion {go_quote(version)}" if version else "apiVersion must be specified"
        problems.append(entry.problem(text, "apiVersion"))
    mode = data.get("interactiveMode") or ("IfAvailable" if version.endswith("v1beta1") else "")
    if mode not in _INTERACTIVE:
        text = f"invalid interactiveMode: {go_quote(mode)}" if mode else "interactiveMode must be specified"
        problems.append(entry.problem(text, "interactiveMode"))
    env: list[tuple[str, Secret]] = []
    for i, variable in enumerate(data.get("env") or ()):
        named = isinstance(variable, Mapping) and set(variable) <= {"name", "value"} and variable.get("name")
        if not named or not all(isinstance(value, str) for value in variable.values()):
            problems.append(entry.problem("env variable name must be specified", f"env[{i}]"))
            continue
        env.append((variable["name"], Secret(variable.get("value") or "")))
    command: str = data.get("command") or ""
    return ExecConfig(
        command=entry.path("command") if os.sep in command else command,
        args=data.get("args") or (),
        env=tuple(env),
        api_version=version,
        install_hint=data.get("installHint") or "",
        provide_cluster_info=bool(data.get("provideClusterInfo")),
        interactive_mode=mode,
        config=_extension(cluster, _EXEC_EXTENSION),
    )


def _extension(entry: Entry, name: str) -> Any:
    """Return the content of an entry's extension, or None."""
    listed = entry.data.get("extensions")
    for extension in listed if isinstance(listed, list) else ():
        if isinstance(extension, Mapping) and extension.get("name") == name:
            return extension.get("extension")
    return None


def _access(name: str, namespace: str, context: Entry, cluster: Entry, user: Entry, exec_: ExecConfig | None) -> Access:
    """Build the access to a cluster from the checked entries of a context.

    Raises InputError if the server is not a URL.
    """
    data = user.data
    ca, insecure = cluster.pem("certificate-authority"), bool(cluster.data.get("insecure-skip-tls-verify"))
    certificate = user.pem("client-certificate")
    impersonate = None
    if data.get("as"):
        impersonate = Impersonation(
            user=data["as"],
            uid=data.get("as-uid") or "",
            groups=data.get("as-groups") or (),
            extra=data.get("as-user-extra") or {},
        )
    access = Access(
        server="",
        ca=ca,
        insecure=insecure,
        server_name=cluster.data.get("tls-server-name") or "",
        proxy=cluster.data.get("proxy-url") or "",
        compress=not cluster.data.get("disable-compression"),
        token=Secret(data.get("token") or ""),
        token_file=user.path("tokenFile"),
        username=data.get("username") or "",
        password=Secret(data.get("password") or ""),
        exec=exec_,
        certificate=ClientCertificate(certificate, user.pem("client-key")) if certificate else None,
        impersonate=impersonate,
        namespace=namespace or "default",
        context=name,
        cluster=context.data["cluster"],
        user=context.data["user"],
    )
    return access.with_server(cluster.data["server"])
