package main

import (
	"context"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache"
	resourceslicetracker "k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/kubernetes/pkg/features"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
)

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

// optionsOfMinor are options that not every minor version has.
func optionsOfMinor(factory *staticInformers, snapshot *internalcache.Snapshot) []frameworkruntime.Option {
	csi := nodevolumelimits.NewCSIManager(factory.Storage().V1().CSINodes().Lister())
	return []frameworkruntime.Option{
		frameworkruntime.WithSharedCSIManager(csi),
		frameworkruntime.WithMutableSnapshotLister(snapshot),
	}
}

// newCache returns an empty cache of kube-scheduler.
func newCache(ctx context.Context) internalcache.Cache {
	workload := utilfeature.DefaultFeatureGate.Enabled(features.GenericWorkload)
	composite := utilfeature.DefaultFeatureGate.Enabled(features.CompositePodGroup)
	return internalcache.New(ctx, nil, workload, composite)
}
