package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	vpatypes "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	vpaclientv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/client/clientset/versioned/typed/autoscaling.k8s.io/v1"
	vpalisters "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/client/listers/autoscaling.k8s.io/v1"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/checkpoint"
	recommenderconfig "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/config"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/input"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/input/oom"
	recommenderlogic "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/logic"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/model"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/routines"
	controllerfetcher "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/target/controller_fetcher"
)

func init() {
	register("recommend", recommend)
}

type recommendRound struct {
	Now     time.Time                         `json:"now"`
	VPAs    []*vpatypes.VerticalPodAutoscaler `json:"vpas"`
	Pods    []*corev1.Pod                     `json:"pods"`
	Samples []usageSample                     `json:"samples"`
	Series  []usageSeries                     `json:"series"`
	OOMs    []usageSample                     `json:"ooms"`
}

type usageSample struct {
	Namespace   string    `json:"namespace"`
	Pod         string    `json:"pod"`
	Container   string    `json:"container"`
	Time        time.Time `json:"time"`
	CPUCores    *float64  `json:"cpu_cores"`
	MemoryBytes *int64    `json:"memory_bytes"`
}

type usageSeries struct {
	Namespace   string    `json:"namespace"`
	Pod         string    `json:"pod"`
	Container   string    `json:"container"`
	Start       time.Time `json:"start"`
	StepS       float64   `json:"step_s"`
	CPUCores    []float64 `json:"cpu_cores"`
	MemoryBytes []int64   `json:"memory_bytes"`
}

type recommendInput struct {
	recommendRound
	Rounds      []recommendRound                            `json:"rounds"`
	Checkpoints []*vpatypes.VerticalPodAutoscalerCheckpoint `json:"checkpoints"`
	Controllers []json.RawMessage                           `json:"controllers"`
	Options     json.RawMessage                             `json:"options"`
}

// recommenderOptions are the flags of the recommender; what is not given has upstream's default.
type recommenderOptions struct {
	RecommenderName                          *string            `json:"recommender_name"`
	MemorySaver                              bool               `json:"memory_saver"`
	VPAObjectNamespace                       string             `json:"vpa_object_namespace"`
	IgnoredVPAObjectNamespaces               []string           `json:"ignored_vpa_object_namespaces"`
	RecommendationMarginFraction             *float64           `json:"recommendation_margin_fraction"`
	PodRecommendationMinCPUMillicores        *float64           `json:"pod_recommendation_min_cpu_millicores"`
	PodRecommendationMinMemoryMB             *float64           `json:"pod_recommendation_min_memory_mb"`
	TargetCPUPercentile                      *float64           `json:"target_cpu_percentile"`
	RecommendationLowerBoundCPUPercentile    *float64           `json:"recommendation_lower_bound_cpu_percentile"`
	RecommendationUpperBoundCPUPercentile    *float64           `json:"recommendation_upper_bound_cpu_percentile"`
	ConfidenceIntervalCPUS                   *float64           `json:"confidence_interval_cpu_s"`
	TargetMemoryPercentile                   *float64           `json:"target_memory_percentile"`
	RecommendationLowerBoundMemoryPercentile *float64           `json:"recommendation_lower_bound_memory_percentile"`
	RecommendationUpperBoundMemoryPercentile *float64           `json:"recommendation_upper_bound_memory_percentile"`
	ConfidenceIntervalMemoryS                *float64           `json:"confidence_interval_memory_s"`
	HumanizeMemory                           bool               `json:"humanize_memory"`
	RoundCPUMillicores                       *int               `json:"round_cpu_millicores"`
	RoundMemoryBytes                         *int               `json:"round_memory_bytes"`
	MemoryAggregationIntervalS               *float64           `json:"memory_aggregation_interval_s"`
	MemoryAggregationIntervalCount           *int64             `json:"memory_aggregation_interval_count"`
	MemoryHistogramDecayHalfLifeS            *float64           `json:"memory_histogram_decay_half_life_s"`
	CPUHistogramDecayHalfLifeS               *float64           `json:"cpu_histogram_decay_half_life_s"`
	OOMBumpUpRatio                           *float64           `json:"oom_bump_up_ratio"`
	OOMMinBumpUpBytes                        *float64           `json:"oom_min_bump_up_bytes"`
	CPUIntegerPostProcessorEnabled           bool               `json:"cpu_integer_post_processor_enabled"`
	ContainerRecommendationMaxAllowedCPU     *resource.Quantity `json:"container_recommendation_max_allowed_cpu"`
	ContainerRecommendationMaxAllowedMemory  *resource.Quantity `json:"container_recommendation_max_allowed_memory"`
	KeepEventOrder                           bool               `json:"keep_event_order"`
	FeatureGates                             map[string]bool    `json:"feature_gates"`
}

type recommendOutput struct {
	VPAs             []vpaOutput       `json:"vpas"`
	Errors           []refusedSample   `json:"errors"`
	AggregatesAfterG []aggregateOutput `json:"aggregates_after_gc"`
}

type vpaOutput struct {
	Namespace          string                                    `json:"namespace"`
	Name               string                                    `json:"name"`
	Recommendation     *vpatypes.RecommendedPodResources         `json:"recommendation"`
	Conditions         []vpatypes.VerticalPodAutoscalerCondition `json:"conditions"`
	ObservedGeneration *int64                                    `json:"observed_generation"`
	PodCount           int                                       `json:"pod_count"`
	Selector           string                                    `json:"selector"`
	StatusWritten      bool                                      `json:"status_written"`
	Checkpoints        []checkpointOutput                        `json:"checkpoints"`
}

type checkpointOutput struct {
	Container string         `json:"container"`
	Status    map[string]any `json:"status"`
}

type refusedSample struct {
	What      string             `json:"what"`
	Namespace string             `json:"namespace"`
	Pod       string             `json:"pod"`
	Container string             `json:"container"`
	Resource  model.ResourceName `json:"resource,omitempty"`
	Time      string             `json:"time"`
	Error     string             `json:"error"`
}

type aggregateOutput struct {
	Namespace           string `json:"namespace"`
	Container           string `json:"container"`
	Labels              string `json:"labels"`
	TotalSamplesCount   int    `json:"total_samples_count"`
	IsUnderVPA          bool   `json:"is_under_vpa"`
	NeedsRecommendation bool   `json:"needs_recommendation"`
}

func recommend(data json.RawMessage) (any, error) {
	var in recommendInput
	if err := unmarshal(data, &in); err != nil {
		return nil, err
	}
	var options recommenderOptions
	if in.Options != nil {
		if err := unmarshal(in.Options, &options); err != nil {
			return nil, err
		}
	}
	rounds := in.Rounds
	if len(rounds) == 0 {
		rounds = []recommendRound{in.recommendRound}
	}
	var outs []*recommendOutput
	err := withGates(options.FeatureGates, func() error {
		return atVirtualTime(rounds[0].Now, func() (err error) {
			outs, err = runRecommender(in, options, rounds)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	if len(in.Rounds) == 0 {
		return outs[0], nil
	}
	return map[string]any{"rounds": outs}, nil
}

// vpaWorld serves VPAs and checkpoints, and keeps what is written.
type vpaWorld struct {
	vpas        []*vpatypes.VerticalPodAutoscaler
	checkpoints []*vpatypes.VerticalPodAutoscalerCheckpoint
	statuses    map[model.VpaID]vpatypes.VerticalPodAutoscalerStatus // all that were written
	written     map[model.VpaID]bool                                 // in this round
	saved       map[model.VpaID][]checkpointOutput                   // in this round
}

func runRecommender(in recommendInput, options recommenderOptions, rounds []recommendRound) ([]*recommendOutput, error) {
	stop := make(chan struct{})
	defer close(stop)
	client := &kubeClient{}
	f := newFactory(client, nil, nil)
	if err := f.addControllers(in.Controllers); err != nil {
		return nil, err
	}
	selectors, owners := fetchers(client, f, stop)
	w := &vpaWorld{checkpoints: in.Checkpoints, statuses: map[model.VpaID]vpatypes.VerticalPodAutoscalerStatus{}}
	cluster, recommender := options.build(w, f, input.ClusterStateFeederFactory{
		PodLister: podLister{f: f}, OOMObserver: noOOMs{}, VpaCheckpointClient: checkpointsClient{w: w}, VpaLister: worldVPAs{w: w},
		VpaCheckpointLister: worldCheckpoints{w: w}, SelectorFetcher: selectors, MemorySaveMode: options.MemorySaver,
		ControllerFetcher: owners, RecommenderName: orDefault(options.RecommenderName, input.DefaultRecommenderName),
		IgnoredNamespaces: options.IgnoredVPAObjectNamespaces, VpaObjectNamespace: options.VPAObjectNamespace,
	}, owners)
	feeder := recommender.GetClusterStateFeeder()
	ctx := context.Background()
	var outs []*recommendOutput
	for number, round := range rounds {
		time.Sleep(time.Until(round.Now))
		w.begin(round)
		if round.Pods != nil {
			f.pods = round.Pods
		}
		out := &recommendOutput{VPAs: []vpaOutput{}, Errors: []refusedSample{}, AggregatesAfterG: []aggregateOutput{}}
		if number == 0 {
			feeder.InitFromCheckpoints(ctx)
		}
		feeder.LoadVPAs(ctx)
		feeder.LoadPods()
		out.feed(cluster, round, options)
		feeder.DeleteRemovedPods()
		recommender.UpdateVPAs()
		recommender.MaintainCheckpoints(ctx)
		cluster.RateLimitedGarbageCollectAggregateCollectionStates(ctx, time.Now(), owners)
		out.fill(cluster, w)
		outs = append(outs, out)
	}
	return outs, nil
}

func (o recommenderOptions) build(w *vpaWorld, f *factory, feeder input.ClusterStateFeederFactory, owners controllerfetcher.ControllerFetcher) (model.ClusterState, routines.Recommender) {
	defaults := recommenderconfig.DefaultRecommenderConfig()
	duration := func(value *float64, otherwise time.Duration) time.Duration {
		if value == nil {
			return otherwise
		}
		return seconds(*value)
	}
	model.InitializeAggregationsConfig(model.NewAggregationsConfig(
		duration(o.MemoryAggregationIntervalS, defaults.MemoryAggregationInterval),
		orDefault(o.MemoryAggregationIntervalCount, defaults.MemoryAggregationIntervalCount),
		duration(o.MemoryHistogramDecayHalfLifeS, defaults.MemoryHistogramDecayHalfLife),
		duration(o.CPUHistogramDecayHalfLifeS, defaults.CpuHistogramDecayHalfLife),
		orDefault(o.OOMBumpUpRatio, defaults.OOMBumpUpRatio), orDefault(o.OOMMinBumpUpBytes, defaults.OOMMinBumpUp),
	))
	cluster := model.NewClusterState(time.Hour)
	feeder.ClusterState = cluster
	var processors []routines.RecommendationPostProcessor
	if o.CPUIntegerPostProcessorEnabled {
		processors = append(processors, &routines.IntegerCPUPostProcessor{})
	}
	maxAllowed := corev1.ResourceList{}
	if o.ContainerRecommendationMaxAllowedCPU != nil {
		maxAllowed[corev1.ResourceCPU] = *o.ContainerRecommendationMaxAllowedCPU
	}
	if o.ContainerRecommendationMaxAllowedMemory != nil {
		maxAllowed[corev1.ResourceMemory] = *o.ContainerRecommendationMaxAllowedMemory
	}
	processors = append(processors, routines.NewCappingRecommendationProcessor(maxAllowed))
	return cluster, routines.RecommenderFactory{
		ClusterState: cluster, ClusterStateFeeder: feeder.Make(), ControllerFetcher: owners,
		CheckpointWriter: checkpoint.NewCheckpointWriter(cluster, checkpointsClient{w: w}), VpaClient: vpasClient{w: w},
		PodResourceRecommender: recommenderlogic.CreatePodResourceRecommender(recommenderlogic.RecommendationConfig{
			SafetyMarginFraction:       orDefault(o.RecommendationMarginFraction, defaults.SafetyMarginFraction),
			PodMinCPUMillicores:        orDefault(o.PodRecommendationMinCPUMillicores, defaults.PodMinCPUMillicores),
			PodMinMemoryMb:             orDefault(o.PodRecommendationMinMemoryMB, defaults.PodMinMemoryMb),
			TargetCPUPercentile:        orDefault(o.TargetCPUPercentile, defaults.TargetCPUPercentile),
			LowerBoundCPUPercentile:    orDefault(o.RecommendationLowerBoundCPUPercentile, defaults.LowerBoundCPUPercentile),
			UpperBoundCPUPercentile:    orDefault(o.RecommendationUpperBoundCPUPercentile, defaults.UpperBoundCPUPercentile),
			ConfidenceIntervalCPU:      duration(o.ConfidenceIntervalCPUS, defaults.ConfidenceIntervalCPU),
			TargetMemoryPercentile:     orDefault(o.TargetMemoryPercentile, defaults.TargetMemoryPercentile),
			LowerBoundMemoryPercentile: orDefault(o.RecommendationLowerBoundMemoryPercentile, defaults.LowerBoundMemoryPercentile),
			UpperBoundMemoryPercentile: orDefault(o.RecommendationUpperBoundMemoryPercentile, defaults.UpperBoundMemoryPercentile),
			ConfidenceIntervalMemory:   duration(o.ConfidenceIntervalMemoryS, defaults.ConfidenceIntervalMemory),
		}),
		RecommendationFormat: recommenderlogic.RecommendationFormat{
			HumanizeMemory: o.HumanizeMemory, RoundCPUMillicores: orDefault(o.RoundCPUMillicores, defaults.RoundCPUMillicores),
			RoundMemoryBytes: orDefault(o.RoundMemoryBytes, defaults.RoundMemoryBytes),
		},
		RecommendationPostProcessors: processors, CheckpointsGCInterval: defaults.CheckpointsGCInterval,
		CheckpointsWriteTimeout: defaults.CheckpointsWriteTimeout, UseCheckpoints: true, UpdateWorkerCount: 1,
	}.Make()
}

// begin gives the world the VPAs of a round. A status that was written is that of a VPA that comes without one.
func (w *vpaWorld) begin(round recommendRound) {
	w.written, w.saved = map[model.VpaID]bool{}, map[model.VpaID][]checkpointOutput{}
	if round.VPAs != nil {
		w.vpas = round.VPAs
	}
	for i, vpa := range w.vpas {
		status, ok := w.statuses[model.VpaID{Namespace: vpa.Namespace, VpaName: vpa.Name}]
		if ok && reflect.DeepEqual(vpa.Status, vpatypes.VerticalPodAutoscalerStatus{}) {
			w.vpas[i] = vpa.DeepCopy()
			w.vpas[i].Status = *status.DeepCopy()
		}
	}
}

type usageEvent struct {
	sample   usageSample
	resource model.ResourceName // none for an OOM
	amount   model.ResourceAmount
}

func events(round recommendRound) []usageEvent {
	var list []usageEvent
	add := func(sample usageSample, cpu *float64, memory *int64) {
		if cpu != nil {
			list = append(list, usageEvent{sample, model.ResourceCPU, model.CPUAmountFromCores(*cpu)})
		}
		if memory != nil {
			list = append(list, usageEvent{sample, model.ResourceMemory, model.ResourceAmount(*memory)})
		}
	}
	for _, sample := range round.Samples {
		add(sample, sample.CPUCores, sample.MemoryBytes)
	}
	for _, series := range round.Series {
		for k := range max(len(series.CPUCores), len(series.MemoryBytes)) {
			sample := usageSample{Namespace: series.Namespace, Pod: series.Pod, Container: series.Container}
			sample.Time = series.Start.Add(time.Duration(k) * seconds(series.StepS))
			var cpu *float64
			var memory *int64
			if k < len(series.CPUCores) {
				cpu = &series.CPUCores[k]
			}
			if k < len(series.MemoryBytes) {
				memory = &series.MemoryBytes[k]
			}
			add(sample, cpu, memory)
		}
	}
	for _, killed := range round.OOMs {
		list = append(list, usageEvent{killed, "", model.ResourceAmount(*killed.MemoryBytes)})
	}
	return list
}

// feed adds samples and OOMs as the feeder does between loading pods and deleting those that vanished.
func (o *recommendOutput) feed(cluster model.ClusterState, round recommendRound, options recommenderOptions) {
	list := events(round)
	if !options.KeepEventOrder {
		slices.SortStableFunc(list, func(a, b usageEvent) int { return a.sample.Time.Compare(b.sample.Time) })
	}
	for _, event := range list {
		pod := model.PodID{Namespace: event.sample.Namespace, PodName: event.sample.Pod}
		container := model.ContainerID{PodID: pod, ContainerName: event.sample.Container}
		refused := refusedSample{
			Namespace: pod.Namespace, Pod: pod.PodName, Container: container.ContainerName, Resource: event.resource,
			Time: event.sample.Time.UTC().Format(time.RFC3339Nano),
		}
		var err error
		if event.resource == "" {
			refused.What = "oom"
			err = cluster.RecordOOM(container, event.sample.Time, event.amount)
		} else {
			refused.What = "sample"
			if state, ok := cluster.Pods()[pod]; ok && slices.Contains(state.InitContainers, container.ContainerName) {
				continue
			}
			err = cluster.AddSample(&model.ContainerUsageSampleWithKey{
				Container:            container,
				ContainerUsageSample: model.ContainerUsageSample{MeasureStart: event.sample.Time, Resource: event.resource, Usage: event.amount},
			})
		}
		if err != nil {
			refused.Error = err.Error()
			o.Errors = append(o.Errors, refused)
		}
	}
}

func (o *recommendOutput) fill(cluster model.ClusterState, w *vpaWorld) {
	for _, observed := range cluster.ObservedVPAs() {
		id := model.VpaID{Namespace: observed.Namespace, VpaName: observed.Name}
		vpa, ok := cluster.VPAs()[id]
		if !ok {
			continue
		}
		status := vpa.AsStatus()
		generation := *status.ObservedGeneration
		out := vpaOutput{
			Namespace: id.Namespace, Name: id.VpaName, Recommendation: status.Recommendation, Conditions: status.Conditions,
			ObservedGeneration: &generation, PodCount: vpa.PodCount, Selector: vpa.PodSelector.String(),
			StatusWritten: w.written[id], Checkpoints: w.saved[id],
		}
		slices.SortFunc(out.Checkpoints, func(a, b checkpointOutput) int { return strings.Compare(a.Container, b.Container) })
		o.VPAs = append(o.VPAs, out)
	}
	// The aggregates are private to the cluster's state: they are read by reflection.
	field := reflect.ValueOf(cluster).Elem().FieldByName("aggregateStateMap")
	aggregates := reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem()
	for entry := aggregates.MapRange(); entry.Next(); {
		key := entry.Key().Interface().(model.AggregateStateKey)
		state := entry.Value().Interface().(*model.AggregateContainerState)
		o.AggregatesAfterG = append(o.AggregatesAfterG, aggregateOutput{
			key.Namespace(), key.ContainerName(), fmt.Sprint(key.Labels()), state.TotalSamplesCount, state.IsUnderVPA, state.NeedsRecommendation(),
		})
	}
	slices.SortFunc(o.AggregatesAfterG, func(a, b aggregateOutput) int {
		return strings.Compare(a.Namespace+"\x00"+a.Container+"\x00"+a.Labels, b.Namespace+"\x00"+b.Container+"\x00"+b.Labels)
	})
}

type noOOMs struct{ oom.Observer }

func (noOOMs) GetObservedOomsChannel() chan oom.OomInfo { return nil }

type worldVPAs struct {
	vpalisters.VerticalPodAutoscalerLister
	w *vpaWorld
}

func (v worldVPAs) List(labels.Selector) ([]*vpatypes.VerticalPodAutoscaler, error) {
	return v.w.vpas, nil
}

type worldCheckpoints struct {
	vpalisters.VerticalPodAutoscalerCheckpointLister
	w *vpaWorld
}

func (c worldCheckpoints) List(labels.Selector) ([]*vpatypes.VerticalPodAutoscalerCheckpoint, error) {
	return c.w.checkpoints, nil
}

type vpasClient struct {
	vpaclientv1.VerticalPodAutoscalerInterface
	w         *vpaWorld
	namespace string
}

func (c vpasClient) VerticalPodAutoscalers(namespace string) vpaclientv1.VerticalPodAutoscalerInterface {
	c.namespace = namespace
	return c
}

// Patch stores the status of a VPA.
func (c vpasClient) Patch(_ context.Context, name string, _ types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string) (*vpatypes.VerticalPodAutoscaler, error) {
	var patches []struct {
		Value vpatypes.VerticalPodAutoscalerStatus `json:"value"`
	}
	if err := json.Unmarshal(data, &patches); err != nil {
		return nil, err
	}
	id := model.VpaID{Namespace: c.namespace, VpaName: name}
	c.w.statuses[id], c.w.written[id] = patches[0].Value, true
	for i, vpa := range c.w.vpas {
		if vpa.Namespace == c.namespace && vpa.Name == name {
			c.w.vpas[i] = vpa.DeepCopy()
			c.w.vpas[i].Status = patches[0].Value
		}
	}
	return &vpatypes.VerticalPodAutoscaler{}, nil
}

type checkpointsClient struct {
	vpaclientv1.VerticalPodAutoscalerCheckpointInterface
	w         *vpaWorld
	namespace string
}

func (c checkpointsClient) VerticalPodAutoscalerCheckpoints(namespace string) vpaclientv1.VerticalPodAutoscalerCheckpointInterface {
	c.namespace = namespace
	return c
}

func (checkpointsClient) Delete(context.Context, string, metav1.DeleteOptions) error { return nil }

// Patch finds no checkpoint, so that each is created whole.
func (checkpointsClient) Patch(_ context.Context, name string, _ types.PatchType, _ []byte, _ metav1.PatchOptions, _ ...string) (*vpatypes.VerticalPodAutoscalerCheckpoint, error) {
	return nil, fmt.Errorf("%q not found", name)
}

func (c checkpointsClient) Create(_ context.Context, created *vpatypes.VerticalPodAutoscalerCheckpoint, _ metav1.CreateOptions) (*vpatypes.VerticalPodAutoscalerCheckpoint, error) {
	data, err := json.Marshal(created.Status)
	if err != nil {
		return nil, err
	}
	var status map[string]any
	if err := unmarshal(data, &status); err != nil {
		return nil, err
	}
	for name, histogram := range map[string]vpatypes.HistogramCheckpoint{
		"cpuHistogram": created.Status.CPUHistogram, "memoryHistogram": created.Status.MemoryHistogram,
	} {
		if printed, ok := status[name].(map[string]any); ok {
			maps.Copy(printed, printedHistogram(histogram))
		}
	}
	id := model.VpaID{Namespace: c.namespace, VpaName: created.Spec.VPAObjectName}
	c.w.saved[id] = append(c.w.saved[id], checkpointOutput{created.Spec.ContainerName, status})
	return created, nil
}
