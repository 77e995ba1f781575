"""`fit`: kscale.fit on a snapshot. Left out: `debug`, and `message` from `debugInfo=` on."""

from __future__ import annotations

from typing import Any

import kscale
from golden_support import decoded, profile_of, world


def check(case: dict[str, Any]) -> None:
    inputs, want = case["input"], case["want"]
    options = inputs.get("options", {})
    snapshot = world(inputs["objects"], options)
    pod = decoded(inputs["pod"])
    result = kscale.fit(snapshot, [pod], profile=profile_of(options))
    assert set(snapshot.nodes) == set(want["nodes"])
    for node, expected in want["nodes"].items():
        verdict = result.verdict(pod, node)
        got: dict[str, Any] = {"ok": verdict.ok}
        if not verdict.ok:
            got |= {
                "type": verdict.type,
                "plugin": verdict.plugin,
                "reasons": list(verdict.reasons),
                "unexpected": verdict.unexpected,
                "message": before_debug(verdict.message),
            }
        if "message" in expected:
            expected["message"] = before_debug(expected["message"])
        every = [{"plugin": v.plugin, "code": v.code, "reasons": list(v.reasons)} for v in result.verdicts(pod, node)]
        assert got == {key: value for key, value in expected.items() if key not in ("debug", "all")}, node
        assert every == expected.get("all", []), node
    report = result.prefilter(pod)
    prefilter: dict[str, Any] = {"skipped": report.skipped}
    if report.failures:
        prefilter["failures"] = [
            {"plugin": plugin, "code": status.code, "reasons": list(status.reasons)}
            for plugin, status in report.failures
        ]
    if report.node_sets:
        prefilter["node_sets"] = [{"plugin": plugin, "nodes": sorted(nodes)} for plugin, nodes in report.node_sets]
    assert prefilter == want["prefilter"]
    anywhere = result.any_node(pod, cursor=options.get("cursor", 0))
    if want["any_node"]["ok"]:
        assert (anywhere.ok, anywhere.node) == (True, want["any_node"]["node"])
    else:
        expected = {key: value for key, value in want["any_node"].items() if key != "debug"}
        got = {"ok": False, "type": anywhere.type}
        for key in ("plugin", "reasons", "unexpected", "message"):
            if key in expected:
                value = getattr(anywhere, key)
                got[key] = {"reasons": list, "message": before_debug}.get(key, lambda same: same)(value)
        if "message" in expected:
            expected["message"] = before_debug(expected["message"])
        assert got == expected


def before_debug(message: str) -> str:
    return message.split("; debugInfo=", maxsplit=1)[0]
