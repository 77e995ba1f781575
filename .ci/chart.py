"""Write the Helm chart in packaging/chart from the objects of ``kscale manifests``.

    python .ci/chart.py            # write the chart
    python .ci/chart.py --check    # status 1 if the chart is not what would be written

The templates contain the objects with expressions in the place of image, namespace, number of replicas and further
flags. ``values.schema.json`` lets Helm refuse unknown and wrong values. A test compares the chart with the objects.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner

import kscale
from kscale.cli.app import app

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "packaging" / "chart"
IMAGE, NAMESPACE, REPLICAS = "kscale-image-placeholder", "kscale-namespace-placeholder", 9876
PROGRAMS = {
    "cluster-autoscaler": "clusterAutoscaler",
    "horizontal": "horizontal",
    "vpa-recommender": "vpaRecommender",
    "vpa-updater": "vpaUpdater",
    "vpa-admission": "vpaAdmission",
}
"""Program -> its key in the chart's values."""
DEFAULT_REPLICAS = {"vpa-admission": 1}
DEFAULT_IMAGE = f"kscale:{kscale.__version__}"


def manifests(program: str, *, image: str, namespace: str, replicas: int) -> list[dict[str, Any]]:
    """Return the objects that ``kscale manifests PROGRAM`` prints."""
    options = ["--image", image, "--namespace", namespace, "--replicas", str(replicas)]
    result = CliRunner().invoke(app, ["manifests", program, *options, "-o", "yaml"])
    assert result.exit_code == 0, result.output
    return list(yaml.safe_load_all(result.stdout))


class Dumper(yaml.SafeDumper):
    """YAML without anchors, which Helm's expressions could not see through."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002  # yaml's signature
        return True


def template(program: str) -> str:
    """Return the template of a program."""
    key = PROGRAMS[program]
    objects = manifests(program, image=IMAGE, namespace=NAMESPACE, replicas=REPLICAS)
    text = yaml.dump_all(objects, Dumper=Dumper, sort_keys=False, width=10_000)
    assert "{{" not in text, "an object contains an expression of its own"
    lines = []
    in_args, previous = False, ""
    for line in text.split("\n"):
        stripped = line.lstrip()
        if in_args and not stripped.startswith("- "):
            indent = " " * (len(previous) - len(previous.lstrip()))
            lines += [
                f"{indent}{{{{- range .Values.{key}.flags }}}}",
                f"{indent}- {{{{ . | quote }}}}",
                f"{indent}{{{{- end }}}}",
            ]
            in_args = False
        in_args = in_args or stripped == "args:" or stripped == "- args:"
        previous = line
        lines.append(line)
    body = "\n".join(lines)
    body = body.replace(f"image: {IMAGE}", "image: {{ .Values.image | quote }}")
    body = body.replace(f"replicas: {REPLICAS}", f"replicas: {{{{ .Values.{key}.replicas }}}}")
    body = body.replace(NAMESPACE, "{{ .Release.Namespace }}")
    assert IMAGE not in body
    assert str(REPLICAS) not in body
    return f"{{{{- if .Values.{key}.enabled }}}}\n{body.rstrip()}\n{{{{- end }}}}\n"


def values() -> str:
    """Return values.yaml."""
    lines = [
        "# A container image with kscale in it (packaging of the image: Containerfile).",
        f"image: {DEFAULT_IMAGE}",
    ]
    for program, key in PROGRAMS.items():
        lines += [
            "",
            f"# kscale run {program}",
            f"{key}:",
            f"  enabled: {'true' if program == 'cluster-autoscaler' else 'false'}",
            f"  replicas: {DEFAULT_REPLICAS.get(program, 2)}",
            "  # Further flags, such as --v=2. A later flag replaces an earlier one of the same name.",
            "  flags: []",
        ]
    return "\n".join(lines) + "\n"


def values_schema() -> dict[str, Any]:
    """Return the JSON Schema of values.yaml, by which Helm refuses unknown and wrong values.

    Helm checks the merged values: those of values.yaml, of files and of ``--set``.
    """
    program = {
        "type": "object",
        "additionalProperties": False,
        "required": ["enabled", "replicas", "flags"],
        "properties": {
            "enabled": {"type": "boolean"},
            "replicas": {
                "description": "Replicas of the Deployment. One of them leads; the others wait for its lease.",
                "type": "integer",
                "minimum": 1,  # as for kscale manifests; "enabled: false" leaves the program out
            },
            "flags": {
                "description": "Further flags of the program, each one string, such as --v=2.",
                "type": "array",
                "items": {"type": "string", "pattern": "^--?[A-Za-z]"},
            },
        },
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the kscale chart",
        "type": "object",
        "additionalProperties": False,
        "required": ["image", *PROGRAMS.values()],
        "properties": {
            "image": {"description": "A container image with kscale in it.", "type": "string", "pattern": "^[^\\s]+$"},
            "global": {"description": "Values that a parent chart shares. Not used.", "type": "object"},
            **{key: {"description": f"kscale run {name}", **program} for name, key in PROGRAMS.items()},
        },
    }


def chart() -> dict[str, str]:
    """Return the files of the chart: path -> text."""
    crds = CliRunner().invoke(app, ["manifests", "vpa-crds", "-o", "yaml"])
    assert crds.exit_code == 0, crds.output
    metadata = {
        "apiVersion": "v2",
        "name": "kscale",
        "description": "Kubernetes autoscalers: Cluster Autoscaler, HPA controller and Vertical Pod Autoscaler",
        "type": "application",
        "version": kscale.__version__,
        "appVersion": kscale.__version__,
    }
    return {
        "Chart.yaml": yaml.safe_dump(metadata, sort_keys=False, width=10_000),
        "values.yaml": values(),
        "values.schema.json": json.dumps(values_schema(), indent=2) + "\n",
        "crds/verticalpodautoscalers.yaml": crds.stdout,
        **{f"templates/{program}.yaml": template(program) for program in PROGRAMS},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = []
    for name, text in chart().items():
        path = FOLDER / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if stale:
        sys.stdout.write(f"{'not current' if check else 'written'}: {', '.join(stale)}\n")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
