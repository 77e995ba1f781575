package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/admission-controller/resource/pod/patch"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/admission-controller/resource/pod/recommendation"
	vpatypes "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	vpaclient "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/client/clientset/versioned"
	vpalisters "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/client/listers/autoscaling.k8s.io/v1"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/features"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/target"
	controllerfetcher "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/target/controller_fetcher"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/updater/inplace"
	updaterlogic "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/updater/logic"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/updater/priority"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/updater/restriction"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/utils/limitrange"
	vpautil "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/utils/vpa"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"kscale.dev/oracle/harness"
)

func init() {
	harness.Register("vpa-eviction", vpaEviction)
}

type evictionOptions struct {
	priorityOptions
	MinReplicas                 *int     `json:"min_replicas"`
	EvictionTolerance           *float64 `json:"eviction_tolerance"`
	EvictionRateLimit           *float64 `json:"eviction_rate_limit"`
	EvictionRateBurst           *int     `json:"eviction_rate_burst"`
	InPlaceSkipDisruptionBudget bool     `json:"in_place_skip_disruption_budget"`
	IgnoredVPAObjectNamespaces  []string `json:"ignored_vpa_object_namespaces"`
}

type evictionCycle struct {
	Now  time.Time                         `json:"now"`
	VPAs []*vpatypes.VerticalPodAutoscaler `json:"vpas"`
	Pods []*corev1.Pod                     `json:"pods"`
}

type evictionInput struct {
	evictionCycle
	Controllers         []json.RawMessage              `json:"controllers"`
	LimitRanges         []*corev1.LimitRange           `json:"limit_ranges"`
	Options             evictionOptions                `json:"options"`
	LastInPlaceAttempts map[string]time.Time           `json:"last_in_place_attempts"`
	InfeasibleAttempts  attempts                       `json:"infeasible_attempts"`
	APIErrors           map[string]map[string]apiError `json:"api_errors"`
	Cycles              []evictionCycle                `json:"cycles"`
}

type apiError struct {
	Code    int32               `json:"code"`
	Reason  metav1.StatusReason `json:"reason"`
	Message string              `json:"message"`
	Causes  []struct {
		Type    metav1.CauseType `json:"type"`
		Message string           `json:"message"`
	} `json:"causes"`
}

func (e apiError) err() error {
	status := metav1.Status{Status: metav1.StatusFailure, Code: e.Code, Reason: e.Reason, Message: e.Message}
	for _, cause := range e.Causes {
		if status.Details == nil {
			status.Details = &metav1.StatusDetails{}
		}
		status.Details.Causes = append(status.Details.Causes, metav1.StatusCause{Type: cause.Type, Message: cause.Message})
	}
	return &apierrors.StatusError{ErrStatus: status}
}

type evictionOutput struct {
	ControllingVPA      map[string]*string     `json:"controlling_vpa"`
	Groups              []vpaGroups            `json:"groups"`
	Pods                map[string]*podAnswers `json:"pods"`
	Sequence            []apiCall              `json:"sequence"`
	Events              []eventOutput          `json:"events"`
	InfeasibleAttempts  attempts               `json:"infeasible_attempts"`
	LastInPlaceAttempts map[string]string      `json:"last_in_place_attempts"`
}

type vpaGroups struct {
	VPA       string        `json:"vpa"`
	Namespace string        `json:"namespace"`
	Groups    []groupOutput `json:"groups"`
}

type groupOutput struct {
	Kind                 string `json:"kind"`
	Name                 string `json:"name"`
	Namespace            string `json:"namespace"`
	Configured           int    `json:"configured"`
	Pending              int    `json:"pending"`
	Running              int    `json:"running"`
	EvictionTolerance    int    `json:"eviction_tolerance"`
	InPlaceUpdateOngoing int    `json:"in_place_update_ongoing"`
	BelowMinReplicas     bool   `json:"below_min_replicas"`
}

type podAnswers struct {
	CanEvict        bool   `json:"can_evict"`
	InPlaceDecision string `json:"in_place_decision"`
	CanUnboost      bool   `json:"can_unboost"`
}

type apiCall struct {
	Action    string          `json:"action"`
	Namespace string          `json:"namespace"`
	Pod       string          `json:"pod"`
	Patch     json.RawMessage `json:"patch,omitempty"`
	Error     *string         `json:"error"`
}

type eventOutput struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Type      string `json:"type"`
	Reason    string `json:"reason"`
	Message   string `json:"message"`
}

func vpaEviction(data json.RawMessage) (any, error) {
	var in evictionInput
	if err := unmarshal(data, &in); err != nil {
		return nil, err
	}
	cycles := in.Cycles
	if len(cycles) == 0 {
		cycles = []evictionCycle{{Now: in.Now}}
	}
	shared, err := sharedUpdater()
	if err != nil {
		return nil, err
	}
	var outs []*evictionOutput
	err = withGates(in.Options.FeatureGates, func() error {
		return harness.AtVirtualTime(cycles[0].Now, func() error {
			outs, err = runUpdater(shared, in, cycles)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	if len(in.Cycles) == 0 {
		return outs[0], nil
	}
	return map[string]any{"cycles": outs}, nil
}

// emptyVPAs is an API server without a VPA, whose watches never end.
type emptyVPAs struct{}

func (emptyVPAs) RoundTrip(request *http.Request) (*http.Response, error) {
	response := &http.Response{StatusCode: http.StatusOK, Request: request, Header: http.Header{"Content-Type": {"application/json"}}}
	if request.URL.Query().Get("watch") != "" {
		if request.URL.Query().Get("sendInitialEvents") != "" {
			response.StatusCode = http.StatusUnprocessableEntity
			response.Body = io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`))
			return response, nil
		}
		<-request.Context().Done()
		return nil, request.Context().Err()
	}
	response.Body = io.NopCloser(strings.NewReader(
		`{"kind":"VerticalPodAutoscalerList","apiVersion":"autoscaling.k8s.io/v1","metadata":{"resourceVersion":"1"},"items":[]}`))
	return response, nil
}

// sharedUpdater makes the one updater of this process. Its constructor starts goroutines that never end, so that it cannot be
// called in a bubble of virtual time; each case sets all of its fields.
var sharedUpdater = sync.OnceValues(func() (updaterlogic.Updater, error) {
	client, err := vpaclient.NewForConfig(&rest.Config{Host: "http://vpas.invalid", Transport: emptyVPAs{}})
	if err != nil {
		return nil, err
	}
	kube := &kubeClient{}
	f := newFactory(kube, nil, nil)
	return updaterlogic.NewUpdater(
		kube, client, f, f, 2, -1, 1, 0.5, false, false, 0.1, 12*time.Hour, 10*time.Minute, "", "", 0,
		nil, nil, nil, nil, priority.NewProcessor(), "", nil, nil,
	)
})

// updaterRun is one case: an updater that keeps its state over the cycles.
type updaterRun struct {
	updater   updaterlogic.Updater
	in        evictionInput
	out       *evictionOutput
	factory   *factory
	vpas      []*vpatypes.VerticalPodAutoscaler
	selectors target.VpaTargetSelectorFetcher
	owners    controllerfetcher.ControllerFetcher
	client    *kubeClient
	// patches computes the patches of pods resized in place.
	patches []patch.Calculator
	limiter bool // a rate limiter refused to wait
}

func runUpdater(shared updaterlogic.Updater, in evictionInput, cycles []evictionCycle) ([]*evictionOutput, error) {
	stop := make(chan struct{})
	defer close(stop)
	r := &updaterRun{updater: shared, in: in, vpas: in.VPAs}
	r.client = &kubeClient{pods: podsClient{r: r}}
	r.factory = newFactory(r.client, in.Pods, in.LimitRanges)
	if err := r.factory.addControllers(in.Controllers); err != nil {
		return nil, err
	}
	limits, err := limitrange.NewLimitsRangeCalculator(r.factory)
	if err != nil {
		return nil, err
	}
	r.selectors, r.owners = fetchers(r.client, r.factory, stop)
	processor := vpautil.NewCappingRecommendationProcessor(limits)
	r.patches = []patch.Calculator{
		inplace.NewResourceInPlaceUpdatesCalculator(recommendation.NewProvider(limits, processor)),
		inplace.NewInPlaceUpdatedCalculator(), inplace.NewUnboostAnnotationCalculator(),
	}
	r.setUp(processor)
	klog.SetLogger(logr.New(limiterLog{r: r}))
	defer klog.SetLogger(logr.Discard())

	var outs []*evictionOutput
	for _, cycle := range cycles {
		time.Sleep(time.Until(cycle.Now))
		if cycle.Pods != nil {
			r.factory.pods = cycle.Pods
		}
		if cycle.VPAs != nil {
			r.vpas = cycle.VPAs
		}
		r.out = &evictionOutput{
			ControllingVPA: map[string]*string{}, Groups: []vpaGroups{}, Pods: map[string]*podAnswers{}, Sequence: []apiCall{},
			Events: []eventOutput{}, InfeasibleAttempts: attempts{}, LastInPlaceAttempts: map[string]string{},
		}
		r.ask()
		r.loop()
		maps.Copy(r.out.InfeasibleAttempts, *private[map[types.UID]*vpatypes.RecommendedPodResources](r.updater, "infeasibleAttempts"))
		for key, at := range r.lastInPlaceAttempts() {
			r.out.LastInPlaceAttempts[key] = at.UTC().Format(time.RFC3339Nano)
		}
		outs = append(outs, r.out)
	}
	return outs, nil
}

func (r *updaterRun) newRestrictions(last map[string]time.Time) restriction.PodsRestrictionFactory {
	options := r.in.Options
	made := restriction.NewPodsRestrictionFactory(
		r.client, r.factory, orDefault(options.MinReplicas, 2), orDefault(options.EvictionTolerance, 0.5), r.patches,
		options.InPlaceSkipDisruptionBudget)
	maps.Copy(*private[map[string]time.Time](made, "lastInPlaceAttemptTimeMap"), last)
	return made
}

func (r *updaterRun) lastInPlaceAttempts() map[string]time.Time {
	factory := *private[restriction.PodsRestrictionFactory](r.updater, "restrictionFactory")
	return *private[map[string]time.Time](factory, "lastInPlaceAttemptTimeMap")
}

func (r *updaterRun) setUp(processor vpautil.RecommendationProcessor) {
	options, config := r.in.Options, r.in.Options.config()
	limiter := func() *rate.Limiter {
		if limit := orDefault(options.EvictionRateLimit, -1); limit > 0 {
			return rate.NewLimiter(rate.Limit(limit), orDefault(options.EvictionRateBurst, 1))
		}
		return rate.NewLimiter(rate.Inf, 0)
	}
	infeasible := map[types.UID]*vpatypes.RecommendedPodResources{}
	maps.Copy(infeasible, r.in.InfeasibleAttempts)
	u := r.updater
	*private[vpalisters.VerticalPodAutoscalerLister](u, "vpaLister") = vpaLister{r: r}
	*private[corelisters.PodLister](u, "podLister") = podLister{f: r.factory}
	*private[record.EventRecorder](u, "eventRecorder") = recorder{r: r}
	*private[restriction.PodsRestrictionFactory](u, "restrictionFactory") = r.newRestrictions(r.in.LastInPlaceAttempts)
	*private[vpautil.RecommendationProcessor](u, "recommendationProcessor") = processor
	*private[*rate.Limiter](u, "evictionRateLimiter") = limiter()
	*private[*rate.Limiter](u, "inPlaceRateLimiter") = limiter()
	*private[target.VpaTargetSelectorFetcher](u, "selectorFetcher") = r.selectors
	*private[controllerfetcher.ControllerFetcher](u, "controllerFetcher") = r.owners
	*private[[]string](u, "ignoredNamespaces") = options.IgnoredVPAObjectNamespaces
	*private[map[types.UID]*vpatypes.RecommendedPodResources](u, "infeasibleAttempts") = infeasible
	*private[float64](u, "defaultUpdateThreshold") = config.MinChangePriority
	*private[time.Duration](u, "podLifetimeUpdateThreshold") = config.PodLifetimeUpdateThreshold
	*private[time.Duration](u, "evictAfterOOMThreshold") = config.EvictAfterOOMThreshold
	*private[cache.SharedIndexInformer](u, "podInformer") = syncedInformer{}
}

// ask notes what is answered before anything happens.
func (r *updaterRun) ask() {
	ctx := context.Background()
	var selected []*vpautil.VpaWithSelector
	for _, vpa := range r.vpas {
		if slices.Contains(r.in.Options.IgnoredVPAObjectNamespaces, vpa.Namespace) {
			continue
		}
		if selector, err := r.selectors.Fetch(ctx, vpa); err == nil {
			selected = append(selected, &vpautil.VpaWithSelector{Vpa: vpa, Selector: selector})
		}
	}
	controlled := map[*vpatypes.VerticalPodAutoscaler][]*corev1.Pod{}
	for _, pod := range r.factory.pods {
		key := pod.Namespace + "/" + pod.Name
		r.out.ControllingVPA[key], r.out.Pods[key] = nil, nil
		if pod.DeletionTimestamp != nil {
			continue
		}
		if vpa := vpautil.GetControllingVPAForPod(ctx, pod, selected, r.owners); vpa != nil {
			r.out.ControllingVPA[key] = &vpa.Vpa.Name
			controlled[vpa.Vpa] = append(controlled[vpa.Vpa], pod)
		}
	}
	infeasible := maps.Clone(*private[map[types.UID]*vpatypes.RecommendedPodResources](r.updater, "infeasibleAttempts"))
	for _, vpa := range sortedVPAs(controlled) {
		restrictions := r.newRestrictions(r.lastInPlaceAttempts())
		groups, creators, err := restrictions.GetCreatorMaps(controlled[vpa], vpa)
		if err != nil {
			continue
		}
		out := vpaGroups{VPA: vpa.Name, Namespace: vpa.Namespace, Groups: []groupOutput{}}
		for creator, group := range groups {
			// The numbers are private to the group: they are read by reflection.
			number := func(name string) int { return int(reflect.ValueOf(group).FieldByName(name).Int()) }
			out.Groups = append(out.Groups, groupOutput{
				Kind: string(creator.Kind), Name: creator.Name, Namespace: creator.Namespace,
				Configured: number("configured"), Pending: number("pending"), Running: number("running"),
				EvictionTolerance: number("evictionTolerance"), InPlaceUpdateOngoing: number("inPlaceUpdateOngoing"),
				BelowMinReplicas: reflect.ValueOf(group).FieldByName("belowMinReplicas").Bool(),
			})
		}
		slices.SortFunc(out.Groups, func(a, b groupOutput) int {
			return strings.Compare(a.Kind+"/"+a.Name, b.Kind+"/"+b.Name)
		})
		r.out.Groups = append(r.out.Groups, out)
		evictions := restrictions.NewPodsEvictionRestriction(groups, creators)
		resizes := restrictions.NewPodsInPlaceRestriction(groups, creators)
		for _, pod := range controlled[vpa] {
			r.out.Pods[pod.Namespace+"/"+pod.Name] = &podAnswers{
				evictions.CanEvict(pod), string(resizes.CanInPlaceUpdate(pod, vpa, infeasible)), resizes.CanUnboost(pod, vpa),
			}
		}
	}
}

func sortedVPAs[T any](vpas map[*vpatypes.VerticalPodAutoscaler]T) []*vpatypes.VerticalPodAutoscaler {
	return slices.SortedFunc(maps.Keys(vpas), func(a, b *vpatypes.VerticalPodAutoscaler) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
}

// oneVPA is the admission of upstream, which in addition leaves one VPA to a loop. Upstream walks the VPAs in the order of a
// Go map; one loop for each, in the order of their names, is the same loop in a defined order.
type oneVPA struct {
	priority.PodEvictionAdmission
	skip      int
	remaining int
}

func (o *oneVPA) LoopInit(pods []*corev1.Pod, controlled map[*vpatypes.VerticalPodAutoscaler][]*corev1.Pod) {
	o.PodEvictionAdmission.LoopInit(pods, controlled)
	vpas := sortedVPAs(controlled)
	o.remaining = len(vpas) - o.skip - 1
	for i, vpa := range vpas {
		if i != o.skip {
			delete(controlled, vpa)
		}
	}
}

// loop unboosts pods whose time has passed, and then runs the main loop once.
func (r *updaterRun) loop() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if features.Enabled(features.CPUStartupBoost) {
		r.unboost(ctx)
	}
	r.limiter = false
	admission := &oneVPA{PodEvictionAdmission: priority.NewScalingDirectionPodEvictionAdmission()}
	*private[priority.PodEvictionAdmission](r.updater, "evictionAdmission") = admission
	for {
		admission.remaining = 0
		r.updater.RunOnce(ctx)
		if admission.remaining <= 0 || r.limiter {
			return
		}
		admission.skip++
	}
}

// unboost tells the worker of startup boosts of every pod, and waits until it has nothing to do before time passes.
func (r *updaterRun) unboost(ctx context.Context) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, 1000*time.Second))
	*private[workqueue.TypedRateLimitingInterface[string]](r.updater, "cpuStartupBoostQueue") = queue
	for _, pod := range r.factory.pods {
		r.updater.PodAddHandler(pod)
	}
	var crash any
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { crash = recover() }()
		r.updater.RunBoostWorker(ctx)
	}()
	synctest.Wait()
	r.updater.ShutDown()
	<-done
	if crash != nil {
		panic(crash) // where whoever asks catches it
	}
}

// limiterLog notices that a rate limiter refused to wait: upstream then ends the loop, and only logs why.
type limiterLog struct{ r *updaterRun }

func (limiterLog) Init(logr.RuntimeInfo)            {}
func (limiterLog) Enabled(int) bool                 { return true }
func (limiterLog) Error(error, string, ...any)      {}
func (l limiterLog) WithValues(...any) logr.LogSink { return l }
func (l limiterLog) WithName(string) logr.LogSink   { return l }

func (l limiterLog) Info(_ int, message string, _ ...any) {
	if strings.Contains(strings.ToLower(message), "rate limiter wait failed") {
		l.r.limiter = true
	}
}

type syncedInformer struct{ cache.SharedIndexInformer }

func (syncedInformer) HasSynced() bool { return true }

type vpaLister struct {
	vpalisters.VerticalPodAutoscalerNamespaceLister
	r         *updaterRun
	namespace string
}

func (l vpaLister) VerticalPodAutoscalers(namespace string) vpalisters.VerticalPodAutoscalerNamespaceLister {
	l.namespace = namespace
	return l
}

func (l vpaLister) List(selector labels.Selector) ([]*vpatypes.VerticalPodAutoscaler, error) {
	var matches []*vpatypes.VerticalPodAutoscaler
	for _, vpa := range l.r.vpas {
		if (l.namespace == "" || vpa.Namespace == l.namespace) && selector.Matches(labels.Set(vpa.Labels)) {
			matches = append(matches, vpa)
		}
	}
	return matches, nil
}

// recorder notes events.
type recorder struct {
	record.EventRecorder
	r *updaterRun
}

func (e recorder) Event(object runtime.Object, eventType, reason, message string) {
	out := eventOutput{Type: eventType, Reason: reason, Message: message}
	switch object := object.(type) {
	case *corev1.Pod:
		out.Kind, out.Namespace, out.Name = "Pod", object.Namespace, object.Name
	case *vpatypes.VerticalPodAutoscaler:
		out.Kind, out.Namespace, out.Name = "VerticalPodAutoscaler", object.Namespace, object.Name
	}
	e.r.out.Events = append(e.r.out.Events, out)
}

func (e recorder) Eventf(object runtime.Object, eventType, reason, format string, args ...any) {
	e.Event(object, eventType, reason, fmt.Sprintf(format, args...))
}

// podsClient notes the calls on pods and answers them as the case says.
type podsClient struct {
	corev1client.PodInterface
	r         *updaterRun
	namespace string
}

func (c podsClient) called(action, name string, patches json.RawMessage) error {
	call := apiCall{Action: action, Namespace: c.namespace, Pod: name, Patch: patches}
	var err error
	if refusal, ok := c.r.in.APIErrors[action][c.namespace+"/"+name]; ok {
		err = refusal.err()
		call.Error = &refusal.Message
	}
	c.r.out.Sequence = append(c.r.out.Sequence, call)
	return err
}

func (c podsClient) EvictV1(_ context.Context, eviction *policyv1.Eviction) error {
	return c.called("evict", eviction.Name, nil)
}

func (c podsClient) Patch(_ context.Context, name string, _ types.PatchType, data []byte, _ metav1.PatchOptions, subresources ...string) (*corev1.Pod, error) {
	sorted, err := sortedPatches(data)
	if err != nil {
		return nil, err
	}
	action := "annotate"
	if len(subresources) > 0 {
		if subresources[0] != "resize" {
			return nil, errors.New("unexpected subresource " + subresources[0])
		}
		action = "resize"
	}
	if err := c.called(action, name, sorted); err != nil {
		return nil, err
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name}}, nil
}
