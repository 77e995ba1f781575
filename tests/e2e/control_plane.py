"""A control plane of one machine: etcd, the API server, and if wanted the scheduler and controllers.

Everything listens on loopback. Node objects come without taints and pods without tokens: there is no kubelet, and no
node controller, unless a test asks for them.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import secrets
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from e2e.building import control_plane
from kscale.world.kubernetes.kubeconfig import Access, ClientCertificate, Pem, Secret

__all__ = ["ControlPlane", "Refused", "StartError", "free_ports"]

CONTROLLERS = (
    "deployment-controller", "replicaset-controller", "statefulset-controller", "daemonset-controller",
    "job-controller", "horizontal-pod-autoscaler-controller", "disruption-controller", "garbage-collector-controller",
    "namespace-controller", "endpointslice-controller",
)  # fmt: skip
_RIGHTS = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
_READY = 120.0
_TRANSACTION = 100
"""So many writes are one for etcd, which takes 128."""


class StartError(RuntimeError):
    """A program did not start."""


class Refused(RuntimeError):  # noqa: N818  # no fault: the API server's answer
    """The API server refused what a test asked for."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class ControlPlane:
    """Programs as children, with their logs in ``directory/log``. A context manager: leaving ends them all.

    ``audit``: every write with its body goes to ``directory/log/audit.jsonl``.
    """

    def __init__(
        self,
        directory: Path,
        *,
        scheduler: bool = False,
        controllers: bool | Sequence[str] = False,
        audit: bool = False,
        apiserver_flags: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self.program = control_plane()
        self.token = secrets.token_hex(16)
        self.authority = trustme.CA()
        self._scheduler = scheduler
        self._controllers = CONTROLLERS if controllers is True else tuple(controllers or ())
        self._audit = audit
        self._flags = apiserver_flags
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._ports = dict(zip(("apiserver", "etcd", "peer", "scheduler", "controllers"), free_ports(5), strict=True))
        self._files()

    @property
    def port(self) -> int:
        """Of the API server."""
        return self._ports["apiserver"]

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def kubeconfig(self) -> Path:
        """Of an administrator."""
        return self.directory / "kubeconfig"

    @property
    def admin(self) -> Access:
        """An administrator, with a token."""
        return Access(server=self.url, ca=self.trusted, token=Secret(self.token))

    @property
    def trusted(self) -> Pem:
        return Pem(self.authority.cert_pem.bytes())

    def certificate_of(self, user: str, group: str) -> ClientCertificate:
        """A client certificate of a user who belongs to a group."""
        created = self.authority.issue_cert(f"{user}.example.com", common_name=user, organization_name=group)
        chain = b"".join(blob.bytes() for blob in created.cert_chain_pems)
        return ClientCertificate(Pem(chain), Pem(created.private_key_pem.bytes()))

    # -- programs ----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self._start_etcd()
            self.start_apiserver()
            if self._scheduler:
                self.start_scheduler()
            if self._controllers:
                key = f"--service-account-private-key-file={self.directory / 'account.key'}"
                only = f"--controllers={','.join(self._controllers)}"
                periods = ["--horizontal-pod-autoscaler-sync-period=2s"]
                serving = self._serving("controllers")
                acts = (f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", *self._asks())
                self._start("controllers", "kube-controller-manager", *acts, *serving, key, only, *periods)
                self._wait("controllers", "/healthz")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        for name in ("controllers", "scheduler", "apiserver", "etcd"):
            self.end(name)

    def end(self, name: str, *, kill: bool = False) -> None:
        """Ends a program; ``kill``: at once."""
        process = self._processes.pop(name, None)
        if process is None:
            return
        process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def start_scheduler(self, *flags: str) -> None:
        """Starts kube-scheduler (again), and waits until it is there; ``flags``: its configuration, if it has one."""
        usual = (f"--kubeconfig={self.kubeconfig}", "--leader-elect=false")
        self._start("scheduler", "kube-scheduler", *(flags or usual), *self._asks(), *self._serving("scheduler"))
        self._wait("scheduler", "/healthz")

    def _asks(self) -> list[str]:
        """Whom a program asks who its clients are."""
        flags = [f"--{kind}-kubeconfig={self.kubeconfig}" for kind in ("authentication", "authorization")]
        return [*flags, "--bind-address=127.0.0.1", "--v=1"]

    def start_apiserver(self) -> None:
        """Starts the API server (again), and waits until it is ready."""
        at = self.directory
        flags = [
            f"--etcd-servers=http://127.0.0.1:{self._ports['etcd']}",
            "--bind-address=127.0.0.1",
            "--advertise-address=192.0.2.1",
            f"--tls-cert-file={at / 'server.crt'}",
            f"--tls-private-key-file={at / 'server.key'}",
            f"--client-ca-file={at / 'ca.crt'}",
            f"--token-auth-file={at / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={at / 'account.pub'}",
            f"--service-account-signing-key-file={at / 'account.key'}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            "--v=1",
            *self._serving("apiserver"),
            *self._flags,
        ]
        if self._audit:
            flags += [f"--audit-policy-file={at / 'audit.yaml'}", f"--audit-log-path={at / 'log' / 'audit.jsonl'}"]
        self._start("apiserver", "kube-apiserver", *flags)
        self._wait("apiserver", "/readyz")

    def restart_apiserver(self, *, kill: bool = False) -> None:
        self.end("apiserver", kill=kill)
        self.start_apiserver()

    def pause(self, name: str) -> None:
        """A program stands still until it is resumed."""
        self._processes[name].send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        self._processes[name].send_signal(signal.SIGCONT)

    def compact(self) -> None:
        """etcd forgets what was before now."""
        revision = self._etcd("range", {"key": _base64("/")})["header"]["revision"]
        self._etcd("compaction", {"revision": revision, "physical": True})

    def _etcd(self, method: str, body: Mapping[str, Any]) -> Any:
        url = f"http://127.0.0.1:{self._ports['etcd']}/v3/kv/{method}"
        request = urllib.request.Request(url, data=json.dumps(body).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    def _start_etcd(self) -> None:
        urls = [
            f"--{kind}-url=http://127.0.0.1:{self._ports[port]}"
            for kind, port in (("client", "etcd"), ("peer", "peer"))
        ]
        self._start("etcd", "etcd", f"--data-dir={self.directory / 'etcd'}", *urls)

    def _serving(self, name: str) -> list[str]:
        return [f"--secure-port={self._ports[name]}", f"--cert-dir={self.directory / name}"]

    def _start(self, name: str, *words: str) -> None:
        log = (self.directory / "log" / f"{name}.log").open("ab")
        with log:
            self._processes[name] = subprocess.Popen(
                [self.program, *words], stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )

    def _wait(self, name: str, path: str) -> None:
        url = f"https://127.0.0.1:{self._ports[name]}{path}"
        context = ssl._create_unverified_context()
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {self.token}"})
        end = time.monotonic() + _READY
        while time.monotonic() < end:
            if self._processes[name].poll() is not None:
                raise StartError(f"{name} ended:\n{self._tail(name)}")
            with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=5, context=context) as answer:
                if answer.status == 200:
                    return
            time.sleep(0.1)
        raise StartError(f"{name} is not ready after {_READY:.0f} s:\n{self._tail(name)}")

    def _tail(self, name: str) -> str:
        return (self.directory / "log" / f"{name}.log").read_text(errors="replace")[-3000:]

    def _files(self) -> None:
        at = self.directory
        (at / "log").mkdir(parents=True, exist_ok=True)
        (at / "ca.crt").write_bytes(self.authority.cert_pem.bytes())
        server = self.authority.issue_cert("127.0.0.1", "localhost", "kubernetes.default")
        (at / "server.crt").write_bytes(b"".join(blob.bytes() for blob in server.cert_chain_pems))
        (at / "server.key").write_bytes(server.private_key_pem.bytes())
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (at / "account.key").write_bytes(private)
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        (at / "account.pub").write_bytes(public)
        (at / "tokens.csv").write_text(f"{self.token},admin,admin,system:masters\n")
        rules = [{"level": "RequestResponse", "verbs": ["create", "update", "patch", "delete"]}, {"level": "None"}]
        policy = {"kind": "Policy", "apiVersion": "audit.k8s.io/v1", "omitStages": ["RequestReceived"], "rules": rules}
        (at / "audit.yaml").write_text(json.dumps(policy))
        self.kubeconfig.write_text(json.dumps(self.config(user={"token": self.token})))
        os.chmod(self.kubeconfig, 0o600)

    def config(self, cluster: Mapping[str, Any] | None = None, user: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """A kubeconfig as plain data."""
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [
                {
                    "name": "c",
                    "cluster": {
                        "server": self.url, "certificate-authority": str(self.directory / "ca.crt"), **(cluster or {}),
                    },
                }
            ],
            "users": [{"name": "c", "user": dict(user or {})}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        }  # fmt: skip

    # -- what tests do behind the back of clients --------------------------------------------------------------------

    def ask(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json", token: str = ""
    ) -> Any:
        """One request of an administrator, and its answer as plain data. Raises :class:`Refused`.

        What was defined just now cannot be read yet (429): that is waited for.
        """
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token or self.token}"}
        if data is not None:
            headers["Content-Type"] = content_type
        request = urllib.request.Request(self.url + path, data=data, headers=headers, method=method)
        context = ssl.create_default_context(cadata=self.authority.cert_pem.bytes().decode())
        end = time.monotonic() + _READY
        while True:
            try:
                with urllib.request.urlopen(request, timeout=60, context=context) as answer:
                    return json.loads(answer.read())
            except urllib.error.HTTPError as error:
                with error:
                    if error.code != 429 or method != "GET" or time.monotonic() > end:
                        raise Refused(error.code, error.read().decode(errors="replace")) from None
            time.sleep(0.1)

    def define(self, *definitions: Mapping[str, Any]) -> None:
        """Makes custom resources, and waits until they are served."""
        for definition in definitions:
            self.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        for spec in (definition["spec"] for definition in definitions):
            path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
            end = time.monotonic() + _READY
            while not self._serves(path):
                if time.monotonic() > end:
                    raise StartError(f"{path} is not served after {_READY:.0f} s")
                time.sleep(0.1)

    def _serves(self, path: str) -> bool:
        try:
            self.ask("GET", path)
        except Refused as error:
            if error.code != 404:
                raise
            return False
        return True

    def store(self, objects: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Puts objects into etcd past the API server, which would take minutes for thousands. Nobody checks them: they
        are whole, with uids. ``objects``: each with its place below ``/registry/``.
        """
        puts = (
            {"requestPut": {"key": _base64(f"/registry/{place}"), "value": _base64(json.dumps(obj))}}
            for place, obj in objects
        )
        while some := list(itertools.islice(puts, _TRANSACTION)):
            self._etcd("txn", {"success": some})

    def wipe(self, place: str) -> None:
        """Takes all objects below a place out of etcd, as :meth:`store` puts them in."""
        end = f"{place[:-1]}{chr(ord(place[-1]) + 1)}"
        self._etcd("deleterange", {"key": _base64(f"/registry/{place}"), "range_end": _base64(f"/registry/{end}")})

    def account(self, name: str, rules: Sequence[Mapping[str, Any]], namespace: str = "kube-system") -> Access:
        """Who may do no more than a ClusterRole with these rules allows, with a token as pods have it."""
        binding = {
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        }
        role = {"kind": "ClusterRole", "metadata": {"name": name}, "rules": list(rules)}
        account = {"kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}
        return self.install([account, role, binding])

    def install(self, objects: Sequence[Mapping[str, Any]], name: str = "") -> Access:
        """Makes the account that is among the objects, its roles and their bindings, and no other of them; gives a
        token of it as pods have it. ``name``: what all of these are called instead."""
        (account,) = [each for each in objects if each["kind"] == "ServiceAccount"]
        name, namespace = name or account["metadata"]["name"], account["metadata"]["namespace"]
        with contextlib.suppress(Refused):
            self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        self.ask("POST", accounts, {"metadata": {"name": name}})
        group = "/apis/rbac.authorization.k8s.io/v1"
        for each in objects:
            if each["kind"] not in _RIGHTS:
                continue
            created = {**each, "metadata": {**each["metadata"], "name": name}}
            if "subjects" in each:
                created["roleRef"] = {**each["roleRef"], "name": name}
                created["subjects"] = [{**subject, "name": name} for subject in each["subjects"]]
            space = created["metadata"].get("namespace")
            where = f"{group}/namespaces/{space}" if space else group
            self.ask("POST", f"{where}/{each['kind'].lower()}s", created)
        request = {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "spec": {"expirationSeconds": 3600},
        }
        token = self.ask("POST", f"{accounts}/{name}/token", request)["status"]["token"]
        return Access(server=self.url, ca=self.trusted, token=Secret(token), namespace=namespace)

    def audit(self) -> Iterator[dict[str, Any]]:
        """What was written so far, and by whom."""
        path = self.directory / "log" / "audit.jsonl"
        text = path.read_text() if path.exists() else ""
        for line in text[: text.rfind("\n") + 1].splitlines():  # the last line may be half written
            yield json.loads(line)


def free_ports(count: int) -> list[int]:
    """Ports that were free just now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
