"""docs/security.md beside the code: limits with their flags and defaults, and the rights that manifests grant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kscale.cli import registry
from kscale.cli.app import command_of
from kscale.cli.go_flags import go_duration
from kscale.cli.live_inputs import ServerLimitFlags
from kscale.cli.prometheus_options import PrometheusFlags
from kscale.drivers import vpa_admission
from kscale.files import MAX_FILE
from kscale.world.kubernetes import credentials
from kscale.world.kubernetes.transport import ServerLimits
from kscale.world.nodegroups import external
from kscale.world.prometheus import MOST_LABELS, RESPONSE_BYTES, RangeLimits
from kscale.world.protocols import MOST_NODES
from kscale.world.rpc import MOST_BYTES
from unit.cli.support import kscale

PAGE = Path(__file__).parents[3] / "docs" / "security.md"
PROGRAMS = ("cluster-autoscaler", "horizontal", "vpa-recommender", "vpa-updater", "vpa-admission")
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "s": 1, "min": 60}
LIMIT = re.compile(r"--(kube-api-max|kube-api-request-timeout|http-|max-review|review-timeout|prometheus-max)")
"""What a flag is called that bounds what others can send."""


def rows(title: str) -> list[list[str]]:
    """Return the rows of the table below a title of the page."""
    section = PAGE.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def amount(text: str) -> float:
    match = re.fullmatch(r"([\d,]+) ?(\w*)", text)
    assert match is not None, text
    return int(match[1].replace(",", "")) * UNITS[match[2]]


def flags() -> Iterator[tuple[str, str, float]]:
    """Yield the limits that programs have: program, flag and default."""
    for program in PROGRAMS:
        entry = registry.find(f"run {program}")
        assert entry is not None
        for each in command_of(entry).params:
            flag = max(each.opts, key=len)
            if LIMIT.match(flag):
                default = each.default
                yield program, flag, go_duration(default, flag).total_seconds() if isinstance(default, str) else default


def test_every_limit_is_in_the_table_with_its_default() -> None:
    documented = {flag.strip("`"): amount(default) for _, flag, default, _ in rows("Limits") if flag.startswith("`")}
    assert documented == {flag: default for _, flag, default in flags()}


def test_every_program_has_the_limits_of_its_connections() -> None:
    everywhere = {flag for _, flag, _ in flags() if flag.startswith(("--kube-api", "--http"))}
    for program in PROGRAMS:
        assert {flag for name, flag, _ in flags() if name == program} >= everywhere, program


def test_limits_without_a_flag() -> None:
    fixed = {what: default for what, flag, default, _ in rows("Limits") if flag == "(fixed)"}
    assert amount(fixed["Message of a gRPC expander"]) == MOST_BYTES
    assert amount(fixed["Message of a gRPC cloud"]) == external.MESSAGE_BYTES
    assert amount(fixed["All messages of a gRPC cloud in a loop"]) == external.LOOP_BYTES
    assert amount(fixed["Node groups of a gRPC cloud"]) == external._MOST_GROUPS
    assert amount(fixed["Instances of all groups of a gRPC cloud"]) == MOST_NODES
    assert amount(fixed["Target sizes of all groups of a cloud, added up"]) == MOST_NODES
    assert amount(fixed["Labels of a response of Prometheus, where a series counts as two"]) == MOST_LABELS
    assert amount(fixed["Output of an exec plug-in of a kubeconfig"]) == credentials.PLUGIN_BYTES
    assert amount(fixed["Time for an exec plug-in that does not use the terminal"]) == credentials.PLUGIN_SECONDS
    assert amount(fixed["Files of settings, states and catalogues"]) == MAX_FILE
    text = next(what for what, flag, *_ in rows("Limits") if flag == "`--review-timeout`")
    assert text == "Time for a review above 64 KiB; eight of them may wait"
    assert (vpa_admission.LARGE, vpa_admission._WAITING) == (64 << 10, 8)


def test_commands_that_read_a_live_cluster_have_the_limits_of_an_api_server() -> None:
    """Each of them, with the defaults of the table, which are those of the client."""
    documented = {flag.strip("`"): amount(default) for _, flag, default, _ in rows("Limits") if "`--kube-api" in flag}
    live = [each.name for each in registry.COMMANDS if "--context" in options_of(each.name) and "run " not in each.name]
    assert len(live) > 10
    for name in live:
        options = {flag: default for flag, default in options_of(name).items() if flag.startswith("--kube-api")}
        defaults = {flag: seconds_or_bytes(flag, default) for flag, default in options.items()}
        assert defaults == documented, name
    assert ServerLimitFlags().limits() == ServerLimits()


def options_of(name: str) -> dict[str, Any]:
    entry = registry.find(name)
    assert entry is not None
    return {max(each.opts, key=len): each.default for each in command_of(entry).params}


def seconds_or_bytes(flag: str, default: Any) -> float:
    return go_duration(default, flag).total_seconds() if isinstance(default, str) else default


def rules(program: str, *more: str) -> Iterator[dict[str, Any]]:
    result = kscale("manifests", program, "--image", "example.org/kscale:1", *more)
    assert result.code == 0, result.stderr
    for each in yaml.safe_load_all(result.stdout):
        if each["kind"] in ("Role", "ClusterRole"):
            for rule in each["rules"]:
                yield {"kind": each["kind"], **rule}


def may(program: str, resource: str, *verbs: str) -> bool:
    """Whether a program may do one of these to a resource, subresources named with a slash."""
    return any(resource in rule["resources"] and set(verbs) & set(rule["verbs"]) for rule in rules(program))


WRITES = ("create", "update", "patch", "delete")


def test_which_program_may_evict_pods_and_register_webhooks() -> None:
    assert [each for each in PROGRAMS if may(each, "pods/eviction", "create")] == ["cluster-autoscaler", "vpa-updater"]
    assert [each for each in PROGRAMS if may(each, "mutatingwebhookconfigurations", *WRITES)] == ["vpa-admission"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_program_reads_secrets_of_the_cluster_or_lists_config_maps(program: str) -> None:
    """A ConfigMap of all namespaces may be written for others to read; none is read but by its name."""
    for rule in rules(program):
        assert "*" not in rule["verbs"]
        assert "secrets" not in rule["resources"] or rule["kind"] == "Role"
        if "configmaps" in rule["resources"] and {"get", "list", "watch"} & set(rule["verbs"]):
            assert rule.get("resourceNames"), rule


@pytest.mark.parametrize("name", ["recommend", "replay hpa"])
def test_commands_that_query_prometheus_have_its_limits(name: str) -> None:
    """With the defaults that the page names, which are those of the client."""
    text = PAGE.read_text(encoding="utf-8")
    documented = dict(re.findall(r"`(--prometheus-[a-z-]+)` \((\S+(?: \w+)?)\)", text))
    assert documented.keys() <= options_of(name).keys()
    assert amount(documented["--prometheus-max-response-bytes"]) == RESPONSE_BYTES
    assert amount(documented["--prometheus-budget"]) == RangeLimits().total_bytes
    assert amount(documented["--prometheus-concurrency"]) == RangeLimits().concurrency
    assert PrometheusFlags(prometheus_url="http://x")._client()._timeout.total == amount(
        documented["--prometheus-query-timeout"]
    )
