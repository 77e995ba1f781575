package main

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// memory answers the reads of the scheduler from objects of one question. Other calls are not implemented.
type memory struct {
	client.Client
	nodes      []corev1.Node
	pods       []corev1.Pod
	namespaces []corev1.Namespace
	daemonSets []appsv1.DaemonSet
}

func (m *memory) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	if node, ok := object.(*corev1.Node); ok {
		for i := range m.nodes {
			if m.nodes[i].Name == key.Name {
				m.nodes[i].DeepCopyInto(node)
				return nil
			}
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: fmt.Sprintf("%T", object)}, key.Name)
}

func (m *memory) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	chosen := client.ListOptions{}
	chosen.ApplyOptions(options)
	selected := func(object client.Object) bool {
		if chosen.Namespace != "" && object.GetNamespace() != chosen.Namespace {
			return false
		}
		return chosen.LabelSelector == nil || chosen.LabelSelector.Matches(labels.Set(object.GetLabels()))
	}
	switch result := list.(type) {
	case *corev1.PodList:
		result.Items = nil
		for i := range m.pods {
			on := fields.Set{"spec.nodeName": m.pods[i].Spec.NodeName}
			if selected(&m.pods[i]) && (chosen.FieldSelector == nil || chosen.FieldSelector.Matches(on)) {
				result.Items = append(result.Items, *m.pods[i].DeepCopy())
			}
		}
	case *corev1.NamespaceList:
		result.Items = nil
		for i := range m.namespaces {
			if selected(&m.namespaces[i]) {
				result.Items = append(result.Items, *m.namespaces[i].DeepCopy())
			}
		}
	default:
		return fmt.Errorf("nobody was expected to list %T", list)
	}
	return nil
}
