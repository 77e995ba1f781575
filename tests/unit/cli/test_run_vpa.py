"""``kscale run vpa-*``: flags by upstream's names and with upstream's defaults, and what is refused."""

from __future__ import annotations

import asyncio
import json
import ssl
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme

from json_schemas import validate
from kscale.capacity.vpa_round_plan import VPARoundPlan
from kscale.cli.commands.run import vpa_admission, vpa_recommender, vpa_updater
from kscale.drivers.vpa_registration import RegistrationOptions
from kscale.effects import QueryPrometheus
from kscale.objects.quantity import Quantity
from kscale.schemas import schema
from kscale.series.prometheus import PrometheusHistory
from kscale.vpa.advice.records import Effect
from kscale.vpa.options import AdmissionOptions, RecommenderOptions, UpdaterOptions
from kscale.vpa.recommender.strategy_advice import StrategyAdvisor
from unit.cli.support import kscale as run

RAN: list[tuple[tuple[Any, ...], dict[str, Any]]] = []


@pytest.fixture(autouse=True)
def not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    RAN.clear()
    monkeypatch.delenv("NAMESPACE", raising=False)
    for module in (vpa_recommender, vpa_updater, vpa_admission):
        monkeypatch.setattr(module, "run_program", lambda *arguments, **more: RAN.append((arguments, more)))


def options() -> Any:
    (((_, _, build), _),) = RAN
    return build.keywords["options"]


def test_the_recommender_by_default() -> None:
    assert run("run", "vpa-recommender").code == 0
    assert options() == RecommenderOptions()
    (((name, process, _), more),) = RAN
    assert (name, process.address, more) == ("vpa-recommender", ":8942", {"election": None, "qps": 50.0, "burst": 100})


def test_the_recommenders_flags() -> None:
    flags_ = (
        "--recommender-name=kscale", "--recommender-interval=30s", "--memory-saver=true", "--target-cpu-percentile=0.8",
        "--ignored-vpa-object-namespaces=a,b", "--container-recommendation-max-allowed-cpu=4",
        "--feature-gates=PerVPAConfig=true", "--checkpoints-timeout=1m30s", "--round-memory-bytes=1048576",
        "--leader-elect", "--kube-api-qps=5",
    )  # fmt: skip
    assert run("run", "vpa-recommender", *flags_).code == 0
    assert options() == RecommenderOptions(
        recommender_name="kscale",
        recommender_interval=timedelta(seconds=30),
        memory_saver=True,
        target_cpu_percentile=0.8,
        ignored_vpa_object_namespaces=["a", "b"],
        container_recommendation_max_allowed_cpu=Quantity("4"),
        feature_gates={"PerVPAConfig": True},
        checkpoints_timeout=timedelta(seconds=90),
        round_memory_bytes=1048576,
    )
    election = RAN[0][1]["election"]
    assert (election.resource_name, election.resource_namespace) == ("vpa-recommender-lease", "kube-system")
    assert RAN[0][1]["qps"] == 5


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        (
            "--strategy=percentile",
            "--strategy: percentile needs the samples of the past days, which checkpoints",
        ),
        ("--strategy=krr", "no strategy 'krr'; there are "),
        ("--setting=cpu_percentile=50", "strategy vpa has no setting cpu_percentile"),
        ("--strategy-interval=1h", "--strategy-interval: has no effect without a --strategy of samples"),
        ("--strategy-answer-bytes=9", "--strategy-answer-bytes: has no effect without a --strategy of samples"),
        ("--min-checkpoints=few", 'invalid argument "few" for --min-checkpoints: a whole number is expected'),
        ("--min-checkpoints", 'invalid argument "" for --min-checkpoints'),
        ("--profiling=perhaps", 'invalid argument "perhaps" for --profiling: true or false is expected'),
        ("--recommender-interval=soon", "--recommender-interval"),
        ("--container-recommendation-max-allowed-cpu=much", "--container-recommendation-max-allowed-cpu"),
        ("--feature-gates=Magic=true", "unrecognized feature gate: Magic"),
        ("--feature-gates=InPlace", "NAME=true or NAME=false is expected"),
        ("--update-worker-count=0", "--update-worker-count"),
        ("--history-length=week", "history length week is not a valid Prometheus duration"),
        ("--prometheus-query-timeout=soon", "--prometheus-query-timeout"),
        ("--prometheus-bearer-token-file=/nowhere/token", "/nowhere/token"),
        ("--nothing-like-it", "No such option"),
    ],
)
def test_invalid_recommender_flags_are_refused(argument: str, message: str) -> None:
    result = run("run", "vpa-recommender", argument)
    assert result.code == 2
    assert message in result.stderr
    assert not RAN


def test_a_history_of_prometheus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("s3cr3t\n")
    flags_ = (
        "--storage=prometheus", "--history-length=2d", "--container-name-label=container", "--prometheus-insecure",
        f"--prometheus-bearer-token-file={tmp_path}/token", "--prometheus-query-timeout=1m", "--pod-label-prefix=l_",
        "--vpa-object-namespace=shop",
    )  # fmt: skip
    assert run("run", "vpa-recommender", *flags_).code == 0
    ((_, _, build), _) = RAN[0]
    history = PrometheusHistory(
        history_length="2d", container_name_label="container", pod_label_prefix="l_", namespace="shop"
    )
    assert build.keywords["history"] == history
    assert build.keywords["query_timeout"] == timedelta(minutes=1)
    assert build.keywords["prometheus"] is not None
    RAN.clear()
    monkeypatch.delenv("PROMETHEUS_USERNAME", raising=False)
    both = run("run", "vpa-recommender", "--username=u", "--prometheus-bearer-token=t")
    assert both.code == 2
    assert "are mutually exclusive and can't be set together." in both.stderr
    assert run("run", "vpa-recommender").code == 0
    assert RAN[0][0][2].keywords["prometheus"] is None


PERCENTILE = ("run", "vpa-recommender", "--storage=prometheus", "--strategy=percentile")


def test_a_strategy_of_samples() -> None:
    assert run(*PERCENTILE, "--setting=cpu-percentile=50", "--strategy-interval=10m", "--history-length=2d").code == 0
    assert isinstance(RAN[0][0][2].keywords["advisor"], StrategyAdvisor)
    RAN.clear()
    assert run("run", "vpa-recommender", "--storage=prometheus").code == 0
    assert RAN[0][0][2].keywords["advisor"] is None


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--history-resolution=1m", "a history of 8d by 1m are more than 11,000 values of a container"),
        ("--history-resolution=0", "more than 11,000 values"),
        ("--strategy-interval=soon", "--strategy-interval"),
        ("--strategy-interval=0s", "--strategy-interval: 0s is not more than 0"),
        ("--strategy-answer-bytes=0", "--strategy-answer-bytes"),
        ("--setting=cpu_percentile=101", "strategy percentile"),
    ],
)
def test_invalid_strategy_flags_are_refused(argument: str, message: str) -> None:
    result = run(*PERCENTILE, argument)
    assert (result.code, bool(RAN)) == (2, False)
    assert message in result.stderr


def test_a_strategy_of_ones_own_without_samples(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from kscale.vpa.strategies import StrategyAdvice, Strategy\n"
        "class Mine(Strategy):\n"
        "    needs_samples = False\n"
        "    def advise(self, usage): return StrategyAdvice()\n"
    )
    words = ("run", "vpa-recommender", f"--strategy={file}:Mine", "--strategy-interval=5m")
    assert run(*words).code == 0
    result = run(*words, "--strategy-answer-bytes=9")
    assert result.code == 2
    assert "--strategy-answer-bytes: has no effect without a --strategy of samples" in result.stderr


def test_a_question_takes_as_long_as_its_flag_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("run", "vpa-recommender", "--storage=prometheus", "--prometheus-query-timeout=20m").code == 0
    build = RAN[0][0][2].keywords
    created: list[aiohttp.ClientTimeout] = []

    def session(**options: Any) -> Any:
        created.append(options["timeout"])
        raise aiohttp.ClientError

    monkeypatch.setattr(aiohttp, "ClientSession", session)
    asyncio.run(build["prometheus"].query(QueryPrometheus(query="up", end=0)))
    assert (build["query_timeout"], [each.total for each in created]) == (timedelta(minutes=20), [None])


def test_namespaces_that_exclude_each_other() -> None:
    result = run("run", "vpa-recommender", "--vpa-object-namespace=a", "--ignored-vpa-object-namespaces=b")
    assert result.code == 2
    assert "are mutually exclusive and can't be set together." in result.stderr


def test_every_flag_of_upstream() -> None:
    """Those of the page of flags that a recommender of August 2026 has are taken, or refused by name."""
    upstream = """address kubeconfig kube-api-qps kube-api-burst vpa-object-namespace ignored-vpa-object-namespaces
        feature-gates leader-elect leader-elect-lease-duration leader-elect-renew-deadline leader-elect-retry-period
        leader-elect-resource-lock leader-elect-resource-name leader-elect-resource-namespace recommender-interval
        recommender-name checkpoints-gc-interval checkpoints-timeout update-worker-count memory-saver
        recommendation-margin-fraction pod-recommendation-min-cpu-millicores pod-recommendation-min-memory-mb
        target-cpu-percentile target-memory-percentile recommendation-lower-bound-cpu-percentile
        recommendation-lower-bound-memory-percentile recommendation-upper-bound-cpu-percentile
        recommendation-upper-bound-memory-percentile confidence-interval-cpu confidence-interval-memory humanize-memory
        round-cpu-millicores round-memory-bytes cpu-integer-post-processor-enabled
        container-recommendation-max-allowed-cpu container-recommendation-max-allowed-memory memory-aggregation-interval
        memory-aggregation-interval-count memory-histogram-decay-half-life cpu-histogram-decay-half-life
        oom-bump-up-ratio oom-min-bump-up-bytes use-external-metrics external-metrics-cpu-metric
        external-metrics-memory-metric storage prometheus-address prometheus-insecure prometheus-cadvisor-job-name
        prometheus-query-timeout prometheus-bearer-token prometheus-bearer-token-file username password history-length
        history-resolution history-cpu-metric history-memory-metric metric-for-pod-labels pod-label-prefix
        pod-namespace-label pod-name-label container-namespace-label container-pod-name-label container-name-label"""
    text = run("run", "vpa-recommender", "--help-all").stdout
    missing = [flag for flag in upstream.split() if f"--{flag}" not in text]
    assert missing == []


# -- the updater -----------------------------------------------------------------------------------------------------


def test_the_updater_by_default() -> None:
    assert run("run", "vpa-updater").code == 0
    assert options() == UpdaterOptions()
    ((name, process, _), more) = RAN[0]
    assert (name, process.address, more["election"]) == ("vpa-updater", ":8943", None)


def test_the_updaters_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESPACE", "vpa-system")
    flags_ = (
        "--eviction-rate-limit=-1", "--eviction-tolerance=0.2", "--use-admission-controller-status=false",
        "--in-recommendation-bounds-eviction-lifetime-threshold=6h", "--feature-gates=InPlace=true,CPUStartupBoost=T",
        "--in-place-skip-disruption-budget", "--min-replicas=1", "--leader-elect=true",
    )  # fmt: skip
    assert run("run", "vpa-updater", *flags_).code == 0
    assert options() == UpdaterOptions(
        eviction_tolerance=0.2,
        use_admission_controller_status=False,
        in_recommendation_bounds_eviction_lifetime_threshold=timedelta(hours=6),
        feature_gates={"InPlace": True, "CPUStartupBoost": True},
        in_place_skip_disruption_budget=True,
        min_replicas=1,
        admission_controller_status_lease_namespace="vpa-system",
    )
    assert RAN[0][1]["election"].resource_name == "vpa-updater"


def test_invalid_updater_flags_are_refused() -> None:
    result = run("run", "vpa-updater", "--admission-controller-status-lease-timeout=0s")
    assert result.code == 2
    assert "--admission-controller-status-lease-timeout must be positive." in result.stderr


# -- the admission controller ----------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    authority = trustme.CA()
    issued = authority.issue_cert("vpa-webhook.kube-system.svc")
    authority.cert_pem.write_to_path(str(tmp_path / "ca"))
    issued.private_key_pem.write_to_path(str(tmp_path / "key"))
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "cert"))
    return [
        f"--client-ca-file={tmp_path}/ca",
        f"--tls-cert-file={tmp_path}/cert",
        f"--tls-private-key={tmp_path}/key",
    ]


def test_the_admission_controllers_flags(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESPACE", "vpa-system")
    flags_ = (
        *files, "--port=9443", "--reload-cert", "--min-tls-version=tls1_3", "--webhook-labels=a:b",
        "--tls-ciphers=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256:UNKNOWN", "--webhook-failure-policy-fail=true",
        "--ignored-vpa-object-namespaces=a,b", "--max-allowed-cpu-boost=2", "--feature-gates=CPUStartupBoost=true",
        "--profiling=false",
    )  # fmt: skip
    result = run("run", "vpa-admission", *flags_)
    assert (result.code, result.stderr) == (0, "")
    ((name, process, build), _) = RAN[0]
    assert (name, process.address, process.tls()) == ("vpa-admission-controller", ":8944", None)
    given_to = build.keywords
    assert given_to["options"] == AdmissionOptions(
        max_allowed_cpu_boost=Quantity("2"),
        feature_gates={"CPUStartupBoost": True},
        status_lease_namespace="vpa-system",
    )
    assert given_to["registration"] == RegistrationOptions(
        webhook_failure_policy_fail=True,
        webhook_labels="a:b",
        ignored_vpa_object_namespaces=["a", "b"],
        namespace="vpa-system",
    )
    serving = given_to["serving"]
    assert (serving.address, given_to["reload"]) == (":9443", True)
    context = serving.tls.context
    assert context.minimum_version == ssl.TLSVersion.TLSv1_3
    assert "ECDHE-RSA-AES128-GCM-SHA256" in [each["name"] for each in context.get_ciphers()]
    assert b"CERTIFICATE" in given_to["ca"]()


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--min-tls-version=ssl3", "unable to determine value for --min-tls-version (ssl3), must be either tls1_2 or"),
        ("--status-lease-update-interval=0s", "--status-lease-update-interval must be positive."),
        ("--client-ca-file=/nowhere/ca", "/nowhere/ca"),
        ("--tls-cert-file=/nowhere/cert", "/nowhere/cert"),
        ("--register-by-url", "--webhook-address"),
        ("--tls-private-key-file=x", "No such option"),
    ],
)
def test_invalid_admission_flags_are_refused(files: list[str], argument: str, message: str) -> None:
    result = run("run", "vpa-admission", *files, argument)
    assert result.code == 2
    assert message in result.stderr
    assert not RAN


@pytest.mark.parametrize(
    ("program", "flags"),
    [
        (
            "vpa-updater",
            """address kubeconfig kube-api-qps kube-api-burst vpa-object-namespace ignored-vpa-object-namespaces
            feature-gates leader-elect leader-elect-resource-name updater-interval min-replicas eviction-tolerance
            eviction-rate-limit eviction-rate-burst pod-update-threshold evict-after-oom-threshold
            in-recommendation-bounds-eviction-lifetime-threshold use-admission-controller-status
            in-place-skip-disruption-budget admission-controller-status-lease-name
            admission-controller-status-lease-namespace admission-controller-status-lease-timeout""",
        ),
        (
            "vpa-admission",
            """address kubeconfig kube-api-qps kube-api-burst vpa-object-namespace ignored-vpa-object-namespaces
            feature-gates port client-ca-file tls-cert-file tls-private-key reload-cert min-tls-version tls-ciphers
            register-webhook register-by-url webhook-address webhook-port webhook-service webhook-timeout-seconds
            webhook-failure-policy-fail webhook-labels max-allowed-cpu-boost status-lease-name status-lease-namespace
            status-lease-update-interval""",
        ),
    ],
)
def test_every_flag_of_the_others(program: str, flags: str) -> None:
    text = run("run", program, "--help-all").stdout
    assert [flag for flag in flags.split() if f"--{flag}" not in text] == []


@pytest.mark.parametrize(
    ("program", "flag", "name"), [("vpa-updater", "--plan", "plan"), ("vpa-recommender", "--explain", "explain")]
)
def test_effect_on_nodes_is_printed(program: str, flag: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("run", program, flag).code == 0
    (((_, _, build), _),) = RAN
    build.keywords[name](VPARoundPlan(now=None, program=program, vpas=[], effect=Effect()))
    line = json.loads(capsys.readouterr().out)
    validate(line, schema("VPARoundPlan"))
    assert (line["kind"], line["program"]) == ("VPARoundPlan", program)
    RAN.clear()
    assert run("run", program).code == 0
    (((_, _, build), _),) = RAN
    assert build.keywords[name] is None
    assert "has no effect with --world simulated" in run("run", program, flag, "--world=simulated").stderr


@pytest.mark.parametrize(
    ("program", "flags"),
    [
        ("vpa-recommender", ("--min-checkpoints=5", "--profiling=false")),
        ("vpa-recommender", ("--min_checkpoints", "5")),
        ("vpa-updater", ("--profiling=false",)),
    ],
)
def test_flags_of_a_stock_deployment_that_change_nothing(program: str, flags: tuple[str, ...]) -> None:
    result = run("run", program, *flags)
    assert result.code == 0, result.stderr
    assert len(RAN) == 1


def test_the_updater_of_2020_has_the_flags_of_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESPACE", "elsewhere")
    flags_ = ("--updater-interval=30s", "--min-replicas=3", "--eviction-tolerance=0.3", "--eviction-rate-limit=1.5",
             "--eviction-rate-burst=2", "--evict-after-oom-threshold=5m")  # fmt: skip
    assert run("run", "vpa-updater", "--profile=legacy", *flags_).code == 0
    assert options() == UpdaterOptions(
        profile="legacy",
        updater_interval=timedelta(seconds=30),
        min_replicas=3,
        eviction_tolerance=0.3,
        eviction_rate_limit=1.5,
        eviction_rate_burst=2,
        evict_after_oom_threshold=timedelta(minutes=5),
    )


@pytest.mark.parametrize(
    ("flag", "why"),
    [
        ("--no-use-admission-controller-status", "--use-admission-controller-status: the updater of 2020 has no such"),
        ("--pod-update-threshold=0.2", "--pod-update-threshold: the updater of 2020 has no such flag"),
        ("--profile=old", "--profile: unknown profile 'old'; there are current, 1.8.0, legacy"),
    ],
)
def test_the_updater_of_2020_refuses_younger_flags(flag: str, why: str) -> None:
    ended = run("run", "vpa-updater", "--profile=legacy", flag)
    assert ended.code == 2
    assert why in ended.stderr
