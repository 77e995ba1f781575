package main

import (
	"encoding/json"
	"sort"

	corev1 "k8s.io/api/core/v1"
	"kscale.dev/oracle/harness"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	requirements "sigs.k8s.io/karpenter/pkg/scheduling"
)

func init() {
	harness.Register("karpenter-requirements", func(input json.RawMessage) (any, error) {
		var asked struct {
			First  []v1.NodeSelectorRequirementWithMinValues `json:"first"`
			Second []v1.NodeSelectorRequirementWithMinValues `json:"second"`
			Values []string                                  `json:"values"`
		}
		if err := harness.DecodeStrictly(input, &asked); err != nil {
			return nil, err
		}
		first := requirements.NewNodeSelectorRequirementsWithMinValues(asked.First...)
		second := requirements.NewNodeSelectorRequirementsWithMinValues(asked.Second...)
		both := requirements.NewRequirements(first.Values()...)
		both.Add(second.Values()...)
		result := map[string]any{
			"intersects":            first.Intersects(second) == nil,
			"compatible":            first.IsCompatible(second),
			"compatible_well_known": first.IsCompatible(second, requirements.AllowUndefinedWellKnownLabels),
		}
		combined := map[string]requirement{}
		operators := map[string]corev1.NodeSelectorOperator{}
		allowed := map[string][]string{}
		for key, each := range both {
			combined[key] = describeRequirement(each)
			operators[key] = each.Operator()
			allowed[key] = []string{}
			for _, value := range asked.Values {
				if each.Has(value) {
					allowed[key] = append(allowed[key], value)
				}
			}
			sort.Strings(allowed[key])
		}
		result["combined"], result["operators"], result["allowed"] = combined, operators, allowed
		return result, nil
	})
}
