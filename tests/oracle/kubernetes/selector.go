package main

import (
	"encoding/json"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"kscale.dev/oracle/harness"
)

func init() {
	harness.Register("label-selector", answerLabelSelector)
	harness.Register("selector-text", answerSelectorText)
	harness.Register("node-selector", answerNodeSelector)
	harness.Register("tolerations", answerTolerations)
}

type labelSelectorQuestion struct {
	Selector *metav1.LabelSelector `json:"selector"`
	Labels   []map[string]string   `json:"labels"`
}

// answerLabelSelector tells which sets of labels a LabelSelector selects.
func answerLabelSelector(input json.RawMessage) (any, error) {
	var question labelSelectorQuestion
	if err := harness.DecodeStrictly(input, &question); err != nil {
		return nil, err
	}
	selector, err := metav1.LabelSelectorAsSelector(question.Selector)
	if err != nil {
		return refusal(err), nil
	}
	return describeSelector(selector, question.Labels), nil
}

type selectorTextQuestion struct {
	Text   string              `json:"text"`
	Labels []map[string]string `json:"labels"`
}

// answerSelectorText does the same for a selector written as text.
func answerSelectorText(input json.RawMessage) (any, error) {
	var question selectorTextQuestion
	if err := harness.DecodeStrictly(input, &question); err != nil {
		return nil, err
	}
	selector, err := labels.Parse(question.Text)
	if err != nil {
		return refusal(err), nil
	}
	return describeSelector(selector, question.Labels), nil
}

func describeSelector(selector labels.Selector, sets []map[string]string) map[string]any {
	matches := make([]bool, len(sets))
	for i, set := range sets {
		matches[i] = selector.Matches(labels.Set(set))
	}
	return map[string]any{"error": nil, "text": selector.String(), "empty": selector.Empty(), "matches": matches}
}

type nodeSelectorQuestion struct {
	Selector v1.NodeSelector `json:"selector"`
	Nodes    []struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
	} `json:"nodes"`
}

type nodeMatch struct {
	OK    bool    `json:"ok"`
	Error *string `json:"error"`
}

// answerNodeSelector tells which nodes a NodeSelector selects, and what is wrong with terms that cannot be parsed. An
// error is reported for nodes that no other term selects.
func answerNodeSelector(input json.RawMessage) (any, error) {
	var question nodeSelectorQuestion
	if err := harness.DecodeStrictly(input, &question); err != nil {
		return nil, err
	}
	selector := nodeaffinity.NewLazyErrorNodeSelector(&question.Selector)
	matches := make([]nodeMatch, len(question.Nodes))
	for i, asked := range question.Nodes {
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: asked.Name, Labels: asked.Labels}}
		ok, err := selector.Match(node)
		matches[i].OK = ok
		if err != nil {
			text := err.Error()
			matches[i].Error = &text
		}
	}
	return map[string]any{"nodes": matches}, nil
}

type tolerationsQuestion struct {
	Taints              []v1.Taint       `json:"taints"`
	Tolerations         []v1.Toleration  `json:"tolerations"`
	Effects             []v1.TaintEffect `json:"effects"`
	ComparisonOperators bool             `json:"comparison_operators"`
}

// answerTolerations returns the first taint with one of the effects that no toleration covers.
func answerTolerations(input json.RawMessage) (any, error) {
	var question tolerationsQuestion
	if err := harness.DecodeStrictly(input, &question); err != nil {
		return nil, err
	}
	filter := func(taint *v1.Taint) bool { return slices.Contains(question.Effects, taint.Effect) }
	taint, found := untoleratedTaint(question.Taints, question.Tolerations, filter, question.ComparisonOperators)
	if !found {
		return map[string]any{"untolerated": nil}, nil
	}
	return map[string]any{"untolerated": taint}, nil
}
