"""Kubeconfig files: client-go's tables (``tools/clientcmd``), and what is refused by name."""

from __future__ import annotations

import base64
import copy
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from kscale import InputError
from kscale.world.kubernetes.kubeconfig import (
    Access,
    ClientCertificate,
    Impersonation,
    Pem,
    Secret,
    in_cluster,
    load_access,
    read_contexts,
    without_password,
)

SECRET = "s3cr3t-t0ken"


def config(cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, name: str = "clean") -> Any:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": "https://localhost:8443", **(cluster or {})}}],
        "users": [{"name": name, "user": user or {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }


@pytest.fixture
def load(tmp_path: Path) -> Any:
    def run(data: Any, context: str = "") -> Access:
        path = tmp_path / "config"
        path.write_text(data if isinstance(data, str) else json.dumps(data))
        return load_access(str(path), context=context, environ={})

    return run


def refused(load: Any, data: Any, *texts: str, context: str = "") -> str:
    with pytest.raises(InputError) as error:
        load(data, context)
    error_text = str(error.value)
    for text in texts:
        assert text in error_text
    assert SECRET not in error_text
    return error_text


def test_minimal_kubeconfig_is_loaded(load: Any) -> None:
    access = load(config({"certificate-authority-data": base64.b64encode(b"PEM").decode()}, {"token": SECRET}))
    assert access == Access(
        server="https://localhost:8443",
        ca=Pem(b"PEM"),
        token=Secret(SECRET),
        context="clean",
        cluster="clean",
        user="clean",
    )


def test_no_secret_is_shown(load: Any) -> None:
    exec_ = {
        "command": "c", "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
        "env": [{"name": "KEY", "value": SECRET}],
    }  # fmt: skip
    user = {
        "token": SECRET, "tokenFile": "/dev/null", "exec": exec_,
        "client-certificate-data": "AAAA", "client-key-data": base64.b64encode(SECRET.encode()).decode(),
    }  # fmt: skip
    access = load(config(user=user))
    assert access.exec is not None
    assert access.exec.env[0][1].reveal() == SECRET
    assert SECRET not in f"{access!r} {access} {access.token} {access.certificate}"
    with pytest.raises(TypeError):
        pickle.dumps(access)


# TestProxyURL
@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", ""),
        ("https://example.com", ""),
        ("http://example.com", ""),
        ("socks5://example.com", "SOCKS proxies are not supported"),
        ("socks6://example.com", "unsupported scheme"),
        ("example.com", "unsupported scheme"),
        ("chewbacca@example.com", "unsupported scheme"),
        ("http://[example.com", "parse error: Invalid IPv6 URL"),
    ],
)
def test_proxy_url(load: Any, url: str, message: str) -> None:
    data = config({"proxy-url": url})
    if message:
        refused(load, data, message, "proxy-url")
    else:
        assert load(data).proxy == url


# TestTLSServerName, TestDisableCompression
def test_cluster_settings_are_read(load: Any) -> None:
    access = load(config({"tls-server-name": "overridden", "disable-compression": True}))
    assert (access.server_name, access.compress) == ("overridden", False)
    assert load(config({"insecure-skip-tls-verify": True})).insecure


# TestInsecureOverridesCA (in a file they exclude each other), TestCAOverridesCAData
def test_conflicting_settings_are_refused(load: Any, tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("x")
    ca = {"certificate-authority": "ca"}
    refused(load, config({**ca, "insecure-skip-tls-verify": True}), "with the insecure flag is not allowed")
    refused(load, config({**ca, "certificate-authority-data": "AAAA"}), "are both specified")
    user = {"client-certificate": "ca", "client-certificate-data": "AAAA", "client-key-data": "AAAA"}
    refused(load, config(user=user), "client-certificate-data and client-certificate are both specified")
    refused(load, config(user={"token": SECRET, "username": "u"}), "[token basicAuth], only one is allowed")
    refused(load, config(user={"client-certificate-data": "AAAA"}), "client-key-data or client-key must be specified")


# TestFullImpersonateConfig, TestValidateAuthInfoImpersonate*
def test_impersonation(load: Any) -> None:
    user = {"as": "alice", "as-uid": "abc123", "as-groups": ["group-1"], "as-user-extra": {"some-key": ["v1", "v2"]}}
    assert load(config(user=user)).impersonate == Impersonation(
        "alice", "abc123", ("group-1",), {"some-key": ("v1", "v2")}
    )
    for key, value in list(user.items())[1:]:
        refused(load, config(user={key: value}), "without impersonating a user")


# TestBasicTokenFile, TestPrecedenceTokenFile, TestBasicAuthData, TestCertificateData
def test_user_credentials_are_read(load: Any, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("x")
    access = load(config(user={"token": SECRET, "tokenFile": "tokens"}))
    assert (access.token, access.token_file) == (Secret(SECRET), str(tmp_path / "tokens"))
    access = load(config(user={"username": "myuser", "password": SECRET}))
    assert (access.username, access.password) == ("myuser", Secret(SECRET))
    pair = {f"client-{part}-data": base64.b64encode(part.encode()).decode() for part in ("certificate", "key")}
    assert load(config(user=pair)).certificate == ClientCertificate(Pem(b"certificate"), Pem(b"key"))


def test_base64_over_several_lines(load: Any) -> None:
    text = f"""
apiVersion: v1
kind: Config
current-context: c
contexts: [{{name: c, context: {{cluster: c, user: c}}}}]
users: [{{name: c, user: {{}}}}]
clusters:
- name: c
  cluster:
    server: https://h
    certificate-authority-data: |
      {base64.b64encode(b"some longer").decode()[:8]}
      {base64.b64encode(b"some longer").decode()[8:]}
"""
    assert load(text).ca == Pem(b"some longer")


# TestResolveRelativePaths
def test_paths_are_relative_to_their_file(tmp_path: Path) -> None:
    for name in ("ca", "cert", "key", "token"):
        (tmp_path / "sub").mkdir(exist_ok=True)
        (tmp_path / "sub" / name).write_text("x")
    data = config(
        {"certificate-authority": "sub/ca"},
        {
            "client-certificate": "sub/cert", "client-key": str(tmp_path / "sub/key"), "tokenFile": "sub/token",
            "exec": {
                "command": "./plugin", "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
            },
        },
    )  # fmt: skip
    (tmp_path / "config").write_text(json.dumps(data))
    access = load_access(str(tmp_path / "config"))
    assert access.ca.path == str(tmp_path / "sub/ca")
    assert access.certificate == ClientCertificate(
        Pem(path=str(tmp_path / "sub/cert")), Pem(path=str(tmp_path / "sub/key"))
    )
    assert access.token_file == str(tmp_path / "sub/token")
    assert access.exec is not None
    assert access.exec.command == str(tmp_path / "plugin")
    data["users"][0]["user"]["exec"]["command"] = "plugin"
    (tmp_path / "config").write_text(json.dumps(data))
    result = load_access(str(tmp_path / "config")).exec
    assert result is not None
    assert result.command == "plugin"  # on the PATH


# TestConflictingCurrentContext, TestToleratingMissingFiles, and the merge rules of ClientConfigLoadingRules.Load
def test_several_files(tmp_path: Path) -> None:
    first, second = config({"server": "https://one"}, name="any"), config({"server": "https://two"}, name="any")
    second["clusters"].append({"name": "more", "cluster": {"server": "https://more"}})
    second["contexts"].append({"name": "more", "context": {"cluster": "more", "user": "any", "namespace": "shop"}})
    second["users"][0]["user"] = {"token": SECRET}
    second["current-context"] = "more"
    paths = [tmp_path / "missing", tmp_path / "first", tmp_path / "second"]
    paths[1].write_text(json.dumps(first))
    paths[2].write_text(json.dumps(second))
    environ = {"KUBECONFIG": ":".join(["", *map(str, paths), str(paths[1])])}
    access = load_access(environ=environ)
    # The first file that has an entry has it, whole: nothing of the other's is added.
    assert (access.server, access.token, access.context) == ("https://one", Secret(), "any")
    access = load_access(context="more", environ=environ)
    assert (access.server, access.namespace) == ("https://more", "shop")
    assert read_contexts(environ=environ) == (["any", "more"], "any")
    first["current-context"] = ""
    paths[1].write_text(json.dumps(first))
    assert load_access(environ=environ).context == "more"


def test_the_file_at_home(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text(json.dumps(config()))
    assert load_access(environ={"HOME": str(tmp_path)}).server == "https://localhost:8443"


# TestNonExistentCommandLineFile, TestErrorReadingNonFile, TestErrorReadingFile
def test_files_that_cannot_be_read(tmp_path: Path, load: Any) -> None:
    with pytest.raises(InputError, match="missing: No such file"):
        load_access(str(tmp_path / "missing"))
    with pytest.raises(InputError, match="Is a directory"):
        load_access(str(tmp_path))
    with pytest.raises(InputError, match="Is a directory"):
        load_access(environ={"KUBECONFIG": str(tmp_path)})
    refused(load, "bogus value", "it is not one kubeconfig")
    refused(load, "a: [", "malformed YAML")
    refused(load, "clusters: {}", "clusters: a list is expected")
    refused(load, json.dumps({**config(), "kind": "Pod"}), "kind: Config is expected, not Pod")


# TestDuplicate*Name
@pytest.mark.parametrize("plural", ["clusters", "users", "contexts"])
def test_duplicate_names_are_handled_as_upstream_does(load: Any, plural: str) -> None:
    data = config()
    data[plural] *= 2
    refused(load, data, f'{plural}[1].name: the name "clean" comes twice')


# TestCreateMissingContext, TestConfirmUsable*, TestValidateMissingReferencesConfig, TestValidateEmptyContext
def test_dangling_references_are_refused(load: Any, tmp_path: Path) -> None:
    refused(load, config(), 'context "not-present" does not exist', context="not-present")
    data = config()
    data["contexts"][0]["context"] = {"cluster": "missing", "user": "missing"}
    refused(load, data, 'cluster "missing" was not found', 'user "missing" was not found for context "clean"')
    data["contexts"][0]["context"] = {}
    refused(load, data, "cluster was not specified", 'user was not specified for context "clean"')
    refused(load, config({"server": ""}), 'cluster "clean": server: no server found')
    refused(load, config({"certificate-authority": "nowhere"}), "nowhere: No such file or directory")
    user = {"client-certificate": "nowhere", "client-key": "nowhere"}
    assert refused(load, config(user=user)).count("No such file") == 2
    data = config()
    data["contexts"][0]["context"]["namespace"] = "No Name"
    refused(load, data, 'namespace: "No Name" is no name')
    refused(load, "", "no configuration has been provided")
    with pytest.raises(InputError, match="no configuration has been provided"):
        load_access(environ={"HOME": str(tmp_path / "nobody")})


# TestValidateAuthInfoExec*
EXEC = {"command": "/bin/example", "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Always"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, ""),
        ({"env": [{"name": "foo", "value": "bar"}]}, ""),
        ({"apiVersion": "client.authentication.k8s.io/v1beta1", "interactiveMode": None}, ""),
        ({"apiVersion": None}, "exec: apiVersion: apiVersion must be specified"),
        ({"apiVersion": "client.authentication.k8s.io/v1alpha1"}, "invalid apiVersion"),
        ({"command": ""}, "exec: command: command must be specified"),
        ({"env": [{"value": SECRET}]}, "env[0]: env variable name must be specified"),
        ({"env": [{"name": "a", "value": 5}]}, "env[0]"),
        ({"interactiveMode": None}, "interactiveMode must be specified"),
        ({"interactiveMode": "invalid"}, 'invalid interactiveMode: "invalid"'),
        ({"args": "one"}, "exec: args: a list of texts is expected"),
        ({"arg": ["one"]}, "exec: arg: this key is not understood"),
    ],
)
def test_exec_plugin_settings_are_validated(load: Any, change: dict[str, Any], message: str) -> None:
    data = config(user={"exec": {**EXEC, **change}})
    if message:
        refused(load, data, message)
    else:
        assert load(data).exec.command == "/bin/example"


def test_exec_extension_of_the_cluster_is_read(load: Any) -> None:
    extensions = [
        {"name": "other", "extension": 1},
        {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}},
    ]
    data = config({"extensions": extensions}, {"exec": {**EXEC, "provideClusterInfo": True, "installHint": "brew"}})
    result = load(data).exec
    assert (result.config, result.provide_cluster_info, result.install_hint) == ({"audience": "a"}, True, "brew")


# What kubectl would pass over
@pytest.mark.parametrize("where", ["top", "cluster", "user", "context", "item"])
def test_keys_that_are_not_understood(load: Any, where: str) -> None:
    data = config()
    at = {
        "top": data,
        "cluster": data["clusters"][0]["cluster"],
        "user": data["users"][0]["user"],
        "context": data["contexts"][0]["context"],
        "item": data["users"][0],
    }[where]
    at["as_user"] = SECRET
    refused(load, data, "as_user: this key is not understood")


def test_auth_providers_are_refused_by_name(load: Any) -> None:
    data = config(user={"auth-provider": {"name": "gcp", "config": {"access-token": SECRET}}})
    refused(load, data, 'user "clean": auth-provider: this key is not understood (use an exec plug-in)')


def test_entries_that_are_not_used_may_be_odd(load: Any) -> None:
    data = config()
    for plural in ("clusters", "users", "contexts"):
        other = copy.deepcopy(data[plural][0])
        other["name"], other[plural[:-1]] = "other", {"future": 1}
        data[plural].append(other)
    assert load(data).context == "clean"


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("cluster", "server", 5), ("cluster", "insecure-skip-tls-verify", "yes"), ("user", "token", 12345),
        ("user", "as-groups", "one"), ("user", "as-user-extra", {"a": "b"}), ("user", "client-key-data", "#" + SECRET),
        ("cluster", "certificate-authority-data", 1),
    ],
)  # fmt: skip
def test_values_of_the_wrong_type_are_refused(load: Any, part: str, key: str, value: Any) -> None:
    error_text = refused(load, config(**{part: {key: value}}), f"{key}: ", "is expected")
    assert "12345" not in error_text


@pytest.mark.parametrize(
    ("server", "url"),
    [
        ("https://host:6443/", "https://host:6443"),
        ("https://host/base/?a=b#c", "https://host/base"),
        ("localhost:8080", "http://localhost:8080"),
    ],
)
def test_the_url_of_the_server(load: Any, server: str, url: str) -> None:
    assert load(config({"server": server})).server == url
    assert load(config({"server": "host", "insecure-skip-tls-verify": True})).server == "https://host"


def test_credentials_are_not_sent_over_http(load: Any) -> None:
    access = load(config({"server": "http://localhost"}, {"token": SECRET, "as": "alice"}))
    assert (access.token, access.impersonate) == (Secret(), Impersonation("alice"))


def test_other_server_gets_the_credentials_only_over_https(load: Any) -> None:
    access = load(config({"server": "https://localhost"}, {"token": SECRET}))
    assert (access.with_server("https://other/").server, access.with_server("https://other/").token) == (
        "https://other",
        Secret(SECRET),
    )
    assert (access.with_server("http://other").token, access.with_server("other:8080").server) == (
        Secret(),
        "http://other:8080",
    )
    with pytest.raises(InputError, match="the server https://me:xxxxx@other:99999 is no URL: Port out of range"):
        access.with_server(f"https://me:{SECRET}@other:99999")


# TestInClusterConfig, TestInClusterClientConfigPrecedence, InClusterConfig, TestInClusterConfigNamespace
POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    created = tmp_path / "account"
    created.mkdir()
    (created / "token").write_text(SECRET)
    (created / "ca.crt").write_text("PEM")
    (created / "namespace").write_text("kube-system\n")
    monkeypatch.setattr("kscale.world.kubernetes.kubeconfig.SERVICE_ACCOUNT", created)
    return created


def test_in_cluster_access_is_loaded(account: Path, tmp_path: Path) -> None:
    expected = Access(
        server="https://10.0.0.1:443",
        ca=Pem(path=str(account / "ca.crt")),
        token_file=str(account / "token"),
        namespace="kube-system",
    )
    assert in_cluster(POD) == expected
    assert load_access(environ={**POD, "HOME": str(tmp_path)}) == expected
    v6 = in_cluster({**POD, "KUBERNETES_SERVICE_HOST": "fd00::1", "POD_NAMESPACE": "mine"})
    assert v6 is not None
    assert (v6.server, v6.namespace) == ("https://[fd00::1]:443", "mine")
    assert in_cluster({}) is None
    (account / "namespace").write_bytes(b"\xff")
    with pytest.raises(InputError, match="namespace: not UTF-8"):
        in_cluster(POD)
    (account / "token").unlink()
    assert in_cluster(POD) is None


def test_kubeconfig_takes_precedence_over_in_cluster_access(account: Path, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(json.dumps(config()))
    assert load_access(environ={**POD, "KUBECONFIG": str(path)}).server == "https://localhost:8443"
    path.write_text(json.dumps({**config(), "current-context": "missing"}))
    with pytest.raises(InputError, match="missing"):
        load_access(environ={**POD, "KUBECONFIG": str(path)})
    path.write_text(json.dumps({**config(), "current-context": ""}))
    assert load_access(environ={**POD, "KUBECONFIG": str(path)}).server == "https://10.0.0.1:443"
    with pytest.raises(InputError):
        load_access(str(path), environ=POD)


@pytest.mark.parametrize("password", ["s3cret", "s3cr@et", "@s3cret", "s3cret@", "s3:cret", ""])
def test_no_part_of_a_password_is_shown(password: str) -> None:
    """Browsers and Python take the last @ for the end of the password."""
    for text in (
        f"http://u:{password}@h:9",
        f'Get "http://u:{password}@h/api": no answer of http://u:{password}@p:3128',
    ):
        assert without_password(text) == text.replace(f"u:{password}@", "u:xxxxx@")
    assert without_password("http://h:9/a@b") == "http://h:9/a@b"
