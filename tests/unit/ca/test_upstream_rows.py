"""Which test here holds the rows of which of upstream's tests of the loop (``*_test.go``): none is forgotten."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

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
        f"{LOOP}::test_what_an_earlier_process_knew_by_its_taints"
    ),
    "TestStaticAutoscalerInstanceCreationErrors": "test_repair.py::test_instances_that_could_not_be_made",
    "TestStaticAutoscalerInstanceCreationErrorsForZeroOrMaxScaling": (
        "test_repair.py::test_instances_that_could_not_be_made"
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
    "TestNodeGroupScaleUpTime": f"{STATE}::test_a_request_follows_what_is_added_and_taken",
    "TestUpcomingNodes": f"{STATE}::test_upcoming_nodes",
    "TestTaintBasedNodeDeletion": f"{STATE}::test_nodes_without_machine",
    "TestIncorrectSize": f"{STATE}::test_incorrect_sizes",
    "TestUnregisteredNodes": f"{STATE}::test_instances_without_node",
    "TestCloudProviderDeletedNodes": f"{STATE}::test_nodes_without_machine",
    "TestScaleUpBackoff": f"{STATE}::test_back_off_through_timeouts",
    "TestGetClusterSize": f"{STATE}::test_size_of_the_cluster",
    "TestUpdateScaleUp": f"{STATE}::test_a_request_follows_what_is_added_and_taken",
    "TestUpdateAcceptableRanges": f"{STATE}::test_ranges",
    "TestUpdateIncorrectNodeGroupSizes": f"{STATE}::test_incorrect_sizes",
    "TestTruncateIfExceedMaxSize": f"{STATUS}::test_truncated",
    "TestUpcomingNodesFromUpcomingNodeGroups": f"{STATE}::test_groups_that_are_being_created",
    "TestHandleInstanceCreationErrors": f"{STATE}::test_instances_that_could_not_be_made",
    "TestFailedScaleUpWithDra": "test_metrics.py::test_drivers",
    "TestFailedScaleUpWithDraAndGpu": "test_metrics.py::test_gpu_labels",
    "TestGetUpcomingNodesSkipsWithoutScaleUpRequestOrBackoff": f"{STATE}::test_no_request_no_upcoming_nodes",
    "TestSuspendedNodes": f"{STATE}::test_suspended_nodes",
    "TestIsSuspendedNode": f"{STATE}::test_suspended_nodes",
    "TestExpiredScaleUpRevertsTargetSize": f"{STATE}::test_an_overdue_request_is_given_up",
    "TestExpiredScaleUpRevertsTargetSizeHandlesError": (
        "static_autoscaler/test_run_once.py::test_a_request_that_cannot_be_taken_back_is_told"
    ),
    "TestExpiredScaleUpRevertsPartialIncrease": (
        f"{STATE}::test_the_whole_request_is_taken_back_even_if_some_nodes_came"
    ),
    # clusterstate/utils, utils/backoff
    "TestWriteStatusConfigMap": f"{STATUS}::test_the_config_map_is_made_or_changed",
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
    "TestEnforceInjectedPodsLimitProcessor": (
        "test_proactive.py::test_the_limit_takes_the_first_made_up_pods_and_no_others"
    ),
    "TestDesiredReplicasFromJob": "test_proactive.py::test_desired",
    "TestTargetCountInjectionPodListProcessor": "test_proactive.py::test_missing",
    "TestEventingScaleUpStatusProcessor": "scale_up/test_around_the_estimate.py::test_events_by_result",
    "TestReasonsMessage": "scale_up/test_around_the_estimate.py::test_reasons_are_counted_over_groups_that_exist",
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
    "TestResourceQuotaAllocator": "test_buffer_quotas.py::test_buffers_share_what_is_left",
    "TestPodMatchesQuotaScope": "test_buffer_quotas.py::test_scopes",
    "TestDefaultingResolver": f"{CONTROLLER}::test_requests_of_a_pod_as_a_whole",
    "TestDryRunResolver": f"{CONTROLLER}::test_a_template_is_kept_for_a_buffer",
    "TestPodTemplateGenerationFilter": f"{BUFFERS}::test_which_buffers_count",
    "TestStrategyFilter": f"{CONTROLLER}::test_buffers_of_other_strategies_are_left_alone",
    "TestPodTemplateBufferTranslator": f"{CONTROLLER}::test_what_stands_against_a_buffer",
    "TestPodTemplateBufferTranslator_ManagedPodTemplate": f"{CONTROLLER}::test_a_template_that_changes",
    "TestGetPodTemplateSpecFromPod": f"{CONTROLLER}::test_a_template_is_kept_for_a_buffer",
    "TestGetBufferNumberOfPods": f"{BUFFERS}::test_replicas",
    "TestScalableObjectsTranslator": f"{CONTROLLER}::test_the_newest_pod_of_a_workload",
    # provisioningrequest, processors/provreq
    "TestProvisioningRequestPodsInjector": f"{REQUESTS}::test_the_next_request",
    "TestProvisioningRequestPodsFilter": f"{REQUESTS}::test_consumers",
    "TestRefresh": f"{REQUESTS}::test_upkeep",
    "TestDeleteOldProvReqs": f"{REQUESTS}::test_old_requests_are_deleted_whatever_their_condition_says",
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


@cache
def functions_in(path: Path) -> frozenset[str]:
    found = ast.parse(path.read_text()).body
    return frozenset(each.name for each in found if isinstance(each, ast.FunctionDef) and each.name.startswith("test_"))


@pytest.mark.parametrize("upstream", ROWS)
def test_the_test_is_there(upstream: str) -> None:
    path, _, name = ROWS[upstream].partition("::")
    assert name in functions_in(HERE / path)
