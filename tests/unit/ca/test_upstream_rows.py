"""Which test here holds the rows of which of upstream's tests of the loop (``*_test.go``): none is forgotten.

Where upstream has a table, the test named here has its rows, word for word: :data:`TABLES`."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from rows import each_row

HERE = Path(__file__).parent

LOOP = "static_autoscaler/test_run_once_rows.py"
STATE = "test_cluster_state.py"
STATUS = "static_autoscaler/test_status.py"
BUFFERS = "test_capacity_buffers.py"
BUFFERS_IN_LOOPS = "static_autoscaler/test_capacity_buffers_in_loops.py"
CONTROLLER = "test_buffer_controller.py"
REQUESTS = "test_provisioning_requests.py"
REQUESTS_IN_LOOPS = "static_autoscaler/test_provisioning_requests_in_loops.py"

ROWS = {
    # core/static_autoscaler_test.go
    "TestStaticAutoscalerRunOnce": f"{LOOP}::test_run_once",
    "TestStaticAutoscalerRunOnceWithScaleDownDelayPerNG": f"{LOOP}::test_delays_of_a_group_of_its_own",
    "TestStaticAutoscalerRunOnceWithAutoprovisionedEnabled": f"{LOOP}::test_groups_of_auto_provisioning_come_and_go",
    "TestStaticAutoscalerRunOnceWithALongUnregisteredNode": f"{LOOP}::test_machines_that_never_registered",
    "TestStaticAutoscalerRunOncePodsWithPriorities": f"{LOOP}::test_priorities",
    "TestStaticAutoscalerRunOnceWithFilteringOnBinPackingEstimator": (
        f"{LOOP}::test_a_pod_that_the_scheduler_has_not_spoken_of"
    ),
    "TestStaticAutoscalerRunOnceWithFilteringOnUpcomingNodesEnabledNoScaleUp": (
        "scale_up/test_loop.py::test_nodes_that_are_coming_take_pods_in_the_next_loop"
    ),
    "TestStaticAutoscalerRunOnceWithUnselectedNodeGroups": f"{LOOP}::test_taints_of_nodes_that_are_not_ours_stay",
    "TestStaticAutoscalerRunOnceWithBypassedSchedulers": f"{LOOP}::test_bypassed_schedulers",
    "TestStaticAutoscalerRunOnceWithExistingDeletionCandidateNodes": (
        f"{LOOP}::test_state_of_an_earlier_process_is_read_from_taints"
    ),
    "TestStaticAutoscalerInstanceCreationErrors": "test_repair.py::test_failed_instances_are_deleted",
    "TestStaticAutoscalerInstanceCreationErrorsForZeroOrMaxScaling": (
        "test_repair.py::test_failed_instances_are_deleted"
    ),
    "TestStaticAutoscalerUpcomingScaleDownCandidates": f"{LOOP}::test_nodes_that_have_not_started_are_no_candidates",
    "TestStaticAutoscalerProcessorCallbacks": "scale_up/test_loop_gate.py::test_new_pods_keep_nodes_from_going",
    "TestRemoveFixNodeTargetSize": "test_repair.py::test_targets_that_are_too_high",
    "TestRemoveOldUnregisteredNodes": "test_repair.py::test_old_unregistered_instances",
    "TestRemoveOldUnregisteredNodesAtomic": "test_repair.py::test_groups_that_go_whole",
    "TestSubtractNodes": f"{LOOP}::test_nodes_that_have_not_started_are_no_candidates",
    "TestFilterOutYoungPods": "test_pod_lists.py::test_young",
    "TestStaticAutoscalerRunOnceInvokesScaleDownStatusProcessor": f"{LOOP}::test_status_of_scale_down",
    "TestFilterNodesFromSelectedGroups": f"{LOOP}::test_taints_of_nodes_that_are_not_ours_stay",
    "TestCleaningSoftTaintsInScaleDown": f"{LOOP}::test_candidates_of_groups_at_their_minimum_lose_their_taints",
    "TestStaticAutoscalerRunOnceClearsRegistry": f"{BUFFERS_IN_LOOPS}::test_the_buffers_of_a_loop_are_forgotten",
    "TestStaticAutoscalerRunOnceWithCancelledContext": f"{LOOP}::test_a_process_that_ends_scales_nothing",
    "TestStaticAutoscalerRunOnceWithNominatedNodeName": f"{LOOP}::test_a_nominated_pod_holds_its_place",
    "TestStaticAutoscalerScaleDownCustomQuota": f"{LOOP}::test_a_minimum_of_cores",
    "TestShouldScaleDown": f"{LOOP}::test_whether_scale_down_is_tried",
    # clusterstate/clusterstate_test.go
    "TestOKWithScaleUp": f"{STATE}::test_ok_with_scale_up",
    "TestEmptyOK": f"{STATE}::test_empty_group_that_grows_and_is_taken_back",
    "TestHasNodeGroupStartedScaleUp": f"{STATE}::test_empty_group_that_grows_and_is_taken_back",
    "TestRecalculateStateAfterNodeGroupSizeChanged": f"{STATE}::test_recalculate",
    "TestOKOneUnreadyNode": f"{STATE}::test_health",
    "TestNodeWithoutNodeGroupDontCrash": f"{STATE}::test_size_of_the_cluster",
    "TestOKOneUnreadyNodeWithScaleDownCandidate": f"{STATUS}::test_candidates",
    "TestMissingNodes": f"{STATE}::test_health",
    "TestTooManyUnready": f"{STATE}::test_health",
    "TestUnreadyLongAfterCreation": f"{STATE}::test_start_up_time",
    "TestUnreadyAfterCreationWithIncreasedStartupTime": f"{STATE}::test_start_up_time",
    "TestNotStarted": f"{STATE}::test_not_started",
    "TestExpiredScaleUp": f"{STATE}::test_an_overdue_request_is_given_up",
    "TestRegisterScaleDown": f"{STATE}::test_deletions_are_expected_for_a_while",
    "TestNodeGroupScaleUpTime": "test_further_rows.py::test_scale_up_time_is_recorded_per_group",
    "TestUpcomingNodes": f"{STATE}::test_upcoming_nodes",
    "TestTaintBasedNodeDeletion": f"{STATE}::test_nodes_without_machine",
    "TestIncorrectSize": f"{STATE}::test_incorrect_sizes",
    "TestUnregisteredNodes": f"{STATE}::test_instances_without_node",
    "TestCloudProviderDeletedNodes": f"{STATE}::test_nodes_without_machine",
    "TestScaleUpBackoff": f"{STATE}::test_back_off_through_timeouts",
    "TestGetClusterSize": f"{STATE}::test_size_of_the_cluster",
    "TestUpdateScaleUp": f"{STATE}::test_scale_up_request_follows_added_and_removed_nodes",
    "TestUpdateAcceptableRanges": f"{STATE}::test_ranges",
    "TestUpdateIncorrectNodeGroupSizes": f"{STATE}::test_incorrect_sizes",
    "TestTruncateIfExceedMaxSize": f"{STATUS}::test_truncated",
    "TestUpcomingNodesFromUpcomingNodeGroups": f"{STATE}::test_groups_that_are_being_created",
    "TestHandleInstanceCreationErrors": f"{STATE}::test_failed_instances_are_registered_as_failures",
    "TestFailedScaleUpWithDra": "test_metrics.py::test_drivers",
    "TestFailedScaleUpWithDraAndGpu": "test_metrics.py::test_gpu_labels",
    "TestGetUpcomingNodesSkipsWithoutScaleUpRequestOrBackoff": f"{STATE}::test_no_request_no_upcoming_nodes",
    "TestSuspendedNodes": f"{STATE}::test_suspended_nodes",
    "TestIsSuspendedNode": f"{STATE}::test_suspended_nodes",
    "TestExpiredScaleUpRevertsTargetSize": f"{STATE}::test_an_overdue_request_is_given_up",
    "TestExpiredScaleUpRevertsTargetSizeHandlesError": (
        "static_autoscaler/test_run_once.py::test_request_that_cannot_be_reverted_is_reported"
    ),
    "TestExpiredScaleUpRevertsPartialIncrease": (
        f"{STATE}::test_the_whole_request_is_taken_back_even_if_some_nodes_came"
    ),
    # clusterstate/utils, utils/backoff
    "TestWriteStatusConfigMap": f"{STATUS}::test_config_map_is_created_or_updated",
    "TestWriteStatusConfigMapMarshal": f"{STATUS}::test_the_text_is_yaml_with_sorted_keys",
    "TestBackoffTwoKeys": f"{STATE}::test_back_off_alone",
    "TestMaxBackoff": f"{STATE}::test_back_off_alone",
    "TestRemoveBackoff": f"{STATE}::test_back_off_alone",
    "TestResetStaleBackoffData": f"{STATE}::test_stale_back_offs",
    "TestIncreaseExistingBackoff": f"{STATE}::test_back_off_alone",
    # core/podlistprocessor, processors
    "TestCurrentlyDrainedNodesPodListProcessor": "test_pod_lists.py::test_drained_nodes",
    "TestFilterOutDaemonSetPodListProcessor": "test_pod_lists.py::test_daemonset_pods",
    "TestFilterOutExpendable": "test_pod_lists.py::test_expendable",
    "TestFilterOutSchedulable": "test_pod_lists.py::test_filter_out_schedulable",
    "TestFilterOutSchedulable_GracefulDegradation": "scale_up/test_loop_gate.py::test_upstreams_table",
    "TestTimeLimiter": "scale_up/test_orchestrator_rows.py::test_time_for_estimates",
    "TestMixedNodeInfosProvider": "test_node_infos.py::test_mixed_provider",
    "TestFindSimilarNodeGroups": "test_similarity.py::test_find_similar",
    "TestBalanceSingleGroup": "test_balancing.py::test_upstream_table",
    "TestBalanceUnderMaxSize": "test_balancing.py::test_upstream_table",
    "TestBalanceHittingMaxSize": "test_balancing.py::test_upstream_table",
    "TestNodesSimilarVariousRequirements": "test_similarity.py::test_generic",
    "TestNodesSimilarVariousLabels": "test_similarity.py::test_ignored_labels",
    "TestNodeLabelComparison": "test_similarity.py::test_label_comparator",
    "TestEnforceInjectedPodsLimitProcessor": ("test_proactive.py::test_injection_limit_drops_the_first_injected_pods"),
    "TestDesiredReplicasFromJob": "test_proactive.py::test_desired",
    "TestTargetCountInjectionPodListProcessor": "test_proactive.py::test_missing",
    "TestEventingScaleUpStatusProcessor": "scale_up/test_scale_up_steps.py::test_events_by_result",
    "TestReasonsMessage": "scale_up/test_scale_up_steps.py::test_reasons_are_counted_over_groups_that_exist",
    "TestPreFilteringScaleDownNodeProcessor_GetScaleDownCandidateNodes": (
        "scale_down/test_candidates.py::test_groups_at_their_minimum_are_not_looked_at"
    ),
    "TestGetScaleDownCandidates": "scale_down/test_candidates.py::test_local_delays",
    "TestSort": "scale_down/test_candidates.py::test_the_higher_score_goes_first",
    # capacitybuffer, processors/capacitybuffer
    "TestPodListProcessor": f"{BUFFERS}::test_which_buffers_count",
    "TestCapacityBufferFakePodsRegistry": f"{BUFFERS}::test_pods_of_a_buffer",
    "TestBuffersEvent": f"{BUFFERS}::test_events",
    "TestConditionUpdates": f"{BUFFERS}::test_translation",
    "TestResourceQuotaAllocator": "test_buffer_quotas.py::test_buffers_share_the_remaining_quota",
    "TestPodMatchesQuotaScope": "test_buffer_quotas.py::test_scopes",
    "TestDefaultingResolver": f"{CONTROLLER}::test_requests_of_a_pod_as_a_whole",
    "TestDryRunResolver": f"{CONTROLLER}::test_pod_template_is_stored_for_a_buffer",
    "TestPodTemplateGenerationFilter": f"{BUFFERS}::test_which_buffers_count",
    "TestStrategyFilter": f"{CONTROLLER}::test_buffers_of_other_strategies_are_left_alone",
    "TestPodTemplateBufferTranslator": f"{CONTROLLER}::test_missing_template_makes_a_buffer_not_ready",
    "TestPodTemplateBufferTranslator_ManagedPodTemplate": f"{CONTROLLER}::test_a_template_that_changes",
    "TestGetPodTemplateSpecFromPod": f"{CONTROLLER}::test_pod_template_is_stored_for_a_buffer",
    "TestGetBufferNumberOfPods": f"{BUFFERS}::test_replicas",
    "TestScalableObjectsTranslator": f"{CONTROLLER}::test_the_newest_pod_of_a_workload",
    # provisioningrequest, processors/provreq
    "TestProvisioningRequestPodsInjector": f"{REQUESTS}::test_the_next_request",
    "TestProvisioningRequestPodsFilter": f"{REQUESTS}::test_consumers",
    "TestRefresh": f"{REQUESTS}::test_upkeep",
    "TestDeleteOldProvReqs": f"{REQUESTS}::test_old_requests_are_deleted_regardless_of_conditions",
    "TestBookCapacity": f"{REQUESTS}::test_booking",
    "TestBookCapacityConsumed": f"{REQUESTS_IN_LOOPS}::test_capacity_that_is_there_is_booked_until_it_is_taken",
    "TestProvisioningRequestScaleUpEnforcer": f"{REQUESTS_IN_LOOPS}::test_a_request_opens_the_gate",
    "TestCombinedStatusSet": f"{REQUESTS}::test_the_best_result_of_a_batch",
    "TestScaleUp": f"{REQUESTS_IN_LOOPS}::test_all_nodes_or_none",
    "TestWrapperScaleUp": f"{REQUESTS_IN_LOOPS}::test_requests_and_pods_take_turns",
    "TestPodsForProvisioningRequest": f"{REQUESTS}::test_pods",
    "TestFetchPodTemplates": f"{REQUESTS}::test_missing_templates",
    "TestSupportedProvisioningClass": f"{REQUESTS}::test_supported",
}
"""Upstream's test -> the test here that has its rows."""


FURTHER = "test_further_rows.py"
KWOK = "../world/test_nodegroups.py"

TABLES: dict[str, dict[str, list[str]]] = {
    # clusterstate/clusterstate_test.go: health and readiness
    f"{STATE}::test_ok_with_scale_up": {"TestOKWithScaleUp": ['_group("g1", 5, "a")', 'groups["g1"], 4, N']},
    f"{STATE}::test_health": {
        "TestOKOneUnreadyNode": ["((1, 1), (True, False), 15, True, True)"],
        "TestMissingNodes": ["((5, 1), (True, True), 15, True, False)"],
        "TestTooManyUnready": ["((1, 1), (False, False), 35, False, True)"],
    },
    f"{STATE}::test_start_up_time": {
        "TestUnreadyLongAfterCreation": ["(0, 1, 0)"],
        "TestUnreadyAfterCreationWithIncreasedStartupTime": ["(35, 0, 1)", "upcoming_nodes(state, groups, N) == {}"],
    },
    f"{STATE}::test_not_started": {
        "TestNotStarted": ["(False, True, 1, 1)", "(True, True, 1, 1)", "(True, False, 0, 2)"]
    },
    f"{STATE}::test_size_of_the_cluster": {"TestGetClusterSize": ["== (2, 6)", "== (3, 6)"]},
    f"{FURTHER}::test_a_node_of_no_group_and_sizes_of_groups_that_come": {
        "TestGetClusterSize": ["== (3, 7)", "== (3, 30)"],
        "TestNodeWithoutNodeGroupDontCrash": ['machine("loose")'],
    },
    f"{FURTHER}::test_which_groups_are_known": {"IsNodeGroupRegistered": ["[True, False]"]},
    f"{FURTHER}::test_a_candidate_shows_in_its_group_and_the_cluster": {
        "TestOKOneUnreadyNodeWithScaleDownCandidate": ['("CandidatesPresent", "NoCandidates")']
    },
    f"{FURTHER}::test_which_nodes_are_suspended": {
        "TestIsSuspendedNode": [
            '([("Suspended", "True")], True)',
            '([("Suspended", "False")], False)',
            '([("Ready", "True")], False)',
            "([], False)",
        ]
    },
    f"{FURTHER}::test_suspended_nodes_are_neither_coming_nor_missing": {"TestSuspendedNodes": ["suspended == 1"]},
    f"{FURTHER}::test_nodes_that_the_cloud_has_deleted_stay_so_until_their_object_goes": {
        "TestCloudProviderDeletedNodes": ['("ng1-2", "ng1-3")', "range(3)", "deleted == [name]", "deleted == []"]
    },
    # requests, back-off
    f"{STATE}::test_scale_up_request_follows_added_and_removed_nodes": {
        "TestUpdateScaleUp": ["(-20, 30)", "increase=100, time=N", "increase=80, time=N", "increase=110, time=later"]
    },
    f"{STATE}::test_an_overdue_request_is_given_up": {
        "TestExpiredScaleUp": ["(4, N)", "Scale-up timed out for node group g1 after 3m0s"],
        "TestExpiredScaleUpRevertsTargetSizeHandlesError": [
            "Nodes added to group g1 failed to register within 3m0s",
            "Failed to decrease target size for group g1 after scale-up timeout: cloud provider error",
        ],
    },
    f"{FURTHER}::test_scale_up_time_is_recorded_per_group": {
        "TestNodeGroupScaleUpTime": [
            "failed to find scaleUpRequest for node group",
            "unexpected node group passed",
            "get_scale_up_time(state, requested) == N0",
        ]
    },
    f"{FURTHER}::test_failures_are_recorded_per_group_until_the_next_loop": {
        "TestScaleUpFailures": [
            '("timeout", 3, 0), ("apiCallError", 1, MINUTE)',
            '[("timeout", 2, 0)]',
            "clear_scale_up_failures(state).failures == {}",
        ]
    },
    f"{STATE}::test_back_off_through_timeouts": {
        "TestScaleUpBackoff": ["after 3m0s", "after 2m1s", "minutes=5, seconds=1"]
    },
    f"{STATE}::test_stale_back_offs": {"TestResetStaleBackoffData": ["(1, 4, 5)", "[2, 1, 0]"]},
    f"{FURTHER}::test_failure_during_backoff_keeps_its_duration": {
        "TestIncreaseExistingBackoff": ["(REFUSED, 5 * MINUTE)"]
    },
    # upcoming nodes, ranges, sizes
    f"{STATE}::test_upcoming_nodes": {
        "TestUpcomingNodes": ['{"g1": 6, "g2": 1, "g3": 2}', '{"g1": [], "g2": [], "g3": ["c"]}']
    },
    f"{FURTHER}::test_upcoming_groups_count_their_requested_nodes": {
        "TestUpcomingNodesFromUpcomingNodeGroups": [
            '("ng", {"ng": 2}, {}, False, {"ng": 2})',
            '("ng ng2", {"ng": 2, "ng2": 3}, {}, False, {"ng": 2, "ng2": 3})',
            '("", {"ng": 2}, {"ng": 2}, True, {"ng": 2})',
            '("ng", {"ng": 2, "ng2": 1}, {"ng2": 1}, True, {"ng": 2, "ng2": 1})',
            '("ng", {"ng": 2, "ng2": 1}, {}, False, {"ng": 2})',
        ]
    },
    f"{STATE}::test_recalculate": {
        "TestRecalculateStateAfterNodeGroupSizeChanged": [
            "(1, 1, 0, AcceptableRange(min_nodes=1, max_nodes=1, current_target=1), 0)",
            "(6, 5, 1, AcceptableRange(min_nodes=5, max_nodes=6, current_target=6), 1)",
            "(4, 1, 3, AcceptableRange(min_nodes=1, max_nodes=4, current_target=4), 3)",
            "(4, 4, 0, AcceptableRange(min_nodes=4, max_nodes=4, current_target=4), 0)",
        ]
    },
    f"{STATE}::test_ranges": {
        "TestUpdateAcceptableRanges": [
            "((0, 0), (0, 0), (0, 0), (0, 0), ((10, 10), (20, 20)))",
            "((3, 5), (0, 0), (0, 0), (0, 0), ((7, 10), (15, 20)))",
            "((0, 0), (2, 3), (0, 0), (0, 0), ((10, 12), (20, 23)))",
            "((0, 0), (0, 0), (2, 3), (0, 0), ((10, 10), (20, 20)))",
            "((0, 0), (0, 0), (0, 0), (2, 3), ((8, 10), (17, 20)))",
            "((3, 5), (2, 3), (1, 3), (2, 4), ((5, 12), (11, 23)))",
        ]
    },
    f"{STATE}::test_incorrect_sizes": {
        "TestUpdateIncorrectNodeGroupSizes": [
            "((10, 20), (0, 0), {}, {})",
            '{"g1": (8, 10, 0), "g2": (15, 20, 0)}',
            '{"g1": (12, 10, 0), "g2": (25, 20, 0)}',
            '{"g1": (7, 10, -60), "g2": (14, 20, -60)}',
            '{"g1": (8, 10, -60), "g2": (15, 20, -1)}',
            '((8, 15), (2, 3), {}, {"g2": (15, 20, 0)})',
        ]
    },
    f"{FURTHER}::test_machines_without_a_node_explain_a_size": {
        "TestUpdateIncorrectNodeGroupSizes": ["((2, 3), (0, 0))", '["g2"]', "(15, 20)"]
    },
    f"{FURTHER}::test_a_wrong_size_keeps_its_time_until_it_changes": {
        "TestIncorrectSize": ["[(1, 5, -5), (1, 5, -5), (2, 5, -3)]"]
    },
    f"{STATUS}::test_truncated": {
        "TestTruncateIfExceedMaxSize": [
            '("Some message", 12, "Some message")',
            '("Some long message", 16, "Some <truncated>")',
            '("msg", 3, "msg")',
            '("msg", 2, "ms")',
        ]
    },
    # core
    f"{LOOP}::test_run_once": {
        "TestStaticAutoscalerRunOnce": [
            '("ScaleUpLimitedByMaxNodesTotal", [])',
            '[("up", "g1", 1)]',
            '(["n2"], [])',
            '[("down", "g1", "n2")]',
            '[("down", "g2", "n3")]',
            '[("up", "g3", 2)]',
        ]
    },
    "test_repair.py::test_targets_that_are_too_high": {"TestRemoveFixNodeTargetSize": ["(-50, False)", "delta=-2"]},
    "test_repair.py::test_failed_instances_are_deleted": {
        "TestStaticAutoscalerInstanceCreationErrors": [
            '(CODES, {}, {}, ["g-2", "g-3", "g-4", "g-5"])',
            '(CODES, {}, {"force_delete_failed_nodes": True}, ["g-2", "g-3", "g-4", "g-5"])',
            '(CODES, {"options_error": "down"}, {}, [])',
        ],
        "TestStaticAutoscalerInstanceCreationErrorsForZeroOrMaxScaling": [
            '([None, None, "QUOTA"], {"atomic": False}, {}, ["g-0", "g-1", "g-2"])',
            '([None, None, "QUOTA"], {"atomic": True}, {}, [])',
            '(["QUOTA", "QUOTA", "QUOTA"], {"atomic": True}, {}, ["g-0", "g-1", "g-2"])',
        ],
    },
    "test_repair.py::test_failed_instances_are_deleted_without_force_as_fallback": {
        "TestStaticAutoscalerInstanceCreationErrors": ['(True, "Not implemented", [True, False], True)']
    },
    "test_repair.py::test_groups_that_go_whole": {
        "TestRemoveOldUnregisteredNodesAtomic": ["(False, 9, 10), (True, 9, 0), (True, 10, 10)"]
    },
    f"{FURTHER}::test_young_pods": {
        "TestFilterOutYoungPods": [
            '(0, 0, "p1 p2", "p1", "")',
            '(0, 5, "p1 p2", "p1 p2", "")',
            '(5, 0, "p1 p2", "", "")',
            '(5, 2, "p1 p3", "", "Failed to set pod scale up delay for")',
            '(0, 0, "p1 p4", "p1 p4", "Failed to parse pod")',
        ]
    },
    "test_options.py::test_gpu_limits": {
        "TestParseSingleGpuLimit": [
            '("gpu:1", ', '("gpu:1:10:x", ', '("gpu:x:10", ', '("gpu:1:y", ', '("gpu:-1:10", ', '("gpu:1:-10", ',
            '("gpu:10:1", ', '== GpuLimits("gpu", 1, 10)',
        ]
    },
    "test_options.py::test_drain_priorities_that_cannot_be_read": {
        "TestParseShutdownGracePeriodsAndPriorities": [
            '"", "1:2,34", "1:2, 3:4,", "1:2,3:4 ", "1:2,3:a", "1:2,3:23.2"'
        ]
    },
    "../drivers/test_health.py::test_the_first_loop_never_has_less": {
        "start-up time": ["[(10, 15, 5, 15), (15, 10, 5, 15), (10, 10, 15, 15)]"]
    },
    "../drivers/test_health.py::test_health_depends_on_the_last_activity": {
        "health check": ["(0, True, True), (-2, True, False), (-2, False, True), (2, False, True)"]
    },
    # processors
    "test_pod_lists.py::test_filter_out_schedulable": {
        "TestFilterOutSchedulable": [
            "([], [(200, None), (500, None), (800, None)], [])",
            '([], [(3000, None)], ["p1"])',
            '([], [(200, None), (500, None), (1800, None)], ["p3"])',
            '([], [(200, None), (500, 10), (1800, 20)], ["p2"])',
            '([500], [(1000, None), (300, None), (300, None)], ["p3"])',
            '([500, 1000], [(1000, None), (300, None), (300, None)], ["p1", "p3"])',
        ]
    },
    "scale_up/test_loop_gate.py::test_upstreams_table": {
        "TestFilterOutSchedulable_GracefulDegradation": [
            "(True, -_MINUTE, 0, 0, 1, ",
            "(True, timedelta(), 1, 0, 2, None)",
            "(True, 4 * _MINUTE, 5, 3, 0, ",
            "(False, -_MINUTE, 0, 3, 0, None)",
        ]
    },
    "scale_up/test_scale_up_steps.py::test_events_by_result": {
        "TestEventingScaleUpStatusProcessor": [
            '("ScaleUpNoOptionsAvailable", 2, 0, ["NotTriggerScaleUp"] * 2)',
            '("ScaleUpSuccessful", 2, 1, ["TriggeredScaleUp"])',
            '("ScaleUpError", 3, 0, [])',
            '("ScaleUpLimitedByMaxNodesTotal", 3, 0, ["NotTriggerScaleUp"] * 3)',
        ]
    },
    "scale_up/test_scale_up_steps.py::test_reasons_are_counted_over_groups_that_exist": {
        "TestReasonsMessage": ["1 also not schedulable, 1 not ready, 2 max limit reached, 2 not schedulable"]
    },
    "scale_down/test_candidates.py::test_local_delays": {"TestGetScaleDownCandidates": ["5 * MINUTE", "11 * MINUTE"]},
    "scale_down/test_candidates.py::test_the_higher_score_goes_first": {
        "TestSort": ['([[3], [4], [1], [2], [0]], "1 0 3 2 4")']
    },
    "test_balancing.py::test_upstream_table": {
        "TestBalanceSingleGroup": ['({"ng1": (1, 10)}, 1, {"ng1": 2})', '({"ng1": (1, 10)}, 4, {"ng1": 5})'],
        "TestBalanceUnderMaxSize": [
            '(_FOUR, 1, {"ng1": 2})',
            '(_FOUR, 2, {"ng1": 3})',
            '(_FOUR, 4, {"ng1": 4, "ng2": 4})',
            '(_FOUR, 5, {"ng1": 5, "ng2": 4})',
            '(_FOUR, 10, {"ng1": 6, "ng2": 6, "ng3": 6, "ng4": 6})',
        ],
        "TestBalanceHittingMaxSize": [
            '({"ng1": (1, 1)}, 1, {})',
            '({"ng1": (1, 1), "ng2": (1, 3)}, 1, {"ng2": 2})',
            '({"ng1": (1, 1), "ng2": (1, 3)}, 5, {"ng2": 3})',
            '({"ng2": (1, 3), "ng3": (3, 10)}, 4, {"ng2": 3, "ng3": 5})',
            '({"ng2": (1, 3), "ng3": (3, 10), "ng4": (5, 7)}, 9, {"ng2": 3, "ng3": 8, "ng4": 7})',
            '({"ng2": (1, 3), "ng3": (3, 10), "ng4": (5, 7)}, 900, {"ng2": 3, "ng4": 7, "ng3": 10})',
            '({"ng2": (1, 3), "ng5": (6, 3)}, 1, {"ng2": 2})',
        ],
    },
    "test_similarity.py::test_generic": {
        "TestNodesSimilarVariousRequirements": ["cpu_m=1001", "_allocatable(999)", "_allocatable(500)", "_with_gpu()"],
        "TestNodesSimilarVariousMemoryRequirements": ["memory=986", "memory=984"],
        "TestNodesSimilarVariousLargeMemoryRequirements": ["15944120Ki", "16438475Ki", "257217528Ki", "265169453Ki"],
    },
    f"{FURTHER}::test_pods_that_controllers_are_to_make": {
        "TestTargetCountInjectionPodListProcessor": [
            "replicas=5)), False, 2)",
            "replicas=5)), True, 1)",
            "completions=10)), False, 7)",
            'stateful_set("Parallel"), False, 7)',
            'stateful_set("Parallel"), True, 6)',
            'stateful_set("OrderedReady"), False, 0)',
        ],
        "TestMakeFakePods": ["copy-{i}", 's-{i}"', 'node_name == ""'],
    },
    # cloudprovider/kwok
    f"{KWOK}::test_kwok_increase_respects_the_maximum": {
        "TestIncreaseSize": ['(1, "")', '(-1, "size increase must be positive")', '(4, "size increase too large")']
    },
    f"{KWOK}::test_kwok_delete_nodes_validates_its_nodes": {
        "TestDeleteNodes": [
            '(1, 1, False, "")',
            '(0, 1, False, "min size reached, nodes will not be deleted")',
            '(1, 2, False, "size would go below min size")',
            '(1, 1, True, "is not managed by kwok")',
        ]
    },
    f"{KWOK}::test_kwok_decrease_respects_existing_nodes": {
        "TestDecreaseTargetSize": [
            '(-1, False, "", 2)',
            '(1, False, "size decrease must be negative", 3)',
            '(-2, False, "attempt to delete existing nodes", 3)',
            '(-1, True, "couldn\'t list nodes", 3)',
        ]
    },
}  # fmt: skip
"""Test here -> upstream's table (its name there, or what it is of) -> its rows as they stand in the test."""


@cache
def sources(path: Path) -> dict[str, str]:
    """Of every test: its text with its decorators, on one line."""
    text = path.read_text()
    lines, result = text.splitlines(), {}
    for each in ast.parse(text).body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name.startswith("test_"):
            first = min(part.lineno for part in (*each.decorator_list, each))
            result[each.name] = " ".join(" ".join(lines[first - 1 : each.end_lineno]).split())
    return result


@each_row(ROWS)
def test_the_test_is_there(upstream: str) -> None:
    path, _, name = ROWS[upstream].partition("::")
    assert name in sources(HERE / path)


@each_row(TABLES)
def test_the_rows_are_there(test: str) -> None:
    path, _, name = test.partition("::")
    text = sources(HERE / path)[name]
    missing = {table: [row for row in rows if row not in text] for table, rows in TABLES[test].items()}
    assert {table: rows for table, rows in missing.items() if rows} == {}
