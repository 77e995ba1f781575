"""The Helm chart holds the objects of ``kscale manifests``, with the default values."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "packaging" / "chart"


def load() -> ModuleType:
    spec = spec_from_file_location("ci_chart", ROOT / ".ci" / "chart.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


chart = load()


def test_the_chart_is_current() -> None:
    files = {str(path.relative_to(CHART)): path.read_text() for path in CHART.rglob("*") if path.is_file()}
    assert files == chart.chart(), "run python .ci/chart.py"


@pytest.mark.parametrize("program", chart.PROGRAMS)
def test_templates_with_default_values_are_the_manifests(program: str) -> None:
    key = chart.PROGRAMS[program]
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    text = (CHART / "templates" / f"{program}.yaml").read_text()
    expressions = {
        "{{ .Values.image | quote }}": f'"{values["image"]}"',
        "{{ .Release.Namespace }}": "autoscaling",
        f"{{{{ .Values.{key}.replicas }}}}": str(values[key]["replicas"]),
        f"        {{{{- range .Values.{key}.flags }}}}\n        - {{{{ . | quote }}}}\n        {{{{- end }}}}\n": "",
        f"{{{{- if .Values.{key}.enabled }}}}\n": "",
        "\n{{- end }}\n": "\n",
    }
    for expression, value in expressions.items():
        assert expression in text, expression
        text = text.replace(expression, value)
    assert not re.search(r"\{\{|\}\}", text)
    objects = chart.manifests(program, image=values["image"], namespace="autoscaling", replicas=values[key]["replicas"])
    assert list(yaml.safe_load_all(text)) == objects
    assert {each["kind"] for each in objects} >= {"ServiceAccount", "ClusterRole", "Deployment"}


def test_only_the_cluster_autoscaler_is_on_by_default() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert [key for key in chart.PROGRAMS.values() if values[key]["enabled"]] == ["clusterAutoscaler"]
    metadata = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (metadata["apiVersion"], metadata["appVersion"]) == ("v2", metadata["version"])


def read_schema() -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
    return schema


WRONG_VALUES = [
    ("clusterAutoscaler.replicas=two", "/clusterAutoscaler/replicas", "integer"),
    ("clusterAutoscaler.replicas=0", "/clusterAutoscaler/replicas", "minimum"),
    ("clusterAutoscaler.flags=--v=2", "/clusterAutoscaler/flags", "array"),
    ("clusterAutoscaler.replica=3", "/clusterAutoscaler", "replica"),
    ("horizontal.enabled=maybe", "/horizontal/enabled", "boolean"),
    ("vpa.enabled=true", "", "vpa"),
    ("image=", "/image", "pattern"),
]


def changed_values(setting: str) -> dict[str, Any]:
    """Return the default values with one setting, as helm reads it after ``--set``."""
    values: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    path, _, text = setting.partition("=")
    *parents, name = path.split(".")
    place = values
    for parent in parents:
        place = place.setdefault(parent, {})
    place[name] = int(text) if text.isdigit() else text
    return values


def test_the_schema_accepts_the_default_values() -> None:
    schema = read_schema()
    jsonschema.Draft7Validator.check_schema(schema)
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    jsonschema.validate(values, schema)
    jsonschema.validate({**values, "horizontal": {"enabled": True, "replicas": 3, "flags": ["--v=2"]}}, schema)


@pytest.mark.parametrize(("setting", "path", "word"), WRONG_VALUES)
def test_the_schema_refuses_wrong_values(setting: str, path: str, word: str) -> None:
    (error,) = jsonschema.Draft7Validator(read_schema()).iter_errors(changed_values(setting))
    assert "".join(f"/{part}" for part in error.path) == path
    assert word in error.message or word == error.validator


@pytest.mark.skipif(shutil.which("helm") is None, reason="no helm")
@pytest.mark.parametrize(("setting", "path", "word"), WRONG_VALUES)
def test_helm_refuses_wrong_values(setting: str, path: str, word: str) -> None:
    command = ["helm", "template", "test", str(CHART), "--set", setting]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert result.returncode == 1
    assert f"at '{path}'" in result.stderr
    assert word in result.stderr
