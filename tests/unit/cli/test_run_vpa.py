"""``kscale run vpa-*``: flags by upstream's names and with upstream's defaults, and what is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kscale.cli.commands.run import vpa_recommender
from kscale.objects.quantity import Quantity
from kscale.vpa.options import RecommenderOptions
from unit.cli.support import kscale as run

RAN: list[tuple[tuple[Any, ...], dict[str, Any]]] = []


@pytest.fixture(autouse=True)
def not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    RAN.clear()
    monkeypatch.setattr(vpa_recommender, "run_program", lambda *given, **more: RAN.append((given, more)))


def options() -> Any:
    (((_, _, build), _),) = RAN
    return build.keywords["options"]


def test_the_recommender_by_default() -> None:
    assert run("run", "vpa-recommender").code == 0
    assert options() == RecommenderOptions()
    (((name, process, _), more),) = RAN
    assert (name, process.address, more) == ("vpa-recommender", ":8942", {"election": None, "qps": 50.0, "burst": 100})


def test_the_recommenders_flags() -> None:
    given = (
        "--recommender-name=kscale", "--recommender-interval=30s", "--memory-saver=true", "--target-cpu-percentile=0.8",
        "--ignored-vpa-object-namespaces=a,b", "--container-recommendation-max-allowed-cpu=4",
        "--feature-gates=PerVPAConfig=true", "--checkpoints-timeout=1m30s", "--round-memory-bytes=1048576",
        "--leader-elect", "--kube-api-qps=5",
    )  # fmt: skip
    assert run("run", "vpa-recommender", *given).code == 0
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
    ("argument", "said"),
    [
        ("--min-checkpoints=5", "--min-checkpoints is not taken: it has no effect"),
        ("--profiling", "--profiling is not taken: there is no pprof here"),
        ("--recommender-interval=soon", "--recommender-interval"),
        ("--container-recommendation-max-allowed-cpu=much", "--container-recommendation-max-allowed-cpu"),
        ("--feature-gates=Magic=true", "unrecognized feature gate: Magic"),
        ("--feature-gates=InPlace", "NAME=true or NAME=false is expected"),
        ("--update-worker-count=0", "--update-worker-count"),
        ("--nothing-like-it", "No such option"),
    ],
)
def test_what_the_recommender_refuses(argument: str, said: str) -> None:
    found = run("run", "vpa-recommender", argument)
    assert found.code == 2
    assert said in found.stderr
    assert not RAN


def test_namespaces_that_exclude_each_other() -> None:
    found = run("run", "vpa-recommender", "--vpa-object-namespace=a", "--ignored-vpa-object-namespaces=b")
    assert found.code == 2
    assert "are mutually exclusive and can't be set together." in found.stderr


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
        external-metrics-memory-metric"""
    text = run("run", "vpa-recommender", "--help").stdout
    missing = [flag for flag in upstream.split() if f"--{flag}" not in text]
    assert missing == []
