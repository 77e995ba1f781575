package main

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	vpatypes "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/updater/priority"
	vpautil "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/utils/vpa"
)

func init() {
	register("vpa-priority", vpaPriority)
}

// priorityOptions are the options of the updater that decide whether a pod is updated.
type priorityOptions struct {
	PodUpdateThreshold                               *float64        `json:"pod_update_threshold"`
	InRecommendationBoundsEvictionLifetimeThresholdS *float64        `json:"in_recommendation_bounds_eviction_lifetime_threshold_s"`
	EvictAfterOOMThresholdS                          *float64        `json:"evict_after_oom_threshold_s"`
	FeatureGates                                     map[string]bool `json:"feature_gates"`
}

func (o priorityOptions) config() priority.UpdateConfig {
	return priority.UpdateConfig{
		MinChangePriority:          orDefault(o.PodUpdateThreshold, 0.1),
		PodLifetimeUpdateThreshold: seconds(orDefault(o.InRecommendationBoundsEvictionLifetimeThresholdS, 12*3600)),
		EvictAfterOOMThreshold:     seconds(orDefault(o.EvictAfterOOMThresholdS, 600)),
	}
}

func orDefault[T any](value *T, otherwise T) T {
	if value == nil {
		return otherwise
	}
	return *value
}

type attempts map[types.UID]*vpatypes.RecommendedPodResources

type priorityInput struct {
	VPA                *vpatypes.VerticalPodAutoscaler `json:"vpa"`
	Pods               []*corev1.Pod                   `json:"pods"`
	Options            priorityOptions                 `json:"options"`
	Now                time.Time                       `json:"now"`
	LimitRanges        []*corev1.LimitRange            `json:"limit_ranges"`
	InfeasibleAttempts attempts                        `json:"infeasible_attempts"`
}

type podPriority struct {
	Name                    string                            `json:"name"`
	Accepted                bool                              `json:"accepted"`
	OutsideRecommendedRange bool                              `json:"outside_recommended_range"`
	ScaleUp                 bool                              `json:"scale_up"`
	ResourceDiff            float64                           `json:"resource_diff"`
	ResourceDiffHex         string                            `json:"resource_diff_hex"`
	ProcessedRecommendation *vpatypes.RecommendedPodResources `json:"processed_recommendation"`
	Error                   *string                           `json:"error"`
}

type priorityOutput struct {
	Pods          []podPriority     `json:"pods"`
	PriorityOrder []string          `json:"priority_order"`
	UpdateOrder   []string          `json:"update_order"`
	Decisions     map[string]string `json:"decisions"`
}

// admitAll admits every pod.
type admitAll struct{ priority.PodEvictionAdmission }

func (admitAll) Admit(*corev1.Pod, *vpatypes.RecommendedPodResources) bool { return true }

func vpaPriority(data json.RawMessage) (any, error) {
	var in priorityInput
	if err := unmarshal(data, &in); err != nil {
		return nil, err
	}
	var out priorityOutput
	err := withGates(in.Options.FeatureGates, func() error {
		return atVirtualTime(in.Now, func() error { return out.fill(in) })
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (o *priorityOutput) fill(in priorityInput) error {
	limits, err := newLimits(in.LimitRanges)
	if err != nil {
		return err
	}
	processor := vpautil.NewCappingRecommendationProcessor(limits)
	newCalculator := func() priority.UpdatePriorityCalculator {
		return priority.NewUpdatePriorityCalculator(in.VPA, in.Options.config(), processor, priority.NewProcessor())
	}
	all := newCalculator()
	o.Pods, o.Decisions = []podPriority{}, map[string]string{}
	for _, pod := range in.Pods {
		out := podPriority{Name: pod.Name, ResourceDiffHex: hex(0)}
		recommendation, _, err := processor.Apply(in.VPA, pod)
		out.Error = errorText(err)
		if err == nil {
			out.ProcessedRecommendation = recommendation
			found := priority.NewProcessor().GetUpdatePriority(pod, in.VPA, recommendation)
			out.OutsideRecommendedRange, out.ScaleUp = found.OutsideRecommendedRange, found.ScaleUp
			out.ResourceDiff, out.ResourceDiffHex = found.ResourceDiff, hex(found.ResourceDiff)
		}
		alone := newCalculator()
		alone.AddPod(pod, time.Now(), in.InfeasibleAttempts)
		out.Accepted = len(alone.GetSortedPods(admitAll{})) > 0
		all.AddPod(pod, time.Now(), in.InfeasibleAttempts)
		o.Decisions[pod.Name] = "not_selected"
		if out.Accepted {
			o.Decisions[pod.Name] = "refused_by_eviction_requirements"
		}
		o.Pods = append(o.Pods, out)
	}
	o.PriorityOrder = podNames(all.GetSortedPods(admitAll{}))
	admission := priority.NewScalingDirectionPodEvictionAdmission()
	admission.LoopInit(in.Pods, map[*vpatypes.VerticalPodAutoscaler][]*corev1.Pod{in.VPA: in.Pods})
	o.UpdateOrder = podNames(all.GetSortedPods(admission))
	for _, name := range o.UpdateOrder {
		o.Decisions[name] = "update"
	}
	return nil
}

func podNames(pods []*corev1.Pod) []string {
	names := []string{}
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	return names
}
