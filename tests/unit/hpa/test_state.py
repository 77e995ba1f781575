"""Saved states: what cannot be used is refused with the path of what is wrong."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kscale.errors import StateError
from kscale.hpa.controller.state import ControllerState
from kscale.records import API_VERSION


def saved(hpas: Any, **more: Any) -> bytes:
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": "HPAControllerState", "hpas": hpas, **more})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (saved({"a/b": {"recommendations": [{"replicas": 2**40, "time": 0}]}}), "$.recommendations[0].replicas"),
        (saved({"a/b": {"scaleUpEvents": [{"change": -1, "time": 0}]}}), "$.scaleUpEvents[0].change"),
        (
            saved({"a/b": {"recommendations": [{"replicas": 1, "time": 5}]}}).replace(b"5", b"1180591620717411303424"),
            "$.recommendations[0].time",
        ),
        (saved({"a/b": {"selector": "a=b=c"}}), "hpas['a/b'].selector: found '='"),
        (saved({"a/b": {"recomendations": []}}), "hpas['a/b']: Object contains unknown field `recomendations`"),
        (saved({}, hpa={}), "unknown field `hpa`"),
        (saved({"b": {}}), "hpas['b']: a key is namespace/name"),
        (saved(None), "Expected `object`, got `null`"),
        (b'{"apiVersion":"kscale.dev/v1alpha1","kind":"HPAControllerState","hpas":{"\xff/b":{}}}', "utf-8"),
        (b"[]", "not an HPA state"),
    ],
)
def test_invalid_states_are_named(data: bytes, message: str) -> None:
    with pytest.raises(StateError) as error:
        ControllerState.from_json(data)
    assert message in str(error.value)
