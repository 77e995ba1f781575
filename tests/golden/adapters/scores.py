"""`scores`: kscale.node_scores on a snapshot. Left out: the text of an error, and plug-ins that score 0 everywhere."""

from __future__ import annotations

from typing import Any

import kscale
from golden_support import decoded, profile_of, world


def check(case: dict[str, Any]) -> None:
    inputs, want = case["input"], case["want"]
    options = inputs.get("options", {})
    snapshot = world(inputs["objects"], options)
    chosen: dict[str, Any] = {name: _as_option(value) for name, value in options.get("scores", {}).items()}
    scores = kscale.ScoreOptions(**chosen)
    result = kscale.node_scores(snapshot, decoded(inputs["pod"]), scores=scores, profile=profile_of(options))
    if want["error"]:
        assert (result.nodes, result.by_plugin, result.total) == (want["nodes"], {}, [])
        return
    by_plugin = {name: scores for name, scores in result.by_plugin.items() if any(scores)}
    want["by_plugin"] = {name: scores for name, scores in want["by_plugin"].items() if any(scores)}
    got = {"error": "", "nodes": result.nodes, "by_plugin": by_plugin, "total": result.total}
    assert got == want


def _as_option(value: Any) -> Any:
    return tuple(map(_as_option, value)) if isinstance(value, list) else value
