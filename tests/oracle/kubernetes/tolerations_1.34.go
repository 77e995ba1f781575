//go:build kubernetes1.34

package main

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1"
)

// untoleratedTaint calls upstream. 1.34 has no operators that compare numbers, and gives them no meaning.
func untoleratedTaint(
	taints []v1.Taint, tolerations []v1.Toleration, filter func(*v1.Taint) bool, _ bool,
) (v1.Taint, bool) {
	return corev1.FindMatchingUntoleratedTaint(taints, tolerations, filter)
}
