package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
)

func init() {
	register("fit", answerFit)
	register("scores", answerScores)
}

type failure struct {
	Plugin  string   `json:"plugin"`
	Code    string   `json:"code"`
	Reasons []string `json:"reasons"`
}

type nodeSet struct {
	Plugin string   `json:"plugin"`
	Nodes  []string `json:"nodes"`
}

type prefilterReport struct {
	Skipped  []string  `json:"skipped"`
	Failures []failure `json:"failures,omitempty"`
	NodeSets []nodeSet `json:"node_sets,omitempty"`
}

type rejection struct {
	Type       string   `json:"type"`
	Plugin     string   `json:"plugin"`
	Reasons    []string `json:"reasons"`
	Unexpected string   `json:"unexpected"`
	Message    string   `json:"message"`
}

type nodeVerdict struct {
	OK bool `json:"ok"`
	*rejection
	All []failure `json:"all"`
}

type anyNodeVerdict struct {
	OK   bool   `json:"ok"`
	Node string `json:"node,omitempty"`
	*rejection
}

type fitAnswer struct {
	Nodes     map[string]nodeVerdict `json:"nodes"`
	PreFilter prefilterReport        `json:"prefilter"`
	AnyNode   any                    `json:"any_node"`
}

// answerFit tells of every node whether a pod fits, which Filter plug-in refuses it first, and which do.
func answerFit(input json.RawMessage) (any, error) {
	var question schedulerQuestion
	if err := json.Unmarshal(input, &question); err != nil {
		return nil, err
	}
	cluster, err := newCluster(&question)
	if err != nil {
		return nil, err
	}
	answer := fitAnswer{Nodes: map[string]nodeVerdict{}}
	own := newOwnRun(cluster, question.Pod)
	answer.PreFilter = own.report
	check := newCheck(cluster, question.Pod)
	for _, node := range cluster.nodes {
		verdict := nodeVerdict{rejection: check.refuse(node), All: own.failing(node)}
		verdict.OK = verdict.rejection == nil
		answer.Nodes[node.Node().Name] = verdict
	}
	answer.AnyNode = check.anyNode(answer.Nodes, question.Options.Cursor)
	return answer, nil
}

// check is what the Cluster Autoscaler asks of a framework for one pod: its texts are part of recorded answers.
type check struct {
	cluster *cluster
	pod     *v1.Pod
	state   fwk.CycleState
	status  *fwk.Status
	nodes   *fwk.PreFilterResult
	setBy   []string
}

func newCheck(cluster *cluster, pod *v1.Pod) *check {
	result := &check{cluster: cluster, pod: pod, state: framework.NewCycleState()}
	nodes, status, plugins := cluster.scheduler.framework.RunPreFilterPlugins(context.Background(), result.state, pod)
	result.nodes, result.status, result.setBy = nodes, status, plugins.UnsortedList()
	sort.Strings(result.setBy)
	return result
}

// failedEverywhere is the answer of PreFilter plug-ins that refuse the pod, or nil.
func (c *check) failedEverywhere() *rejection {
	if c.status.IsSuccess() {
		return nil
	}
	return c.reject(c.status.Plugin(), c.status.Reasons(), "PreFilter failed")
}

// refuse returns why the pod cannot be on a node, or nil.
func (c *check) refuse(node fwk.NodeInfo) *rejection {
	if failed := c.failedEverywhere(); failed != nil {
		return failed
	}
	if !c.nodes.AllNodes() && !c.nodes.NodeNames.Has(node.Node().Name) {
		return c.reject(strings.Join(c.setBy, ", "), nil, "PreFilter filtered the Node out")
	}
	status := c.cluster.scheduler.framework.RunFilterPlugins(context.Background(), c.state, c.pod, node)
	if status.IsSuccess() {
		return nil
	}
	unexpected := ""
	if !status.IsRejected() {
		unexpected = fmt.Sprintf("unexpected filter status %q", status.Code().String())
	}
	return c.reject(status.Plugin(), reasonsOf(status.Plugin(), status), unexpected)
}

func (c *check) reject(plugin string, reasons []string, unexpected string) *rejection {
	if reasons == nil {
		reasons = []string{}
	}
	message := fmt.Sprintf("%s: predicate %q didn't pass (predicateReasons=[%s]", c.prefix(), plugin, strings.Join(reasons, ", "))
	if strings.HasPrefix(unexpected, "PreFilter") {
		message += "; unexpectedError=" + unexpected + ")"
	} // else debug information follows, which is not compared
	return &rejection{
		Type: "FailingPredicateError", Plugin: plugin, Reasons: reasons, Unexpected: unexpected, Message: message,
	}
}

func (c *check) prefix() string {
	return fmt.Sprintf("can't schedule pod %s/%s", c.pod.Namespace, c.pod.Name)
}

// anyNode finds the first node behind the cursor that takes the pod. Unschedulable nodes are not tried.
func (c *check) anyNode(verdicts map[string]nodeVerdict, cursor int) any {
	if failed := c.failedEverywhere(); failed != nil {
		return anyNodeVerdict{rejection: failed}
	}
	count := len(c.cluster.nodes)
	for i := range count {
		node := c.cluster.nodes[(cursor+1+i)%count].Node()
		if !node.Spec.Unschedulable && verdicts[node.Name].OK {
			return anyNodeVerdict{OK: true, Node: node.Name}
		}
	}
	message := c.prefix() + ": couldn't find a matching Node with passing predicates"
	return map[string]any{"ok": false, "type": "NoNodesPassingPredicatesFoundError", "message": message}
}

// ownRun runs every plug-in on its own: an earlier failure stops nobody.
type ownRun struct {
	cluster *cluster
	pod     *v1.Pod
	state   fwk.CycleState
	report  prefilterReport
	silent  map[string]bool // plug-ins whose PreFilter skipped or failed
}

func newOwnRun(cluster *cluster, pod *v1.Pod) *ownRun {
	run := &ownRun{cluster: cluster, pod: pod, state: framework.NewCycleState(), silent: map[string]bool{}}
	run.report.Skipped = []string{}
	infos, _ := cluster.scheduler.snapshot.NodeInfos().List()
	for _, enabled := range cluster.scheduler.framework.ListPlugins().PreFilter.Enabled {
		plugin, ok := cluster.scheduler.plugins[enabled.Name].(fwk.PreFilterPlugin)
		if !ok {
			continue
		}
		nodes, status := plugin.PreFilter(context.Background(), run.state, pod, infos)
		switch {
		case status.IsSkip():
			run.report.Skipped = append(run.report.Skipped, enabled.Name)
			run.silent[enabled.Name] = true
		case !status.IsSuccess():
			failed := failure{enabled.Name, status.Code().String(), reasonsOf(enabled.Name, status)}
			run.report.Failures = append(run.report.Failures, failed)
			run.silent[enabled.Name] = true
		case !nodes.AllNodes():
			names := nodes.NodeNames.UnsortedList()
			sort.Strings(names)
			run.report.NodeSets = append(run.report.NodeSets, nodeSet{enabled.Name, names})
		}
	}
	sort.Strings(run.report.Skipped)
	return run
}

// failing returns all Filter plug-ins that refuse the pod on a node.
func (r *ownRun) failing(node fwk.NodeInfo) []failure {
	result := []failure{}
	for _, enabled := range r.cluster.scheduler.framework.ListPlugins().Filter.Enabled {
		if r.silent[enabled.Name] {
			continue
		}
		plugin := r.cluster.scheduler.plugins[enabled.Name].(fwk.FilterPlugin)
		status := plugin.Filter(context.Background(), r.state, r.pod, node)
		if !status.IsSuccess() {
			result = append(result, failure{enabled.Name, status.Code().String(), reasonsOf(enabled.Name, status)})
		}
	}
	return result
}

// reasonsOf returns the reasons of a status. NodeResourcesFit names scalar resources in the order of a Go map, which is
// random: here they are sorted behind the fixed head.
func reasonsOf(plugin string, status *fwk.Status) []string {
	reasons := slices.Clone(status.Reasons())
	if reasons == nil {
		reasons = []string{}
	}
	if plugin != names.NodeResourcesFit {
		return reasons
	}
	head := []string{"Too many pods", "Insufficient cpu", "Insufficient memory", "Insufficient ephemeral-storage"}
	sort.SliceStable(reasons, func(i, j int) bool {
		first, second := slices.Index(head, reasons[i]), slices.Index(head, reasons[j])
		if first < 0 && second < 0 {
			return reasons[i] < reasons[j]
		}
		return first >= 0 && (second < 0 || first < second)
	})
	return reasons
}

type scoresAnswer struct {
	Error    string             `json:"error"`
	Nodes    []string           `json:"nodes"`
	ByPlugin map[string][]int64 `json:"by_plugin"`
	Total    []int64            `json:"total"`
}

// answerScores tells what each Score plug-in gives the nodes on which a pod fits, before weights, and the weighted sum.
func answerScores(input json.RawMessage) (any, error) {
	var question schedulerQuestion
	if err := json.Unmarshal(input, &question); err != nil {
		return nil, err
	}
	cluster, err := newCluster(&question)
	if err != nil {
		return nil, err
	}
	check := newCheck(cluster, question.Pod)
	answer := scoresAnswer{Nodes: []string{}, ByPlugin: map[string][]int64{}, Total: []int64{}}
	var feasible []fwk.NodeInfo
	for _, node := range cluster.nodes {
		if check.refuse(node) == nil {
			feasible = append(feasible, node)
			answer.Nodes = append(answer.Nodes, node.Node().Name)
		}
	}
	if len(feasible) == 0 {
		return answer, nil
	}
	scheduler := cluster.scheduler.framework
	ctx := context.Background()
	if status := scheduler.RunPreScorePlugins(ctx, check.state, question.Pod, feasible); !status.IsSuccess() {
		answer.Error = status.Message()
		return answer, nil
	}
	scored, status := scheduler.RunScorePlugins(ctx, check.state, question.Pod, feasible)
	if !status.IsSuccess() {
		answer.Error = status.Message()
		return answer, nil
	}
	weights := map[string]int64{}
	for _, enabled := range scheduler.ListPlugins().Score.Enabled {
		weights[enabled.Name] = int64(enabled.Weight)
	}
	for _, node := range scored {
		for _, score := range node.Scores {
			answer.ByPlugin[score.Name] = append(answer.ByPlugin[score.Name], score.Score/weights[score.Name])
		}
		answer.Total = append(answer.Total, node.TotalScore)
	}
	return answer, nil
}
