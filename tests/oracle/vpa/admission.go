package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/admission-controller/logic"
	admissionresource "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/admission-controller/resource"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/admission-controller/resource/pod"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/admission-controller/resource/pod/patch"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/admission-controller/resource/pod/recommendation"
	vpaadmission "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/admission-controller/resource/vpa"
	vpatypes "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/utils/limitrange"
	vpautil "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/utils/vpa"
	"k8s.io/client-go/tools/cache"
	"kscale.dev/oracle/harness"
)

func init() {
	harness.Register("vpa-validate", vpaValidate)
	harness.Register("vpa-patch", vpaPatch)
}

// admitted is the response of the webhook, and the errors that its handler reports to it.
type admitted struct {
	Allowed  bool            `json:"allowed"`
	Patches  json.RawMessage `json:"patches"`
	Warnings []string        `json:"warnings"`
	Status   *statusOutput   `json:"status"`
	list     field.ErrorList
}

type statusOutput struct {
	Message string              `json:"message"`
	Reason  metav1.StatusReason `json:"reason"`
	Code    int32               `json:"code"`
}

// observed is a handler that keeps the errors of the handler that it wraps.
type observed struct {
	admissionresource.Handler
	list *field.ErrorList
}

func (o observed) GetPatches(ctx context.Context, request *admissionv1.AdmissionRequest) ([]admissionresource.PatchRecord, []string, field.ErrorList) {
	patches, warnings, list := o.Handler.GetPatches(ctx, request)
	sortResources(list)
	*o.list = list
	return patches, warnings, list
}

// sortResources orders runs of errors that upstream takes from a Go map of resources.
func sortResources(list field.ErrorList) {
	split := func(i int) (parent string, ok bool) {
		if i < len(list) {
			if at := strings.LastIndex(list[i].Field, "["); at >= 0 && strings.HasSuffix(list[i].Field, "]") {
				parent = list[i].Field[:at]
				if strings.HasPrefix(list[i].Detail, "max resource for ") {
					parent += " below its minimum" // a loop of its own
				}
				return parent, true
			}
		}
		return "", false
	}
	for start := 0; start < len(list); {
		end := start + 1
		parent, ok := split(start)
		for ok {
			if next, _ := split(end); next != parent {
				break
			}
			end++
		}
		slices.SortStableFunc(list[start:end], func(a, b *field.Error) int {
			return compareResources(resourceOf(a), resourceOf(b))
		})
		start = end
	}
}

func resourceOf(err *field.Error) string {
	return strings.TrimSuffix(err.Field[strings.LastIndex(err.Field, "[")+1:], "]")
}

// admit sends one request through the webhook's HTTP handler.
func admit(handler admissionresource.Handler, request *admissionv1.AdmissionRequest) (*admitted, error) {
	out := &admitted{Warnings: []string{}, Patches: json.RawMessage("[]")}
	server := logic.NewAdmissionServer(nil, nil, nil, nil, nil)
	server.RegisterResourceHandler(observed{handler, &out.list})
	body, err := json.Marshal(admissionv1.AdmissionReview{Request: request})
	if err != nil {
		return nil, err
	}
	recorder := httptest.NewRecorder()
	httpRequest := httptest.NewRequest("POST", "/", bytes.NewReader(body))
	httpRequest.Header.Set("Content-Type", "application/json")
	server.Serve(recorder, httpRequest)
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &review); err != nil {
		return nil, err
	}
	response := review.Response
	out.Allowed = response.Allowed
	if response.Patch != nil {
		out.Patches = response.Patch
	}
	if response.Warnings != nil {
		out.Warnings = response.Warnings
	}
	if response.Result != nil {
		out.Status = &statusOutput{response.Result.Message, response.Result.Reason, response.Result.Code}
	}
	return out, nil
}

type vpaOptions struct {
	FeatureGates       map[string]bool    `json:"feature_gates"`
	MaxAllowedCPUBoost *resource.Quantity `json:"max_allowed_cpu_boost"`
}

func vpaValidate(data json.RawMessage) (any, error) {
	var in struct {
		Operation admissionv1.Operation `json:"operation"`
		VPA       json.RawMessage       `json:"vpa"`
		OldVPA    json.RawMessage       `json:"old_vpa"`
		Options   vpaOptions            `json:"options"`
	}
	if err := unmarshal(data, &in); err != nil {
		return nil, err
	}
	var meta metav1.PartialObjectMetadata
	_ = json.Unmarshal(in.VPA, &meta) // an object that is none is the webhook's to refuse
	request := &admissionv1.AdmissionRequest{
		Operation: in.Operation, Name: meta.Name, Namespace: meta.Namespace,
		Resource:    metav1.GroupVersionResource{Group: "autoscaling.k8s.io", Version: "v1", Resource: "verticalpodautoscalers"},
		RequestKind: &metav1.GroupVersionKind{Group: "autoscaling.k8s.io", Version: "v1", Kind: "VerticalPodAutoscaler"},
		Object:      runtime.RawExtension{Raw: in.VPA}, OldObject: runtime.RawExtension{Raw: in.OldVPA},
	}
	type validationError struct {
		Type   field.ErrorType `json:"type"`
		Field  string          `json:"field"`
		Detail string          `json:"detail"`
		Text   string          `json:"text"`
	}
	var out struct {
		*admitted
		Errors []validationError `json:"errors"`
	}
	out.Errors = []validationError{}
	err := withGates(in.Options.FeatureGates, func() (err error) {
		out.admitted, err = admit(vpaadmission.NewResourceHandler(vpaadmission.NewDefaultPreProcessor()), request)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, each := range out.list {
		out.Errors = append(out.Errors, validationError{each.Type, each.Field, each.Detail, each.Error()})
	}
	return out, nil
}

type patchInput struct {
	VPAs             []*vpatypes.VerticalPodAutoscaler `json:"vpas"`
	Pod              json.RawMessage                   `json:"pod"`
	RequestNamespace string                            `json:"request_namespace"`
	Controllers      []json.RawMessage                 `json:"controllers"`
	LimitRanges      []*corev1.LimitRange              `json:"limit_ranges"`
	Now              time.Time                         `json:"now"`
	Options          vpaOptions                        `json:"options"`
}

type patchOutput struct {
	*admitted
	MatchedVPA *string  `json:"matched_vpa"`
	Errors     []string `json:"errors"`
}

func vpaPatch(data json.RawMessage) (any, error) {
	var in patchInput
	if err := unmarshal(data, &in); err != nil {
		return nil, err
	}
	out := patchOutput{Errors: []string{}}
	err := withGates(in.Options.FeatureGates, func() error {
		return harness.AtVirtualTime(in.Now, func() error { return out.fill(in) })
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// matched is a matcher that keeps the name of the VPA found by the matcher that it wraps.
type matched struct {
	vpaadmission.Matcher
	name **string
}

func (m matched) GetMatchingVPA(ctx context.Context, pod *corev1.Pod) *vpatypes.VerticalPodAutoscaler {
	vpa := m.Matcher.GetMatchingVPA(ctx, pod)
	if vpa != nil {
		*m.name = &vpa.Name
	}
	return vpa
}

func (o *patchOutput) fill(in patchInput) error {
	stop := make(chan struct{})
	defer close(stop)
	client := &kubeClient{}
	f := newFactory(client, nil, in.LimitRanges)
	if err := f.addControllers(in.Controllers); err != nil {
		return err
	}
	limits, err := limitrange.NewLimitsRangeCalculator(f)
	if err != nil {
		return err
	}
	selectors, controllers := fetchers(client, f, stop)
	vpas := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{vpautil.TargetRefIndex: vpautil.TargetRefIndexFunc})
	for _, vpa := range in.VPAs {
		if err := vpas.Add(vpa); err != nil {
			return err
		}
	}
	var boost resource.QuantityValue
	if in.Options.MaxAllowedCPUBoost != nil {
		boost.Quantity = *in.Options.MaxAllowedCPUBoost
	}
	provider := recommendation.NewProvider(limits, vpautil.NewCappingRecommendationProcessor(limits))
	handler := pod.NewResourceHandler(
		pod.NewDefaultPreProcessor(), matched{vpaadmission.NewMatcher(vpas, selectors, controllers), &o.MatchedVPA},
		[]patch.Calculator{patch.NewResourceUpdatesCalculator(provider, boost), patch.NewObservedContainersCalculator()},
	)
	o.admitted, err = admit(handler, &admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Namespace: in.RequestNamespace,
		Resource:    metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		RequestKind: &metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Object:      runtime.RawExtension{Raw: in.Pod},
	})
	if err != nil {
		return err
	}
	for _, each := range o.list {
		o.Errors = append(o.Errors, each.Error())
	}
	o.Patches, err = sortedPatches(o.Patches)
	return err
}

// boostPath begins the paths of annotations of startup boosts.
const boostPath = "/metadata/annotations/vpaCpuStartupBoost~1"

// sortedPatches orders runs of patches that upstream takes from a Go map of resources, or of annotations.
func sortedPatches(data json.RawMessage) (json.RawMessage, error) {
	var patches []map[string]any
	if err := json.Unmarshal(data, &patches); err != nil {
		return nil, err
	}
	group := func(i int) (parent, resource string) {
		if i >= len(patches) {
			return "", ""
		}
		path, _ := patches[i]["path"].(string)
		if boosted, found := strings.CutPrefix(path, boostPath); found && patches[i]["op"] == "remove" {
			return boostPath, boosted
		}
		at := strings.LastIndex(path, "/")
		if at < 0 || !strings.Contains(path[:at], "/resources/") {
			return "", ""
		}
		return path[:at], path[at+1:]
	}
	for start := 0; start < len(patches); {
		end := start + 1
		parent, _ := group(start)
		for parent != "" {
			if next, _ := group(end); next != parent {
				break
			}
			end++
		}
		slices.SortStableFunc(patches[start:end], func(a, b map[string]any) int {
			return compareResources(lastOf(a["path"]), lastOf(b["path"]))
		})
		start = end
	}
	for _, each := range patches {
		if each["path"] == "/metadata/annotations/vpaUpdates" {
			each["value"] = sortedUpdates(each["value"].(string))
		}
	}
	return json.Marshal(patches)
}

func lastOf(path any) string {
	text, _ := path.(string)
	return text[strings.LastIndex(text, "/")+1:]
}

// sortedUpdates orders the notes of each container in the text of the vpaUpdates annotation.
func sortedUpdates(text string) string {
	const separator = "; container "
	containers := strings.Split(text, separator)
	for i, container := range containers {
		at := 0
		if i == 0 {
			at = strings.Index(container, ": container ")
			if at < 0 {
				continue
			}
			at += len(": container ")
		}
		head, list, ok := strings.Cut(container[at:], ": ")
		if !ok {
			continue
		}
		notes := strings.Split(list, ", ")
		slices.SortStableFunc(notes, compareNotes)
		containers[i] = container[:at] + head + ": " + strings.Join(notes, ", ")
	}
	return strings.Join(containers, separator)
}
