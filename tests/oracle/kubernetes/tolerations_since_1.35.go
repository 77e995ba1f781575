//go:build !kubernetes1.34

package main

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
)

// untoleratedTaint calls upstream.
func untoleratedTaint(
	taints []v1.Taint, tolerations []v1.Toleration, filter func(*v1.Taint) bool, comparisonOperators bool,
) (v1.Taint, bool) {
	return corev1.FindMatchingUntoleratedTaint(klog.Logger{}, taints, tolerations, filter, comparisonOperators)
}
