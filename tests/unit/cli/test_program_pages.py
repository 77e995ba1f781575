"""The pages of the programs that scale pods list every flag and every metric that they have, and every right that
``kscale manifests`` gives them.

After a change of any, ``python tests/unit/cli/test_program_pages.py`` writes the tables anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click
import typer

from kscale.cli.app import app
from kscale.drivers.horizontal_autoscaler import HORIZONTAL_METRICS
from kscale.drivers.manifests.autoscalers import autoscaler_roles
from kscale.drivers.vpa_admission import ADMISSION_METRICS
from kscale.drivers.vpa_recommender import RECOMMENDER_METRICS
from kscale.drivers.vpa_updater import UPDATER_METRICS
from kscale.effects import Metric

DOCS: Final = Path(__file__).parents[3] / "docs"
PROGRAMS: Final[dict[str, tuple[str, Sequence[Metric]]]] = {
    "horizontal": ("run-horizontal", HORIZONTAL_METRICS),
    "vpa-recommender": ("vpa-recommender", RECOMMENDER_METRICS),
    "vpa-updater": ("vpa-updater", UPDATER_METRICS),
    "vpa-admission": ("vpa-admission", ADMISSION_METRICS),
}


def flags(program: str) -> Iterator[str]:
    """A table of them, in the order of ``--help``."""
    yield "| Flag | Default | |"
    yield "|---|---|---|"
    context = click.Context(typer.main.get_command(app))
    run: Any = context.command
    for name in ("run", program):
        run = run.get_command(context, name)
    for option in run.params:
        negated = f" / `{option.secondary_opts[0]}`" if option.secondary_opts else ""
        default = "" if option.default in (None, "", False, []) else f"`{_text(option.default)}`"
        about = option.help.replace("|", r"\|")
        yield f"| `{option.opts[0]}`{negated} | {default} | {about} |"


def metrics(metrics_: Sequence[Metric]) -> Iterator[str]:
    yield "| Metric | Kind | Labels |"
    yield "|---|---|---|"
    for metric in metrics_:
        yield f"| `{metric.name}` | {metric.kind} | {', '.join(f'`{label}`' for label in metric.labels)} |"


def rights(program: str) -> Iterator[str]:
    """A table of them, without flags; those in its namespace alone come last."""
    yield "| API group | Resources | Verbs | Only |"
    yield "|---|---|---|---|"
    wide, own = autoscaler_roles(program)
    for rules, where in ((wide, ""), (own, "in its namespace")):
        for rule in rules:
            named = ", ".join(f"`{name}`" for name in rule.get("resourceNames", ()))
            only = ": ".join(part for part in (where, named) if part)
            group, resources, verbs = (", ".join(rule[key]) for key in ("apiGroups", "resources", "verbs"))
            yield f"| {group or '(core)'} | {resources} | {verbs} | {only} |"


def written(text: str, program: str, program_metrics: Sequence[Metric]) -> str:
    """A page with its tables as they have to be."""
    tables = (
        ("Flags", flags(program)),
        ("Metrics", metrics(program_metrics)),
        ("What it may do (RBAC)", rights(program)),
    )
    for heading, lines in tables:
        table = re.compile(rf"(?<=^## {re.escape(heading)}\n)(.*?)(?:^\|.*?\n)+", re.DOTALL | re.MULTILINE)
        section, rest = text.split(f"## {heading}\n", 1)
        assert table.search(f"## {heading}\n{rest}"), f"{program} has no table of {heading}"
        rows = "".join(f"{line}\n" for line in lines)
        text = section + table.sub(lambda match, rows=rows: match[1] + rows, f"## {heading}\n{rest}", count=1)
    return text


def _text(default: object) -> str:
    return str(default).lower() if isinstance(default, bool) else str(default)


def stale() -> dict[Path, str]:
    """Pages that are not as they have to be, and what they have to be."""
    result = {}
    for program, (page, metrics_of) in PROGRAMS.items():
        path = DOCS / f"{page}.md"
        text = path.read_text(encoding="utf-8")
        if (new := written(text, program, metrics_of)) != text:
            result[path] = new
    return result


def test_pages_have_all_flags_metrics_and_rights() -> None:
    for path, text in stale().items():
        assert path.read_text(encoding="utf-8") == text, path.name


if __name__ == "__main__":
    for path, text in stale().items():
        path.write_text(text, encoding="utf-8")
