"""The admission controller: its registration and lease in virtual time, its webhook over TLS on loopback."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import logging
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme

from kscale.drivers.process import Program, ProgramContext
from kscale.drivers.vpa_admission import ADMISSION_METRICS, AdmissionController, Serving, admission_program
from kscale.drivers.vpa_registration import RegistrationError, RegistrationOptions, labels_of
from kscale.vpa import AdmissionOptions, ControllerKey
from kscale.vpa.admission.review import MAX_BODY_BYTES
from kscale.world.clock import SystemClock
from kscale.world.kubernetes.transport import Answer, Call
from kscale.world.serve.app import Server
from kscale.world.serve.tls import ReloadingContext
from unit.drivers.vpa_world import NAMESPACE, SERVED, Run, autoscaler, cluster, running, running_pod, workload
from unit.world.fake_api_server import status
from unit.world.test_informer import FakeApi, against_fake

HOOKS = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
VPAS = "verticalpodautoscalers.autoscaling.k8s.io"
LEASES = "leases.coordination.k8s.io"
RECOMMENDED = {"recommendation": {"containerRecommendations": [{"containerName": "c", "target": {"cpu": "1"}}]}}


def against(case: Callable[[FakeApi], Awaitable[None]], **more: Any) -> FakeApi:
    return against_fake(case, resources=SERVED, **more)


def building(**arguments: Any) -> Callable[[ProgramContext], Program]:
    def build(_: ProgramContext) -> Program:
        return Program(driver=AdmissionController(holder="host", **arguments), metrics=ADMISSION_METRICS)

    return build


def hook(api: FakeApi) -> dict[str, Any]:
    (result,) = api.server.get(HOOKS, "vpa-webhook-config")["webhooks"]
    return result


# -- registration and lease ------------------------------------------------------------------------------------------


def test_webhook_is_registered_after_ten_seconds_with_a_status_lease() -> None:
    async def case(api: FakeApi) -> None:
        cluster(api)
        old = {"metadata": {"name": "vpa-webhook-config", "labels": {"old": "yes"}}, "webhooks": []}
        api.server.put(HOOKS, old)
        registration = RegistrationOptions(webhook_labels="a:b,c:d", namespace="kube-system")
        async with running(api, building(registration=registration, ca=lambda: b"ca", reload=True)):
            await asyncio.sleep(9)
            assert api.server.get(HOOKS, "vpa-webhook-config")["metadata"]["labels"] == {"old": "yes"}
            await asyncio.sleep(2)
            assert api.server.get(HOOKS, "vpa-webhook-config")["metadata"]["labels"] == {"a": "b", "c": "d"}
            assert hook(api) == {
                "name": "vpa.k8s.io",
                "admissionReviewVersions": ["v1"],
                "clientConfig": {
                    "caBundle": base64.b64encode(b"ca").decode(),
                    "service": {"namespace": "kube-system", "name": "vpa-webhook"},
                },
                "failurePolicy": "Ignore",
                "namespaceSelector": {
                    "matchExpressions": [
                        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [""]},
                    ]
                },
                "rules": [
                    {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]},
                    {
                        "operations": ["CREATE", "UPDATE"],
                        "apiGroups": ["autoscaling.k8s.io"],
                        "apiVersions": ["*"],
                        "resources": ["verticalpodautoscalers"],
                    },
                ],
                "sideEffects": "None",
                "timeoutSeconds": 30,
            }
            assert api.server.all(LEASES) == []
            await asyncio.sleep(15)
            lease = api.server.get(LEASES, "vpa-admission-controller", "kube-system")
            assert lease["spec"] == {"holderIdentity": "host", "leaseDurationSeconds": 10}
            await asyncio.sleep(10)
            renewed = api.server.get(LEASES, "vpa-admission-controller", "kube-system")["spec"]
            assert renewed["renewTime"].startswith("2027-01-15T08:00:3")

    against(case)


@pytest.mark.parametrize(("takes", "waits"), [(3, 3), (60, 5)])
def test_reviews_wait_for_discovery_up_to_five_seconds(takes: int, waits: int) -> None:
    """Until then, of a target that only has a scale nothing could be found out."""

    async def case(api: FakeApi) -> None:
        original_call = api.server.call

        async def slow(call: Call) -> Answer:
            if call.path == "/apis":
                await asyncio.sleep(takes)
            return await original_call(call)

        api.server.call = slow
        async with running(api, building()) as run:
            for seconds, known in ((waits - 0.5, False), (1, True)):
                await asyncio.sleep(seconds)
                assert isinstance(run.driver, AdmissionController)
                assert run.driver.synced.is_set() is known
            if takes > waits:
                return
            await asyncio.sleep(8.5 - waits)
            assert not api.server.all(HOOKS)
            await asyncio.sleep(2)
            assert hook(api)

    against(case)


def test_without_a_registration_its_lease_waits_for_nothing() -> None:
    async def case(api: FakeApi) -> None:
        async with running(api, building(registration=RegistrationOptions(register_webhook=False))):
            await asyncio.sleep(9)
            assert api.server.all(LEASES) == []
            await asyncio.sleep(2)
            assert api.server.all(LEASES)

    against(case)


def test_webhook_by_url_with_failure_policy_is_registered() -> None:
    async def case(api: FakeApi) -> None:
        registration = RegistrationOptions(
            register_by_url=True,
            webhook_address="https://10.0.0.1",
            webhook_port="8000",
            webhook_failure_policy_fail=True,
            webhook_timeout_seconds=5,
            webhook_labels="nonsense",
            ignored_vpa_object_namespaces=["a", "b"],
        )
        async with running(api, building(registration=registration)):
            await asyncio.sleep(15)
            result = hook(api)
            assert result["clientConfig"] == {"url": "https://10.0.0.1:8000", "caBundle": ""}
            assert (result["failurePolicy"], result["timeoutSeconds"]) == ("Fail", 5)
            assert result["namespaceSelector"]["matchExpressions"][0]["values"] == ["a", "b"]

    against(case)


def test_changed_ca_is_written_to_the_webhook() -> None:
    current_ca: list[bytes | None] = [b"one"]

    def patches(api: FakeApi) -> int:
        return sum(path.endswith("vpa-webhook-config") for path in api.server.requested_paths("PATCH"))

    async def case(api: FakeApi) -> None:
        async with running(api, building(ca=lambda: current_ca[0], reload=True)):
            await asyncio.sleep(20)
            for nothing_new in (None, b"", b"one"):
                current_ca[0] = nothing_new
                await asyncio.sleep(3)
                assert patches(api) == 0
            current_ca[0] = b"two"
            await asyncio.sleep(3)
            assert hook(api)["clientConfig"]["caBundle"] == base64.b64encode(b"two").decode()
            assert hook(api)["rules"]
            assert patches(api) == 1
            async with api.away():
                current_ca[0] = b"three"
                await asyncio.sleep(5)
            await asyncio.sleep(3)
            assert hook(api)["clientConfig"]["caBundle"] == base64.b64encode(b"three").decode()

    against(case)


@pytest.mark.parametrize(
    "arguments", [{"reload": False}, {"registration": RegistrationOptions(register_webhook=False)}]
)
def test_disabled_features_write_nothing(arguments: dict[str, Any]) -> None:
    current_ca = [b"one"]

    async def case(api: FakeApi) -> None:
        async with running(api, building(ca=lambda: current_ca[0], **{"reload": True, **arguments})):
            await asyncio.sleep(15)
            current_ca[0] = b"two"
            await asyncio.sleep(30)
            assert not any(path.endswith("vpa-webhook-config") for path in api.server.requested_paths("PATCH"))
            assert bool(api.server.all(HOOKS)) is (arguments == {"reload": False})
            assert api.server.all(LEASES)

    against(case)


def test_a_dry_run_registers_nothing_and_has_no_lease(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def case(api: FakeApi) -> None:
        async with running(api, building(ca=lambda: b"ca", reload=True), dry_run=True):
            await asyncio.sleep(60)
        assert [
            *api.server.requested_paths("POST"),
            *api.server.requested_paths("PATCH"),
            *api.server.requested_paths("DELETE"),
        ] == []

    against(case)
    messages = [each.getMessage() for each in caplog.records]
    assert any("dry run" in text and "vpa-webhook-config" in text for text in messages)


def test_controller_without_registration_shuts_down() -> None:
    async def case(api: FakeApi) -> None:
        refusal = json.dumps(status(403, "Forbidden", "not you")).encode()
        api.server.fault = lambda call: Answer(403, {}, refusal) if call.method == "POST" else None
        with pytest.raises(
            RegistrationError, match="cannot create MutatingWebhookConfiguration vpa-webhook-config: not you"
        ):
            async with running(api, building()):
                await asyncio.sleep(15)

    against(case)


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("", {}),
        ("a:b,c:d", {"a": "b", "c": "d"}),
        ("a:b:c", {"a": "b:c"}),
        ('"a:b, c : d"', {"a": "b", "c": "d"}),
        ("a:", {"a": ""}),
    ],
)
def test_webhook_labels_are_parsed(text: str, labels: dict[str, str]) -> None:
    """As upstream's TestConvertLabelsToMap has them."""
    assert labels_of(text) == labels


@pytest.mark.parametrize("text", ["a", "a:b,c", ":b", " :b", "a:b,", '""'])
def test_invalid_webhook_labels_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=rf"^labels '{text.strip(chr(34))}' are invalid, the format should be"):
        labels_of(text)


def test_answers_follow_watched_objects() -> None:
    async def case(api: FakeApi) -> None:
        cluster(api)
        limits = {"kind": "LimitRange", "apiVersion": "v1", "metadata": {"name": "l", "namespace": NAMESPACE}}
        api.server.put("limitranges", {**limits, "spec": {"limits": [{"type": "Container", "max": {"cpu": "500m"}}]}})
        api.server.put(VPAS, autoscaler("web", status=RECOMMENDED))
        async with running(api, building()) as run:
            await asyncio.sleep(1)
            driver = run.driver
            assert isinstance(driver, AdmissionController)
            target = ControllerKey(NAMESPACE, "ReplicaSet", "web", "apps/v1")
            assert [vpa.name for vpa in driver.vpas.targeting(target)] == ["web"]
            result = driver.limit_ranges.effective(NAMESPACE, "Container")
            assert result is not None
            assert str((result.max or {})["cpu"]) == "500m"
            api.server.drop("limitranges", "l", NAMESPACE)
            api.server.drop(VPAS, "web", NAMESPACE)
            await asyncio.sleep(1)
            assert (len(driver.vpas), driver.limit_ranges.effective(NAMESPACE, "Container")) == (0, None)

    against(case)


# -- the webhook -----------------------------------------------------------------------------------------------------


class Files:
    """A certificate and its key, in files that are replaced."""

    def __init__(self, folder: Path) -> None:
        self.certificate, self.key = str(folder / "tls.crt"), str(folder / "tls.key")
        self.context = ssl.create_default_context()
        self.renew()

    def renew(self) -> None:
        authority = trustme.CA()
        issued = authority.issue_cert("127.0.0.1")
        authority.configure_trust(self.context)
        Path(self.key).write_bytes(issued.private_key_pem.bytes())
        Path(self.certificate).write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))


def review(obj: dict[str, Any], resource: str = "pods", group: str = "") -> bytes:
    about = {"group": group, "version": "v1", "resource": resource}
    request = {"uid": "u", "namespace": NAMESPACE, "operation": "CREATE", "resource": about, "object": obj}
    return json.dumps({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}).encode()


Ask = Callable[..., Awaitable[tuple[int, bytes]]]


def serving(files: Files, main: Callable[[Ask, Run, FakeApi, Callable[[], bool]], Awaitable[None]]) -> None:
    """Runs the whole program on loopback; each request comes on a connection of its own."""

    async def go() -> None:
        api = FakeApi(SystemClock())
        for each in SERVED:
            api.server.served[each.group_resource] = each
        cluster(api)
        api.server.put(VPAS, autoscaler("web", status=RECOMMENDED))
        servers: asyncio.Queue[Server] = asyncio.Queue()
        tls = ReloadingContext(files.certificate, files.key)

        def build(around: ProgramContext) -> Program:
            return admission_program(
                around,
                options=AdmissionOptions(),
                registration=RegistrationOptions(),
                serving=Serving(address="127.0.0.1:0", tls=tls, served=servers.put_nowait),
            )

        async with (
            running(api, build) as run,
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session,
        ):
            async with asyncio.timeout(10):
                await asyncio.sleep(0)
                assert run.programs[0].ready() == "the webhook does not listen yet"
                server = await servers.get()
            assert run.programs[0].ready() == ""

            async def ask(body: bytes, content_type: str = "application/json") -> tuple[int, bytes]:
                url = f"https://127.0.0.1:{server.port}/"
                headers = {"Content-Type": content_type}
                async with session.post(url, data=io.BytesIO(body), headers=headers, ssl=files.context) as answer:
                    return answer.status, await answer.read()

            await main(ask, run, api, tls.refresh)

    asyncio.run(go())


def test_reviews_over_tls(tmp_path: Path) -> None:
    async def main(ask: Ask, run: Run, api: FakeApi, _: Callable[[], bool]) -> None:
        code, body = await ask(review(running_pod("web-9", "web")))
        answer = json.loads(body)["response"]
        assert (code, answer["uid"], answer["allowed"], answer["patchType"]) == (200, "u", True, "JSONPatch")
        patch = json.loads(base64.b64decode(answer["patch"]))
        assert {"op": "add", "path": "/spec/containers/0/resources/requests/cpu", "value": "1"} in patch
        latency = "vpa_admission_controller_admission_latency_seconds"
        assert run.metric("vpa_admission_controller_admission_pods_total", applied="true") == 1
        text, _ = run.around[0].metrics.exposition()
        assert f'{latency}_count{{resource="Pod",status="applied"}} 1.0'.encode() in text
        # A VPA that is none is refused, a pod never is.
        nothing = {"spec": {"updatePolicy": {"updateMode": "no"}}}
        code, body = await ask(review(nothing, "verticalpodautoscalers", "autoscaling.k8s.io"))
        assert (code, json.loads(body)["response"]["allowed"]) == (200, False)
        for nonsense in (b"", b"{", b"null"):
            code, body = await ask(nonsense)
            assert (code, json.loads(body)["response"]) == (200, {"uid": "", "allowed": True})
        assert await ask(review(running_pod("x", "web")), "application/json; charset=utf-8") == (200, b"")
        assert await ask(b"x" * (MAX_BODY_BYTES + 1)) == (413, b"request payload too large\n")
        code, body = await ask(b"x" * MAX_BODY_BYTES)
        assert (code, json.loads(body)["response"]["allowed"]) == (200, True)

    serving(Files(tmp_path), main)


def test_a_target_with_a_scale_only(tmp_path: Path) -> None:
    async def main(ask: Ask, run: Run, api: FakeApi, _: Callable[[], bool]) -> None:
        rollout = ("Rollout", "argoproj.io/v1alpha1")
        api.server.put("rollouts.argoproj.io", workload("r", kind=rollout[0], api=rollout[1]))
        api.server.put(VPAS, autoscaler("r", kind=rollout[0], api=rollout[1], status=RECOMMENDED))
        patched = False
        async with asyncio.timeout(10):  # its scale is asked for once its VPA is seen
            while not patched:
                _, body = await ask(review(running_pod("r-1", "r", owner=rollout)))
                patched = "patch" in json.loads(body)["response"]

    serving(Files(tmp_path), main)


def test_certificates_change_and_no_request_is_lost(tmp_path: Path) -> None:
    files = Files(tmp_path)
    body = review(running_pod("web-9", "web"))

    async def main(ask: Ask, run: Run, api: FakeApi, refresh: Callable[[], bool]) -> None:
        answers: list[int] = []
        stop = asyncio.Event()

        async def client() -> None:
            while not stop.is_set():
                answers.append((await ask(body))[0])

        clients = [asyncio.create_task(client()) for _ in range(4)]
        for renewed in (True, True, False, True):
            if renewed:
                files.renew()
            else:  # half of a pair: what was there goes on
                Path(files.key).write_text("nonsense")
            assert refresh() is renewed
            answered = len(answers)
            async with asyncio.timeout(10):
                while len(answers) < answered + 8:
                    await asyncio.sleep(0.01)
        stop.set()
        await asyncio.gather(*clients)
        assert set(answers) == {200}

    serving(files, main)
