package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/kubernetes/pkg/controller/podautoscaler"
	"k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
	"kscale.dev/oracle/harness"
)

func init() {
	harness.Register("replicas", replicas)
}

type replicasInput struct {
	Function                       string                                    `json:"function"`
	Namespace                      string                                    `json:"namespace"`
	PodSelector                    string                                    `json:"pod_selector"`
	Pods                           []*corev1.Pod                             `json:"pods"`
	PodsError                      *string                                   `json:"pods_error"`
	CurrentReplicas                int32                                     `json:"current_replicas"`
	StatusReplicas                 int32                                     `json:"status_replicas"`
	TargetUtilization              int32                                     `json:"target_utilization"`
	TargetMilli                    int64                                     `json:"target_milli"`
	Resource                       corev1.ResourceName                       `json:"resource"`
	Container                      string                                    `json:"container"`
	MetricName                     string                                    `json:"metric_name"`
	Object                         autoscalingv2.CrossVersionObjectReference `json:"object"`
	MetricSelector                 *metav1.LabelSelector                     `json:"metric_selector"`
	Metrics                        []podValue                                `json:"metrics"`
	MetricsTimestamp               time.Time                                 `json:"metrics_timestamp"`
	ObjectValueMilli               int64                                     `json:"object_value_milli"`
	ExternalValuesMilli            []int64                                   `json:"external_values_milli"`
	MetricsError                   *string                                   `json:"metrics_error"`
	ToleranceUp                    float64                                   `json:"tolerance_up"`
	ToleranceDown                  float64                                   `json:"tolerance_down"`
	CPUInitializationPeriodS       int64                                     `json:"cpu_initialization_period_s"`
	DelayOfInitialReadinessStatusS int64                                     `json:"delay_of_initial_readiness_status_s"`
	Now                            time.Time                                 `json:"now"`
	Gates                          map[string]bool                           `json:"gates"`
	Version                        string                                    `json:"kubernetes_version"`
}

type podValue struct {
	Pod        string    `json:"pod"`
	ValueMilli int64     `json:"value_milli"`
	Timestamp  time.Time `json:"timestamp"`
	WindowS    int64     `json:"window_s"`
}

type replicasOutput struct {
	Replicas    int32   `json:"replicas"`
	Utilization *int32  `json:"utilization"`
	RawMilli    int64   `json:"raw_milli"`
	Timestamp   *string `json:"timestamp"`
	Error       *string `json:"error"`
}

// fixedMetrics is a metrics client with one answer.
type fixedMetrics struct {
	input replicasInput
}

func (f fixedMetrics) err() error {
	if f.input.MetricsError == nil {
		return nil
	}
	return errors.New(*f.input.MetricsError)
}

func (f fixedMetrics) perPod() (metrics.PodMetricsInfo, time.Time, error) {
	if err := f.err(); err != nil {
		return nil, time.Time{}, err
	}
	info := metrics.PodMetricsInfo{}
	for _, each := range f.input.Metrics {
		info[each.Pod] = metrics.PodMetric{Timestamp: each.Timestamp, Window: time.Duration(each.WindowS) * time.Second, Value: each.ValueMilli}
	}
	return info, f.input.MetricsTimestamp, nil
}

func (f fixedMetrics) GetResourceMetric(context.Context, corev1.ResourceName, string, labels.Selector, string) (metrics.PodMetricsInfo, time.Time, error) {
	return f.perPod()
}

func (f fixedMetrics) GetRawMetric(string, string, labels.Selector, labels.Selector) (metrics.PodMetricsInfo, time.Time, error) {
	return f.perPod()
}

func (f fixedMetrics) GetObjectMetric(string, string, *autoscalingv2.CrossVersionObjectReference, labels.Selector) (int64, time.Time, error) {
	if err := f.err(); err != nil {
		return 0, time.Time{}, err
	}
	return f.input.ObjectValueMilli, f.input.MetricsTimestamp, nil
}

func (f fixedMetrics) GetExternalMetric(string, string, labels.Selector) ([]int64, time.Time, error) {
	if err := f.err(); err != nil {
		return nil, time.Time{}, err
	}
	return f.input.ExternalValuesMilli, f.input.MetricsTimestamp, nil
}

// tolerances builds upstream's pair. Its type is exported, its fields are not and no function builds one.
func tolerances(down, up float64) podautoscaler.Tolerances {
	var built podautoscaler.Tolerances
	*private[float64](&built, "scaleDown") = down
	*private[float64](&built, "scaleUp") = up
	return built
}

func replicas(data json.RawMessage) (any, error) {
	var in replicasInput
	if err := unmarshal(data, &in); err != nil {
		return nil, err
	}
	selector, err := labels.Parse(in.PodSelector)
	if err != nil {
		return nil, err
	}
	pods := listedPods{pods: in.Pods}
	if in.PodsError != nil {
		pods.err = errors.New(*in.PodsError)
	}
	var out replicasOutput
	err = withGates(in.Gates, func() error {
		return harness.AtVirtualTime(in.Now, func() error {
			calculator := podautoscaler.NewReplicaCalculator(
				fixedMetrics{in}, pods,
				time.Duration(in.CPUInitializationPeriodS)*time.Second,
				time.Duration(in.DelayOfInitialReadinessStatusS)*time.Second,
			)
			return calculate(in, calculator, selector, &out)
		})
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func calculate(in replicasInput, calculator *podautoscaler.ReplicaCalculator, selector labels.Selector, out *replicasOutput) error {
	ctx, limits := context.Background(), tolerances(in.ToleranceDown, in.ToleranceUp)
	var timestamp time.Time
	var err error
	switch in.Function {
	case "GetResourceReplicas":
		var utilization int32
		out.Replicas, utilization, out.RawMilli, timestamp, err = calculator.GetResourceReplicas(
			ctx, in.CurrentReplicas, in.TargetUtilization, in.Resource, limits, in.Namespace, selector, in.Container)
		out.Utilization = &utilization
	case "GetRawResourceReplicas":
		out.Replicas, out.RawMilli, timestamp, err = calculator.GetRawResourceReplicas(
			ctx, in.CurrentReplicas, in.TargetMilli, in.Resource, limits, in.Namespace, selector, in.Container)
	case "GetMetricReplicas":
		out.Replicas, out.RawMilli, timestamp, err = calculator.GetMetricReplicas(
			in.CurrentReplicas, in.TargetMilli, in.MetricName, limits, in.Namespace, selector, labels.Everything())
	case "GetObjectMetricReplicas":
		out.Replicas, out.RawMilli, timestamp, err = calculator.GetObjectMetricReplicas(
			in.CurrentReplicas, in.TargetMilli, in.MetricName, limits, in.Namespace, &in.Object, selector, labels.Everything())
	case "GetObjectPerPodMetricReplicas":
		out.Replicas, out.RawMilli, timestamp, err = calculator.GetObjectPerPodMetricReplicas(
			in.StatusReplicas, in.TargetMilli, in.MetricName, limits, in.Namespace, &in.Object, labels.Everything())
	case "GetExternalMetricReplicas":
		out.Replicas, out.RawMilli, timestamp, err = calculator.GetExternalMetricReplicas(
			in.CurrentReplicas, in.TargetMilli, in.MetricName, limits, in.Namespace, in.MetricSelector, selector)
	case "GetExternalPerPodMetricReplicas":
		out.Replicas, out.RawMilli, timestamp, err = calculator.GetExternalPerPodMetricReplicas(
			in.StatusReplicas, in.TargetMilli, in.MetricName, limits, in.Namespace, in.MetricSelector)
	default:
		return fmt.Errorf("unknown function %q", in.Function)
	}
	out.Timestamp, out.Error = timeText(timestamp), errorText(err)
	return nil
}
