"""``kscale manifests``: what is printed can be applied, and fits what the program does."""

from __future__ import annotations

import json
import re
import ssl
import sys
import tomllib
from base64 import b64decode
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from kscale.ca.capacity_buffers.pod_templates import TEMPLATE_API_VERSIONS
from kscale.ca.metrics import METRICS
from kscale.ca.options import AutoscalingOptions
from kscale.drivers.cluster_autoscaler import AutoscalerProcess, ClusterAutoscaler, CurrentNodes
from kscale.drivers.horizontal_autoscaler import HorizontalAutoscaler
from kscale.drivers.leader_election import LEADER_METRICS
from kscale.drivers.live import DRIVE_METRICS
from kscale.drivers.manifests.autoscalers import admission_manifests, autoscaler_roles, vpa_definitions
from kscale.drivers.manifests.cluster_autoscaler import cluster_autoscaler_manifests, cluster_autoscaler_roles
from kscale.drivers.process import HealthCheck, HealthCheckOptions
from kscale.drivers.vpa_admission import AdmissionController
from kscale.drivers.vpa_recommender import VpaRecommender
from kscale.drivers.vpa_updater import VpaUpdater
from kscale.errors import InputError
from kscale.objects.kinds import BUILT_IN
from kscale.world.clock import SystemClock
from kscale.world.kubernetes.informer import WATCH_METRICS
from kscale.world.kubernetes.resources import EVERYWHERE
from kscale.world.protocols import Watch
from unit.cli.support import kscale as run

COMMAND = ("manifests", "cluster-autoscaler", "--image", "example.org/kscale:1")


def printed(*arguments: str) -> dict[str, Any]:
    result = run(*COMMAND, *arguments)
    assert result.code == 0, result.stderr
    assert "&id" not in result.stdout
    return {each["kind"]: each for each in yaml.safe_load_all(result.stdout)}


def test_options_that_are_left_out_are_as_without_a_flag() -> None:
    options = {"capacity_buffer_controller_enabled": True}
    result = {
        each["kind"]: each for each in cluster_autoscaler_manifests(image="example.org/kscale:1", options=options)
    }
    (container,) = result["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert "--cloud-provider=externalgrpc" in container["args"]
    assert result["ClusterRole"]["rules"] == cluster_autoscaler_roles(options)[0]


def test_printed_objects_are_complete() -> None:
    result = printed("-n", "autoscaling", "--cloud-config", "cloud", "--flag=--expander=least-nodes", "--replicas=3")
    assert list(result) == [
        "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Deployment",
        "PodDisruptionBudget", "NetworkPolicy",
    ]  # fmt: skip
    deployment = result["Deployment"]
    assert deployment["spec"]["replicas"] == 3
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"] == [
        "run", "cluster-autoscaler", "--cloud-provider=externalgrpc", "--namespace=autoscaling", "--log-format=json",
        "--expander=least-nodes", "--cloud-config=/etc/kscale/config",
    ]  # fmt: skip
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert pod["volumes"] == [{"name": "config", "secret": {"secretName": "cloud"}}]
    spaces = {kind: each["metadata"].get("namespace") for kind, each in result.items()}
    assert {kind for kind, space in spaces.items() if space is None} == {"ClusterRole", "ClusterRoleBinding"}
    assert set(spaces.values()) == {None, "autoscaling"}


@pytest.mark.parametrize(
    ("program", "flag", "message"),
    [
        ("cluster-autoscaler", "--expnder=price", "No such option: --expnder"),
        ("cluster-autoscaler", "--scan-interval=soon", "--scan-interval"),
        ("cluster-autoscaler", "--cores-total=9:1", "--cores-total"),
        ("cluster-autoscaler", "--max-nodes-total=many", "'many' is not a valid"),
        ("cluster-autoscaler", "--feature-gates=A=true", "--feature-gates is not taken"),
        ("cluster-autoscaler", "expander", "unexpected extra argument"),
        ("cluster-autoscaler", "--cloud-provider=nope", "--cloud-provider is set by this command"),
        ("cluster-autoscaler", "--cloud-provider=kwok", "--cloud-provider is set by this command"),
        ("cluster-autoscaler", "--namespace=other", "--namespace is set by this command"),
        ("horizontal", "--leader-elect-resource-namespace=other", "is set by this command"),
        ("vpa-updater", "--admission-controller-status-lease-namespace=other", "is set by this command"),
        ("vpa-admission", "--status-lease-namespace=other", "is set by this command"),
        ("horizontal", "--address=:9999", "--address: the port of probes"),
        ("cluster-autoscaler", "--tls-cert-file=/x", "--tls-cert-file: the Deployment mounts no such file"),
        ("vpa-updater", "--tls-private-key-file=/x", "--tls-private-key-file: the Deployment mounts no such file"),
        ("vpa-admission", "--client-ca-file=/x", "--client-ca-file: the Deployment mounts no such file"),
        (
            "vpa-recommender",
            "--prometheus-bearer-token-file=/x",
            "--prometheus-bearer-token-file: the Deployment mounts no such file",
        ),
        ("cluster-autoscaler", "--help", "No such option: --help"),
        ("vpa-updater", "-h", "No such option: -h"),
        ("horizontal", "--horizontal-pod-autoscaler-tolerance=most", "--horizontal-pod-autoscaler-tolerance"),
        ("vpa-updater", "--help-me", "No such option: --help-me"),
        ("vpa-admission", "--port=x", "--port"),
        ("vpa-recommender", "--cpu-histogram-decay=1h", "No such option"),
    ],
)
def test_flags_that_the_program_does_not_take(program: str, flag: str, message: str) -> None:
    result = run("manifests", program, "--image", "example.org/kscale:1", f"--flag={flag}")
    assert (result.code, result.stdout) == (2, ""), flag
    assert message in result.stderr


def test_formats() -> None:
    result = run(*COMMAND, "-o", "json")
    as_yaml = run(*COMMAND, "-o", "yaml")
    listed = json.loads(result.stdout)
    assert (listed["kind"], listed["items"]) == ("List", list(yaml.safe_load_all(as_yaml.stdout)))
    refused = run(*COMMAND, "-o", "csv")
    assert (refused.code, refused.stdout) == (2, "")
    assert "kubectl apply takes yaml and json" in refused.stderr


@pytest.mark.parametrize("cloud", ["externalgrpc", "kwok", "clusterapi"])
def test_deployment_flags_exist(cloud: str) -> None:
    (container,) = printed("--cloud-provider", cloud)["Deployment"]["spec"]["template"]["spec"]["containers"]
    help_ = run("run", "cluster-autoscaler", "--help-all").stdout
    for argument in container["args"][2:]:
        assert argument.partition("=")[0] in help_


def test_role_allows_every_watched_kind() -> None:
    clock = SystemClock()
    health = HealthCheck(HealthCheckOptions(), clock.now())
    options = AutoscalingOptions(expander="priority", capacity_quotas_enabled=True)
    driver = ClusterAutoscaler(options, AutoscalerProcess(), clock, health, CurrentNodes())
    wide, own = cluster_autoscaler_roles({"expander": options.expander})
    plurals = {(each.api_version, each.kind): each.group_resource.partition(".")[0] for each in EVERYWHERE}
    plurals["autoscaling.x-k8s.io/v1beta1", "CapacityQuota"] = "capacityquotas"
    for watch in driver.watches:
        group = watch.api_version.rpartition("/")[0]
        plural = plurals[watch.api_version, watch.kind]
        rules = own if watch.namespace else wide
        fitting = [rule for rule in rules if group in rule["apiGroups"] and plural in rule["resources"]]
        granted = {verb for rule in fitting for verb in rule["verbs"]}
        assert {"list", "watch"} <= granted, watch


@pytest.mark.parametrize(
    ("expander", "names"),
    [("least-waste", []), ("priority,random", ["cluster-autoscaler-priority-expander"])],
)
def test_only_the_priority_expander_may_read_its_config_map(expander: str, names: list[str]) -> None:
    _, own = cluster_autoscaler_roles({"expander": expander})
    watched = [rule["resourceNames"] for rule in own if "watch" in rule["verbs"]]
    assert watched == ([names] if names else [])


def test_the_webhook_may_be_reached_from_the_networks_of_the_api_servers() -> None:
    networks = ("--api-server-network", "10.0.0.0/28", "--api-server-network", "fd00::/64")
    _, webhook = of_program("vpa-admission", *networks)["NetworkPolicy"]["spec"]["ingress"]
    assert webhook["from"] == [{"ipBlock": {"cidr": "10.0.0.0/28"}}, {"ipBlock": {"cidr": "fd00::/64"}}]
    got = run("manifests", "vpa-admission", "--image", "i", "--api-server-network", "10.0.0.1/28")
    assert (got.code, "--api-server-network" in got.stderr, "has host bits set" in got.stderr) == (2, True, True)


def granted(rules: Sequence[dict[str, Any]], group: str, resource: str) -> set[str]:
    fitting = [rule for rule in rules if group in rule["apiGroups"] and resource in rule["resources"]]
    return {verb for rule in fitting for verb in rule["verbs"]}


@pytest.mark.parametrize(
    ("values", "on"),
    [(["=true"], True), (["=1"], True), (["=True"], True), ([""], True), (["=0"], False), (["=true", "=false"], False)],
)
def test_rules_by_the_flags_however_they_are_written(values: Sequence[str], on: bool) -> None:
    flags = [f"--flag=--capacity-buffer-controller-enabled{value}" for value in values]
    rules = printed(*flags)["ClusterRole"]["rules"]
    assert ("create" in granted(rules, "", "podtemplates")) == on
    for group, kind in TEMPLATE_API_VERSIONS:
        if kind != "Job":  # it has no scale
            assert granted(rules, group.replace("core", ""), f"{kind.lower()}s/scale") == ({"get"} if on else set())


@pytest.mark.parametrize(
    ("program", "flag", "verbs"),
    [
        ("cluster-autoscaler", "--leader-elect-resource-name", {"get", "patch"}),
        ("cluster-autoscaler", "--status-config-map-name", {"get", "patch", "delete"}),
        ("horizontal", "--leader-elect-resource-name", {"get", "patch"}),
        ("vpa-recommender", "--leader-elect-resource-name", {"get", "patch"}),
        ("vpa-updater", "--leader-elect-resource-name", {"get", "patch"}),
        ("vpa-updater", "--admission-controller-status-lease-name", {"get"}),
        ("vpa-admission", "--status-lease-name", {"get", "patch"}),
    ],
)
def test_role_names_the_objects_of_flags(program: str, flag: str, verbs: set[str]) -> None:
    rules = {text: of_program(program, *text)["Role"]["rules"] for text in ((), (f"--flag={flag}=mine",))}
    usual, mine = ([rule for rule in result if "resourceNames" in rule] for result in rules.values())
    changed = [(each, other) for each, other in zip(usual, mine, strict=True) if each != other]
    ((before, after),) = changed
    assert (after["resourceNames"], {*after["verbs"]}) == (["mine"], verbs)
    assert {**before, "resourceNames": ["mine"]} == after


def test_flags_are_read_where_nothing_is_installed_that_typer_has_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation of its own has no click: typer brings what it needs of it."""
    monkeypatch.setitem(sys.modules, "click", None)
    assert run(*COMMAND, "--flag=--v=4").code == 0
    result = run(*COMMAND, "--flag=--no-such-flag")
    assert result.code == 2
    assert "Invalid value for --flag: No such option: --no-such-flag" in result.stderr


def test_a_cloud_that_there_is_not() -> None:
    result = run(*COMMAND, "--cloud-provider", "gce")
    assert result.code == 2
    assert "there is no cloud provider 'gce' here" in result.stderr


def test_rules_and_dashboard_ask_for_metrics_that_there_are() -> None:
    assert "PrometheusRule" not in printed()
    result = [*yaml.safe_load_all(run(*COMMAND, "-n", "autoscaling", "--monitoring").stdout)]
    kinds = {each["kind"]: each for each in result}
    assert {each["metadata"].get("namespace", "autoscaling") for each in result} == {"autoscaling"}
    monitor = kinds["PodMonitor"]["spec"]
    pod = kinds["Deployment"]["spec"]["template"]
    assert monitor["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    ports = {port["name"] for port in pod["spec"]["containers"][0]["ports"]}
    assert {each["port"] for each in monitor["podMetricsEndpoints"]} <= ports
    (group,) = kinds["PrometheusRule"]["spec"]["groups"]
    dashboard = json.loads(kinds["ConfigMap"]["data"]["cluster-autoscaler.json"])
    expressions = [rule["expr"] for rule in group["rules"]]
    expressions += [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    known = {metric.name: metric for metric in (*METRICS.values(), *WATCH_METRICS, *LEADER_METRICS, *DRIVE_METRICS)}
    for text in expressions:
        for name, _, labels in re.findall(r"((?:cluster_autoscaler|kscale|leader_election)_\w+)(\{(.*?)\})?", text):
            metric = known[name.removesuffix("_bucket")]
            assert name.endswith("_bucket") == (metric.kind == "histogram"), text
            assert {each.partition("=")[0] for each in labels.split(",") if each} <= {*metric.labels}, text
    names = [rule["alert"] for rule in group["rules"]]
    assert len({*names}) == len(names) >= 10
    places = [tuple(panel["gridPos"].values()) for panel in dashboard["panels"]]
    assert len({*places}) == len(places)


def test_the_rule_about_the_leader_asks_for_its_lease() -> None:
    result = printed("--monitoring", "--flag=--leader-elect-resource-name=mine")
    (group,) = result["PrometheusRule"]["spec"]["groups"]
    (rule,) = [each for each in group["rules"] if each["alert"] == "ClusterAutoscalerNoLeader"]
    assert rule["expr"] == 'max(leader_election_master_status{name="mine"}) < 1'
    (group,) = printed("--monitoring")["PrometheusRule"]["spec"]["groups"]
    assert any('{name="cluster-autoscaler"}' in each["expr"] for each in group["rules"])


@pytest.mark.parametrize("program", ["cluster-autoscaler", "horizontal", "vpa-admission", "vpa-crds", "reader"])
def test_a_kustomize_base(program: str, tmp_path: Path) -> None:
    image = () if program in ("vpa-crds", "reader") else ("--image", "example.org/kscale:1")
    base = tmp_path / "new" / "base"
    result = run("manifests", program, *image, "--directory", base)
    assert (result.code, result.stdout) == (0, ""), result.stderr
    kustomization = yaml.safe_load((base / "kustomization.yaml").read_text())
    assert kustomization["kind"] == "Kustomization"
    assert {each.name for each in base.iterdir()} == {"kustomization.yaml", *kustomization["resources"]}
    (resources,) = kustomization["resources"]
    assert (base / resources).read_text() == run("manifests", program, *image).stdout
    assert (base / resources).stat().st_mode & 0o077 == 0
    assert run("manifests", program, *image, "--directory", base).code == 0  # the same again
    (base / "kustomization.yaml").write_text("resources: [mine.yaml]\n")
    for more, message in (((), "is a different kustomization"), (("-o", "json"), "written as yaml")):
        result = run("manifests", program, *image, "--directory", base, *more)
        assert (result.code, message in result.stderr) == (2, True), result.stderr
    assert (base / "kustomization.yaml").read_text() == "resources: [mine.yaml]\n"


def test_objects_of_a_kustomize_base_are_for_their_owner_whatever_was_there(tmp_path: Path) -> None:
    command = ("manifests", "vpa-admission", "--image", "example.org/kscale:1", "--directory", tmp_path)
    assert run(*command).code == 0
    objects = tmp_path / "kscale.yaml"
    objects.chmod(0o644)
    assert run(*command).code == 0
    assert objects.stat().st_mode & 0o777 == 0o600
    assert {each.name for each in tmp_path.iterdir()} == {"kustomization.yaml", "kscale.yaml"}


def test_kustomize_base_does_not_overwrite_other_files(tmp_path: Path) -> None:
    command = ("manifests", "vpa-crds", "--directory", tmp_path)
    (tmp_path / "kscale.yaml").write_text("mine: 1\n")
    result = run(*command)
    assert (result.code, "kscale.yaml exists already, without the kustomization.yaml of" in result.stderr) == (2, True)
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"kscale.yaml": "mine: 1\n"}
    (tmp_path / "kscale.yaml").unlink()
    (tmp_path / "kustomization.yaml").write_bytes(b"\xff\xfe")
    result = run(*command)
    assert (result.code, "is a different kustomization" in result.stderr) == (2, True)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {"kustomization.yaml": b"\xff\xfe"}


def test_image_is_not_root_and_copies_existing_files() -> None:
    root = Path(__file__).parents[3]
    lines = (root / "Containerfile").read_text().splitlines()
    assert "USER 65532:65532" in lines
    assert lines[-1] == 'ENTRYPOINT ["kscale"]'
    included = [line[1:] for line in (root / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert [name for name in included if not (root / name).exists()] == []
    read = tomllib.loads((root / "pyproject.toml").read_text())
    needed = {read["project"]["readme"], *read["project"]["license-files"], *read["build-system"]["backend-path"]}
    needed |= set(re.findall(r"^install\(DIRECTORY (\w+)/", (root / "CMakeLists.txt").read_text(), re.MULTILINE))
    assert needed | {"pyproject.toml", "CMakeLists.txt", "src"} <= {*included}, "the image is built of these"
    (extras,) = re.findall(r"/src\[(.*?)\]", "\n".join(lines))
    assert {*extras.split(",")} <= {*read["project"]["optional-dependencies"]}


AUTOSCALERS = ("horizontal", "vpa-recommender", "vpa-updater", "vpa-admission")


def of_program(program: str, *arguments: str) -> dict[str, Any]:
    result = run("manifests", program, "--image", "example.org/kscale:1", *arguments)
    assert result.code == 0, result.stderr
    return {each["kind"]: each for each in yaml.safe_load_all(result.stdout)}


@pytest.mark.parametrize("program", AUTOSCALERS)
def test_the_other_autoscalers(program: str) -> None:
    result = of_program(program, "-n", "scaling", "--flag=--kube-api-qps=7")
    name = result["Deployment"]["metadata"]["name"]
    pod = result["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"][:2] == ["run", program]
    assert container["args"][-1] == "--kube-api-qps=7"
    help_ = run("run", program, "--help-all").stdout
    for argument in container["args"][2:]:
        assert argument.partition("=")[0] in help_, argument
    assert pod["serviceAccountName"] == result["ServiceAccount"]["metadata"]["name"] == name
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    address = f":{ports['metrics']}"
    assert address in help_.replace("\n", " ")
    assert {probe["httpGet"]["port"] for probe in (container["livenessProbe"], container["readinessProbe"])} == {
        "metrics"
    }
    metrics, *others = result["NetworkPolicy"]["spec"]["ingress"]
    assert (metrics["from"], [each["port"] for each in metrics["ports"]]) == ([{"namespaceSelector": {}}], ["metrics"])
    open_to_others = [[each["port"] for each in rule["ports"]] for rule in others]
    assert open_to_others == [[name] for name in ports if name != "metrics"]
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        assert result[kind]["subjects"] == [{"kind": "ServiceAccount", "name": name, "namespace": "scaling"}]
    leases = [rule for rule in result["Role"]["rules"] if rule["resources"] == ["leases"]]
    assert {"verbs": ["create"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"]} in leases
    assert all(rule.get("resourceNames") for rule in leases if rule["verbs"] != ["create"])


DRIVERS: dict[str, Callable[[], Sequence[Watch]]] = {
    "horizontal": lambda: HorizontalAutoscaler().watches,
    "vpa-recommender": lambda: VpaRecommender().watches,
    "vpa-updater": lambda: VpaUpdater().watches,
    "vpa-admission": lambda: AdmissionController().watches,
}


@pytest.mark.parametrize(("program", "flag"), [("vpa-updater", "plan"), ("vpa-recommender", "explain")])
def test_node_effect_reports_require_scheduling_permissions(program: str, flag: str) -> None:
    wide, _ = autoscaler_roles(program, {flag: True})
    granted = {resource for rule in wide if {"list", "watch"} <= set(rule["verbs"]) for resource in rule["resources"]}
    assert {"nodes", "persistentvolumes", "persistentvolumeclaims", "storageclasses"} <= granted
    assert any("events" in rule["resources"] and "create" in rule["verbs"] for rule in wide)
    for flags in ((), ("--flag", f"--{flag}")):
        result = run("manifests", program, "--image", "i", *flags, "-o", "json").stdout
        assert ('"storageclasses"' in result) is bool(flags)


REQUESTED_BY_NAME = {
    ("*", "*/scale"),
    ("custom.metrics.k8s.io", "*"),
    ("autoscaling.k8s.io", "verticalpodautoscalers"),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    ("coordination.k8s.io", "leases"),
}


@pytest.mark.parametrize("program", AUTOSCALERS)
def test_roles_of_other_autoscalers_allow_only_watched_kinds(program: str) -> None:
    wide, own = autoscaler_roles(program)
    plurals = {
        (each.api_version, each.kind): each.group_resource.partition(".")[0] for each in (*EVERYWHERE, *BUILT_IN)
    }
    plurals["autoscaling.k8s.io/v1", "VerticalPodAutoscaler"] = "verticalpodautoscalers"
    plurals["autoscaling/v2", "HorizontalPodAutoscaler"] = "horizontalpodautoscalers"
    watched = set()
    for watch in DRIVERS[program]():
        group = watch.api_version.rpartition("/")[0]
        plural = plurals.get((watch.api_version, watch.kind)) or f"{watch.kind.lower()}s"
        fitting = [rule for rule in wide if group in rule["apiGroups"] and plural in rule["resources"]]
        assert {"list", "watch"} <= {verb for rule in fitting for verb in rule["verbs"]}, watch
        watched.add((group, plural))
    for rule in (*wide, *own):
        if "watch" in rule["verbs"]:
            named = {(group, plural) for group in rule["apiGroups"] for plural in rule["resources"]}
            assert named <= watched
        if "get" in rule["verbs"]:
            assert (*rule["apiGroups"], *rule["resources"]) in REQUESTED_BY_NAME
        assert "*" not in rule["verbs"]


def test_the_admission_controller_is_found_by_its_service() -> None:
    result = of_program("vpa-admission", "-n", "scaling")
    service, deployment = result["Service"], result["Deployment"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert (
        f"--webhook-service={service['metadata']['name']}"
        in deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    )
    assert service["spec"]["selector"].items() <= labels.items()
    assert service["spec"]["ports"][0]["targetPort"] == "webhook"
    pod = deployment["spec"]["template"]["spec"]
    assert pod["volumes"] == [{"name": "tls-certs", "secret": {"secretName": "vpa-tls-certs"}}]
    assert "--client-ca-file=/etc/tls-certs/caCert.pem" in pod["containers"][0]["args"]


def test_the_service_follows_the_flags_of_the_webhook() -> None:
    flags = ("-n", "scaling", "--flag=--port=9443", "--flag=--webhook-service=hook")
    result = of_program("vpa-admission", *flags, "--cert-manager")
    (container,) = result["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert {each["name"]: each["containerPort"] for each in container["ports"]} == {"metrics": 8944, "webhook": 9443}
    assert {each for each in container["args"] if each.startswith("--webhook-service=")} == {"--webhook-service=hook"}
    assert result["Service"]["metadata"]["name"] == "hook"
    assert result["Service"]["spec"]["ports"][0]["targetPort"] == "webhook"
    assert result["Certificate"]["spec"]["dnsNames"] == ["hook.scaling.svc", "hook.scaling.svc.cluster.local"]


def test_a_certificate_of_cert_manager() -> None:
    result = of_program("vpa-admission", "--cert-manager", "--tls-secret=hook")
    assert result["Certificate"]["spec"]["secretName"] == "hook"
    assert result["Certificate"]["spec"]["dnsNames"][0] == "vpa-webhook.kube-system.svc"
    assert result["Issuer"]["metadata"]["name"] == result["Certificate"]["spec"]["issuerRef"]["name"]
    (container,) = result["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert "--tls-private-key=/etc/tls-certs/tls.key" in container["args"]
    both = run("manifests", "vpa-admission", "--image", "i", "--cert-manager", "--self-signed")
    assert both.code == 2


@pytest.mark.parametrize("service", ["vpa-webhook", "hook"])
def test_a_certificate_of_ones_own(tmp_path: Path, service: str) -> None:
    """Whoever trusts its authority reaches the service by its name, and by no other."""
    result = of_program("vpa-admission", "-n", "scaling", "--self-signed", f"--flag=--webhook-service={service}")
    content = {name: b64decode(text) for name, text in result["Secret"]["data"].items()}
    for name, data in content.items():
        (tmp_path / name).write_bytes(data)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(tmp_path / "serverCert.pem", tmp_path / "serverKey.pem")
    client = ssl.create_default_context(cadata=content["caCert.pem"].decode())
    client.verify_flags |= ssl.VERIFY_X509_STRICT  # the default of Python 3.13
    shake_hands(client, server, f"{service}.scaling.svc")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(client, server, f"{service}.other.svc")


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> None:
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(down, up, server_hostname=name), server.wrap_bio(up, down, server_side=True)]
    for _ in range(4):
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    assert ends[0].version()


def test_definitions_of_the_vpa() -> None:
    result = run("manifests", "vpa-crds")
    assert result.code == 0
    definitions = {each["spec"]["names"]["kind"]: each for each in yaml.safe_load_all(result.stdout)}
    assert list(definitions) == ["VerticalPodAutoscaler", "VerticalPodAutoscalerCheckpoint"]
    for each in definitions.values():
        assert each["metadata"]["name"] == f"{each['spec']['names']['plural']}.autoscaling.k8s.io"
        versions = {one["name"]: (one["served"], one["storage"]) for one in each["spec"]["versions"]}
        # Where objects were stored in it, no definition may leave it out; nobody is served it.
        assert versions == {"v1": (True, True), "v1beta2": (False, False)}
    version = definitions["VerticalPodAutoscaler"]["spec"]["versions"][0]
    check = jsonschema.Draft202012Validator(version["schema"]["openAPIV3Schema"])
    policy = {"containerName": "*", "maxAllowed": {"cpu": 2, "memory": "1Gi"}, "controlledValues": "RequestsOnly"}
    spec = {
        "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "updatePolicy": {"updateMode": "InPlaceOrRecreate", "minReplicas": 1},
        "resourcePolicy": {"containerPolicies": [policy]},
    }
    check.validate({"apiVersion": "autoscaling.k8s.io/v1", "metadata": {"name": "web"}, "spec": spec})
    policies: list[dict[str, Any]] = [
        {"mode": "On"},
        {"controlledValues": "Limits"},
        {"maxAllowed": {"cpu": "two"}},
        {"minAllowed": {"cpu": 1.5}},
        {"oomBumpUpRatio": "1,2"},
        {"memoryAggregationIntervalSeconds": 0},
        {"memoryAggregationIntervalCount": 0},
        {"startupBoost": {"cpu": {"factor": 2}}},
        {"startupBoost": {"cpu": {"type": "Twice"}}},
    ]
    specs: list[dict[str, Any]] = [
        {"updatePolicy": {"updateMode": "Sometimes"}},
        {"updatePolicy": {"evictAfterOOMSeconds": 0}},
        {"updatePolicy": {"evictionRequirements": [{"resources": ["cpu"]}]}},
        {"updatePolicy": {"evictionRequirements": [{"changeRequirement": "TargetHigherThanRequests"}]}},
        {"recommenders": "mine"},
        {"recommenders": [{}]},
        {"targetRef": []},
        {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment"}},
        *({"resourcePolicy": {"containerPolicies": [each]}} for each in policies),
    ]
    for wrong in specs:
        with pytest.raises(jsonschema.ValidationError):
            check.validate({"spec": {**spec, **wrong}})
    with pytest.raises(jsonschema.ValidationError):
        check.validate({"spec": {}})
    statuses: list[dict[str, Any]] = [{"conditions": [{"type": "LowConfidence"}]}, {"observedGeneration": -1}]
    for status in statuses:
        with pytest.raises(jsonschema.ValidationError):
            check.validate({"spec": spec, "status": status})
    boost = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["startupBoost"]
    rules = [each["rule"] for each in boost["properties"]["cpu"]["x-kubernetes-validations"]]
    assert rules == ["(self.type == 'Factor') == has(self.factor)", "(self.type == 'Quantity') == has(self.quantity)"]
    wide = [each["name"] for each in version["additionalPrinterColumns"] if each.get("priority")]
    assert wide == ["MinReplicas", "OOMSeconds"]
    checkpoint_version = definitions["VerticalPodAutoscalerCheckpoint"]["spec"]["versions"][0]
    history = checkpoint_version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    assert history["cpuHistogram"]["properties"]["totalWeight"] == {"type": "number"}
    assert history["totalSamplesCount"] == {"type": "integer", "format": "int64"}
    # What no struct knows is pruned, but for the weights of a histogram, and what is not served.
    assert result.stdout.count("x-kubernetes-preserve-unknown-fields") == 2 + 2


def test_objects_written_by_vpa_programs_match_the_crds() -> None:
    version = vpa_definitions()[0]["spec"]["versions"][0]
    amounts = {"cpu": "247m", "memory": "380258472"}
    recommendation = {"containerName": "c", "target": amounts, "lowerBound": amounts, "uncappedTarget": amounts}
    conditions = [
        {"type": "RecommendationProvided", "status": "True", "lastTransitionTime": "2026-03-01T10:00:00Z"},
        {"type": "LowConfidence", "status": "False", "reason": "", "message": ""},
    ]
    status = {"recommendation": {"containerRecommendations": [recommendation]}, "conditions": conditions}
    spec = {"targetRef": {"kind": "Deployment", "name": "web"}}
    jsonschema.validate({"spec": spec, "status": status}, version["schema"]["openAPIV3Schema"])


def test_an_unknown_name_of_certificate_keys_is_refused() -> None:
    with pytest.raises(InputError, match="keys is 'other', not one of upstream, cert-manager"):
        admission_manifests(image="kscale", keys="other")
