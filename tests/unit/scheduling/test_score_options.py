"""Options of Score plug-ins that are refused."""

from __future__ import annotations

import pytest

import kscale
from unit.scheduling.score_cases import Json


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"weights": {"NodeName": 1}}, "no Score plug-in 'NodeName'"),
        ({"weights": {"NodeAffinity": -1}}, "NodeAffinity is -1"),
        ({"fit_strategy": "Best"}, "fit_strategy is"),
        ({"fit_resources": {"cpu": 0}}, "fit_resources: cpu is 0"),
        ({"fit_resources": {}}, "scores no resources"),
        ({"balanced_resources": ()}, "scores no resources"),
        ({"fit_shape": ((0, 1),)}, "LeastAllocated takes no points"),
        ({"fit_strategy": "RequestedToCapacityRatio"}, "at least one"),
        (
            {"fit_strategy": "RequestedToCapacityRatio", "fit_shape": ((5, 1), (5, 2))},
            r"fit_shape\[1\]\.util",
        ),
        ({"fit_strategy": "RequestedToCapacityRatio", "fit_shape": ((5, 11),)}, r"\[0\]\.score: Invalid value: 11"),
        ({"volume_shape": ((True, 1),)}, r"volume_shape\[0\]\.utilization is True, not a whole number"),
        ({"volume_shape": ()}, "volume_shape: at least one point"),
        (
            {"volume_shape": ((5, 1), (5, 2))},
            r"volume_shape\[1\]\.utilization: Invalid value: 5: values must",
        ),
        ({"percentage_of_nodes_to_score": 101}, "percentage_of_nodes_to_score is 101"),
        ({"hard_pod_affinity_weight": True}, "hard_pod_affinity_weight is"),
    ],
)
def test_options_that_are_refused(options: Json, text: str) -> None:
    with pytest.raises(kscale.InputError, match=text):
        kscale.ScoreOptions(**options)
