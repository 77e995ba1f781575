package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/samber/lo"
	"go.uber.org/multierr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock/testing"
	"kscale.dev/oracle/harness"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	requirements "sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/daemonset"
	"sigs.k8s.io/karpenter/pkg/utils/nodepool"
	"sigs.k8s.io/karpenter/pkg/utils/resources"
)

// awsLabels are the labels that the provider for AWS registers and that a catalogue knows.
var awsLabels = []string{"category", "family", "generation", "size", "cpu", "memory", "gpu-count", "gpu-name"}

func init() {
	for _, name := range awsLabels {
		v1.WellKnownLabels.Insert("karpenter.k8s.aws/instance-" + name)
	}
	harness.Register("karpenter", func(input json.RawMessage) (any, error) {
		var asked question
		if err := harness.DecodeStrictly(input, &asked); err != nil {
			return nil, err
		}
		return asked.answer()
	})
}

type question struct {
	Zones   []string          `json:"zones"`
	Types   []instanceType    `json:"types"`
	Pools   []v1.NodePool     `json:"pools"`
	Objects []json.RawMessage `json:"objects"`
}

// instanceType is a type that every NodePool may launch in all zones. Spot is absent for types without spot capacity.
type instanceType struct {
	Name        string              `json:"name"`
	Arch        string              `json:"arch"`
	Labels      map[string]string   `json:"labels"`
	Absent      []string            `json:"absent"`
	Capacity    corev1.ResourceList `json:"capacity"`
	Allocatable corev1.ResourceList `json:"allocatable"`
	Price       float64             `json:"price"`
	Spot        *float64            `json:"spot"`
}

type answer struct {
	// Skipped are the NodePools that none of the types suits; of Filtered, the types cannot meet minValues.
	Skipped  []string            `json:"skipped"`
	Filtered []string            `json:"filtered"`
	Existing map[string]string   `json:"existing"`
	Claims   []claim             `json:"claims"`
	Errors   map[string][]string `json:"errors"`
}

type claim struct {
	Pool         string                 `json:"pool"`
	Pods         []string               `json:"pods"`
	Types        []string               `json:"types"`
	Requirements map[string]requirement `json:"requirements"`
	CapacityType string                 `json:"capacity_type"`
	Offerings    []offering             `json:"offerings"`
}

type requirement struct {
	Complement bool     `json:"complement"`
	Values     []string `json:"values"`
	Least      *string  `json:"least"`
	Most       *string  `json:"most"`
	MinValues  *int     `json:"min_values"`
}

type offering struct {
	Type  string  `json:"type"`
	Zone  string  `json:"zone"`
	Price float64 `json:"price"`
}

type recorder struct{ skipped, filtered []string }

func (r *recorder) Publish(published ...events.Event) {
	for _, each := range published {
		pool, ok := each.InvolvedObject.(*v1.NodePool)
		switch {
		case ok && strings.Contains(each.Message, "minValues"):
			r.filtered = append(r.filtered, pool.Name)
		case ok:
			r.skipped = append(r.skipped, pool.Name)
		}
	}
}

func (t instanceType) build(zones []string) *cloudprovider.InstanceType {
	capacityTypes := []string{v1.CapacityTypeOnDemand}
	if t.Spot != nil {
		capacityTypes = append(capacityTypes, v1.CapacityTypeSpot)
	}
	of := requirements.NewRequirements(
		requirements.NewRequirement(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, t.Name),
		requirements.NewRequirement(corev1.LabelArchStable, corev1.NodeSelectorOpIn, t.Arch),
		requirements.NewRequirement(corev1.LabelOSStable, corev1.NodeSelectorOpIn, "linux"),
		requirements.NewRequirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, zones...),
		requirements.NewRequirement(v1.CapacityTypeLabelKey, corev1.NodeSelectorOpIn, capacityTypes...),
	)
	for key, value := range t.Labels {
		of.Add(requirements.NewRequirement(key, corev1.NodeSelectorOpIn, value))
	}
	for _, key := range t.Absent {
		of.Add(requirements.NewRequirement(key, corev1.NodeSelectorOpDoesNotExist))
	}
	var offerings cloudprovider.Offerings
	for _, zone := range zones {
		for _, capacityType := range capacityTypes {
			price := t.Price
			if capacityType == v1.CapacityTypeSpot {
				price = *t.Spot
			}
			offerings = append(offerings, &cloudprovider.Offering{
				Requirements: requirements.NewLabelRequirements(map[string]string{
					corev1.LabelTopologyZone: zone,
					v1.CapacityTypeLabelKey:  capacityType,
				}),
				Price:     price,
				Available: true,
			})
		}
	}
	overhead := resources.Subtract(t.Capacity, t.Allocatable)
	return &cloudprovider.InstanceType{
		Name:         t.Name,
		Requirements: of,
		Offerings:    offerings,
		Capacity:     t.Capacity,
		Overhead:     &cloudprovider.InstanceTypeOverhead{KubeReserved: overhead},
	}
}

func (q question) answer() (answer, error) {
	now := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	watch := testing.NewFakeClock(now)
	stored := &memory{}
	var pending []*corev1.Pod
	var daemons []*corev1.Pod
	for _, raw := range q.Objects {
		var kind struct {
			Kind string `json:"kind"`
		}
		if err := json.Unmarshal(raw, &kind); err != nil {
			return answer{}, err
		}
		var err error
		switch kind.Kind {
		case "Node":
			var node corev1.Node
			err = json.Unmarshal(raw, &node)
			node.Spec.ProviderID = "fake://" + node.Name
			stored.nodes = append(stored.nodes, node)
		case "Pod":
			var pod corev1.Pod
			err = json.Unmarshal(raw, &pod)
			if pod.Spec.NodeName == "" {
				pending = append(pending, &pod)
			}
			stored.pods = append(stored.pods, pod)
		case "Namespace":
			var namespace corev1.Namespace
			err = json.Unmarshal(raw, &namespace)
			stored.namespaces = append(stored.namespaces, namespace)
		case "DaemonSet":
			var set appsv1.DaemonSet
			err = json.Unmarshal(raw, &set)
			daemons = append(daemons, daemonset.PodForDaemonSet(&set))
		default:
			err = fmt.Errorf("objects of the kind %q are not expected", kind.Kind)
		}
		if err != nil {
			return answer{}, err
		}
	}
	ctx := options.ToContext(context.Background(), &options.Options{
		PreferencePolicy:  options.PreferencePolicyRespect,
		MinValuesPolicy:   options.MinValuesPolicyStrict,
		IgnoreDRARequests: true,
		FeatureGates:      options.FeatureGates{ReservedCapacity: true},
	})
	cluster := state.NewCluster(watch, stored, fake.NewCloudProvider())
	for i := range stored.nodes {
		if err := cluster.UpdateNode(ctx, &stored.nodes[i]); err != nil {
			return answer{}, err
		}
	}
	for i := range stored.pods {
		if stored.pods[i].Spec.NodeName != "" {
			if err := cluster.UpdatePod(ctx, &stored.pods[i]); err != nil {
				return answer{}, err
			}
		}
	}
	pools := lo.Map(q.Pools, func(pool v1.NodePool, _ int) *v1.NodePool { return &pool })
	nodepool.OrderByWeight(pools)
	instanceTypes := map[string][]*cloudprovider.InstanceType{}
	for _, pool := range pools {
		instanceTypes[pool.Name] = lo.Map(q.Types, func(each instanceType, _ int) *cloudprovider.InstanceType { return each.build(q.Zones) })
	}
	nodes := cluster.DeepCopyNodes().Active()
	topology, err := scheduling.NewTopology(ctx, stored, cluster, nodes, pools, instanceTypes, pending)
	if err != nil {
		return answer{}, err
	}
	published := &recorder{}
	scheduler := scheduling.NewScheduler(ctx, stored, pools, cluster, nodes, topology, instanceTypes, daemons, published, watch,
		map[types.UID][]requirements.Requirements{}, nil, scheduling.DisableReservedCapacityFallback,
		scheduling.MinValuesPolicy(options.MinValuesPolicyStrict))
	results, err := scheduler.Solve(ctx, pending)
	if err != nil {
		return answer{}, err
	}
	return describe(results, published), nil
}

func describe(results scheduling.Results, published *recorder) answer {
	sort.Strings(published.skipped)
	result := answer{
		Skipped:  append([]string{}, published.skipped...),
		Filtered: append([]string{}, published.filtered...),
		Existing: map[string]string{},
		Claims:   []claim{},
		Errors:   map[string][]string{},
	}
	for _, node := range results.ExistingNodes {
		for _, pod := range node.Pods {
			result.Existing[nameOf(pod)] = node.Name()
		}
	}
	for _, each := range results.NewNodeClaims {
		result.Claims = append(result.Claims, describeClaim(each))
	}
	sort.SliceStable(result.Claims, func(i, j int) bool { return result.Claims[i].Pods[0] < result.Claims[j].Pods[0] })
	for pod, err := range results.PodErrors {
		result.Errors[nameOf(pod)] = lo.Map(multierr.Errors(err), func(each error, _ int) string { return classify(each) })
	}
	return result
}

func nameOf(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

// classify returns what an error of a NodePool is about.
func classify(err error) string {
	text := err.Error()
	for _, each := range []struct{ begin, class string }{
		{"did not tolerate taint", "taints"},
		{"incompatible requirements", "requirements"},
		{"unsatisfiable topology constraint", "topology"},
		{"node limits have been exhausted", "limits"},
		{"all available instance types exceed limits", "limits"},
		{"minValues requirement is not met", "minValues"},
		{"no instance type", "types"},
		{"nodepool requirements filtered out", "no NodePool"},
	} {
		if strings.HasPrefix(text, each.begin) {
			return each.class
		}
	}
	if strings.HasPrefix(text, "key ") || strings.HasPrefix(text, "label ") {
		return "topology" // two topologies that leave different domains
	}
	return text
}

func describeClaim(each *scheduling.NodeClaim) claim {
	result := claim{Pool: each.NodePoolName, Requirements: map[string]requirement{}, Offerings: []offering{}}
	result.Pods = lo.Map(each.Pods, func(pod *corev1.Pod, _ int) string { return nameOf(pod) })
	for key, of := range each.Requirements {
		if key == v1.NodeRegisteredLabelKey || key == v1.NodeInitializedLabelKey {
			continue
		}
		result.Requirements[key] = describeRequirement(of)
	}
	// WorstLaunchPrice takes reserved offerings before those of spot, and those before on-demand ones.
	all := cloudprovider.Offerings{}
	for _, it := range each.InstanceTypeOptions {
		all = append(all, it.Offerings.Available().Compatible(each.Requirements)...)
		result.Types = append(result.Types, it.Name)
	}
	sort.Strings(result.Types)
	for _, capacityType := range []string{v1.CapacityTypeReserved, v1.CapacityTypeSpot, v1.CapacityTypeOnDemand} {
		if lo.ContainsBy(all, func(of *cloudprovider.Offering) bool { return of.CapacityType() == capacityType }) {
			result.CapacityType = capacityType
			break
		}
	}
	for _, it := range each.InstanceTypeOptions {
		for _, of := range it.Offerings.Available().Compatible(each.Requirements) {
			if of.CapacityType() == result.CapacityType {
				result.Offerings = append(result.Offerings, offering{Type: it.Name, Zone: of.Zone(), Price: of.Price})
			}
		}
	}
	sort.Slice(result.Offerings, func(i, j int) bool {
		a, b := result.Offerings[i], result.Offerings[j]
		if a.Price != b.Price {
			return a.Price < b.Price
		}
		return a.Type < b.Type || (a.Type == b.Type && a.Zone < b.Zone)
	})
	return result
}

func describeRequirement(of *requirements.Requirement) requirement {
	result := requirement{Values: []string{}, MinValues: of.MinValues}
	operator := of.Operator()
	result.Complement = operator == corev1.NodeSelectorOpNotIn || operator == corev1.NodeSelectorOpExists
	result.Values = append(result.Values, of.Values()...)
	sort.Strings(result.Values)
	single := requirements.NewRequirements(of)
	for _, each := range single.NodeSelectorRequirements() {
		switch each.Operator {
		case v1.NodeSelectorOpGte:
			result.Least = &each.Values[0]
		case v1.NodeSelectorOpLte:
			result.Most = &each.Values[0]
		}
	}
	return result
}
