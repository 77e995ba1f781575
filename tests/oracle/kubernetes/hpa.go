package main

// The horizontal pod autoscaler: what its three kinds share.

import (
	"slices"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/autoscaling"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	sigsjson "sigs.k8s.io/json"
)

// unmarshal decodes JSON as the API machinery does: names are case-sensitive, integers stay exact.
func unmarshal(data []byte, into any) error {
	return sigsjson.UnmarshalCaseSensitivePreserveInts(data, into)
}

// gatesOf returns the feature gates to set: those of an input, and the defaults of Kubernetes 1.37 for some others. An
// input that names a Kubernetes version has the defaults of the version that this program links.
func gatesOf(input map[string]bool, version string, names ...string) map[string]bool {
	gates := map[string]bool{}
	if version == "" {
		for _, name := range names {
			gates[name] = true
		}
	}
	for name, enabled := range input {
		gates[name] = enabled
	}
	return gates
}

// withGates sets feature gates for the duration of f. Gates that this version of Kubernetes does not have are ignored;
// gates that depend on one that is switched off are switched off with it.
func withGates(gates map[string]bool, f func() error) error {
	gate := utilfeature.DefaultMutableFeatureGate
	known := gate.GetAll()
	before, changed := map[string]bool{}, map[string]bool{}
	var set func(feature featuregate.Feature, enabled bool)
	set = func(feature featuregate.Feature, enabled bool) {
		if _, ok := known[feature]; !ok || gate.Enabled(feature) == enabled {
			return
		}
		if _, done := changed[string(feature)]; done {
			return
		}
		before[string(feature)], changed[string(feature)] = !enabled, enabled
		if versioned, ok := gate.(interface {
			Dependencies() map[featuregate.Feature][]featuregate.Feature
		}); ok && !enabled {
			for dependent, needed := range versioned.Dependencies() {
				if slices.Contains(needed, feature) {
					set(dependent, false)
				}
			}
		}
	}
	for name, enabled := range gates {
		set(featuregate.Feature(name), enabled)
	}
	if len(changed) > 0 {
		if err := gate.SetFromMap(changed); err != nil {
			return err
		}
		defer func() {
			if err := gate.SetFromMap(before); err != nil {
				panic(err)
			}
		}()
	}
	return f()
}

// storedHPA passes an HPA through what an API server does before a controller reads it: decode and default in the
// version given, store as v2, read back with the defaults of v2.
func storedHPA(data []byte) (*autoscalingv2.HorizontalPodAutoscaler, error) {
	codec := legacyscheme.Codecs.LegacyCodec(autoscalingv2.SchemeGroupVersion)
	for range 2 {
		internal, err := runtime.Decode(legacyscheme.Codecs.UniversalDecoder(autoscaling.SchemeGroupVersion), data)
		if err != nil {
			return nil, err
		}
		if data, err = runtime.Encode(codec, internal); err != nil {
			return nil, err
		}
	}
	stored := &autoscalingv2.HorizontalPodAutoscaler{}
	return stored, unmarshal(data, stored)
}

// listedPods is a lister that answers in the order of the input. Upstream's order is that of a Go map.
type listedPods struct {
	corelisters.PodNamespaceLister
	pods      []*corev1.Pod
	err       error
	namespace string
}

func (l listedPods) Pods(namespace string) corelisters.PodNamespaceLister {
	l.namespace = namespace
	return l
}

func (l listedPods) List(selector labels.Selector) ([]*corev1.Pod, error) {
	if l.err != nil {
		return nil, l.err
	}
	var matches []*corev1.Pod
	for _, pod := range l.pods {
		if (l.namespace == "" || pod.Namespace == l.namespace) && selector.Matches(labels.Set(pod.Labels)) {
			matches = append(matches, pod)
		}
	}
	return matches, nil
}

// timeText prints a time with whole seconds; the zero time is null.
func timeText(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	text := t.UTC().Format(time.RFC3339)
	return &text
}

func metaTimeText(t *metav1.Time) *string {
	if t == nil {
		return nil
	}
	return timeText(t.Time)
}

func errorText(err error) *string {
	if err == nil {
		return nil
	}
	text := err.Error()
	return &text
}
