"""Manifests of the Cluster Autoscaler, its Prometheus alerts, its Grafana dashboard, and its IAM policy on AWS
(upstream: the policies in ``cloudprovider/aws/README.md``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from kscale.ca.options import AutoscalingOptions
from kscale.drivers.manifests.programs import ApiObject, ProgramManifest, program_manifests
from kscale.drivers.manifests.programs import rule as _rule
from kscale.errors import InputError, Problem
from kscale.imports import lazy_pattern

__all__ = [
    "CLUSTER_AUTOSCALER_RULES",
    "ROLE_ANNOTATION",
    "aws_policy",
    "cluster_autoscaler_alerts",
    "cluster_autoscaler_dashboard",
    "cluster_autoscaler_manifests",
    "cluster_autoscaler_monitoring",
    "cluster_autoscaler_roles",
    "read_role",
]

_NAME: Final = "cluster-autoscaler"
_LIST_AND_WATCH: Final = ("list", "watch")

CLUSTER_AUTOSCALER_RULES: Final[Sequence[ApiObject]] = (
    _rule("", ["nodes"], ["get", "list", "watch", "patch"]),
    _rule("", ["pods"], ["get", "list", "watch"]),
    _rule("", ["pods/eviction"], ["create"]),
    _rule("", ["events"], ["create", "patch"]),
    _rule(
        "",
        ["namespaces", "services", "replicationcontrollers", "persistentvolumes", "persistentvolumeclaims"],
        _LIST_AND_WATCH,
    ),
    _rule("apps", ["replicasets", "statefulsets", "daemonsets"], _LIST_AND_WATCH),
    _rule("batch", ["jobs"], _LIST_AND_WATCH),
    _rule("policy", ["poddisruptionbudgets"], _LIST_AND_WATCH),
    _rule(
        "storage.k8s.io",
        ["storageclasses", "csinodes", "csidrivers", "csistoragecapacities", "volumeattachments"],
        _LIST_AND_WATCH,
    ),
    _rule("resource.k8s.io", ["resourceclaims", "resourceslices", "deviceclasses"], _LIST_AND_WATCH),
    _rule("autoscaling.x-k8s.io", ["capacityquotas"], _LIST_AND_WATCH),
    _rule("autoscaling.x-k8s.io", ["capacityquotas/status"], ["patch"]),
)
"""Rules of the Cluster Autoscaler for the whole cluster, whatever its options."""

_BUFFERS: Final = (
    _rule("autoscaling.x-k8s.io", ["capacitybuffers"], _LIST_AND_WATCH),
    _rule("autoscaling.x-k8s.io", ["capacitybuffers/status"], ["patch"]),
    _rule("", ["podtemplates"], _LIST_AND_WATCH),
)
_BY_FLAG: Final = {
    "capacity_buffer_pod_injection_enabled": _BUFFERS,
    "capacity_buffer_controller_enabled": (
        *_BUFFERS,
        _rule("", ["podtemplates"], ["get", "create", "patch"]),
        _rule("", ["pods"], ["create"]),  # created with dry run
        _rule("", ["resourcequotas"], _LIST_AND_WATCH),
        _rule("apps", ["deployments", "replicasets", "statefulsets"], ["get", *_LIST_AND_WATCH]),
        _rule("", ["replicationcontrollers"], ["get", *_LIST_AND_WATCH]),
        _rule("batch", ["jobs"], ["get", *_LIST_AND_WATCH]),
        _rule("apps", ["deployments/scale", "replicasets/scale", "statefulsets/scale"], ["get"]),
        _rule("", ["replicationcontrollers/scale"], ["get"]),
    ),
    "enable_provisioning_requests": (
        _rule("autoscaling.x-k8s.io", ["provisioningrequests"], [*_LIST_AND_WATCH, "delete"]),
        _rule("autoscaling.x-k8s.io", ["provisioningrequests/status"], ["patch"]),
        _rule("", ["podtemplates"], _LIST_AND_WATCH),
    ),
}
"""Additional rules by the option that requires them."""

_DEFAULTS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "cloud_provider": "externalgrpc",
        "expander": AutoscalingOptions().expander,
        "status_config_map_name": AutoscalingOptions().status_config_map_name,
        "leader_elect_resource_name": _NAME,
    }
)
_KWOK: Final = (_rule("", ["nodes"], ["create", "delete"]),)
_MACHINES: Final = (
    _rule("cluster.x-k8s.io", ["machinedeployments", "machinesets", "machinepools"], ["list"]),
    _rule("cluster.x-k8s.io", ["machines"], ["list", "patch"]),
    _rule("infrastructure.cluster.x-k8s.io", ["*"], ["get"]),
    _rule(
        "cluster.x-k8s.io",
        ["machinedeployments/scale", "machinesets/scale", "machinepools/scale"],
        ["get", "update"],
    ),
)


def cluster_autoscaler_roles(options: Mapping[str, Any] = _DEFAULTS) -> tuple[list[ApiObject], list[ApiObject]]:
    """Return the RBAC rules of the Cluster Autoscaler: (rules for the whole cluster, rules for its own namespace).

    Its own namespace contains its lease, status ConfigMap and priority ConfigMap.

    Parameters
    ----------
    options : mapping
        Values of options of ``kscale run cluster-autoscaler``, by name with underscores
        (``capacity_buffer_controller_enabled``). Omitted options have their defaults.

    Returns
    -------
    tuple of two lists of dict
        Rules of the ClusterRole, and rules of the Role.
    """
    settings = {**_DEFAULTS, **options}
    cloud = settings["cloud_provider"]
    wide = [*CLUSTER_AUTOSCALER_RULES, *{"kwok": _KWOK, "clusterapi": _MACHINES}.get(cloud, ())]
    for name, rules in _BY_FLAG.items():
        if settings.get(name):
            wide += [each for each in rules if each not in wide]
    own = [
        _rule("", ["configmaps"], ["create"]),
        _rule("", ["configmaps"], ["get", "patch", "delete"], [settings["status_config_map_name"]]),
        _rule("coordination.k8s.io", ["leases"], ["create"]),
        _rule("coordination.k8s.io", ["leases"], ["get", "patch"], [settings["leader_elect_resource_name"]]),
    ]
    if "priority" in settings["expander"].split(","):
        own.append(_rule("", ["configmaps"], ["get", "list", "watch"], [f"{_NAME}-priority-expander"]))
    if cloud == "kwok":
        own.append(_rule("", ["configmaps"], ["get"]))
    return wide, own


def cluster_autoscaler_manifests(
    *,
    image: str,
    namespace: str = "kube-system",
    config: str = "",
    flags: Sequence[str] = (),
    options: Mapping[str, Any] = _DEFAULTS,
    replicas: int = 2,
    account_annotations: Mapping[str, str] | None = None,
) -> list[ApiObject]:
    """Build the Kubernetes objects that deploy kscale's Cluster Autoscaler, in the order in which to apply them.

    Parameters
    ----------
    image : str
        Container image.
    namespace : str
        Namespace to deploy to.
    config : str
        Name of a Secret. Its key ``config`` is mounted as the file of ``--cloud-config``. Empty: no Secret.
    flags : sequence of str
        Command-line flags for ``kscale run cluster-autoscaler``, added unchanged to the container's arguments.
    options : mapping
        Values of the options that ``flags`` sets, by name with underscores, and ``cloud_provider``. They determine the
        RBAC rules (:func:`cluster_autoscaler_roles`). Omitted options have their defaults.
    replicas : int
        Number of replicas.
    account_annotations : mapping of str to str, optional
        Annotations of the service account, such as the one with which AWS assigns an IAM role.

    Returns
    -------
    list of dict
        The objects as plain data.
    """
    settings = {**_DEFAULTS, **options}
    wide, own = cluster_autoscaler_roles(settings)
    arguments = [
        "run",
        _NAME,
        f"--cloud-provider={settings['cloud_provider']}",
        f"--namespace={namespace}",
        "--log-format=json",
        *flags,
    ]
    files = {}
    if config:
        arguments.append("--cloud-config=/etc/kscale/config")
        files = {"config": ("/etc/kscale", config)}
    program = ProgramManifest(
        name=_NAME,
        arguments=arguments,
        port=8085,
        wide=wide,
        own=own,
        replicas=replicas,
        ports={},
        files=files,
        account_annotations=account_annotations or {},
    )
    return program_manifests(program, image=image, namespace=namespace)


_Object = dict[str, Any]
_CA: Final = "cluster_autoscaler_"
_MAIN: Final = f'{_CA}function_duration_seconds_bucket{{function="main"}}'

_ALERTS: Final = (
    ("ClusterAutoscalerStuck", f'time() - max({_CA}last_activity{{activity="main"}}) > 600', "5m", "critical",
     "No loop has begun for ten minutes."),
    ("ClusterAutoscalerAbsent", f'absent({_CA}last_activity{{activity="main"}})', "15m", "critical",
     "The Cluster Autoscaler reports nothing."),
    ("ClusterAutoscalerNoLeader", 'max(leader_election_master_status{name="LEASE"}) < 1', "5m", "critical",
     "None of the replicas leads."),
    ("ClusterAutoscalerUnsafe", f"max({_CA}cluster_safe_to_autoscale) == 0", "15m", "warning",
     "Too many nodes are not ready: nothing is done until they are."),
    ("ClusterAutoscalerErrors", f"sum by (type) (increase({_CA}errors_total[15m])) > 5", "15m", "warning",
     "Loops end with errors of type {{ $labels.type }}."),
    ("ClusterAutoscalerScaleUpsFail", f"sum by (reason) (increase({_CA}failed_scale_ups_total[30m])) > 0", "1m",
     "warning", "The cloud gave no nodes: {{ $labels.reason }}."),
    ("ClusterAutoscalerPodsWait", f'max({_CA}unschedulable_pods_count{{type="unschedulable"}}) > 0', "30m", "warning",
     "{{ $value }} pods have waited for half an hour: limits, quotas, or requests that no node group can meet."),
    ("ClusterAutoscalerEvictionsFail", f'increase({_CA}evicted_pods_total{{eviction_result="failed"}}[30m]) > 0', "1m",
     "warning", "A node cannot be drained."),
    ("ClusterAutoscalerSlow",
     f"histogram_quantile(0.9, sum by (le) (rate({_MAIN}[15m]))) > 60", "15m", "warning",
     "Loops take more than a minute."),
    ("ClusterAutoscalerWatchLags",
     "histogram_quantile(0.99, sum by (le, kind) (rate(kscale_watch_lag_seconds_bucket[10m]))) > 5", "15m", "warning",
     "Events of {{ $labels.kind }} wait for seconds before they are processed."),
    ("ClusterAutoscalerObjectsSkipped", "sum by (kind) (increase(kscale_unreadable_objects_total[15m])) > 0", "1m",
     "warning", "A {{ $labels.kind }} cannot be read and is skipped: the log names it."),
)  # fmt: skip

_PANELS: Final = (
    ("Nodes", "short", ((f"sum by (state) ({_CA}nodes_count)", "{{state}}"), (f"max({_CA}max_nodes_count)", "most"))),
    ("Pods that wait", "short", ((f"sum by (type) ({_CA}unschedulable_pods_count)", "{{type}}"),)),
    ("Nodes that come and go, an hour", "short", (
        (f"sum(increase({_CA}scaled_up_nodes_total[1h]))", "come"),
        (f"sum by (reason) (increase({_CA}scaled_down_nodes_total[1h]))", "go: {{reason}}"),
    )),
    ("Not needed, not removable", "short", (
        (f"max({_CA}unneeded_nodes_count)", "not needed"),
        (f"sum by (reason) ({_CA}unremovable_nodes_count)", "{{reason}}"),
    )),
    ("Errors, an hour", "short", (
        (f"sum by (type) (increase({_CA}errors_total[1h]))", "{{type}}"),
        (f"sum by (reason) (increase({_CA}failed_scale_ups_total[1h]))", "scale-up: {{reason}}"),
    )),
    ("Evictions, an hour", "short", ((f"sum by (eviction_result) (increase({_CA}evicted_pods_total[1h]))",
                                      "{{eviction_result}}"),)),
    ("Duration of a loop", "s", tuple(
        (f"histogram_quantile({share}, sum by (le) (rate({_MAIN}[5m])))", f"{share:.0%}")
        for share in (0.5, 0.9, 0.99)
    )),
    ("Cores and limits", "short", (
        (f"max({_CA}cluster_cpu_current_cores)", "cores"),
        (f"max by (direction) ({_CA}cpu_limits_cores)", "{{direction}}"),
    )),
    ("Since the last loop", "s", ((f"time() - max by (activity) ({_CA}last_activity)", "{{activity}}"),)),
    ("Watch events a second", "short", (("sum by (kind) (rate(kscale_watch_events_total[5m]))", "{{kind}}"),)),
    ("Events wait for a decision", "s", (
        ("histogram_quantile(0.99, sum by (le, kind) (rate(kscale_watch_lag_seconds_bucket[5m])))", "{{kind}}"),
    )),
    ("Deciding", "s", (
        ("histogram_quantile(0.9, sum by (le, driver) (rate(kscale_decision_seconds_bucket[5m])))", "{{driver}}"),
    )),
    ("Loops put off by a list, an hour", "short", (
        ("sum by (driver) (increase(kscale_skipped_loops_total[1h]))", "{{driver}}"),
    )),
    ("Leader", "short", (("max by (pod) (leader_election_master_status)", "{{pod}}"),)),
)  # fmt: skip


def cluster_autoscaler_alerts(lease: str = _NAME) -> list[_Object]:
    """Return the alerts for a group of a Prometheus rules file. ``lease``: name of the leader's lease."""
    return [
        {
            "alert": name,
            "expr": expression.replace("LEASE", lease),
            "for": duration,
            "labels": {"severity": severity},
            "annotations": {"summary": summary},
        }
        for name, expression, duration, severity, summary in _ALERTS
    ]


def cluster_autoscaler_dashboard() -> _Object:
    """Return the dashboard in Grafana's import format."""
    panels = []
    for i, (title, unit, queries) in enumerate(_PANELS):
        targets = [
            {"expr": expression, "legendFormat": legend, "refId": chr(ord("A") + k)}
            for k, (expression, legend) in enumerate(queries)
        ]
        panels.append(
            {
                "id": i + 1,
                "title": title,
                "type": "timeseries",
                "datasource": {"type": "prometheus", "uid": "${datasource}"},
                "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
                "gridPos": {"h": 8, "w": 8, "x": i % 3 * 8, "y": i // 3 * 8},
                "targets": targets,
            }
        )
    source = {"name": "datasource", "type": "datasource", "query": "prometheus"}
    return {
        "title": "Cluster Autoscaler",
        "uid": "kscale-cluster-autoscaler",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source]},
        "panels": panels,
    }


def cluster_autoscaler_monitoring(namespace: str, lease: str = _NAME) -> list[_Object]:
    """Return objects for the Prometheus operator (PodMonitor, PrometheusRule), and the dashboard in a ConfigMap.

    Grafana's sidecar finds the ConfigMap by its label. ``lease``: name of the leader's lease.
    """
    labels = {"app.kubernetes.io/name": _NAME, "app.kubernetes.io/managed-by": "kscale"}
    here = {"name": _NAME, "namespace": namespace, "labels": labels}
    operator = "monitoring.coreos.com/v1"
    return [
        {
            "apiVersion": operator,
            "kind": "PodMonitor",
            "metadata": here,
            "spec": {
                "selector": {"matchLabels": {"app.kubernetes.io/name": _NAME}},
                "podMetricsEndpoints": [{"port": "metrics"}],
            },
        },
        {
            "apiVersion": operator,
            "kind": "PrometheusRule",
            "metadata": here,
            "spec": {"groups": [{"name": _NAME, "rules": cluster_autoscaler_alerts(lease)}]},
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {**here, "name": f"{_NAME}-dashboard", "labels": {**labels, "grafana_dashboard": "1"}},
            "data": {"cluster-autoscaler.json": json.dumps(cluster_autoscaler_dashboard(), indent=1)},
        },
    ]


ROLE_ANNOTATION: Final = "eks.amazonaws.com/role-arn"
"""Annotation of a service account whose pods EKS gives a role."""

_READS: Final = (
    "autoscaling:DescribeAutoScalingGroups",
    "autoscaling:DescribeLaunchConfigurations",
    "autoscaling:DescribeScalingActivities",
    "ec2:DescribeImages",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeLaunchTemplateVersions",
    "ec2:GetInstanceTypesFromInstanceRequirements",
    "eks:DescribeNodegroup",
)
_WRITES: Final = ("autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup")
_TYPES: Final = "ec2:DescribeInstanceTypes"
_ROLE: Final = lazy_pattern(r"arn:(aws[a-z-]*):iam::\d{12}:role/[\w+=,.@/-]+")
_WILDCARD: Final = lazy_pattern(r"[*?$]")


def read_role(arn: str) -> str:
    """Check the ARN of an IAM role and return its partition (``aws``, ``aws-cn``, ``aws-us-gov``).

    Raises InputError for any other text.
    """
    match = _ROLE.fullmatch(arn)
    if match is None:
        raise InputError(Problem(f"not the ARN of an IAM role: {arn!r}", field="--role-arn"))
    return match[1]


def aws_policy(
    *,
    names: Sequence[str] = (),
    tags: Mapping[str, str] | None = None,
    static_types: bool = False,
    partition: str = "aws",
) -> dict[str, Any]:
    """Build the least IAM policy with which the autoscaler works.

    Parameters
    ----------
    names : sequence of str
        Names of groups (``--nodes``).
    tags : mapping of str to str, optional
        Tags that discovered groups have (``--node-group-auto-discovery``); an empty value stands for every value.
    static_types : bool
        Whether instance types come from a file (``--aws-use-static-instance-list``).
    partition : str
        Partition of the account in ARNs.

    Returns
    -------
    dict
        The policy document. Descriptions are allowed for everything, since IAM does not restrict them to resources;
        changes only for the groups (without ``names`` and ``tags`` for none).
    """
    reads = [action for action in _READS if not (static_types and action == _TYPES)]
    statements: list[dict[str, Any]] = [{"Sid": "Describe", "Effect": "Allow", "Action": reads, "Resource": "*"}]
    groups = f"arn:{partition}:autoscaling:*:*:autoScalingGroup:*:autoScalingGroupName/"
    if names:
        resources = [f"{groups}{_escape(name)}" for name in dict.fromkeys(names)]
        statements.append({"Sid": "ScaleNamedGroups", "Effect": "Allow", "Action": [*_WRITES], "Resource": resources})
    if tags:
        equal = {f"aws:ResourceTag/{key}": _escape(value) for key, value in tags.items() if value}
        present = {f"aws:ResourceTag/{key}": "false" for key, value in tags.items() if not value}
        conditions = {name: rules for name, rules in (("StringEquals", equal), ("Null", present)) if rules}
        statements.append(
            {
                "Sid": "ScaleDiscoveredGroups",
                "Effect": "Allow",
                "Action": [*_WRITES],
                "Resource": f"{groups}*",
                "Condition": conditions,
            }
        )
    return {"Version": "2012-10-17", "Statement": statements}


def _escape(text: str) -> str:
    """Escape the characters that IAM reads as wildcards or variables."""
    return _WILDCARD.sub(lambda match: f"${{{match[0]}}}", text)
