package main

// Whole reconciles of the exported controller: its queue, its listers and its clients are ours, its clock is virtual.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	autoscalingclient "k8s.io/client-go/kubernetes/typed/autoscaling/v2"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	autoscalinglisters "k8s.io/client-go/listers/autoscaling/v2"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/restmapper"
	scaleclient "k8s.io/client-go/scale"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/podautoscaler"
	"k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
	"k8s.io/kubernetes/pkg/controller/podautoscaler/monitor"
	custommetrics "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
	externalmetrics "k8s.io/metrics/pkg/apis/external_metrics/v1beta1"
	resourcemetrics "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	resourceclient "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"
	customclient "k8s.io/metrics/pkg/client/custom_metrics"
	externalclient "k8s.io/metrics/pkg/client/external_metrics"
	"kscale.dev/oracle/harness"
)

func init() {
	harness.Register("hpa-reconcile", hpaReconcile)
}

type reconcileInput struct {
	HPA       json.RawMessage  `json:"hpa"`
	Options   reconcileOptions `json:"options"`
	Gates     map[string]bool  `json:"gates"`
	Version   string           `json:"kubernetes_version"`
	State     *histories       `json:"state"`
	OtherHPAs []otherHPA       `json:"other_hpas"`
	Steps     []reconcileStep  `json:"steps"`
}

type reconcileOptions struct {
	Tolerance                float64 `json:"tolerance"`
	DownscaleStabilizationS  int64   `json:"downscale_stabilization_s"`
	CPUInitializationPeriodS int64   `json:"cpu_initialization_period_s"`
	InitialReadinessDelayS   int64   `json:"initial_readiness_delay_s"`
}

type histories struct {
	Recommendations []recommendation `json:"recommendations"`
	ScaleUpEvents   []scaleEvent     `json:"scale_up_events"`
	ScaleDownEvents []scaleEvent     `json:"scale_down_events"`
}

type recommendation struct {
	Replicas int32     `json:"replicas"`
	Time     time.Time `json:"time"`
}

type scaleEvent struct {
	Change   int32     `json:"change"`
	Time     time.Time `json:"time"`
	Outdated bool      `json:"outdated"`
}

type otherHPA struct {
	Namespace string  `json:"namespace"`
	Name      string  `json:"name"`
	Selector  *string `json:"selector"`
}

type reconcileStep struct {
	Now                     time.Time       `json:"now"`
	HPASpec                 json.RawMessage `json:"hpa_spec"`
	HPADeleted              bool            `json:"hpa_deleted"`
	InformerResourceVersion *string         `json:"informer_resource_version"`
	Scale                   scaleInput      `json:"scale"`
	Pods                    []*corev1.Pod   `json:"pods"`
	Metrics                 metricsInput    `json:"metrics"`
	Errors                  errorsInput     `json:"errors"`
	OtherHPAs               *[]otherHPA     `json:"other_hpas"`
}

type scaleInput struct {
	SpecReplicas   int32  `json:"spec_replicas"`
	StatusReplicas int32  `json:"status_replicas"`
	Selector       string `json:"selector"`
}

type metricsInput struct {
	Resource resourcemetrics.PodMetricsList                     `json:"resource"`
	Pods     map[string]custommetrics.MetricValueList           `json:"pods"`
	Object   map[string]custommetrics.MetricValue               `json:"object"`
	External map[string]externalmetrics.ExternalMetricValueList `json:"external"`
	Errors   map[string]string                                  `json:"errors"`
}

type errorsInput struct {
	ScaleGet     *apiError   `json:"scale_get"`
	ScaleUpdate  []*apiError `json:"scale_update"`
	ScaleReget   *apiError   `json:"scale_reget"`
	StatusUpdate *apiError   `json:"status_update"`
	Pods         *string     `json:"pods"`
}

type apiError struct {
	Reason  metav1.StatusReason `json:"reason"`
	Message string              `json:"message"`
}

func (e *apiError) err() error {
	if e == nil {
		return nil
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Reason: e.Reason, Message: e.Message}}
}

type reconcileOutput struct {
	Steps []*stepOutput `json:"steps"`
}

type stepOutput struct {
	DesiredReplicas      int32             `json:"desired_replicas"`
	CurrentReplicas      *int32            `json:"current_replicas"`
	LastScaleTime        *string           `json:"last_scale_time"`
	ObservedGeneration   *int64            `json:"observed_generation"`
	Conditions           []conditionOutput `json:"conditions"`
	CurrentMetrics       any               `json:"current_metrics"`
	StatusWritten        bool              `json:"status_written"`
	Rescaled             bool              `json:"rescaled"`
	ScaleUpdate          *int32            `json:"scale_update"`
	ScaleUpdateAttempts  int               `json:"scale_update_attempts"`
	ScaleResource        string            `json:"scale_resource"`
	Events               []eventOutput     `json:"events"`
	Error                *string           `json:"error"`
	Action               string            `json:"action"`
	ErrorClass           string            `json:"error_class"`
	MetricResults        []metricResult    `json:"metric_results"`
	GaugeDesiredReplicas *int32            `json:"gauge_desired_replicas"`
	MetricCalls          []string          `json:"metric_calls"`
	State                histories         `json:"state"`
}

type conditionOutput struct {
	Type               string  `json:"type"`
	Status             string  `json:"status"`
	Reason             string  `json:"reason"`
	Message            string  `json:"message"`
	LastTransitionTime *string `json:"last_transition_time"`
}

type eventOutput struct {
	Type    string `json:"type"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

type metricResult struct {
	Type   string `json:"type"`
	Action string `json:"action"`
	Error  string `json:"error"`
}

// restMapper knows the kinds of the recorded cases.
var restMapper = restmapper.NewDiscoveryRESTMapper([]*restmapper.APIGroupResources{
	servedGroup("", "Pod", "ReplicationController"),
	servedGroup("apps", "Deployment", "ReplicaSet", "StatefulSet"),
	servedGroup("example.io", "Widget"),
})

func servedGroup(group string, kinds ...string) *restmapper.APIGroupResources {
	version := metav1.GroupVersionForDiscovery{Version: "v1", GroupVersion: schema.GroupVersion{Group: group, Version: "v1"}.String()}
	served := &restmapper.APIGroupResources{
		Group: metav1.APIGroup{
			Name: group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version,
		},
		VersionedResources: map[string][]metav1.APIResource{},
	}
	for _, kind := range kinds {
		served.VersionedResources["v1"] = append(served.VersionedResources["v1"],
			metav1.APIResource{Name: strings.ToLower(kind) + "s", Kind: kind, Namespaced: true})
	}
	return served
}

// hpaWorld is everything around one controller: informers, clients, events, metrics.
type hpaWorld struct {
	step       *reconcileStep
	out        *stepOutput
	hpa        *autoscalingv2.HorizontalPodAutoscaler // as stored; nil while deleted
	version    int64
	handlers   cache.ResourceEventHandler
	controller *podautoscaler.HorizontalController
	others     map[string]*autoscalingv2.HorizontalPodAutoscaler
	selectors  map[string]string // of the other HPAs, by key; missing = not reconciled yet
	selector   string            // of the HPA itself, from its last reconcile that read one
	gates      map[string]bool
	// processing is the key of another HPA that is being brought into the state that the input describes.
	processing string
	// observed: the reconcile of this step has ended.
	observed bool
	// taken: the worker has looked the object up, or refused to.
	taken bool
	// checked: the reconcile of this step has looked for pods that other HPAs select, too. A text about them is new then.
	checked bool
}

// retries is longer than upstream waits in all between the attempts of one write of the scale.
const retries = 100 * time.Millisecond

func hpaReconcile(data json.RawMessage) (any, error) {
	var in reconcileInput
	if err := unmarshal(data, &in); err != nil {
		return nil, err
	}
	if len(in.Steps) == 0 {
		return nil, errors.New("no steps")
	}
	stored, err := storedHPA(in.HPA)
	if err != nil {
		return nil, err
	}
	gates := gatesOf(in.Gates, in.Version, "HPAScaleToZero", "HPAGeneration", "HPAOptimizedSelectorStore")
	var out reconcileOutput
	err = withGates(gates, func() error {
		// The controller starts a moment before the first step: its start may take virtual time.
		return harness.AtVirtualTime(in.Steps[0].Now.Add(-time.Second), func() error {
			return runSteps(in, stored, &out)
		})
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func runSteps(in reconcileInput, stored *autoscalingv2.HorizontalPodAutoscaler, out *reconcileOutput) error {
	w := &hpaWorld{
		version: 10,
		others:  map[string]*autoscalingv2.HorizontalPodAutoscaler{}, selectors: map[string]string{},
		step: &reconcileStep{}, out: &stepOutput{},
	}
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{w.handleError}
	defer func() { utilruntime.ErrorHandlers = handlers }()
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.New(eventLog{w: w})))
	defer synctest.Wait()
	defer cancel()
	const never = 200 * 365 * 24 * time.Hour
	w.controller = podautoscaler.NewHorizontalController(
		ctx, noEvents{}, scales{w: w}, hpas{w: w}, restMapper,
		metrics.NewRESTMetricsClient(resourceAPI{w: w}, customAPI{w: w}, externalAPI{w: w}),
		hpaInformer{w: w}, podInformer{w: w},
		never, time.Duration(in.Options.DownscaleStabilizationS)*time.Second, in.Options.Tolerance,
		time.Duration(in.Options.CPUInitializationPeriodS)*time.Second,
		time.Duration(in.Options.InitialReadinessDelayS)*time.Second,
	)
	*private[monitor.Monitor](w.controller, "monitor") = observations{w: w}
	go w.controller.Run(ctx, 1)
	synctest.Wait()

	key := cache.ObjectName{Namespace: stored.Namespace, Name: stored.Name}.String()
	create := func() {
		w.hpa = stored.DeepCopy()
		w.hpa.ResourceVersion = strconv.FormatInt(w.version, 10)
	}
	create()
	if in.State != nil {
		setHistories(w.controller, key, *in.State)
	}
	others := in.OtherHPAs
	for i := range in.Steps {
		step := &in.Steps[i]
		time.Sleep(time.Until(step.Now))
		if step.HPASpec != nil {
			if err := w.replaceSpec(step.HPASpec); err != nil {
				return err
			}
		}
		if step.OtherHPAs != nil {
			others = *step.OtherHPAs
		}
		w.register(others)
		w.step, w.observed, w.checked = step, false, false
		w.out = &stepOutput{Events: []eventOutput{}, MetricResults: []metricResult{}, MetricCalls: []string{}, Action: "none", ErrorClass: "none"}
		status := &w.hpa.Status
		if step.HPADeleted {
			deleted := w.hpa
			w.hpa = nil
			w.handlers.OnDelete(deleted)
			w.process(deleted)
			w.handlers.OnDelete(deleted)
			status = &autoscalingv2.HorizontalPodAutoscalerStatus{}
			create()
			w.hpa.Status = *status
		} else {
			w.process(w.hpa)
			if !w.observed && w.out.ScaleUpdateAttempts > 0 {
				time.Sleep(retries)
				synctest.Wait()
			}
			status = &w.hpa.Status
		}
		w.out.setStatus(status)
		w.out.State = getHistories(w.controller, key)
		out.Steps = append(out.Steps, w.out)
	}
	return nil
}

// process lets the worker take the key of an HPA. From 1.37 on a new object is taken at once; before, it waits for one
// period, which here never ends.
func (w *hpaWorld) process(hpa *autoscalingv2.HorizontalPodAutoscaler) {
	w.taken = false
	w.handlers.OnAdd(hpa, false)
	synctest.Wait()
	if !w.taken {
		queue := *private[workqueue.TypedRateLimitingInterface[string]](w.controller, "queue")
		queue.Add(cache.ObjectName{Namespace: hpa.Namespace, Name: hpa.Name}.String())
		synctest.Wait()
	}
}

// replaceSpec stores a new spec as an API server does.
func (w *hpaWorld) replaceSpec(spec json.RawMessage) error {
	edited := w.hpa.DeepCopy()
	edited.Spec = autoscalingv2.HorizontalPodAutoscalerSpec{}
	if err := unmarshal(spec, &edited.Spec); err != nil {
		return err
	}
	w.version++
	edited.Generation++
	stored, err := w.stored(edited)
	if err != nil {
		return err
	}
	w.hpa = stored
	return nil
}

func (w *hpaWorld) stored(hpa *autoscalingv2.HorizontalPodAutoscaler) (*autoscalingv2.HorizontalPodAutoscaler, error) {
	hpa = hpa.DeepCopy()
	hpa.APIVersion, hpa.Kind = "autoscaling/v2", "HorizontalPodAutoscaler"
	hpa.ResourceVersion = strconv.FormatInt(w.version, 10)
	data, err := json.Marshal(hpa)
	if err != nil {
		return nil, err
	}
	return storedHPA(data)
}

// register brings the store of selectors into the state of the input: an HPA with a selector goes through a reconcile that
// reads the selector from its scale, one without is known and was not reconciled.
func (w *hpaWorld) register(others []otherHPA) {
	wanted := map[string]*string{}
	for _, other := range others {
		wanted[other.Namespace+"/"+other.Name] = other.Selector
	}
	w.step, w.out = &reconcileStep{}, &stepOutput{}
	for key, other := range w.others {
		selector, ok := wanted[key]
		current, reconciled := w.selectors[key]
		if !ok || (selector != nil) != reconciled || (selector != nil && *selector != current) {
			w.handlers.OnDelete(other)
			delete(w.others, key)
			delete(w.selectors, key)
		}
	}
	for _, other := range others {
		key := other.Namespace + "/" + other.Name
		if _, ok := w.others[key]; ok {
			continue
		}
		hpa := &autoscalingv2.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Namespace: other.Namespace, Name: other.Name},
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
				MaxReplicas:    1,
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: other.Name},
			},
		}
		w.others[key] = hpa
		if other.Selector != nil {
			w.selectors[key] = *other.Selector
		}
		w.processing = key
		w.process(hpa)
		w.processing = ""
	}
}

// nameAmbiguous replaces the HPAs that upstream names in the text of an ambiguous selector. It takes any two in the order
// of a Go map (all of them, with the older store); the canonical ones are the first by namespace and name.
func (w *hpaWorld) nameAmbiguous(text string) string {
	const before, after = " are controlled by more than one HPA (e.g. [", "])"

	head, rest, ok := strings.Cut(text, before)
	if !ok {
		return text
	}
	names, tail, ok := strings.Cut(rest, after)
	if !ok {
		return text
	}
	parsed, err := labels.Parse(w.step.Scale.Selector)
	if err != nil {
		return text
	}
	own := w.hpa.Namespace + "/" + w.hpa.Name
	selectors := map[string]labels.Selector{own: parsed}
	for key, selector := range w.selectors {
		if namespace, _, _ := strings.Cut(key, "/"); namespace == w.hpa.Namespace && key != own {
			if each, err := labels.Parse(selector); err == nil {
				selectors[key] = each
			}
		}
	}
	pods, _ := listedPods{pods: w.step.Pods, namespace: w.hpa.Namespace}.List(parsed)
	var matches []string
	for key, selector := range selectors {
		if slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return selector.Matches(labels.Set(pod.Labels)) }) {
			matches = append(matches, key)
		}
	}
	slices.Sort(matches)
	if count := len(strings.Fields(names)); len(matches) > count {
		matches = matches[:count]
	}
	return head + before + strings.Join(matches, " ") + after + tail
}

func (o *stepOutput) setStatus(status *autoscalingv2.HorizontalPodAutoscalerStatus) {
	o.DesiredReplicas, o.CurrentReplicas = status.DesiredReplicas, &status.CurrentReplicas
	o.LastScaleTime, o.ObservedGeneration = metaTimeText(status.LastScaleTime), status.ObservedGeneration
	o.Conditions = []conditionOutput{}
	for _, each := range status.Conditions {
		o.Conditions = append(o.Conditions, conditionOutput{
			string(each.Type), string(each.Status), each.Reason, each.Message, metaTimeText(&each.LastTransitionTime)})
	}
	if len(status.CurrentMetrics) > 0 {
		o.CurrentMetrics = status.CurrentMetrics
	}
}

// handleError is told the errors that upstream only logs. The one of the worker is the result of the sync.
func (w *hpaWorld) handleError(_ context.Context, err error, _ string, _ ...interface{}) {
	w.taken = true
	if err == nil || w.processing != "" {
		return
	}
	pcs := make([]uintptr, 16)
	frames := goruntime.CallersFrames(pcs[:goruntime.Callers(2, pcs)])
	for {
		frame, more := frames.Next()
		if strings.HasSuffix(frame.Function, ".processNextWorkItem") {
			text := w.nameAmbiguous(err.Error())
			w.out.Error = &text
			return
		}
		if !more || strings.HasSuffix(frame.Function, ".reconcileAutoscaler") {
			return
		}
	}
}

// The histories are private to the controller: they are read and set by reflection.

func setHistories(controller *podautoscaler.HorizontalController, key string, state histories) {
	recommendations := privateHistory(controller, "recommendations", key)
	recommendations.set(len(state.Recommendations), func(i int, slot historySlot) {
		slot.set(state.Recommendations[i].Replicas, state.Recommendations[i].Time, false)
	})
	for name, events := range map[string][]scaleEvent{"scaleUpEvents": state.ScaleUpEvents, "scaleDownEvents": state.ScaleDownEvents} {
		privateHistory(controller, name, key).set(len(events), func(i int, slot historySlot) {
			slot.set(events[i].Change, events[i].Time, events[i].Outdated)
		})
	}
}

func getHistories(controller *podautoscaler.HorizontalController, key string) histories {
	state := histories{Recommendations: []recommendation{}, ScaleUpEvents: []scaleEvent{}, ScaleDownEvents: []scaleEvent{}}
	privateHistory(controller, "recommendations", key).each(func(slot historySlot) {
		replicas, at, _ := slot.get()
		state.Recommendations = append(state.Recommendations, recommendation{replicas, at})
	})
	for name, into := range map[string]*[]scaleEvent{"scaleUpEvents": &state.ScaleUpEvents, "scaleDownEvents": &state.ScaleDownEvents} {
		privateHistory(controller, name, key).each(func(slot historySlot) {
			change, at, outdated := slot.get()
			*into = append(*into, scaleEvent{change, at, outdated})
		})
	}
	return state
}

// observations is the monitor of the controller.
type observations struct{ w *hpaWorld }

func (o observations) ObserveReconciliationResult(action monitor.ActionLabel, err monitor.ErrorLabel, _ time.Duration) {
	o.w.observed = true
	o.w.out.Action, o.w.out.ErrorClass = string(action), string(err)
}

func (o observations) ObserveMetricComputationResult(action monitor.ActionLabel, err monitor.ErrorLabel, _ time.Duration, metricType autoscalingv2.MetricSourceType) {
	o.w.out.MetricResults = append(o.w.out.MetricResults, metricResult{string(metricType), string(action), string(err)})
}

func (o observations) ObserveDesiredReplicas(_, _ string, desiredReplicas int32) {
	o.w.out.GaugeDesiredReplicas = &desiredReplicas
}

func (observations) ObserveHPAAddition()                   {}
func (observations) ObserveHPADeletion()                   {}
func (observations) ObserveHPARequeueSkips(string, string) {}

// eventLog reads the events from the structured log of the event broadcaster: there they are neither aggregated nor limited.
type eventLog struct{ w *hpaWorld }

func (eventLog) Init(logr.RuntimeInfo)            {}
func (eventLog) Enabled(level int) bool           { return level <= 3 }
func (eventLog) Error(error, string, ...any)      {}
func (l eventLog) WithValues(...any) logr.LogSink { return l }
func (l eventLog) WithName(string) logr.LogSink   { return l }
func (l eventLog) Info(_ int, message string, keysAndValues ...any) {
	if message != "Event occurred" || l.w.processing != "" {
		return
	}
	var event eventOutput
	for i := 0; i+1 < len(keysAndValues); i += 2 {
		text, _ := keysAndValues[i+1].(string)
		switch keysAndValues[i] {
		case "type":
			event.Type = text
		case "reason":
			event.Reason = text
		case "message":
			event.Message = text
		}
	}
	event.Message = l.w.nameAmbiguous(event.Message)
	l.w.out.Events = append(l.w.out.Events, event)
}

type noEvents struct{ coreclient.EventInterface }

func (n noEvents) Events(string) coreclient.EventInterface { return n }

func (noEvents) CreateWithEventNamespace(event *corev1.Event) (*corev1.Event, error) {
	return event, nil
}

func (noEvents) UpdateWithEventNamespace(event *corev1.Event) (*corev1.Event, error) {
	return event, nil
}

func (noEvents) PatchWithEventNamespace(event *corev1.Event, _ []byte) (*corev1.Event, error) {
	return event, nil
}

func (noEvents) CreateWithEventNamespaceWithContext(_ context.Context, event *corev1.Event) (*corev1.Event, error) {
	return event, nil
}

func (noEvents) UpdateWithEventNamespaceWithContext(_ context.Context, event *corev1.Event) (*corev1.Event, error) {
	return event, nil
}

func (noEvents) PatchWithEventNamespaceWithContext(_ context.Context, event *corev1.Event, _ []byte) (*corev1.Event, error) {
	return event, nil
}

// hpaInformer hands the handlers of the controller to the world; nothing runs.
type hpaInformer struct {
	cache.SharedIndexInformer
	cache.Store
	autoscalinglisters.HorizontalPodAutoscalerNamespaceLister
	w         *hpaWorld
	namespace string
}

func (i hpaInformer) Informer() cache.SharedIndexInformer { return informer{i: i} }
func (i hpaInformer) Lister() autoscalinglisters.HorizontalPodAutoscalerLister {
	return hpaLister{w: i.w}
}

type informer struct {
	cache.SharedIndexInformer
	i hpaInformer
}

func (n informer) HasSynced() bool       { return true }
func (n informer) GetStore() cache.Store { return hpaStore{w: n.i.w} }
func (n informer) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, _ time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	n.i.w.handlers = handler
	return nil, nil
}

type hpaStore struct {
	cache.Store
	w *hpaWorld
}

// LastStoreSyncResourceVersion is the newest version that the informer has seen.
func (s hpaStore) LastStoreSyncResourceVersion() string {
	if s.w.step.InformerResourceVersion != nil {
		return *s.w.step.InformerResourceVersion
	}
	return strconv.FormatInt(s.w.version, 10)
}

type hpaLister struct {
	autoscalinglisters.HorizontalPodAutoscalerLister
	autoscalinglisters.HorizontalPodAutoscalerNamespaceLister
	w         *hpaWorld
	namespace string
}

func (l hpaLister) List(labels.Selector) ([]*autoscalingv2.HorizontalPodAutoscaler, error) {
	return nil, errors.New("the controller does not list")
}

func (l hpaLister) HorizontalPodAutoscalers(namespace string) autoscalinglisters.HorizontalPodAutoscalerNamespaceLister {
	l.namespace = namespace
	return l
}

func (l hpaLister) Get(name string) (*autoscalingv2.HorizontalPodAutoscaler, error) {
	key := l.namespace + "/" + name
	l.w.taken = true
	if l.w.processing == key {
		if _, ok := l.w.selectors[key]; !ok {
			return nil, errors.New("not reconciled yet")
		}
		return l.w.others[key], nil
	}
	if l.w.hpa != nil && l.w.hpa.Namespace == l.namespace && l.w.hpa.Name == name {
		return l.w.hpa, nil
	}
	return nil, apierrors.NewNotFound(autoscalingv2.Resource("horizontalpodautoscaler"), name)
}

type podInformer struct{ w *hpaWorld }

func (p podInformer) Informer() cache.SharedIndexInformer { return informer{} }
func (p podInformer) Lister() corelisters.PodLister       { return worldPods{w: p.w} }

type worldPods struct {
	corelisters.PodNamespaceLister
	w         *hpaWorld
	namespace string
}

func (p worldPods) Pods(namespace string) corelisters.PodNamespaceLister {
	p.namespace = namespace
	return p
}

func (p worldPods) List(selector labels.Selector) ([]*corev1.Pod, error) {
	pods := listedPods{pods: p.w.step.Pods, namespace: p.namespace}
	if p.w.step.Errors.Pods != nil {
		pods.err = errors.New(*p.w.step.Errors.Pods)
	} else {
		p.w.checked = true
	}
	return pods.List(selector)
}

type hpas struct {
	autoscalingclient.HorizontalPodAutoscalerInterface
	w *hpaWorld
}

func (h hpas) HorizontalPodAutoscalers(string) autoscalingclient.HorizontalPodAutoscalerInterface {
	return h
}

func (h hpas) UpdateStatus(_ context.Context, hpa *autoscalingv2.HorizontalPodAutoscaler, _ metav1.UpdateOptions) (*autoscalingv2.HorizontalPodAutoscaler, error) {
	if h.w.processing != "" {
		return hpa, nil
	}
	edited := h.w.hpa.DeepCopy()
	edited.Status = *hpa.Status.DeepCopy()
	for i := range edited.Status.Conditions {
		if message := &edited.Status.Conditions[i].Message; h.w.checked {
			*message = h.w.nameAmbiguous(*message)
		}
	}
	if apiequality.Semantic.DeepEqual(edited.Status, h.w.hpa.Status) {
		// Only the order of the HPAs in a text was another. Nothing was written that a watch has yet to bring: the
		// controller keeps the version of what is returned, and waits for it.
		unchanged := h.w.hpa.DeepCopy()
		unchanged.ResourceVersion = "1"
		return unchanged, nil
	}
	if err := h.w.step.Errors.StatusUpdate.err(); err != nil {
		return nil, err
	}
	h.w.version++
	stored, err := h.w.stored(edited)
	if err != nil {
		return nil, err
	}
	h.w.hpa, h.w.out.StatusWritten = stored, true
	return stored, nil
}

type scales struct {
	scaleclient.ScaleInterface
	w *hpaWorld
}

func (s scales) Scales(string) scaleclient.ScaleInterface { return s }

func (s scales) Get(_ context.Context, resource schema.GroupResource, _ string, _ metav1.GetOptions) (*autoscalingv1.Scale, error) {
	if s.w.processing != "" {
		return &autoscalingv1.Scale{
			Spec: autoscalingv1.ScaleSpec{Replicas: 1}, Status: autoscalingv1.ScaleStatus{Selector: s.w.selectors[s.w.processing]},
		}, nil
	}
	s.w.out.ScaleResource = resource.String()
	failure := s.w.step.Errors.ScaleGet
	if s.w.out.ScaleUpdateAttempts > 0 {
		failure = s.w.step.Errors.ScaleReget
	}
	if err := failure.err(); err != nil {
		return nil, err
	}
	scale := s.w.step.Scale
	return &autoscalingv1.Scale{
		Spec:   autoscalingv1.ScaleSpec{Replicas: scale.SpecReplicas},
		Status: autoscalingv1.ScaleStatus{Replicas: scale.StatusReplicas, Selector: scale.Selector},
	}, nil
}

func (s scales) Update(_ context.Context, _ schema.GroupResource, scale *autoscalingv1.Scale, _ metav1.UpdateOptions) (*autoscalingv1.Scale, error) {
	if s.w.processing != "" {
		return scale, nil
	}
	attempt := s.w.out.ScaleUpdateAttempts
	s.w.out.ScaleUpdateAttempts++
	if attempt < len(s.w.step.Errors.ScaleUpdate) {
		if err := s.w.step.Errors.ScaleUpdate[attempt].err(); err != nil {
			return nil, err
		}
	}
	replicas := scale.Spec.Replicas
	s.w.out.Rescaled, s.w.out.ScaleUpdate = true, &replicas
	return scale, nil
}

// The three metrics APIs give canned answers, whatever selector is asked for.

func (w *hpaWorld) called(format string, args ...any) {
	w.out.MetricCalls = append(w.out.MetricCalls, fmt.Sprintf(format, args...))
}

func (w *hpaWorld) failure(call string) error {
	if text, ok := w.step.Metrics.Errors[call]; ok {
		return errors.New(text)
	}
	return nil
}

type resourceAPI struct {
	resourceclient.PodMetricsInterface
	w         *hpaWorld
	namespace string
}

func (r resourceAPI) PodMetricses(namespace string) resourceclient.PodMetricsInterface {
	r.namespace = namespace
	return r
}

func (r resourceAPI) List(_ context.Context, options metav1.ListOptions) (*resourcemetrics.PodMetricsList, error) {
	r.w.called("resource %s pods selector=%s", r.namespace, options.LabelSelector)
	if err := r.w.failure("resource"); err != nil {
		return nil, err
	}
	return r.w.step.Metrics.Resource.DeepCopy(), nil
}

type customAPI struct {
	w     *hpaWorld
	where string
}

func (c customAPI) RootScopedMetrics() customclient.MetricsInterface {
	c.where = "root"
	return c
}

func (c customAPI) NamespacedMetrics(namespace string) customclient.MetricsInterface {
	c.where = namespace
	return c
}

func (c customAPI) GetForObject(kind schema.GroupKind, name, metric string, selector labels.Selector) (*custommetrics.MetricValue, error) {
	c.w.called("custom %s object %s %s metric=%s metricSelector=%s", c.where, kind, name, metric, selector)
	if err := c.w.failure("object/" + metric); err != nil {
		return nil, err
	}
	value, ok := c.w.step.Metrics.Object[metric]
	if !ok {
		return nil, fmt.Errorf("the server could not find the metric %s for %s %s", metric, kind, name)
	}
	return &value, nil
}

func (c customAPI) GetForObjects(kind schema.GroupKind, pods labels.Selector, metric string, selector labels.Selector) (*custommetrics.MetricValueList, error) {
	c.w.called("custom %s objects %s selector=%s metric=%s metricSelector=%s", c.where, kind, pods, metric, selector)
	if err := c.w.failure("pods/" + metric); err != nil {
		return nil, err
	}
	values := c.w.step.Metrics.Pods[metric]
	return &values, nil
}

type externalAPI struct {
	w         *hpaWorld
	namespace string
}

func (e externalAPI) NamespacedMetrics(namespace string) externalclient.MetricsInterface {
	e.namespace = namespace
	return e
}

func (e externalAPI) List(metric string, selector labels.Selector) (*externalmetrics.ExternalMetricValueList, error) {
	e.w.called("external %s metric=%s metricSelector=%s", e.namespace, metric, selector)
	if err := e.w.failure("external/" + metric); err != nil {
		return nil, err
	}
	values := e.w.step.Metrics.External[metric]
	return &values, nil
}

var _ apimeta.RESTMapper = restMapper
