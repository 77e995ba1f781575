package main

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/admission-controller/resource/pod/recommendation"
	vpatypes "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/routines"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/utils/limitrange"
	vpautil "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/utils/vpa"
)

func init() {
	register("limit-range", limitRange)
}

type limitRangeInput struct {
	Function         string                            `json:"function"`
	Namespace        string                            `json:"namespace"`
	LimitRanges      []*corev1.LimitRange              `json:"limit_ranges"`
	Resource         corev1.ResourceName               `json:"resource"`
	Limits           corev1.ResourceList               `json:"limits"`
	Requests         corev1.ResourceList               `json:"requests"`
	Recommended      corev1.ResourceList               `json:"recommended"`
	DefaultLimits    corev1.ResourceList               `json:"default_limits"`
	OriginalRequest  *resource.Quantity                `json:"original_request"`
	OriginalLimit    *resource.Quantity                `json:"original_limit"`
	Boundary         *resource.Quantity                `json:"boundary"`
	DefaultLimit     *resource.Quantity                `json:"default_limit"`
	Recommendation   *vpatypes.RecommendedPodResources `json:"recommendation"`
	ResourcePolicy   *vpatypes.PodResourcePolicy       `json:"resource_policy"`
	GlobalMaxAllowed corev1.ResourceList               `json:"global_max_allowed"`
	Pod              *corev1.Pod                       `json:"pod"`
	VPA              *vpatypes.VerticalPodAutoscaler   `json:"vpa"`
	AddAll           bool                              `json:"add_all"`
}

// limitRange answers all functions but "scale": upstream exports no function for it, and reaches it only through the others.
func limitRange(data json.RawMessage) (any, error) {
	var in limitRangeInput
	if err := unmarshal(data, &in); err != nil {
		return nil, err
	}
	calculator, err := newLimits(in.LimitRanges)
	if err != nil {
		return nil, err
	}
	switch in.Function {
	case "effective":
		container, err := calculator.GetContainerLimitRangeItem(in.Namespace)
		if err != nil {
			return nil, err
		}
		pod, err := calculator.GetPodLimitRangeItem(in.Namespace)
		if err != nil {
			return nil, err
		}
		return map[string]any{"container": container, "pod": pod}, nil
	case "proportional_limits":
		limits, notes := vpautil.GetProportionalLimit(in.Limits, in.Requests, in.Recommended, in.DefaultLimits)
		return map[string]any{"limits": limits, "notes": notes}, nil
	case "boundary_request":
		value := vpautil.GetBoundaryRequest(
			in.Resource, orZero(in.OriginalRequest), orZero(in.OriginalLimit), orZero(in.Boundary), orZero(in.DefaultLimit))
		return map[string]any{"value": value}, nil
	case "apply_policy":
		vpa := &vpatypes.VerticalPodAutoscaler{Spec: vpatypes.VerticalPodAutoscalerSpec{ResourcePolicy: in.ResourcePolicy}}
		processed := routines.NewCappingRecommendationProcessor(in.GlobalMaxAllowed).Process(vpa, in.Recommendation)
		return map[string]any{"recommendation": processed, "error": nil}, nil
	case "capping":
		recommendation, notes, err := vpautil.NewCappingRecommendationProcessor(calculator).Apply(in.VPA, in.Pod)
		return map[string]any{"recommendation": recommendation, "notes": sortedNotes(notes), "error": errorText(err)}, nil
	case "containers_resources":
		return containersResources(in, calculator)
	}
	return nil, fmt.Errorf("upstream exports nothing for function %q", in.Function)
}

func containersResources(in limitRangeInput, calculator limitrange.LimitRangeCalculator) (any, error) {
	var containers []vpautil.ContainerResources
	var notes vpautil.ContainerToAnnotationsMap
	var err error
	if in.AddAll {
		item, failure := calculator.GetContainerLimitRangeItem(in.Pod.Namespace)
		if failure != nil {
			return nil, failure
		}
		if in.Recommendation == nil {
			in.Recommendation = &vpatypes.RecommendedPodResources{}
		}
		notes = vpautil.ContainerToAnnotationsMap{}
		containers = recommendation.GetContainersResources(in.Pod, in.ResourcePolicy, *in.Recommendation, item, true, notes)
	} else {
		provider := recommendation.NewProvider(calculator, vpautil.NewCappingRecommendationProcessor(calculator))
		containers, notes, err = provider.GetContainersResourcesForPod(in.Pod, in.VPA)
	}
	type containerOutput struct {
		Requests corev1.ResourceList `json:"requests"`
		Limits   corev1.ResourceList `json:"limits"`
	}
	out := []containerOutput{}
	for _, each := range containers {
		out = append(out, containerOutput{each.Requests, each.Limits})
	}
	return map[string]any{"containers": out, "notes": sortedNotes(notes), "error": errorText(err)}, nil
}

func orZero(quantity *resource.Quantity) *resource.Quantity {
	if quantity == nil {
		return &resource.Quantity{}
	}
	return quantity
}

func newLimits(limitRanges []*corev1.LimitRange) (limitrange.LimitRangeCalculator, error) {
	return limitrange.NewLimitsRangeCalculator(newFactory(nil, nil, limitRanges))
}
