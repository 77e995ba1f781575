package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache"
	resourceslicetracker "k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/klog/v2"
	configv1 "k8s.io/kube-scheduler/config/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
)

// schedulerOptions choose arguments of plug-ins; what is absent is the default profile's.
type schedulerOptions struct {
	DRA                   bool                          `json:"dra"`
	CSI                   bool                          `json:"csi"` // CSINode objects are looked up by name either way
	Cursor                int                           `json:"cursor"`
	AddedAffinity         *v1.NodeAffinity              `json:"added_affinity,omitempty"`
	DefaultConstraints    []v1.TopologySpreadConstraint `json:"default_constraints"`
	IgnoredResources      []string                      `json:"ignored_resources,omitempty"`
	IgnoredResourceGroups []string                      `json:"ignored_resource_groups,omitempty"`
	DisabledFilters       []string                      `json:"disabled_filters,omitempty"`
	Scores                *scoreOptions                 `json:"scores,omitempty"`
}

type scoreOptions struct {
	FitStrategy           string           `json:"fit_strategy"`
	FitResources          map[string]int64 `json:"fit_resources"`
	FitShape              [][2]int32       `json:"fit_shape"`
	BalancedResources     []string         `json:"balanced_resources"`
	HardPodAffinityWeight *int32           `json:"hard_pod_affinity_weight"`
	VolumeShape           [][2]int32       `json:"volume_shape"`
}

// currentSnapshot is the snapshot of the case at hand. Plug-ins keep a pointer to it.
type currentSnapshot struct {
	*internalcache.Snapshot
}

// scheduler is one profile with everything that its plug-ins look at.
type scheduler struct {
	framework framework.Framework
	plugins   map[string]fwk.Plugin
	informers *staticInformers
	snapshot  *currentSnapshot
	dra       *draManager
}

// draManager is upstream's, with the errors of the Cluster Autoscaler for claims and device classes that nobody finds.
// When device allocation is switched off there are none.
type draManager struct {
	*dynamicresources.DefaultDRAManager
	enabled bool
}

type claimTracker struct {
	fwk.ResourceClaimTracker
	enabled bool
}

func (t claimTracker) Get(namespace, name string) (*resourceapi.ResourceClaim, error) {
	if !t.enabled {
		return nil, errors.New("object not found: dra manager is disabled")
	}
	claim, err := t.ResourceClaimTracker.Get(namespace, name)
	if err != nil {
		return nil, fmt.Errorf("claim %s/%s not found", namespace, name)
	}
	return claim, nil
}

func (m *draManager) ResourceClaims() fwk.ResourceClaimTracker {
	return claimTracker{m.DefaultDRAManager.ResourceClaims(), m.enabled}
}

type deviceClasses struct {
	fwk.DeviceClassLister
}

// Get returns an error that is no "not found" of the API: plug-ins tell them apart.
func (c deviceClasses) Get(name string) (*resourceapi.DeviceClass, error) {
	class, err := c.DeviceClassLister.Get(name)
	if err != nil {
		return nil, fmt.Errorf("DeviceClass %q not found", name)
	}
	return class, nil
}

func (m *draManager) DeviceClasses() fwk.DeviceClassLister {
	return deviceClasses{m.DefaultDRAManager.DeviceClasses()}
}

const maxSchedulers = 64

var schedulers = map[string]*scheduler{}

// schedulerFor returns the scheduler with these arguments. A few are cached: building one takes milliseconds.
func schedulerFor(options schedulerOptions) (*scheduler, error) {
	named := options
	named.DRA, named.CSI, named.Cursor = false, false, 0
	key, err := json.Marshal(named)
	if err != nil {
		return nil, err
	}
	if existing, ok := schedulers[string(key)]; ok {
		return existing, nil
	}
	if len(schedulers) >= maxSchedulers {
		clear(schedulers)
	}
	created, err := newScheduler(options)
	if err != nil {
		return nil, err
	}
	schedulers[string(key)] = created
	return created, nil
}

func init() {
	metrics.Register()
}

func newScheduler(options schedulerOptions) (*scheduler, error) {
	ctx := context.Background()
	logger := klog.FromContext(ctx)
	created := &scheduler{
		plugins:   map[string]fwk.Plugin{},
		informers: newStaticInformers(),
		snapshot:  &currentSnapshot{internalcache.NewEmptySnapshot()},
	}
	factory := created.informers
	claims := assumecache.NewAssumeCache(logger, factory.byKind["ResourceClaim"], "ResourceClaim", "", nil)
	tracker, err := resourceslicetracker.StartTracker(ctx, resourceslicetracker.Options{
		EnableDeviceTaintRules: false, // no case has such a rule
		SliceInformer:          factory.Resource().V1().ResourceSlices(),
		KubeClient:             factory.client,
	})
	if err != nil {
		return nil, err
	}
	created.dra = &draManager{DefaultDRAManager: newDRAManager(ctx, claims, tracker, factory)}
	profile, err := newProfile(options)
	if err != nil {
		return nil, err
	}
	registry := plugins.NewInTreeRegistry()
	for name, factory := range registry {
		registry[name] = func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			plugin, err := factory(ctx, args, handle)
			created.plugins[name] = plugin
			return plugin, err
		}
	}
	stop := make(chan struct{})
	close(stop) // nobody reads durations
	created.framework, err = frameworkruntime.NewFramework(ctx, registry, profile, append(
		optionsOfMinor(factory, created.snapshot.Snapshot),
		frameworkruntime.WithClientSet(factory.client),
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSharedDRAManager(created.dra),
		frameworkruntime.WithSnapshotSharedLister(created.snapshot),
		frameworkruntime.WithParallelism(1),
		frameworkruntime.WithMetricsRecorder(metrics.NewMetricsAsyncRecorder(1, time.Hour, stop)),
	)...)
	return created, err
}

// newProfile returns the default profile with the given arguments.
func newProfile(options schedulerOptions) (*schedulerapi.KubeSchedulerProfile, error) {
	var versioned configv1.KubeSchedulerConfiguration
	scheme.Scheme.Default(&versioned)
	var configuration schedulerapi.KubeSchedulerConfiguration
	if err := scheme.Scheme.Convert(&versioned, &configuration, nil); err != nil {
		return nil, err
	}
	profile := &configuration.Profiles[0]
	for _, name := range options.DisabledFilters {
		profile.Plugins.Filter.Disabled = append(profile.Plugins.Filter.Disabled, schedulerapi.Plugin{Name: name})
	}
	for i := range profile.PluginConfig {
		switch args := profile.PluginConfig[i].Args.(type) {
		case *schedulerapi.NodeAffinityArgs:
			args.AddedAffinity = options.AddedAffinity
		case *schedulerapi.PodTopologySpreadArgs:
			if options.DefaultConstraints != nil {
				args.DefaultingType = schedulerapi.ListDefaulting
				args.DefaultConstraints = options.DefaultConstraints
			}
		case *schedulerapi.NodeResourcesFitArgs:
			args.IgnoredResources = options.IgnoredResources
			args.IgnoredResourceGroups = options.IgnoredResourceGroups
		}
		if options.Scores != nil {
			options.Scores.apply(profile.PluginConfig[i].Args)
		}
	}
	return profile, nil
}

func (o *scoreOptions) apply(args runtime.Object) {
	switch args := args.(type) {
	case *schedulerapi.NodeResourcesFitArgs:
		strategy := args.ScoringStrategy
		if o.FitStrategy != "" {
			strategy.Type = schedulerapi.ScoringStrategyType(o.FitStrategy)
		}
		if o.FitResources != nil {
			strategy.Resources = nil
			for name, weight := range o.FitResources {
				strategy.Resources = append(strategy.Resources, schedulerapi.ResourceSpec{Name: name, Weight: weight})
			}
		}
		if o.FitShape != nil {
			strategy.RequestedToCapacityRatio = &schedulerapi.RequestedToCapacityRatioParam{Shape: shape(o.FitShape)}
		}
	case *schedulerapi.NodeResourcesBalancedAllocationArgs:
		if o.BalancedResources != nil {
			args.Resources = nil
			for _, name := range o.BalancedResources {
				args.Resources = append(args.Resources, schedulerapi.ResourceSpec{Name: name, Weight: 1})
			}
		}
	case *schedulerapi.InterPodAffinityArgs:
		if o.HardPodAffinityWeight != nil {
			args.HardPodAffinityWeight = *o.HardPodAffinityWeight
		}
	case *schedulerapi.VolumeBindingArgs:
		if o.VolumeShape != nil {
			args.Shape = shape(o.VolumeShape)
		}
	}
}

func shape(points [][2]int32) []schedulerapi.UtilizationShapePoint {
	result := make([]schedulerapi.UtilizationShapePoint, len(points))
	for i, point := range points {
		result[i] = schedulerapi.UtilizationShapePoint{Utilization: point[0], Score: point[1]}
	}
	return result
}

// cluster is what a case lists.
type cluster struct {
	scheduler *scheduler
	nodes     []fwk.NodeInfo // in the order of the case
}

type schedulerQuestion struct {
	Objects []json.RawMessage `json:"objects"`
	Pod     *v1.Pod           `json:"pod"`
	Options schedulerOptions  `json:"options"`
}

// newCluster puts the objects of a case where plug-ins look for them.
func newCluster(question *schedulerQuestion) (*cluster, error) {
	scheduler, err := schedulerFor(question.Options)
	if err != nil {
		return nil, err
	}
	byKind := map[string][]runtime.Object{}
	for i, raw := range question.Objects {
		var meta struct {
			Kind string `json:"kind"`
		}
		if err := json.Unmarshal(raw, &meta); err != nil {
			return nil, err
		}
		empty, ok := informed[meta.Kind]
		if !ok {
			return nil, fmt.Errorf("objects[%d]: nobody looks at a %s", i, meta.Kind)
		}
		object := empty()
		if err := json.Unmarshal(raw, object); err != nil {
			return nil, fmt.Errorf("objects[%d]: %w", i, err)
		}
		byKind[meta.Kind] = append(byKind[meta.Kind], object)
	}
	if !question.Options.DRA {
		delete(byKind, "ResourceClaim")
		delete(byKind, "ResourceSlice")
		delete(byKind, "DeviceClass")
	}
	scheduler.dra.enabled = question.Options.DRA
	var nodes []*v1.Node
	listed := map[string]bool{}
	for _, object := range byKind["Node"] {
		node := object.(*v1.Node)
		nodes = append(nodes, node)
		listed[node.Name] = true
	}
	var pods []*v1.Pod
	for _, object := range byKind["Pod"] {
		pod := object.(*v1.Pod)
		if pod.Spec.NodeName == "" {
			pod.Spec.NodeName = pod.Status.NominatedNodeName
		}
		if listed[pod.Spec.NodeName] {
			pods = append(pods, pod)
		}
	}
	if err := scheduler.informers.replace(byKind); err != nil {
		return nil, err
	}
	if scheduler.snapshot.Snapshot, err = newSnapshot(pods, nodes); err != nil {
		return nil, err
	}
	result := &cluster{scheduler: scheduler}
	for _, node := range nodes {
		info, err := scheduler.snapshot.NodeInfos().Get(node.Name)
		if err != nil {
			return nil, err
		}
		result.nodes = append(result.nodes, info)
	}
	return result, nil
}

// extendedResources tells whether extended resources can be devices.
func extendedResources() bool {
	return utilfeature.DefaultFeatureGate.Enabled(features.DRAExtendedResource)
}

// newSnapshot returns the snapshot of kube-scheduler's cache after these nodes and pods have come in this order.
func newSnapshot(pods []*v1.Pod, nodes []*v1.Node) (*internalcache.Snapshot, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	logger := klog.FromContext(ctx)
	state := newCache(ctx)
	for _, node := range nodes {
		state.AddNode(logger, node)
	}
	for _, pod := range pods {
		if pod.UID == "" {
			pod.UID = types.UID(pod.Namespace + "/" + pod.Name) // the cache knows pods by it
		}
		if err := state.AddPod(logger, pod); err != nil {
			return nil, err
		}
	}
	snapshot := internalcache.NewEmptySnapshot()
	return snapshot, state.UpdateSnapshot(logger, snapshot)
}

// newDRAManager returns upstream's manager of claims, which learns of device classes from events.
func newDRAManager(ctx context.Context, claims *assumecache.AssumeCache, tracker *resourceslicetracker.Tracker, factory *staticInformers) *dynamicresources.DefaultDRAManager {
	manager := dynamicresources.NewDRAManager(ctx, claims, tracker, factory)
	if extendedResources() {
		if resolver, ok := manager.DeviceClassResolver().(*extendedresourcecache.ExtendedResourceCache); ok {
			_, _ = factory.byKind["DeviceClass"].AddEventHandler(cache.ResourceEventHandler(resolver))
		}
	}
	return manager
}
