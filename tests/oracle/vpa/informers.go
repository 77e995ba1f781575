package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	vpautil "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/utils/vpa"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core"
	coreinformersv1 "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// factory is a factory of informers that never run: their stores hold the objects of a case. Pods and limit ranges are
// listed in the order of the input; upstream's order is that of a Go map.
type factory struct {
	informers.SharedInformerFactory
	pods        []*corev1.Pod
	limitRanges []*corev1.LimitRange
}

func newFactory(client kubernetes.Interface, pods []*corev1.Pod, limitRanges []*corev1.LimitRange) *factory {
	return &factory{informers.NewSharedInformerFactory(client, 0), pods, limitRanges}
}

func (f *factory) Core() coreinformers.Interface { return coreGroup{f.SharedInformerFactory.Core(), f} }

type coreGroup struct {
	coreinformers.Interface
	f *factory
}

func (g coreGroup) V1() coreinformersv1.Interface { return coreVersion{g.Interface.V1(), g.f} }

type coreVersion struct {
	coreinformersv1.Interface
	f *factory
}

func (v coreVersion) Pods() coreinformersv1.TypedPodInformer {
	return podInformer{v.Interface.Pods(), v.f}
}

func (v coreVersion) LimitRanges() coreinformersv1.TypedLimitRangeInformer {
	return limitRangeInformer{v.Interface.LimitRanges(), v.f}
}

type podInformer struct {
	coreinformersv1.TypedPodInformer
	f *factory
}

func (i podInformer) Lister() corelisters.PodLister { return podLister{f: i.f} }

type podLister struct {
	corelisters.PodNamespaceLister
	f         *factory
	namespace string
}

func (l podLister) Pods(namespace string) corelisters.PodNamespaceLister {
	l.namespace = namespace
	return l
}

func (l podLister) List(selector labels.Selector) ([]*corev1.Pod, error) {
	var matches []*corev1.Pod
	for _, pod := range l.f.pods {
		if (l.namespace == "" || pod.Namespace == l.namespace) && selector.Matches(labels.Set(pod.Labels)) {
			matches = append(matches, pod)
		}
	}
	return matches, nil
}

func (l podLister) Get(name string) (*corev1.Pod, error) {
	for _, pod := range l.f.pods {
		if pod.Namespace == l.namespace && pod.Name == name {
			return pod, nil
		}
	}
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
}

type limitRangeInformer struct {
	coreinformersv1.TypedLimitRangeInformer
	f *factory
}

func (i limitRangeInformer) Lister() corelisters.LimitRangeLister { return limitRangeLister{f: i.f} }

type limitRangeLister struct {
	corelisters.LimitRangeNamespaceLister
	f         *factory
	namespace string
}

func (l limitRangeLister) LimitRanges(namespace string) corelisters.LimitRangeNamespaceLister {
	l.namespace = namespace
	return l
}

func (l limitRangeLister) List(selector labels.Selector) ([]*corev1.LimitRange, error) {
	var matches []*corev1.LimitRange
	for _, each := range l.f.limitRanges {
		if each.Namespace == l.namespace && selector.Matches(labels.Set(each.Labels)) {
			matches = append(matches, each)
		}
	}
	return matches, nil
}

// addControllers puts the controllers of a case into the stores of their informers.
func (f *factory) addControllers(objects []json.RawMessage) error {
	for _, data := range objects {
		var meta metav1.TypeMeta
		if err := unmarshal(data, &meta); err != nil {
			return err
		}
		var object any
		var informer cache.SharedIndexInformer
		switch meta.Kind {
		case "Deployment":
			object, informer = &appsv1.Deployment{}, f.Apps().V1().Deployments().Informer()
		case "ReplicaSet":
			object, informer = &appsv1.ReplicaSet{}, f.Apps().V1().ReplicaSets().Informer()
		case "StatefulSet":
			object, informer = &appsv1.StatefulSet{}, f.Apps().V1().StatefulSets().Informer()
		case "DaemonSet":
			object, informer = &appsv1.DaemonSet{}, f.Apps().V1().DaemonSets().Informer()
		case "Job":
			object, informer = &batchv1.Job{}, f.Batch().V1().Jobs().Informer()
		case "CronJob":
			object, informer = &batchv1.CronJob{}, f.Batch().V1().CronJobs().Informer()
		case "ReplicationController":
			object, informer = &corev1.ReplicationController{}, f.Core().V1().ReplicationControllers().Informer()
		default:
			return fmt.Errorf("no informer for kind %s", meta.Kind)
		}
		if err := unmarshal(data, object); err != nil {
			return err
		}
		if err := informer.GetStore().Add(object); err != nil {
			return err
		}
	}
	return nil
}

// sortedNotes orders the notes of a container by resource: cpu, memory, then the others by name. Upstream walks a Go map.
func sortedNotes(notes vpautil.ContainerToAnnotationsMap) map[string][]string {
	sorted := map[string][]string{}
	for container, list := range notes {
		list = slices.Clone(list)
		slices.SortStableFunc(list, compareNotes)
		sorted[container] = list
	}
	return sorted
}

// compareNotes orders notes of one container: first by what is noted, in upstream's order, then by resource.
func compareNotes(a, b string) int {
	if order := noteRank(a) - noteRank(b); order != 0 {
		return order
	}
	if noteRank(a) == unsortedNote {
		return 0
	}
	resource := func(note string) string { name, _, _ := strings.Cut(note, " "); return name }
	return compareResources(resource(a), resource(b))
}

const unsortedNote = 3

func noteRank(note string) int {
	switch {
	case strings.HasSuffix(note, "in container LimitRange"):
		return 0
	case strings.HasSuffix(note, "capped to minAllowed"), strings.HasSuffix(note, "capped to maxAllowed"):
		return 1
	case strings.HasSuffix(note, "capped to container limit"):
		return 2
	case strings.HasSuffix(note, " request"):
		return 4
	case strings.HasSuffix(note, " limit"):
		return 5
	}
	return unsortedNote
}

// compareResources orders names of resources: cpu, memory, then the others by name.
func compareResources(a, b string) int {
	rank := func(name string) int {
		switch corev1.ResourceName(name) {
		case corev1.ResourceCPU:
			return 0
		case corev1.ResourceMemory:
			return 1
		}
		return 2
	}
	if order := rank(a) - rank(b); order != 0 {
		return order
	}
	return strings.Compare(a, b)
}
