"""Kubeconfig files, read as kubectl reads them (upstream: ``client-go/tools/clientcmd``).

What kubectl would pass over is refused by name where it concerns the entries that are used: a key that is not
understood may well be one that says who acts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from kscale.errors import InputError, Problem
from kscale.files import read_file
from kscale.objects.names import dns_label_errors, go_quote
from kscale.world.kubernetes.access import Access, ClientCertificate, ExecConfig, Impersonation, Pem, Secret
from kscale.world.kubernetes.kubeconfig_files import (
    ANY,
    BASE64,
    FLAG,
    TEXT,
    TEXT_LISTS,
    TEXTS,
    Entry,
    checked,
    named_entries,
    read_document,
)

__all__ = ["SERVICE_ACCOUNT", "in_cluster", "load_access", "read_contexts"]

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its token, its namespace and the cluster's certificate authority."""

_EXEC_EXTENSION: Final = "client.authentication.k8s.io/exec"
_EXEC_VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_INTERACTIVE: Final = ("Never", "IfAvailable", "Always")
_NO_CONFIGURATION: Final = "no configuration has been provided, try setting KUBERNETES_MASTER environment variable"

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
    """How to reach the API server that a kubeconfig names.

    ``path``: that file, which must be there; empty: the files of ``KUBECONFIG`` (the first that has an entry has it),
    else ``~/.kube/config``; where these say nothing, the service account of the pod that this runs in. ``context``: by
    its name; empty: the current one. Raises :class:`~kscale.InputError` with everything that is wrong with it, and
    never with a secret in it.
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
    """How a pod reaches its API server; None: this is no pod, or it has no service account."""
    environ = os.environ if environ is None else environ
    account = SERVICE_ACCOUNT if account is None else account
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "")
    token, authority = account / "token", account / "ca.crt"
    if not host or not port or not token.is_file():
        return None
    namespace = environ.get("POD_NAMESPACE", "")
    if not namespace and (account / "namespace").is_file():
        namespace = read_file(account / "namespace").decode().strip()
    return Access(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        ca=Pem(path=str(authority)) if authority.is_file() else Pem(),
        token_file=str(token),
        namespace=namespace or "default",
    )


def read_contexts(path: str = "", *, environ: Mapping[str, str] | None = None) -> tuple[list[str], str]:
    """The names of all contexts, in the order of the files, and of the current one."""
    config = _Config.read(_paths(path, os.environ if environ is None else environ), explicit=bool(path))
    return list(config.contexts), config.current


def _paths(path: str, environ: Mapping[str, str]) -> list[str]:
    if path:
        return [path]
    listed = environ.get("KUBECONFIG", "")
    if listed:
        return list(dict.fromkeys(each for each in listed.split(os.pathsep) if each))
    home = environ.get("HOME", "") or str(Path.home())
    return [str(Path(home) / ".kube" / "config")]


@dataclass(frozen=True, slots=True)
class _Config:
    """The files merged: what comes first counts."""

    current: str
    contexts: Mapping[str, Entry]
    clusters: Mapping[str, Entry]
    users: Mapping[str, Entry]

    @staticmethod
    def read(paths: Sequence[str], *, explicit: bool) -> _Config:
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
        """Nothing is said of which server it is."""
        return not self.current

    def access(self, wanted: str) -> Access:
        name = wanted or self.current
        entry = self.contexts.get(name)
        if entry is None:
            if not name:
                raise InputError(
                    _NO_CONFIGURATION if not self.clusters else "no context is chosen, and none is current"
                )
            raise InputError(f"context {go_quote(name)} does not exist")
        problems: list[Problem] = []
        context = checked(entry, _CONTEXT, problems)
        found = {}
        for kind, entries, keys in (("cluster", self.clusters, _CLUSTER), ("user", self.users, _USER)):
            named = context.data.get(kind) or ""
            if not named:
                problems.append(entry.problem(f"{kind} was not specified for context {go_quote(name)}"))
            elif named not in entries:
                text = f"{kind} {go_quote(named)} was not found for context {go_quote(name)}"
                problems.append(entry.problem(text, kind))
            else:
                found[kind] = checked(entries[named], keys, problems)
        namespace = context.data.get("namespace") or ""
        if namespace and dns_label_errors(namespace):
            problems.append(entry.problem(f"{go_quote(namespace)} is no name of a namespace", "namespace"))
        if problems:
            raise InputError(problems)
        cluster, user = found["cluster"], found["user"]
        problems += [*_cluster_problems(cluster), *_user_problems(user)]
        exec_ = _exec(user, cluster, problems)
        if problems:
            raise InputError(problems)
        return _access(name, namespace, context, cluster, user, exec_)


def _cluster_problems(cluster: Entry) -> Iterator[Problem]:
    """What ``validateClusterInfo`` refuses."""
    data = cluster.data
    if not data.get("server"):
        yield cluster.problem("no server found", "server")
    proxy = data.get("proxy-url") or ""
    if proxy:
        scheme = urlsplit(proxy).scheme
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
    """What ``validateAuthInfo`` refuses."""
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
    if any(data.get(each) for each in ("as-uid", "as-groups", "as-user-extra")) and not data.get("as"):
        yield user.problem("requesting uid, groups or user-extra without impersonating a user", "as")
    if not data.get("token"):
        yield from _unreadable(user, "tokenFile")


def _unreadable(entry: Entry, *keys: str) -> Iterator[Problem]:
    for key in keys:
        path = entry.path(key)
        if not path or entry.data.get(f"{key}-data"):
            continue
        try:
            Path(path).open("rb").close()
        except OSError as error:
            yield entry.problem(f"{path}: {error.strerror}", key)


def _exec(user: Entry, cluster: Entry, problems: list[Problem]) -> ExecConfig | None:
    raw = user.data.get("exec")
    if raw is None:
        return None
    where = f"{user.where}: exec"
    if not isinstance(raw, Mapping):
        problems.append(Problem("a command is expected", user.source, where))
        return None
    entry = checked(Entry(raw, user.source, where), _EXEC, problems)
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
    for i, each in enumerate(data.get("env") or ()):
        named = isinstance(each, Mapping) and set(each) <= {"name", "value"} and each.get("name")
        if not named or not all(isinstance(value, str) for value in each.values()):
            problems.append(entry.problem("env variable name must be specified", f"env[{i}]"))
            continue
        env.append((each["name"], Secret(each.get("value") or "")))
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
    listed = entry.data.get("extensions")
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, Mapping) and each.get("name") == name:
            return each.get("extension")
    return None


def _access(name: str, namespace: str, context: Entry, cluster: Entry, user: Entry, exec_: ExecConfig | None) -> Access:
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
    return access.at(cluster.data["server"])
